"""Binds the files of a wheel or an sdist in a SHA256SUMS.tsv of their own (docs/contracts.md)."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "SHA256SUMS.tsv"


class SumsHook(BuildHookInterface[Any]):
    """Path, bytes and SHA-256 of every file that the archive takes over; what the builder itself writes isn't bound."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the sums and have them packed: beside the package's files in a wheel, at the top of an sdist."""
        if version == "editable":
            return
        folder = "calibudget/" if self.target_name == "wheel" else ""
        lines = []
        for file in self.build_config.builder.recurse_included_files():
            if file.distribution_path.startswith(folder):
                data = Path(file.path).read_bytes()
                name = Path(file.distribution_path[len(folder) :]).as_posix()
                lines.append(f"{name}\t{len(data)}\t{hashlib.sha256(data).hexdigest()}\n")
        self.directory_of_sums = tempfile.TemporaryDirectory()
        path = Path(self.directory_of_sums.name, NAME)
        path.write_text("".join(sorted(set(lines), key=lambda line: line.split("\t")[0])), encoding="utf-8")
        build_data["force_include"][str(path)] = f"{folder}{NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the sums, which the archive now holds."""
        if version != "editable":
            self.directory_of_sums.cleanup()
