"""The installed package, or an unpacked sdist, against the sums that it was built with (paper, appendix)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from calibudget.errors import ArtefactError
from calibudget.pipeline.verify import Verification
from calibudget.store.sums import SUMS_NAME, check_sums


def check_distribution(directory: Path | None = None) -> Verification:
    """Compare every file with the distribution's `SHA256SUMS.tsv`.

    Files that Python compiled, and the metadata that a builder adds to an sdist, aren't bound.

    Args:
        directory: an unpacked sdist; None is the installed package.

    Raises:
        ArtefactError: there are no sums: a checkout or an editable install, whose files change as they like.
    """
    root = directory or Path(str(files("calibudget")))
    if not (root / SUMS_NAME).exists():
        raise ArtefactError(
            f"{root}: holds no {SUMS_NAME}; wheels and sdists do, a checkout and an editable install don't"
        )
    made = ("PKG-INFO", ".gitignore")
    differences = [one for one in check_sums(root) if "__pycache__" not in one.file.split("/") and one.file not in made]
    return Verification(
        differences=tuple(differences),
        checked=("distribution: length and digest of every file that it was built of",),
        levels={"files": "checked"},
    )
