"""Drawing with matplotlib: colours that stay apart under colour blindness, and bytes that depend on numbers alone."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from calibudget.errors import DependencyError

#: Okabe and Ito's colours, and marks that tell the same apart without them.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
#: Formats of a figure, and what must be left out of each for equal figures to be equal bytes.
FORMATS: Final = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_STYLE: Final = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "svg.hashsalt": "calibudget",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing to memory in this house's style."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise DependencyError("figures need matplotlib; install: pip install 'calibudget[study]'") from error
    mpl.use("agg")
    mpl.rcParams.update(_STYLE)
    from matplotlib import pyplot

    return pyplot


def rendered(figure: Any) -> dict[str, bytes]:
    """A figure in every format, by the format's ending; the figure is closed."""
    files = {ending: encoded(figure, ending) for ending in FORMATS}
    pyplot().close(figure)
    return files


def encoded(figure: Any, ending: str) -> bytes:
    """A figure in one of the formats; it stays open."""
    buffer = BytesIO()
    figure.savefig(buffer, format=ending, metadata=FORMATS[ending])
    return buffer.getvalue()


def style(place: int) -> dict[str, str]:
    """Colour and mark of the n-th thing of its kind."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKS[place % len(MARKS)]}
