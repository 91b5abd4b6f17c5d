"""`manifest.json`: what an independent rerun has to retain (paper, appendix, "Practical audit checklist")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calibudget.records import Exponents, SourceFile, Unit
from calibudget.store.checksums import FileDigest
from calibudget.store.json_records import Artefact
from calibudget.values import ByLabel, ByName, Count, Digest, Flag, Integer, Number, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvidence:
    """What the manifest keeps of one source's part in a token budget.

    Attributes:
        too_long: candidates that left beforehand, longer than the source's quota or not to be encoded at all.
        pool: tokens of those that stayed.
        count: examples picked.
        taken: their tokens.
    """

    too_long: Count
    pool: Count
    count: Count
    taken: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvidence:
    """What the manifest keeps of one source; counts as in `records.Split`, digests as in docs/formats.md.

    `share` and `quota` are in the budget's unit; `tokens` is None where that is examples, `spent` in a first round,
    `filtered` and `barred` in manifests from before they were counted, `columns_not_used` where they weren't told,
    `files_not_read` where there are none, and what is said of the evaluation split where there is none.
    """

    files: tuple[SourceFile, ...]
    read: Count
    duplicates: Count
    skipped: Count
    shared_prompts: Count
    calibration_size: Count
    pool_size: Count
    calibration_sha256: Digest
    candidates_sha256: Digest
    scores_sha256: Digest | None
    need: Number | None
    bootstrap_sd: Number | None
    share: Size
    quota: Count
    record_ids_sha256: Digest
    tokens: TokenEvidence | None = None
    spent: Count | None = None
    filtered: Count | None = None
    barred: Count | None = None
    columns_not_used: tuple[str, ...] | None = None
    files_not_read: tuple[str, ...] | None = None
    evaluation_size: Count | None = None
    evaluation_sha256: Digest | None = None
    evaluation_twins: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionEvidence:
    """What the manifest keeps of the companion set; `record_ids_sha256` is over the ids in code-point order.

    `filtered` is None in manifests from before it was counted, `columns_not_used` where they weren't told,
    `files_not_read` where there are none.
    """

    files: tuple[SourceFile, ...]
    read: Count
    duplicates: Count
    skipped: Count
    count: Count
    record_ids_sha256: Digest
    filtered: Count | None = None
    columns_not_used: tuple[str, ...] | None = None
    files_not_read: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The seeds of the three draws that make a train set."""

    split: Integer
    bootstrap: Integer
    selection: Integer


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationEvidence:
    """The allocation's own part of the checklist; the rest stands with each source.

    `given` says that the allocation was handed in, not made of this directory's recipe and scores. `quotas_sha256` is
    None in manifests from before it was kept.
    """

    policy: str
    unit: Unit
    budget: Count
    floor: Count
    exponents: Exponents
    residual_budget: Count
    given: Flag = False
    quotas_sha256: Digest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionEvidence:
    """The selection's own part of the checklist; `details` is None for the uniform draw."""

    selector: str
    count: Count
    companion_count: Count
    selected_sha256: Digest
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The audit record of a run directory; `manifest.json`.

    Attributes:
        versions: of calibudget, python, numpy, pyarrow, and of torch and transformers when they were used.
        recipe: the resolved recipe as a JSON object, without where data lies on this machine.
        parser: version of the answer parser, None where nothing is parsed.
        scorer: what the scorer says of itself, None where nothing is scored.
        sources: by label, code-point order.
        artefacts: digests of every other file of the directory but the sums, by name.
        token_counter: how tokens were counted, None where the budget counts examples.
        train_set: its layout, which field of a row is taught, and the text that ends it or None.
    """

    versions: ByName[str]
    recipe: Mapping[str, object]
    seeds: Seeds
    parser: str | None
    scorer: Mapping[str, object] | None
    sources: ByLabel[SourceEvidence]
    companion: CompanionEvidence | None
    allocation: AllocationEvidence
    selection: SelectionEvidence
    artefacts: ByName[FileDigest]
    token_counter: Mapping[str, object] | None = None
    train_set: Mapping[str, object] | None = None


MANIFEST: Final = Artefact("calibudget.manifest/1", Manifest, seal="manifest_sha256")
