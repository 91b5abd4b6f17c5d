from __future__ import annotations

import csv
import io

from calibudget.study.reporting.table import Quantity, Table, to_csv, to_latex, to_markdown

TABLE = Table(
    name="x_y",
    title="A & B",
    columns=("policy", "n", "score (%)", "difference"),
    rows=(
        ("a|b_c", 1200, Quantity(value=71.87321, sd=0.224, best=True), Quantity(value=-0.0001, signed=True)),
        ("d", 3, Quantity(value=None), Quantity(value=1 / 3, digits=3, signed=True, interval=(-0.5, 1.25))),
    ),
    notes=("50% of it.",),
)


def test_markdown_lines_up_and_says_what_is_undefined() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == "### A & B"
    assert len({len(line) for line in lines[2:6]}) == 1
    assert [cell.strip() for cell in lines[4].strip("|").replace("\\|", "/").split("|")] == [
        "a/b_c",
        "1,200",
        "**71.87 ± 0.22**",
        "+0.00",
    ]
    assert lines[5].split("|")[3].strip() == "n/a"
    assert "+0.333 [-0.500, +1.250]" in lines[5]
    assert lines[3].replace("|", "").split() == ["-" * 6, "-" * 4 + ":", "-" * 15 + ":", "-" * 22 + ":"]


def test_latex_escapes_text_and_sets_numbers_as_mathematics() -> None:
    text = to_latex(TABLE)
    assert r"a$|$b\_c & 1,200 & {\boldmath$71.87_{\pm 0.22}$} & $+0.00$ \\" in text
    assert r"d & 3 & n/a & $+0.333\,[-0.500,\,+1.250]$ \\" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\caption{A \& B. 50\% of it.}" in text
    assert r"\label{tab:x_y}" in text
    assert text.count("{") == text.count("}")


def test_csv_holds_numbers_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0]["policy"] == "a|b_c"
    assert float(rows[0]["score (%)"]) == 71.87321
    assert float(rows[0]["score (%) sd"]) == 0.224
    assert rows[1]["score (%)"] == ""
    assert float(rows[1]["difference"]) == 1 / 3
    assert (float(rows[1]["difference low"]), float(rows[1]["difference high"])) == (-0.5, 1.25)


def test_a_number_below_the_least_is_shown_as_less_and_kept_in_full() -> None:
    values = [Quantity(value=one, digits=3, least=0.001) for one in (0.00099, 0.001, 4e-17)]
    table = Table(name="p", title="p", columns=("claim", "p"), rows=tuple(zip("abc", values, strict=True)))
    assert [line.split("|")[2].strip() for line in to_markdown(table).splitlines()[4:]] == [
        "< 0.001",
        "0.001",
        "< 0.001",
    ]
    assert r"a & $< 0.001$ \\" in to_latex(table)
    assert [row["p"] for row in csv.DictReader(io.StringIO(to_csv(table)))] == ["0.00099", "0.001", "4e-17"]
