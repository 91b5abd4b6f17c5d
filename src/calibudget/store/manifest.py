"""`manifest.json`: what an independent rerun has to retain (paper, appendix, "Practical audit checklist")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.records import Exponents, Unit
from calibudget.store.canonical import canonical_json, is_sealed, read_object, sealed
from calibudget.store.codec import Fields, open_artefact
from calibudget.store.files import write_atomic
from calibudget.store.sums import FileDigest

MANIFEST_NAME: Final = "manifest.json"
_SCHEMA: Final = "calibudget.manifest/1"
_SEAL: Final = "manifest_sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file that a source was read from.

    Attributes:
        name: relative to the data directory with "/", or as the hub names it; never absolute.
        bytes: its length.
        sha256: its SHA-256, lower-case hexadecimal.
    """

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvidence:
    """What the manifest keeps of one source's part in a token budget.

    Attributes:
        too_long: candidates that left beforehand, longer than the source's quota or not to be encoded at all.
        pool: tokens of those that stayed.
        count: examples picked.
        taken: their tokens.
    """

    too_long: int
    pool: int
    count: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvidence:
    """What the manifest keeps of one source; counts as in `records.Split`, digests as in docs/formats.md.

    `share` and `quota` are in the budget's unit; `tokens` is None where that is examples, `spent` in a first round,
    `filtered` and `barred` in manifests from before they were counted, `columns_not_used` where they weren't told.
    """

    files: tuple[SourceFile, ...]
    read: int
    duplicates: int
    skipped: int
    shared_prompts: int
    calibration_size: int
    pool_size: int
    calibration_sha256: str
    candidates_sha256: str
    scores_sha256: str | None
    need: float | None
    bootstrap_sd: float | None
    share: float
    quota: int
    record_ids_sha256: str
    tokens: TokenEvidence | None = None
    spent: int | None = None
    filtered: int | None = None
    barred: int | None = None
    columns_not_used: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionEvidence:
    """What the manifest keeps of the companion set; `record_ids_sha256` is over the ids in code-point order.

    `filtered` is None in manifests from before it was counted, `columns_not_used` where they weren't told.
    """

    files: tuple[SourceFile, ...]
    read: int
    duplicates: int
    skipped: int
    count: int
    record_ids_sha256: str
    filtered: int | None = None
    columns_not_used: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The seeds of the three draws that make a train set."""

    split: int
    bootstrap: int
    selection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationEvidence:
    """The allocation's own part of the checklist; the rest stands with each source.

    `given` says that the allocation was handed in, not made of this directory's recipe and scores. `quotas_sha256` is
    None in manifests from before it was kept.
    """

    policy: str
    unit: Unit
    budget: int
    floor: int
    exponents: Exponents
    residual_budget: int
    given: bool = False
    quotas_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionEvidence:
    """The selection's own part of the checklist; `details` is None for the uniform draw."""

    selector: str
    count: int
    companion_count: int
    selected_sha256: str
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The audit record of a run directory; `manifest.json`.

    Attributes:
        versions: of calibudget, python, numpy, pyarrow, and of torch and transformers when they were used.
        recipe: the resolved recipe as a JSON object, without where data lies on this machine.
        seeds: the seeds of the three draws.
        parser: version of the answer parser, None where nothing is parsed.
        scorer: what the scorer says of itself, None where nothing is scored.
        sources: by label, code-point order.
        companion: None without a companion set.
        artefacts: digests of every other file of the directory but the sums, by name.
        token_counter: how tokens were counted, None where the budget counts examples.
        train_set: its layout, which field of a row is taught, and the text that ends it or None.
    """

    versions: Mapping[str, str]
    recipe: Mapping[str, object]
    seeds: Seeds
    parser: str | None
    scorer: Mapping[str, object] | None
    sources: Mapping[str, SourceEvidence]
    companion: CompanionEvidence | None
    allocation: AllocationEvidence
    selection: SelectionEvidence
    artefacts: Mapping[str, FileDigest]
    token_counter: Mapping[str, object] | None = None
    train_set: Mapping[str, object] | None = None


def manifest_to_json(manifest: Manifest) -> dict[str, object]:
    """The `manifest.json` object of a manifest, its self digest in `manifest_sha256`.

    Raises:
        InputError: a value has no canonical JSON form.
    """
    body = {
        "schema": _SCHEMA,
        "versions": dict(manifest.versions),
        "recipe": dict(manifest.recipe),
        "seeds": asdict(manifest.seeds),
        "parser": manifest.parser,
        "scorer": None if manifest.scorer is None else dict(manifest.scorer),
        "sources": {label: _source_to_json(row) for label, row in sorted(manifest.sources.items())},
        "companion": None
        if manifest.companion is None
        else _known(asdict(manifest.companion), "filtered", "columns_not_used"),
        "allocation": _known(asdict(manifest.allocation), "quotas_sha256"),
        "selection": _known(asdict(manifest.selection), "details"),
        "artefacts": {name: asdict(digest) for name, digest in sorted(manifest.artefacts.items())},
    }
    if manifest.token_counter is not None:
        body["token_counter"] = dict(manifest.token_counter)
    if manifest.train_set is not None:
        body["train_set"] = dict(manifest.train_set)
    return sealed(body, _SEAL)


def write_manifest(path: Path, manifest: Manifest) -> str:
    """Write `manifest.json`, atomically.

    Returns:
        Its self digest, `manifest_sha256`.

    Raises:
        InputError: a value has no canonical JSON form.
        ArtefactError: the file can't be written.
    """
    value = manifest_to_json(manifest)
    write_atomic(path, canonical_json(value))
    return cast(str, value[_SEAL])


def read_manifest(path: Path) -> Manifest:
    """Read `manifest.json`, its self digest checked.

    Raises:
        ArtefactError: the file is missing or torn, a field was edited after it was written, or a field isn't what
            it should be; both are named.
    """
    value = read_object(path)
    manifest = parse_manifest(value, path.name)
    if not manifest_is_sealed(value):
        raise ArtefactError(f"{path.name}: {_SEAL}: isn't the digest of the other fields; one was edited")
    return manifest


def manifest_is_sealed(value: Mapping[str, object]) -> bool:
    """Whether the `manifest.json` object holds its own digest."""
    return is_sealed(value, _SEAL)


def parse_manifest(value: object, name: str) -> Manifest:
    """A manifest from the `manifest.json` object, whatever its self digest; `name` is what errors call it.

    Raises:
        ArtefactError: a field isn't what it should be.
    """
    root = open_artefact(value, name, _SCHEMA)
    root.digest(_SEAL)
    manifest = Manifest(
        versions=root.texts_by_name("versions"),
        recipe=root.mapping("recipe"),
        seeds=_parse_seeds(root.child("seeds")),
        parser=root.nullable("parser", root.text),
        scorer=root.nullable("scorer", root.mapping),
        sources={label: _parse_source(row) for label, row in root.by_label("sources").items()},
        companion=root.nullable("companion", lambda name: _parse_companion(root.child(name))),
        allocation=_parse_allocation(root.child("allocation")),
        selection=_parse_selection(root.child("selection")),
        artefacts=_parse_artefacts(root),
        token_counter=root.nullable("token_counter", root.mapping, may_be_absent=True),
        train_set=root.nullable("train_set", root.mapping, may_be_absent=True),
    )
    root.finish()
    return manifest


def _source_to_json(row: SourceEvidence) -> dict[str, object]:
    """The fields of one source; those of token budgets and later rounds only where they are."""
    return _known(asdict(row), "tokens", "spent", "filtered", "barred", "columns_not_used")


def _known(fields: dict[str, object], *optional: str) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in optional or value is not None}


def parse_exponents(row: Fields) -> Exponents:
    """The exponents of a manifest."""
    exponents = Exponents(
        need=row.number("need"), availability=row.number("availability"), reliability=row.number("reliability")
    )
    row.finish()
    return exponents


def _parse_seeds(row: Fields) -> Seeds:
    seeds = Seeds(
        split=row.integer("split", minimum=None),
        bootstrap=row.integer("bootstrap", minimum=None),
        selection=row.integer("selection", minimum=None),
    )
    row.finish()
    return seeds


def parse_files(row: Fields) -> tuple[SourceFile, ...]:
    """The field `files` of an artefact: names, lengths and digests."""
    files = []
    for item in row.children("files"):
        files.append(SourceFile(name=item.text("name"), bytes=item.integer("bytes"), sha256=item.digest("sha256")))
        item.finish()
    return tuple(files)


def _parse_source(row: Fields) -> SourceEvidence:
    source = SourceEvidence(
        files=parse_files(row),
        read=row.integer("read"),
        duplicates=row.integer("duplicates"),
        skipped=row.integer("skipped"),
        shared_prompts=row.integer("shared_prompts"),
        calibration_size=row.integer("calibration_size"),
        pool_size=row.integer("pool_size"),
        calibration_sha256=row.digest("calibration_sha256"),
        candidates_sha256=row.digest("candidates_sha256"),
        scores_sha256=row.nullable("scores_sha256", row.digest),
        need=row.nullable("need", row.number),
        bootstrap_sd=row.nullable("bootstrap_sd", row.number),
        share=row.number("share", minimum=0.0),
        quota=row.integer("quota"),
        record_ids_sha256=row.digest("record_ids_sha256"),
        tokens=row.nullable("tokens", lambda name: _parse_tokens(row.child(name)), may_be_absent=True),
        spent=row.nullable("spent", row.integer, may_be_absent=True),
        barred=row.nullable("barred", row.integer, may_be_absent=True),
        filtered=row.nullable("filtered", row.integer, may_be_absent=True),
        columns_not_used=row.nullable("columns_not_used", row.texts, may_be_absent=True),
    )
    row.finish()
    return source


def _parse_tokens(row: Fields) -> TokenEvidence:
    tokens = TokenEvidence(
        too_long=row.integer("too_long"),
        pool=row.integer("pool"),
        count=row.integer("count"),
        taken=row.integer("taken"),
    )
    row.finish()
    return tokens


def _parse_companion(row: Fields) -> CompanionEvidence:
    companion = CompanionEvidence(
        files=parse_files(row),
        read=row.integer("read"),
        duplicates=row.integer("duplicates"),
        skipped=row.integer("skipped"),
        count=row.integer("count"),
        record_ids_sha256=row.digest("record_ids_sha256"),
        filtered=row.nullable("filtered", row.integer, may_be_absent=True),
        columns_not_used=row.nullable("columns_not_used", row.texts, may_be_absent=True),
    )
    row.finish()
    return companion


def _parse_allocation(row: Fields) -> AllocationEvidence:
    allocation = AllocationEvidence(
        policy=row.text("policy"),
        unit=cast(Unit, row.one_of("unit", "examples", "tokens")),
        budget=row.integer("budget"),
        floor=row.integer("floor"),
        exponents=parse_exponents(row.child("exponents")),
        residual_budget=row.integer("residual_budget"),
        given=row.boolean("given"),
        quotas_sha256=row.nullable("quotas_sha256", row.digest, may_be_absent=True),
    )
    row.finish()
    return allocation


def _parse_selection(row: Fields) -> SelectionEvidence:
    selection = SelectionEvidence(
        selector=row.text("selector"),
        count=row.integer("count"),
        companion_count=row.integer("companion_count"),
        selected_sha256=row.digest("selected_sha256"),
        details=row.nullable("details", row.mapping, may_be_absent=True),
    )
    row.finish()
    return selection


def _parse_artefacts(root: Fields) -> dict[str, FileDigest]:
    rows = {name: root.child("artefacts").child(name) for name in sorted(root.mapping("artefacts"))}
    artefacts = {}
    for name, row in rows.items():
        artefacts[name] = FileDigest(bytes=row.integer("bytes"), sha256=row.digest("sha256"))
        row.finish()
    return artefacts
