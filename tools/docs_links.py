"""A hook of the documentation's builder: links that leave `docs` become the path that they point to."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./((?!\.\.)[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Name files of the repository beside the words that link to them; a decision's own `../` stays in `docs`."""
    if "/" in page.file.src_uri:
        return markdown
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
