"""Paths of a recipe that name a place of this machine: no URLs, and `~` written out."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from calibudget.store import expanded


def _local(value: str, kind: str) -> str:
    if "://" in value:
        raise ValueError(f"must be a {kind} of this machine; URLs go into a source's `path`")
    return expanded(value)


LocalFolder = Annotated[str, AfterValidator(lambda value: _local(value, "folder"))]
LocalFile = Annotated[str, AfterValidator(lambda value: _local(value, "file"))]
