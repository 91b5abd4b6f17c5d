from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calibudget.errors import DataError, InputError, RecipeError
from calibudget.sources.files import check_distinct_files, find_files
from calibudget.sources.spec import SourceSpec

Write = Callable[..., Path]
ROW = {"prompt": "p", "completion": "c"}


def names(data_dir: Path, *path: str) -> list[str]:
    return [file.name for file in find_files(SourceSpec(label="s", path=path), data_dir).files]


def test_globs_and_lists_give_each_file_once_sorted_by_name(tmp_path: Path, write: Write) -> None:
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"):
        write(name, [ROW])
    assert names(tmp_path, "*.jsonl") == ["a.jsonl", "b.jsonl"]
    assert names(tmp_path, "b.jsonl", "*.jsonl", "a.jsonl") == ["a.jsonl", "b.jsonl"]
    assert names(tmp_path, "**/*.jsonl") == ["a.jsonl", "b.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"]


def test_a_file_named_twice_is_refused_and_another_name_of_one_is_told(tmp_path: Path, write: Write) -> None:
    (tmp_path / "b.jsonl").symlink_to(write("a.jsonl", [ROW]))
    with pytest.raises(DataError, match=r"source 's': '\./a\.jsonl' names a\.jsonl again, and a file is read once"):
        names(tmp_path, "a.jsonl", "./a.jsonl")
    found = find_files(SourceSpec(label="s", path="*.jsonl"), tmp_path)
    assert ([file.name for file in found.files], found.beside) == (["a.jsonl"], ("b.jsonl",))


def test_a_directory_stands_for_its_data_files(tmp_path: Path, write: Write) -> None:
    for name in ("d/b.jsonl", "d/x/a.csv", "d/README.md", "d/.hidden.jsonl"):
        write(name, [ROW])
    assert names(tmp_path, "d") == ["d/b.jsonl", "d/x/a.csv"]


def test_a_name_with_glob_characters_is_taken_literally_if_it_is_there(tmp_path: Path, write: Write) -> None:
    write("a[1].jsonl", [ROW])
    assert names(tmp_path, "a[1].jsonl") == ["a[1].jsonl"]


def test_an_absolute_path_may_lie_anywhere_and_shows_only_its_name(tmp_path: Path, write: Write) -> None:
    path = write("out/a.jsonl", [ROW])
    assert names(tmp_path / "data", str(path)) == ["a.jsonl"]
    assert names(tmp_path / "data", str(path.parent / "*.jsonl")) == ["a.jsonl"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.jsonl", "source 's': no file matches 'none.jsonl' below"),
        ("*.parquet", "no file matches"),
        ("/nowhere/at/all.jsonl", "no file matches"),
        ("../a.jsonl", "must not climb"),
        ("x/../../a.jsonl", "must not climb"),
        ("../*.jsonl", "must not climb"),
        ("a\0.jsonl", "must be relative"),
        ("empty", "no file matches 'empty'"),
        ("gone.jsonl", "source 's': gone.jsonl: is a link to nothing"),
        ("*.jsonl", "gone.jsonl: is a link to nothing"),
        (".", "gone.jsonl: is a link to nothing"),
    ],
)
def test_what_is_not_there_or_not_below_is_refused(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "data" / "empty").mkdir(parents=True)
    (tmp_path / "data" / "gone.jsonl").symlink_to("nowhere.jsonl")
    (tmp_path / "a.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        names(tmp_path / "data", path)


@pytest.mark.parametrize("pattern", ["link.jsonl", "*.jsonl", ".", "folder/a.jsonl"])
def test_a_link_out_of_the_data_directory_is_refused(tmp_path: Path, write: Write, pattern: str) -> None:
    outside = write("outside/a.jsonl", [ROW])
    data = tmp_path / "data"
    data.mkdir()
    (data / "link.jsonl").symlink_to(outside)
    (data / "folder").symlink_to(outside.parent)
    with pytest.raises(DataError, match="leads out of"):
        names(data, pattern)


@pytest.mark.parametrize("pattern", ["round.jsonl", "*.jsonl"])
def test_links_in_a_circle_are_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "round.jsonl").symlink_to(tmp_path / "round.jsonl")
    with pytest.raises(DataError, match=r"'s': .*can't be followed"):
        names(tmp_path, pattern)
    with pytest.raises(InputError, match=r"round\.jsonl: its symbolic links"):
        names(tmp_path / "round.jsonl", pattern)


def test_the_same_file_as_two_sources_is_refused(tmp_path: Path, write: Write) -> None:
    write("a.jsonl", [ROW])
    write("b.jsonl", [ROW])
    specs = [SourceSpec(label="one", path="a.jsonl"), SourceSpec(label="two", path=("b.jsonl", "a.jsonl"))]
    with pytest.raises(DataError, match=r"source 'one' and source 'two' both read a\.jsonl; drop one"):
        check_distinct_files(specs, tmp_path)
    check_distinct_files([specs[0], SourceSpec(label="two", path="b.jsonl")], tmp_path)


def test_filters_that_exclude_each_other_may_share_a_file(tmp_path: Path, write: Write) -> None:
    write("a.jsonl", [ROW])
    small, large, both = (
        SourceSpec(label=label, path="a.jsonl", where={"size": value})
        for label, value in (("small", "xs"), ("large", ("l", "xl")), ("both", ("xs", "xl")))
    )
    check_distinct_files([small, large], tmp_path)
    with pytest.raises(DataError, match="'small' and source 'both'"):
        check_distinct_files([small, large, both], tmp_path)


def test_the_same_split_of_a_hub_data_set_is_refused(tmp_path: Path) -> None:
    one, two = (SourceSpec(label=label, hub="owner/name", subset="main") for label in ("one", "two"))
    with pytest.raises(DataError, match="both read the hub data set owner/name"):
        check_distinct_files([one, two], tmp_path)
    check_distinct_files([one, SourceSpec(label="two", hub="owner/name", subset="main", split="test")], tmp_path)


def test_a_spec_that_no_recipe_can_mean_is_refused(subtests: pytest.Subtests) -> None:
    for fields, message in [
        ({}, "source 's': name either `path`"),
        ({"path": "a", "hub": "b/c"}, "name either `path`"),
        ({"path": ()}, "name either `path`"),
        ({"hub": "/etc/passwd"}, "`hub` must be a name like owner/name, not '/etc/passwd'"),
        ({"hub": "../x"}, "`hub` must be a name like owner/name"),
        ({"hub": "a/b/c"}, "`hub` must be a name like owner/name"),
        ({"path": "a", "subset": "x"}, "`subset`, `revision` and `streaming` belong to a `hub` source"),
        ({"path": "a", "preset": "piqa", "format": "alpaca"}, "`format` has no place"),
        ({"path": "a", "preset": "nope"}, "preset: 'nope' is unknown"),
    ]:
        with subtests.test(fields=fields, message=message), pytest.raises(RecipeError, match=message):
            SourceSpec(label="s", **fields)  # type: ignore[arg-type]
