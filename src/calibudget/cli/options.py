"""Arguments and options that several commands share, declared once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from calibudget.errors import InputError

Named = TypeVar("Named")

#: Up to as many digits as Python reads by default.
_WHOLE: Final = re.compile(r"-?[0-9]{1,4300}")
#: One label=value of several in a text. Labels may hold spaces, values only as "5% of budget" does.
_PAIR: Final = re.compile(r"\s*(?P<label>[^\s].*?)=(?P<value>[^\s=]*(?:\s*%)?(?:\s+of\s+\S+)?)(?:\s+|$)", re.DOTALL)
#: What a label holds where commas part several of them.
_COMMA: Final = re.compile(r"=[^=]*,")
#: The options that take label=value, as often as is wanted.
_BY_LABEL: Final = frozenset({"--sizes", "--pool-sizes", "--floors", "--caps", "--weights"})
#: How they are given more than once.
REPEATS: Final = "several as a=1 b=2"

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Fields of the recipe to replace, e.g. calibration.per_source=200."),
]
Json = Annotated[bool, typer.Option("--json", help="Print canonical JSON instead of a table.")]

ReportTo = Annotated[
    list[str] | None,
    typer.Option(
        help="Report numbers and digests to a tracker when done: trackio, wandb, mlflow or tensorboard; may repeat."
    ),
]

Engine = Annotated[
    str | None, typer.Option(help="Where to score: local, ray or openai (a server). Default: as in the recipe.")
]
Workers = Annotated[
    int | None, typer.Option(help="How many batches to score at once: one process per GPU, or Ray actors.")
]
Address = Annotated[str | None, typer.Option(help="The Ray cluster's address; auto finds the one of this machine.")]

Sizes = Annotated[
    list[str] | None, typer.Option(help=f"Pool sizes as label=n, for policies that need no statistics; {REPEATS}.")
]
PoolSizes = Annotated[
    list[str] | None, typer.Option(help=f"Pool sizes as label=n, as a JSON object, or as a splits.parquet; {REPEATS}.")
]
Floors = Annotated[
    list[str] | None, typer.Option(help=f"Floors of single sources, as label=n or 'label=5% of pool'; {REPEATS}.")
]
Caps = Annotated[
    list[str] | None, typer.Option(help=f"Caps of single sources, as label=n or 'label=20% of budget'; {REPEATS}.")
]
Weights = Annotated[
    list[str] | None,
    typer.Option(help=f"Weights for --policy weights, as label=x; {REPEATS}. Or a file from RegMix, olmix or DoReMi."),
]
Signal = Annotated[Literal["error_rate", "z"], typer.Option(help="What val-error-floor follows; z is NLL plus error.")]
NeedTransform = Annotated[Literal["rank", "log1p"] | None, typer.Option(help="Transform the needs.")]
Verdict = Annotated[
    str | None,
    typer.Option(
        help="The metric[,filter] of an lm-eval log, or the scorer of an Inspect log, that says what is right."
    ),
]
Groups = Annotated[
    str | None, typer.Option(help="Groups as in a recipe: a YAML or JSON file, or written out as '{...}'.")
]
UnitOption = Annotated[Literal["examples", "tokens"], typer.Option(help="The unit of budget, floors, caps and sizes.")]
Splits = Annotated[
    Path | None,
    typer.Option(help="A run's splits.parquet, for the policy pooled and for pools in tokens."),
]
MaxRepeats = Annotated[
    int, typer.Option(min=1, help="How often one example may be drawn; pools count that many times.")
]


def with_engine(
    overrides: Sequence[str] | None, engine: str | None, workers: int | None, address: str | None
) -> list[str]:
    """The overrides of a recipe with those that `--engine`, `--workers` and `--address` stand for."""
    given = {"engine": engine, "workers": workers, "address": None if address is None else json.dumps(address)}
    return [*(overrides or ()), *(f"{field}={value}" for field, value in given.items() if value is not None)]


class Command(TyperCommand):
    """A command that refuses an option which takes one value and is given twice: none of the values is lost."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, having counted them."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            takes_one = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if takes_one and given.count(option) > 1:
                raise InputError(f"{option.opts[0]} is given twice; it takes one value")
        return super().parse_args(ctx, args)


def with_options_repeated(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line, in which `--sizes a=1 b=2` says the option once more for each label=value."""
    found: list[str] = []
    option = None
    for place, argument in enumerate(arguments):
        if argument.startswith("-"):
            option = argument if argument in _BY_LABEL else None
        elif option is not None and ("=" not in argument or _is_path(argument)):
            option = option if found[-1] == option else None
        elif option is not None and arguments[place - 1] != option:
            found.append(option)
        found.append(argument)
    return found


def _is_path(text: str) -> bool:
    """Whether a text that may be something else names what is there; a text too long for a name doesn't."""
    try:
        return Path(text).exists()
    except OSError:
        return False


def whole_number(text: str, option: str) -> int:
    """An integer as people type it; a fraction or a word is refused."""
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{option} {text!r:.60} isn't an integer; budgets are counted whole")
    return int(text)


def amount(text: str) -> int | str:
    """A floor as people type it: an integer, or a text such as '10% of budget' that the allocator reads."""
    return int(text) if _WHOLE.fullmatch(text) else text


def mapping(given: str | None, option: str) -> dict[str, object] | None:
    """What an option says as a mapping, in a file or written out; None where it wasn't given."""
    if given is None:
        return None
    from calibudget.recipe.load import read_mapping

    return read_mapping(given, option)


def comma_separated(texts: Sequence[str]) -> list[str]:
    """The items of a repeatable option whose values may be comma lists."""
    items = [item.strip() for text in texts for item in text.split(",")]
    if not all(items):
        raise InputError(f"{', '.join(map(repr, texts))}: a list with an empty item")
    return items


def numbers(texts: Sequence[str], option: str) -> list[float]:
    """The numbers of a repeatable option whose values may be comma lists."""
    try:
        return [float(item) for item in comma_separated(texts)]
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error


def sizes_by_label(texts: Sequence[str] | None) -> dict[str, int] | None:
    """Pool sizes from `label=n` texts, JSON objects of them and `splits.parquet` files; None where there are none."""
    from calibudget.store.canonical import read_object
    from calibudget.store.splits import read_splits

    sizes: dict[str, int] = {}
    for text in texts or ():
        path = Path(text)
        found: Mapping[str, object] | None
        if path.suffix == ".parquet":
            found = read_splits(path).pool_sizes
        else:
            found = read_object(path) if _is_path(text) else by_label([text], "--pool-sizes", int, "an integer")
        for label, size in (found or {}).items():
            if label in sizes:
                raise InputError(f"--pool-sizes names {label!r} twice")
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise InputError(f"--pool-sizes: the size of {label!r} is {size!r}, not a nonnegative integer")
            sizes[label] = size
    return sizes or None


def weights_by_label(texts: Sequence[str] | None) -> dict[str, float] | None:
    """What `--weights` says: a file of weights made elsewhere, or `label=x` texts; None where it wasn't given."""
    if texts and len(texts) == 1 and "=" not in texts[0]:
        from calibudget.recipe.mixture_weights import read_weights

        return read_weights(Path(texts[0]))
    return by_label(texts, "--weights", float, "a number")


def by_label(
    texts: Sequence[str] | None, option: str, read: Callable[[str], Named], kind: str
) -> dict[str, Named] | None:
    """What repeated `label=value` texts say; None where the option wasn't given."""
    if not texts:
        return None
    named: dict[str, Named] = {}
    for text in texts:
        for label, value in _pairs(text, option):
            if label in named:
                raise InputError(f"{option} names {label!r} twice")
            if "_" in value:
                raise InputError(f"{option} {text!r}: {value!r} isn't {kind}")
            try:
                named[label] = read(value)
            except ValueError as error:
                raise InputError(f"{option} {text!r}: {value!r} isn't {kind}") from error
    return named


def _pairs(text: str, option: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text) or not text:
        pair = _PAIR.match(text, at)
        if pair is None:
            raise InputError(f"{option} {text!r}: write label=number; {REPEATS}")
        if pair["value"].endswith(",") or _COMMA.search(pair["label"]):
            raise InputError(f"{option} {text!r}: part them by spaces: {' '.join(re.split(r',[ ]*', text))}")
        yield pair["label"], pair["value"]
        at = pair.end()
