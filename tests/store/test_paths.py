from __future__ import annotations

from pathlib import Path

import pytest

from calibudget.errors import InputError
from calibudget.store.files import confined
from calibudget.values import check_labels


def test_paths_below_the_root_are_given_back(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for relative in ["a", "a/b.json", "./a", "a..b", "ünï", "a b"]:
        with subtests.test(relative=relative):
            assert confined(tmp_path, relative) == tmp_path / relative


def test_paths_that_could_leave_the_root_are_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for relative in [
        "",
        "/etc/passwd",
        "..",
        "a/../../b",
        "a/..",
        "..\\b",
        "C:\\x",
        "C:x",
        "\\\\host\\share",
        "\\x",
        "a\0b",
    ]:
        with subtests.test(relative=relative), pytest.raises(InputError, match="below"):
            confined(tmp_path, relative)


def test_a_link_out_of_the_root_is_refused_unless_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "in").symlink_to(root)
    with pytest.raises(InputError, match="symbolic link"):
        confined(root, "out/x")
    assert confined(root, "in/x") == root / "in" / "x"
    assert confined(root, "out/x", follow_symlinks=True) == root / "out" / "x"
    with pytest.raises(InputError):
        confined(root, "../x", follow_symlinks=True)


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for root, relative in ((tmp_path, "round"), (tmp_path, "round/x"), (tmp_path / "round", "x")):
        with pytest.raises(InputError, match="can't be followed"):
            confined(root, relative)


def test_labels_that_cant_name_a_file_or_a_row_are_refused(subtests: pytest.Subtests) -> None:
    for label in [
        "",
        " a",
        "a ",
        ".a",
        "a/b",
        "a\\b",
        "a..b",
        "..",
        "a\nb",
        "a\tb",
        "a\0b",
        "a\u200bb",
        "a\u202eb",
        "\ud800",
    ]:
        with subtests.test(label=label), pytest.raises(ValueError, match="the source label"):
            check_labels(["fine", label])


def test_labels_that_windows_cant_hold_are_refused(subtests: pytest.Subtests) -> None:
    for label in ["CON", "nul.txt", "Com1", "lpt9.x", "a:b", "a.", "AUX", "COM\u00b9"]:
        with subtests.test(label=label):
            with pytest.raises(ValueError, match="Windows"):
                check_labels([label])
            check_labels(["xcon", "console", "com", "lpt10", "a.b"])


def test_labels_with_characters_that_nobody_sees_are_refused(subtests: pytest.Subtests) -> None:
    for character in "\u3164\u115f\u1160\u2800\u034f\ufe0f\ufe00\uffa0\u17b4\u180b\u00ad\u2065\U000e0100":
        with subtests.test(character=character), pytest.raises(ValueError, match="invisible"):
            check_labels([f"a{character}b"])


def test_labels_that_only_case_or_form_parts_are_refused_together(subtests: pytest.Subtests) -> None:
    for one, other in [("BoolQ", "boolq"), ("é", "e\u0301"), ("straße", "STRASSE"), ("a", "a"), ("É", "e\u0301")]:
        with subtests.test(one=one):
            check_labels([one])
            check_labels([other])
            with pytest.raises(ValueError, match="differ only by case or Unicode form"):
                check_labels([one, "between", other])
