"""Safe YAML with the line of every value, duplicate keys refused, and no surprising scalars.

Plain scalars follow YAML 1.2's core schema: `no`, `on` and `1:30` are text, `010` is text (so a field that wants
a number refuses it instead of reading eight), `1e4` is a number. Anchors and aliases are refused: a recipe is
short, and an alias bomb isn't.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from calibudget.errors import RecipeError

Location = tuple[str | int, ...]


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float | str:
    text = str(loader.construct_scalar(node))
    try:
        return float(text.replace(".inf", "inf").replace(".nan", "nan").lower())
    except ValueError:
        return text


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    try:
        return int(loader.construct_yaml_int(node))
    except ValueError as error:  # more digits than Python reads
        problem = f"{node.value:.20}... is no integer that can be read; put it in quotes, as text"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def _loader(base: Any) -> Any:
    """A safe loader with other implicit types."""
    made: Any = type("_Loader", (base,), {"yaml_implicit_resolvers": {}})
    for tag, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)", list("-+0123456789")),
        (
            "float",
            r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
            list("-+0123456789."),
        ),
    ):
        made.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)
    made.add_constructor("tag:yaml.org,2002:float", _construct_float)
    made.add_constructor("tag:yaml.org,2002:int", _construct_int)
    return made


#: libyaml is ten times as fast; what it refuses is read again by PyYAML's own parser, which takes more and says where.
_LOADERS: Final = [_loader(base) for base in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed document: its value, the 1-based line where each key or item stands, and overrides by what they set."""

    name: str
    value: dict[str, object]
    lines: Mapping[Location, int]
    overrides: Mapping[Location, str] = field(default_factory=dict)

    def where(self, location: Location) -> str:
        """The override, or `name:line`, of a location or of the nearest mapping above it that was given."""
        while location and not self.gives(location):
            location = location[:-1]
        if location in self.overrides:
            return f"override `{self.overrides[location]}`"
        return f"{self.name}:{self.lines[location]}" if location else self.name

    def field(self, location: Location) -> str:
        """Where a field stands, and its name."""
        return ": ".join(filter(None, (self.where(location), ".".join(map(str, location)))))

    def gives(self, location: Location) -> bool:
        """Whether the file or an override names this location."""
        return location in self.lines or location in self.overrides

    def overridden(self, location: Location, override: str, value: dict[str, object]) -> Document:
        """This document with another value, after an override of what stands at a location."""
        end = len(location)
        lines = {place: line for place, line in self.lines.items() if place[:end] != location}
        overrides = {place: text for place, text in self.overrides.items() if place[:end] != location}
        return Document(name=self.name, value=value, lines=lines, overrides=overrides | {location: override})


def parse_document(text: str, name: str) -> Document:
    """Read one YAML mapping.

    Raises:
        RecipeError: broken YAML, a duplicate key, a key that isn't text, an alias, a NUL, or a root that is no mapping.
    """
    fast, exact = _LOADERS
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        return _read_with(fast, text, name)
    try:
        return _read_with(exact, text, name)
    except RecipeError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A tagged scalar can raise ValueError, deep nesting RecursionError.
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        raise RecipeError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or error}") from error


def _read_with(kind: Any, text: str, name: str) -> Document:
    for token in yaml.scan(text, Loader=kind):
        if isinstance(token, yaml.AliasToken):
            line = token.start_mark.line + 1
            raise RecipeError(f"{name}:{line}: aliases (*{token.value}) aren't accepted; write the value out")
    loader = kind(text)
    node = loader.get_single_node()
    if not isinstance(node, yaml.MappingNode):
        raise RecipeError(f"{name}: must be a mapping of names to values (`budget: 10000`, say), and this isn't one")
    lines: dict[Location, int] = {}
    _note_lines(node, (), lines, name)
    return Document(name=name, value=loader.construct_document(node), lines=lines)


def parse_assignment(text: str, name: str) -> tuple[str, object]:
    """Name and value of a `KEY=VALUE` text, the value being YAML.

    Raises:
        RecipeError: no `=`, nothing before it, or a value that isn't YAML; `name` says what the text was given as.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"{name} {text!r} isn't KEY=VALUE")
    if value.lstrip().startswith("*"):  # a glob; an alias, which YAML would read, has nothing to stand for here
        return key, value.strip()
    return key, parse_document(f"value: {value}", f"{name} {key}").value["value"]


def _note_lines(node: yaml.Node, location: Location, lines: dict[Location, int], name: str) -> None:
    """Note where everything stands; and put together what JSON writes as two escapes, a character beyond U+FFFF."""
    if isinstance(node, yaml.MappingNode):
        _join_halves(key for key, _ in node.value)
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag != "tag:yaml.org,2002:str":
                which = f"the key {key.value!r}" if isinstance(key, yaml.ScalarNode) else "a key"
                raise RecipeError(f"{name}:{line}: {which} isn't text; put it in quotes")
            here = (*location, key.value)
            if here in lines:
                raise RecipeError(f"{name}:{line}: duplicate key {key.value!r} (first on line {lines[here]})")
            lines[here] = line
            _note_lines(value, here, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*location, index)] = item.start_mark.line + 1
            _note_lines(item, (*location, index), lines, name)
    elif "\0" in node.value:
        raise RecipeError(f"{name}:{node.start_mark.line + 1}: {'.'.join(map(str, location))}: holds a NUL character")
    else:
        _join_halves([node])


def _join_halves(nodes: Iterable[yaml.Node]) -> None:
    for node in nodes:
        if isinstance(node, yaml.ScalarNode) and not node.value.isascii():
            node.value = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
