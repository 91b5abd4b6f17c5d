"""JSON artefacts are read into frozen records by their fields' types; a fault names its file and field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Final, Generic, NoReturn, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from calibudget.errors import ArtefactError, InputError
from calibudget.messages import fault, shown
from calibudget.values import Digest, check_labels

_HEX: Final = re.compile(r"^[0-9a-f]{64}$")
Value = TypeVar("Value")
Record = TypeVar("Record")
#: Kinds of faults whose value tells nothing more.
_TOLD: Final = frozenset({"missing", "too_short", "unexpected_keyword_argument", "value_error"})


class Artefact(Generic[Record]):
    """A JSON file that holds one frozen record: the record's fields, the name of the schema, at most one digest.

    A file may leave out only what is null then; a field that the record doesn't have is refused.
    """

    def __init__(self, schema: str, record: type[Record], *, digest: str | None = None) -> None:
        """Describe an artefact.

        Args:
            schema: what its field `schema` says.
            record: a frozen dataclass; types in its annotations say what a field may hold (`calibudget.values`).
            digest: name of a field of the file that isn't one of the record: a digest of what it holds.
        """
        self.schema = schema
        self._record = record
        self._digest = digest

    def parse(self, value: object, name: str) -> Record:
        """The record of a JSON object; `name` is what errors call the file.

        Raises:
            ArtefactError: another schema, or a field is missing, unknown, of another type or out of range.
        """
        if not isinstance(value, Mapping):
            raise ArtefactError(f"{name}: must be an object, not {shown(value)}")
        if "schema" not in value:
            raise ArtefactError(f"{name}: schema: is missing")
        if value["schema"] != self.schema:
            raise ArtefactError(f"{name}: schema: must be {self.schema!r}, not {shown(value['schema'])}")
        own = {key: item for key, item in value.items() if key not in ("schema", self._digest)}
        try:
            record: Record = self._adapter.validate_python(own)
            if value.get(self._digest or "") is not None:
                _DIGEST.validate_python({self._digest: value[self._digest]})
        except ValidationError as error:
            raise ArtefactError(f"{name}: {_first_fault(error)}") from error
        absent = _absent(plain(record), own)
        if absent is not None:
            raise ArtefactError(f"{name}: {absent}: is missing")
        return record

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the file."""
        found = self._adapter.json_schema()
        definitions = found.pop("$defs")
        root = definitions.pop(self._record.__name__)
        own: dict[str, Any] = {"schema": {"const": self.schema}}
        if self._digest is not None:
            own[self._digest] = {"type": ["string", "null"], "pattern": _HEX.pattern}
        root["properties"] = own | root["properties"]
        root["required"] = ["schema", *root.get("required", [])]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": definitions}

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        # a dataclass at the root takes no configuration from here, one below an option does
        return TypeAdapter(cast(Any, self._record) | None, config=ConfigDict(extra="forbid"))


_DIGEST: Final[TypeAdapter[dict[str, str]]] = TypeAdapter(dict[str, Digest])


def plain(value: object) -> Any:
    """A record as JSON has it, without the fields that are None by default and None here."""
    if is_dataclass(value) and not isinstance(value, type):
        items = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: plain(item) for field, item in items if item is not None or field.default is not None}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _first_fault(error: ValidationError) -> str:
    """Field and fault of the first thing that a validation found."""
    problem = error.errors(include_url=False)[0]
    kind = problem["type"]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    words = fault(kind, problem.get("ctx", {})) or problem["msg"]
    return f"{place}: {words}" if kind in _TOLD else f"{place}: {words}, not {shown(problem['input'])}"


def _absent(written: object, read: object, place: str = "") -> str | None:
    """The first field, by its path, that a file leaves out though the record that came of it has a value there."""
    if isinstance(written, list) and isinstance(read, list | tuple):
        pairs = ((f"{place}[{i}]", *pair) for i, pair in enumerate(zip(written, read, strict=True)))
        return next(filter(None, (_absent(inner, of, at) for at, inner, of in pairs)), None)
    if not isinstance(written, dict) or not isinstance(read, Mapping):
        return None
    for name, item in written.items():
        at = f"{place}.{name}" if place else name
        if name not in read and item is not None:
            return at
        found = _absent(item, read.get(name), at)
        if found is not None:
            return found
    return None


class Fields:
    """A JSON object whose fields are taken one by one; `finish` refuses what nobody took.

    Every method raises ArtefactError, naming the file and the field, when the field is missing, of another type
    or out of range.
    """

    def __init__(self, value: object, file: str, place: str = "") -> None:
        """Wrap an object.

        Args:
            value: the object; anything else is refused.
            file: name of its file.
            place: dotted path of the object within the file, "" for the root.
        """
        self._file = file
        self._place = place
        if not isinstance(value, Mapping):
            raise ArtefactError(f"{self._name('')}: must be an object, not {_kind(value)}")
        self._value = value
        self._taken: set[str] = set()

    def item(self, name: str) -> object:
        """The field as it is; only its presence is checked."""
        if name not in self._value:
            raise ArtefactError(f"{self._name(name)}: is missing")
        self._taken.add(name)
        return self._value[name]

    def text(self, name: str) -> str:
        """A string."""
        value = self.item(name)
        if not isinstance(value, str):
            self.refuse(name, "a string", value)
        return value

    def one_of(self, name: str, *choices: str) -> str:
        """A string that is one of the choices."""
        value = self.text(name)
        if value not in choices:
            self.refuse(name, " or ".join(map(repr, choices)), value)
        return value

    def digest(self, name: str) -> str:
        """A SHA-256 in lower-case hexadecimal."""
        value = self.text(name)
        if not _HEX.fullmatch(value):
            self.refuse(name, "64 lower-case hexadecimal digits", value)
        return value

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self.item(name)
        if not isinstance(value, bool):
            self.refuse(name, "true or false", value)
        return value

    def integer(self, name: str, *, minimum: int | None = 0) -> int:
        """An integer, by default a count; 3.0 and true are none."""
        return self._integer(name, self.item(name), minimum)

    def integers(self, name: str, *, length: int) -> tuple[int, ...]:
        """An array of counts of a given length."""
        values = self._array_of(name, length)
        return tuple(self._integer(f"{name}[{i}]", value, 0) for i, value in enumerate(values))

    def number(self, name: str, *, minimum: float = -math.inf, maximum: float = math.inf) -> float:
        """A finite number within bounds, as a float."""
        return self._number(name, self.item(name), minimum, maximum)

    def numbers(self, name: str, *, length: int) -> tuple[float, ...]:
        """An array of finite numbers of a given length."""
        values = self._array_of(name, length)
        return tuple(self._number(f"{name}[{i}]", value, -math.inf, math.inf) for i, value in enumerate(values))

    def array(self, name: str) -> list[object]:
        """An array."""
        value = self.item(name)
        if not isinstance(value, list | tuple):
            self.refuse(name, "an array", value)
        return list(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """An array of strings."""
        values = self.array(name)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                self.refuse(f"{name}[{i}]", "a string", value)
        return tuple(map(str, values))

    def mapping(self, name: str) -> dict[str, object]:
        """An object taken as it is."""
        value = self.item(name)
        if not isinstance(value, Mapping):
            self.refuse(name, "an object", value)
        return dict(value)

    def child(self, name: str) -> Fields:
        """An object whose fields are to be taken in turn."""
        return Fields(self.item(name), self._file, self._path(name))

    def children(self, name: str) -> list[Fields]:
        """An array of objects whose fields are to be taken in turn."""
        values = self.array(name)
        return [Fields(value, self._file, self._path(f"{name}[{i}]")) for i, value in enumerate(values)]

    def by_label(self, name: str) -> dict[str, Fields]:
        """An object of objects keyed by source label, in code-point order."""
        inner = self.child(name)
        return {label: inner.child(label) for label in self._labels(name)}

    def integers_by_label(self, name: str) -> dict[str, int]:
        """An object of counts keyed by source label, in code-point order."""
        inner = self.child(name)
        return {label: inner.integer(label) for label in self._labels(name)}

    def texts_by_name(self, name: str) -> dict[str, str]:
        """An object of strings, in code-point order of its keys."""
        inner = self.child(name)
        return {key: inner.text(key) for key in sorted(self.mapping(name))}

    def nullable(self, name: str, read: Callable[[str], Value], *, may_be_absent: bool = False) -> Value | None:
        """What `read` makes of the field, or None where it is null."""
        if may_be_absent and name not in self._value:
            return None
        return None if self.item(name) is None else read(name)

    def finish(self) -> None:
        """Refuse fields that were not taken: a mistyped name is never silently a default."""
        unknown = sorted(set(self._value) - self._taken)
        if unknown:
            raise ArtefactError(f"{self._name(unknown[0])}: is not a field of this format")

    def refuse(self, name: str, expected: str, found: object) -> NoReturn:
        """Raise the error of a field that isn't what it should be."""
        raise ArtefactError(f"{self._name(name)}: must be {expected}, not {_kind(found)}")

    def _array_of(self, name: str, length: int) -> list[object]:
        values = self.array(name)
        if len(values) != length:
            self.refuse(name, f"an array of length {length}", values)
        return values

    def _integer(self, name: str, value: object, minimum: int | None) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, "an integer", value)
        if minimum is not None and value < minimum:
            self.refuse(name, f"an integer of at least {minimum}", value)
        return value

    def _number(self, name: str, value: object, minimum: float, maximum: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, "a number", value)
        number = _as_double(value)
        if not math.isfinite(number):
            self.refuse(name, "a finite number", value)
        if not minimum <= number <= maximum:
            bounds = f"at least {minimum:g}" if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
            self.refuse(name, f"a number {bounds}", value)
        return number

    def _labels(self, name: str) -> list[str]:
        labels = sorted(self.mapping(name))
        try:
            check_labels(labels)
        except InputError as error:
            raise ArtefactError(f"{self._name(name)}: {error}") from error
        return labels

    def _path(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place and name else self._place or name

    def _name(self, name: str) -> str:
        path = self._path(name)
        return f"{self._file}: {path}" if path else self._file


def open_artefact(value: object, file: str, schema: str) -> Fields:
    """The root of an artefact, its schema checked and taken.

    Raises:
        ArtefactError: not an object, or of another schema or version.
    """
    fields = Fields(value, file)
    fields.one_of("schema", schema)
    return fields


def _as_double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _kind(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:56]}…"
