"""JSON artefacts are read into frozen records by their fields' types; a fault names its file and field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from calibudget.errors import ArtefactError
from calibudget.messages import fault, shown
from calibudget.store.canonical import canonical_json, is_sealed, read_object, sealed
from calibudget.store.files import write_atomic
from calibudget.values import Digest

Record = TypeVar("Record")
#: Of the JSON Schemas.
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: Kinds of faults whose value tells nothing more.
_TOLD: Final = frozenset({"missing", "too_short", "unexpected_keyword_argument", "extra_forbidden", "value_error"})


class Shape(Generic[Record]):
    """An object of JSON, or a row of a table, that holds the fields of one record."""

    def __init__(self, record: type[Record], *, others: Literal["forbid", "ignore"] = "forbid") -> None:
        """An object whose fields may hold what the types of a frozen dataclass say (`calibudget.values`)."""
        self.record = record
        self._others = others

    def parse(self, value: object, name: str) -> Record:
        """The record of an object; `name` is what errors call the file, with the line or row.

        Raises:
            ArtefactError: a field is missing, unknown, of another type or out of range.
        """
        if not isinstance(value, Mapping):
            raise ArtefactError(f"{name}: must be an object, not {shown(value)}")
        return cast(Record, _validated(self.adapter, value, name))

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What validates, made when the first object is read."""
        # a dataclass at the root takes no configuration from here, one below an option does
        return TypeAdapter(cast(Any, self.record) | None, config=ConfigDict(extra=self._others))


class Artefact(Shape[Record]):
    """A JSON file that holds one frozen record: the record's fields, the name of the schema, at most one digest.

    The file's `name` is the schema's. A file may leave out only what holds nothing by default: null, 0, false, an empty
    list or object.
    """

    def __init__(
        self,
        schema: str,
        record: type[Record],
        *,
        digest: tuple[str, Callable[[Record], str]] | None = None,
        seal: str | None = None,
        check: Callable[[Record], str | None] | None = None,
        nulls: bool = False,
    ) -> None:
        """Describe an artefact.

        Args:
            schema: what its field `schema` says.
            record: see `Shape`.
            digest: a field of the file that isn't one of the record, and what makes it: a digest of what it holds.
                Files of earlier versions may lack it.
            seal: the field with the digest of all other fields, which no file may lack.
            check: what is wrong with a record whose fields are each what they should be, or None.
            nulls: whether fields that are None by default are written as null, or left out.
        """
        super().__init__(record)
        self.schema = schema
        self.name = f"{schema.removeprefix('calibudget.').partition('/')[0]}.json"
        self._digest = digest
        self._seal = seal
        self._check = check
        self._nulls = nulls

    def of(self, directory: Path) -> Record | None:
        """The record of a directory's file, None where it has none; see `read`."""
        path = directory / self.name
        return self.read(path) if path.exists() else None

    def parse(self, value: object, name: str) -> Record:
        """The record of a JSON object, whatever its digest; `name` is what errors call the file.

        Raises:
            ArtefactError: another schema, or a field is missing, unknown, of another type or out of range.
        """
        if not isinstance(value, Mapping):
            raise ArtefactError(f"{name}: must be an object, not {shown(value)}")
        if "schema" not in value:
            raise ArtefactError(f"{name}: schema: is missing")
        if value["schema"] != self.schema:
            raise ArtefactError(f"{name}: schema: must be {self.schema!r}, not {shown(value['schema'])}")
        own = {key: item for key, item in value.items() if key not in ("schema", self._added)}
        record = super().parse(own, name)
        digests = {key: item for key, item in value.items() if key == self._added}
        if self._seal is not None and not digests:
            raise ArtefactError(f"{name}: {self._seal}: is missing")
        if self._seal is not None or None not in digests.values():
            _validated(_DIGESTS, digests, name)
        absent = _absent(plain(record), own)
        if absent is not None:
            raise ArtefactError(f"{name}: {absent}: is missing")
        found = None if self._check is None else self._check(record)
        if found is not None:
            raise ArtefactError(f"{name}: {found}")
        return record

    def read(self, path: Path) -> Record:
        """Read the file.

        Raises:
            ArtefactError: the file is missing or torn, a field isn't what it should be, or one of a sealed file was
                edited after it was written; file and field are named.
        """
        return self.read_sealed(path)[0]

    def read_sealed(self, path: Path) -> tuple[Record, str]:
        """`read`, and the digest that the file ends with, or "" of an artefact without a seal."""
        value = read_object(path)
        record = self.parse(value, path.name)
        if not self.is_sealed(value):
            raise ArtefactError(
                f"{path.name}: {self._seal}: isn't the digest of the other fields; one was changed after it was written"
            )
        return record, str(value.get(self._seal or "", ""))

    def is_sealed(self, value: Mapping[str, object]) -> bool:
        """Whether an object holds its own digest, or is one of an artefact without a seal."""
        return self._seal is None or is_sealed(value, self._seal)

    def to_json(self, record: Record) -> dict[str, Any]:
        """The object of a record, sealed if it is to be.

        Raises:
            InputError: a sealed value has no canonical JSON form.
        """
        value = {"schema": self.schema, **(asdict(cast(Any, record)) if self._nulls else plain(record))}
        if self._digest is not None:
            value[self._digest[0]] = self._digest[1](record)
        return value if self._seal is None else sealed(value, self._seal)

    def write(self, path: Path, record: Record) -> str:
        """Write the file, atomically; the digest that it ends with is returned, "" for an artefact without a seal.

        Raises:
            InputError: a value has no canonical JSON form, such as NaN or an integer beyond 2**53 - 1.
            ArtefactError: the file can't be written.
        """
        value = self.to_json(record)
        write_atomic(path, canonical_json(value))
        return str(value.get(self._seal or "", ""))

    @property
    def _added(self) -> str | None:
        return self._seal if self._digest is None else self._digest[0]

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the file."""
        found = self.adapter.json_schema()
        definitions = found.pop("$defs")
        root = definitions.pop(self.record.__name__)
        own: dict[str, Any] = {"schema": {"const": self.schema}}
        if self._added is not None:
            own[self._added] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
        root["properties"] = own | root["properties"]
        root["required"] = ["schema", *([self._seal] if self._seal else []), *root.get("required", [])]
        return {"$schema": DIALECT, **root, "$defs": definitions}


_DIGESTS: Final[TypeAdapter[Any]] = TypeAdapter(dict[str, Digest])


def plain(value: object) -> Any:
    """A record as JSON has it, without the fields that are None by default and None here."""
    if is_dataclass(value) and not isinstance(value, type):
        items = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: plain(item) for field, item in items if item is not None or field.default is not None}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _validated(adapter: TypeAdapter[Any], value: object, name: str) -> Any:
    """What an adapter makes of a value; its first fault is told by file, field and what is wrong."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    kind = problem["type"]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    words = fault(kind, problem.get("ctx", {})) or problem["msg"]
    told = words if kind in _TOLD else f"{words}, not {shown(problem['input'])}"
    raise ArtefactError(f"{name}: {place}: {told}")


def _absent(written: object, read: object, place: str = "") -> str | None:
    """The first field, by its path, that a file leaves out though the record that came of it holds something there."""
    if isinstance(written, list) and isinstance(read, list | tuple):
        pairs = ((f"{place}[{i}]", *pair) for i, pair in enumerate(zip(written, read, strict=True)))
        return next(filter(None, (_absent(inner, of, at) for at, inner, of in pairs)), None)
    if not isinstance(written, dict) or not isinstance(read, Mapping):
        return None
    for name, item in written.items():
        at = f"{place}.{name}" if place else name
        if name not in read and item:
            return at
        found = _absent(item, read.get(name), at)
        if found is not None:
            return found
    return None
