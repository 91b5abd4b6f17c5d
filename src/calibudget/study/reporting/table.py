"""Tables once, shown as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LATEX: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "…": r"\ldots{}",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        "*": r"$\times$",
    }
)
#: Texts longer than it are set in a column that breaks lines.
_LONG: Final = 42
#: What stands where a value is undefined.
UNDEFINED: Final = "n/a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as it is shown.

    Attributes:
        value: in the unit that is shown; None is undefined.
        signed: whether a plus is written.
        best: whether it is set off, in bold.
        runner_up: whether it is set off as the second, underlined (in italics in Markdown).
        least: what lies below it is shown as less than it, such as a p value of `< 0.001`; None shows all.
    """

    value: float | None
    digits: int = 2
    signed: bool = False
    sd: float | None = None
    interval: tuple[float, float] | None = None
    best: bool = False
    runner_up: bool = False
    least: float | None = None


Shown = str | int | Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        columns: heads; the first columns of text are set left, all others right.
        notes: what a reader has to know of it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def text_columns(self) -> int:
        """How many columns, from the left, hold text alone."""
        count = 0
        while count < len(self.columns) and all(isinstance(row[count], str) for row in self.rows):
            count += 1
        return max(count, 1)


def to_markdown(table: Table) -> str:
    """A heading, a pipe table and the notes."""
    rows = [list(table.columns), *([_marked(entry) for entry in row] for row in table.rows)]
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    left = table.text_columns

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = [("-" * max(w, 3) if i < left else "-" * max(w - 1, 2) + ":") for i, w in enumerate(widths)]
    lines = [f"### {table.title}", "", line(cells[0]), line(rule), *map(line, cells[1:])]
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)]) + "\n"


def to_latex(table: Table) -> str:
    """A booktabs table with caption and label: one of long texts over several pages, any other scaled to the text.

    It needs the packages booktabs, array, longtable and graphicx.
    """
    heads = " & ".join(_latex(head) for head in table.columns)
    rows = [" & ".join(_latex_entry(entry) for entry in row) + r" \\" for row in table.rows]
    caption = rf"\caption{{{_latex(' '.join([table.title + '.', *table.notes]))}}}\label{{tab:{table.name}}}"
    kinds, head = _column_kinds(table), [r"\toprule", heads + r" \\", r"\midrule"]
    if "p{" in kinds and table.text_columns == len(table.columns):
        begin = [r"{\footnotesize", rf"\begin{{longtable}}{{{kinds}}}", caption + r" \\"]
        lines = [*begin, *head, r"\endhead", *rows, r"\bottomrule", r"\end{longtable}}"]
    else:
        scaled = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"
        begin = [r"\begin{table*}[t]", r"\centering\footnotesize", scaled, rf"\begin{{tabular}}{{{kinds}}}"]
        lines = [*begin, *head, *rows, r"\bottomrule", r"\end{tabular}}", caption, r"\end{table*}"]
    return "\n".join(lines) + "\n"


def _column_kinds(table: Table) -> str:
    """Text left, in columns that break lines where it is long; all else right."""
    texts = range(table.text_columns)
    long = [place for place in texts if any(len(str(row[place])) > _LONG for row in table.rows)]
    width = min(0.35, 0.9 / len(long)) if long else 0.0
    breaking = rf">{{\raggedright\arraybackslash}}p{{{width:.2f}\textwidth}}"
    kinds = [breaking if place in long else "l" for place in texts]
    return "".join(kinds) + "r" * (len(table.columns) - table.text_columns)


def to_csv(table: Table) -> str:
    """Numbers in full, standard deviations and interval ends in columns of their own; undefined ones are empty."""
    parts = [_csv_parts([row[i] for row in table.rows]) for i in range(len(table.columns))]
    heads = [f"{head}{part}" for head, own in zip(table.columns, parts, strict=True) for part in own]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(heads)
    for row in table.rows:
        writer.writerow(_csv_value(entry, part) for entry, own in zip(row, parts, strict=True) for part in own)
    return stream.getvalue()


def _csv_parts(entries: Sequence[Shown]) -> list[str]:
    """A column's own value, and what stands in columns beside it."""
    quantities = [entry for entry in entries if isinstance(entry, Quantity)]
    sd = any(one.sd is not None for one in quantities)
    interval = any(one.interval is not None for one in quantities)
    return ["", *([" sd"] if sd else []), *([" low", " high"] if interval else [])]


def _csv_value(entry: Shown, part: str) -> str | int | float:
    if not isinstance(entry, Quantity):
        return entry if not part else ""
    ends = entry.interval or (None, None)
    value = {"": entry.value, " sd": entry.sd, " low": ends[0], " high": ends[1]}[part]
    return "" if value is None else value


def _marked(entry: Shown) -> str:
    """Markdown of an entry, set off where it is best or second."""
    text = shown_text(entry)
    if not isinstance(entry, Quantity) or entry.value is None or not (entry.best or entry.runner_up):
        return text
    return f"**{text}**" if entry.best else f"_{text}_"


def shown_text(entry: Shown) -> str:
    """An entry as all tables show it."""
    if isinstance(entry, int):
        return f"{entry:,}"
    if isinstance(entry, str):
        return entry
    if entry.value is None:
        return UNDEFINED
    text = _number(entry.value, entry)
    if entry.sd is not None:
        text += f" ± {entry.sd:.{entry.digits}f}"
    if entry.interval is not None:
        text += f" [{', '.join(_number(end, entry) for end in entry.interval)}]"
    return text


def decimal(value: float, digits: int, *, signed: bool = False) -> str:
    """A number with that many digits after the point, a plus where it is signed, and never -0.00."""
    rounded = round(value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if signed else f"{rounded:.{digits}f}"


def _number(value: float, entry: Quantity) -> str:
    if entry.least is not None and value < entry.least:
        return f"< {decimal(entry.least, entry.digits)}"
    return decimal(value, entry.digits, signed=entry.signed)


def _latex_entry(entry: Shown) -> str:
    if not isinstance(entry, Quantity) or entry.value is None:
        return _latex(shown_text(entry))
    text = _number(entry.value, entry)
    if entry.sd is not None:
        text += rf"_{{\pm {entry.sd:.{entry.digits}f}}}"
    if entry.interval is not None:
        low, high = (_number(end, entry) for end in entry.interval)
        text += rf"\,[{low},\,{high}]"
    if entry.best:
        return rf"{{\boldmath${text}$}}"  # \textbf leaves mathematics as it is
    return rf"\underline{{${text}$}}" if entry.runner_up else f"${text}$"


def _latex(text: str) -> str:
    return text.translate(_LATEX)
