"""What a verification has checked so far, and every difference that it found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from calibudget.errors import InputError, InputTypeError
from calibudget.pipeline.round_ledger import Ledger
from calibudget.recipe.schema import Recipe
from calibudget.store.checksums import Difference
from calibudget.store.manifest import Manifest
from calibudget.store.splits import SplitIds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """What a verification derives from; None where a file couldn't be read, or the run has none.

    Attributes:
        recipe: the resolved recipe, on the model as this machine has it.
        fields: the recipe's fields as the file has them.
    """

    recipe: Recipe
    fields: Mapping[str, object]
    manifest: Manifest | None
    splits: SplitIds | None
    ledger: Ledger | None

    @property
    def is_given(self) -> bool:
        """Whether the allocation was handed in."""
        return self.manifest is not None and self.manifest.allocation.given

    @property
    def is_scored(self) -> bool:
        """Whether the run has scores."""
        return self.recipe.calibration != "none" and not self.is_given


#: Differences named of one comparison; the rest are counted.
_NAMED: Final = 10
_WIDTH: Final = 90

Result = TypeVar("Result")
#: Whether a value found is the one expected.
Same = Callable[[object, object], bool]


def equal(expected: object, found: object) -> bool:
    """Equality that keeps true apart from 1."""
    return expected == found and isinstance(expected, bool) == isinstance(found, bool)


class Findings:
    """Collects what was checked and what differs, in the order of the checks."""

    def __init__(self, directory: Path) -> None:
        """Begin without findings."""
        self.differences: list[Difference] = []
        self.checked: list[str] = []
        self.directory = directory
        self._read: dict[tuple[str, object], object] = {}

    def add(self, file: str, field: str, expected: str, found: str) -> None:
        """Note one difference, unless it is noted already."""
        self.extend([Difference(file=file, field=field, expected=expected, found=found)])

    def extend(self, differences: Iterable[Difference]) -> None:
        """Note differences, each unless it is noted already."""
        self.differences += [one for one in differences if one not in self.differences]

    def read(self, name: str, reader: Callable[[Path], Result]) -> Result | None:
        """What a reader makes of a file of the directory, read once; None, and a difference, where it refuses it."""
        key = (name, reader)
        if key not in self._read:
            self._read[key] = self.derive(name, "a file that can be read", lambda: reader(self.directory / name))
        return cast("Result | None", self._read[key])

    def derive(self, file: str, expected: str, make: Callable[[], Result]) -> Result | None:
        """What `make` returns; None, and a difference of `file`, where it refuses its input."""
        try:
            return make()
        except (InputError, InputTypeError) as error:
            self.add(file, "", expected, str(error))
            return None

    def compare(self, file: str, expected: object, found: object, *, field: str = "", same: Same = equal) -> bool:
        """Note every place where two JSON values differ; whether there is none.

        `expected` was re-derived, `found` stands in the file at `field`; `same` says what makes two scalars the same.
        """
        places = list(_differing(expected, found, field, same))
        for place, one, other in places[:_NAMED]:
            self.add(file, place, one, other)
        if len(places) > _NAMED:
            self.add(file, field, "no further difference", f"{len(places) - _NAMED} more")
        return not places


def _differing(expected: object, found: object, field: str, same: Same) -> Iterator[tuple[str, str, str]]:
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in sorted({*expected, *found}):
            place = f"{field}.{key}" if field else str(key)
            if key not in expected or key not in found:
                yield place, _shown(expected, key), _shown(found, key)
            else:
                yield from _differing(expected[key], found[key], place, same)
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differing(one, other, f"{field}[{index}]", same)
    elif not same(expected, found):
        yield field, _words(expected), _words(found)


def _shown(mapping: Mapping[str, object], key: str) -> str:
    return _words(mapping[key]) if key in mapping else "nothing"


def _words(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
