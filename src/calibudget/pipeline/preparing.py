"""Reading every source of a recipe and parting it into calibration split and candidate pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calibudget.pipeline.parting import part
from calibudget.pipeline.progress import Progress, silent
from calibudget.recipe import Recipe
from calibudget.records import Split
from calibudget.sources import SourceRead, check_distinct_files, open_source, read_source
from calibudget.store import Ledger, SourceFile, TokenCount
from calibudget.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The sources of a recipe, read and parted, labels in code-point order.

    Attributes:
        splits: one a source.
        files: the files that each source was read from, with bytes and digests.
        companion: the companion set as it was read, or None.
        tokens: tokens by source and record id, None where the budget counts examples.
        token_counter: how they were counted, None likewise.
        ledger: the rounds before this one, None in a first round.
    """

    splits: Mapping[str, Split]
    files: Mapping[str, tuple[SourceFile, ...]]
    companion: SourceRead | None
    tokens: Mapping[str, Mapping[str, TokenCount]] | None = None
    token_counter: Mapping[str, object] | None = None
    ledger: Ledger | None = None

    @property
    def pool_sizes(self) -> dict[str, int]:
        """N_k of each source, in examples."""
        return {label: split.pool_size for label, split in self.splits.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What left each source or stands in it twice, in words; sources with nothing to tell are left out."""
        told = []
        for label, split in self.splits.items():
            counts = {
                ("duplicate", ""): split.duplicates,
                ("row", " skipped"): split.skipped,
                ("row", " left out by `where`"): split.filtered,
                ("candidate", " with a calibration record's prompt left out"): split.shared_prompts,
                ("record", " used by earlier rounds"): split.spent,
            }
            words = ", ".join(counted(count, noun) + rest for (noun, rest), count in counts.items() if count)
            told += [f"{label}: {words}"] if words else []
        return tuple(told)


def prepare(recipe: Recipe, ledger: Ledger | None = None, *, progress: Progress = silent) -> Prepared:
    """Read, normalise, drop duplicates and draw the calibration split, source by source (paper 2.1).

    Args:
        recipe: its sources, seeds and calibration are used.
        ledger: the rounds before this one; what they spent leaves the pools.
        progress: told how many sources are read.

    Raises:
        DataError: a file, a line or a record can't be used, a source is too small for its calibration split, or an
            earlier round's calibration split can't be drawn again.
    """
    specs = recipe.source_specs()
    companion_spec = recipe.companion_spec()
    check_distinct_files([*specs, *([companion_spec] if companion_spec else [])], recipe.data_root)
    splits: dict[str, Split] = {}
    files: dict[str, tuple[SourceFile, ...]] = {}
    total = len(specs) + (companion_spec is not None)
    for done, spec in enumerate(specs):
        progress("reading sources", done, total)
        source = open_source(spec, recipe.data_root, selection_seed=recipe.selection_seed)
        files[spec.label] = source.scan.files
        splits[spec.label] = part(recipe, source, ledger)
    companion = read_source(companion_spec, recipe.data_root) if companion_spec else None
    progress("reading sources", total, total)
    return Prepared(splits=splits, files=files, companion=companion, ledger=ledger)
