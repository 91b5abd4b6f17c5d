"""Re-deriving a run from its files alone (paper, appendix: practical audit checklist, CPU-checkable verification).

Taken as given are the recipe, the splits, the scores (or, after `calibudget select`, the allocation) and, where the
recipe names a selector, what it knew of the candidates. Everything else is computed again from them in a chain, and
compared field by field with what the directory says, so that an edit shows where it was made.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from calibudget.errors import ArtefactError, CalibudgetError, InputError
from calibudget.pipeline.checks.data import check_rescored, check_sources
from calibudget.pipeline.checks.evaluation import check_evaluation
from calibudget.pipeline.checks.findings import Findings, RunFiles
from calibudget.pipeline.checks.hygiene import check_hygiene, has_hygiene
from calibudget.pipeline.checks.manifest import (
    check_bindings,
    check_ledger,
    check_manifest,
    derive_plan,
    given_plan,
)
from calibudget.pipeline.checks.signature import check_signature
from calibudget.pipeline.checks.splits import check_scored_records, check_splits, derive_selector
from calibudget.pipeline.checks.train import check_held_out, check_train
from calibudget.pipeline.pools import Pools, pools_of
from calibudget.pipeline.round_ledger import ROUNDS, Ledger
from calibudget.pipeline.run_directory import EVALUATION_WORK, RECIPE_NAME, UNFINISHED, is_finished, model_place
from calibudget.pipeline.run_manifest import Outcome, artefact_names
from calibudget.pipeline.run_selector import RecipeSelector
from calibudget.pipeline.statistics import statistics_of
from calibudget.recipe.load import recipe_from_fields
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import parse_document
from calibudget.records import AllocationPlan, Selection, Statistics
from calibudget.sources.hygiene.artefact import HYGIENE, Hygiene
from calibudget.store.artefacts import SELECTION, STATISTICS, digest_selection
from calibudget.store.canonical import read_bytes, read_object
from calibudget.store.checksums import SIGNATURE_NAME, SUMS_NAME, Difference, check_sums
from calibudget.store.manifest import MANIFEST, Manifest
from calibudget.store.scores import SCORES_NAME, ScoreFile, read_scores
from calibudget.store.splits import SPLITS_NAME, SplitIds, read_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a verification read on its way; of a run without differences it is as it should be.

    Attributes:
        manifest_sha256: the digest that it ends with.
        tokens: tokens of the selected examples, None where the budget counts examples.
        hygiene: what the sources repeat and share; None in a run of a version that didn't say.
    """

    manifest: Manifest
    manifest_sha256: str
    plan: AllocationPlan
    tokens: int | None
    hygiene: Hygiene | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a verification found.

    Attributes:
        differences: everything that isn't what the evidence or a re-derivation says; empty if the run holds.
        levels: of files, derivation, redraw, rescoring and signature: whether it was checked, or what that takes.
        found: what was read on the way; None where something of it couldn't be.
        unfinished: whether the run was begun and hasn't bound its files yet.
    """

    differences: tuple[Difference, ...]
    checked: tuple[str, ...]
    levels: Mapping[str, str]
    found: Found | None = None
    unfinished: bool = False

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget verify`."""
        return {
            "schema": "calibudget.verification/1",
            "ok": not self.differences,
            "unfinished": self.unfinished,
            "levels": dict(self.levels),
            "checked": list(self.checked),
            "differences": [asdict(difference) for difference in self.differences],
        }


def verify(
    run_dir: str | Path,
    *,
    data_dir: str | Path | None = None,
    previous: Ledger | None = None,
    key: str | Path | None = None,
    model: str | None = None,
    sample: int = 20,
) -> Verification:
    """Re-derive everything derivable of a finished run and say what differs.

    Checked: sums, the manifest's self digest and bindings, keys and roles of the splits, the statistics from the
    scores, the allocation from statistics and pools (and once more by an independent checker), the picks from
    splits and quotas, every row of the train set from its own original fields, the manifest's own fields, and of an
    evaluation in the directory what follows from its predictions and their texts.

    Args:
        run_dir: the run directory; nothing in it is changed.
        data_dir: where the recipe's sources lie; they are then read again, and files, counts, splits and originals
            compared too.
        previous: the ledger that the directories of the earlier rounds give (`pipeline.rounds.ledger_of`), to be
            compared with the one that a later round keeps.
        key: a file with a public key (or a private one), whose signature of the files is then checked too.
        model: a name or a directory of the model that scored; `sample` calibration records are then scored again, which
            takes `data_dir`.
        sample: how many records are scored again.

    Raises:
        ArtefactError: there is no such directory. Whatever is wrong inside it is a difference, never an error.
        InputError: the key can't be read, the model can't be used, or there is one and no `data_dir`.
        DependencyError: an extra that signatures or models take isn't installed.
    """
    directory = Path(run_dir)
    if not directory.is_dir():
        raise ArtefactError(f"{directory}: no such run directory")
    if model is not None and data_dir is None:
        raise InputError("scoring records again takes their texts: say where the sources lie (--data-dir)")
    findings = Findings(directory)
    _check_files(findings)
    manifest, digest = findings.read(MANIFEST.name, lambda path: _read_manifest(findings, path)) or (None, "")
    files = _read_files(findings, manifest, model, previous)
    found = None
    if files is not None:
        outcome = _derive(findings, files)
        hygiene = check_hygiene(findings, files) if has_hygiene(files.fields) else None
        if not (directory / EVALUATION_WORK).is_dir():
            check_evaluation(findings, files.splits)
        if data_dir is not None:
            prepared = check_sources(findings, files, Path(data_dir))
            if prepared is not None and model is not None and files.is_scored:
                check_rescored(findings, prepared, model, sample)
        plan, drawn = outcome.plan, outcome.selection
        if manifest is not None and plan is not None and drawn is not None:
            found = Found(manifest=manifest, manifest_sha256=digest, plan=plan, tokens=drawn.tokens, hygiene=hygiene)
    if key is not None:
        check_signature(findings, Path(key))
    return Verification(
        levels=_levels(directory, data_dir=data_dir, key=key, model=model),
        differences=tuple(findings.differences),
        checked=tuple(findings.checked),
        found=found,
        unfinished=not is_finished(directory) and (directory / RECIPE_NAME).exists(),
    )


def verified(directory: Path, so: str, refusal: type[CalibudgetError] = ArtefactError) -> Found:
    """What was read of a run that verifies; of another one `so` says in the refusal what is therefore not done."""
    verification = verify(directory)
    if verification.differences:
        first = verification.differences[0]
        raise refusal(f"{directory}: doesn't verify, so {so}: {first}; `calibudget verify` says more")
    assert verification.found is not None  # noqa: S101 - without differences everything was read
    return verification.found


def check_distribution(directory: Path | None = None) -> Verification:
    """Compare every file of an unpacked sdist, or the installed package, with its `SHA256SUMS.tsv` (paper, appendix).

    Files that Python compiled, and the metadata that a builder adds to an sdist, aren't bound.

    Raises:
        ArtefactError: there are no sums: a checkout or an editable install, whose files change as they like.
    """
    root = directory or Path(str(files("calibudget")))
    if not (root / SUMS_NAME).exists():
        raise ArtefactError(
            f"{root}: holds no {SUMS_NAME}; wheels and sdists do, a checkout and an editable install don't"
        )
    made = ("PKG-INFO", ".gitignore")
    differences = [one for one in check_sums(root) if "__pycache__" not in one.file.split("/") and one.file not in made]
    return Verification(
        differences=tuple(differences),
        checked=("distribution: length and digest of every file that it was built of",),
        levels={"files": "checked"},
    )


def _check_files(findings: Findings) -> None:
    unfinished = {name: makes for name, makes in UNFINISHED.items() if (findings.directory / name).is_dir()}
    findings.extend(check_sums(findings.directory, unfinished))
    findings.checked.append(f"{SUMS_NAME}: the length and digest of every file, and that there are no others")
    if unfinished:
        findings.checked.append(f"not judged: what {' and '.join(unfinished)} is unfinished work of")


def _levels(
    directory: Path, *, data_dir: str | Path | None, key: str | Path | None, model: str | None
) -> dict[str, str]:
    """What was checked and what wasn't, by level, in words."""
    rescored = "checked" if model is not None else "not checked: name the model (--model)"
    signed = "not checked: give the signer's key (--key)" if (directory / SIGNATURE_NAME).exists() else "not signed"
    return {
        "files": "checked",
        "derivation": "checked",
        "redraw": "checked" if data_dir is not None else "not checked: say where the sources lie (--data-dir)",
        "rescoring": rescored if (directory / SCORES_NAME).exists() else "nothing was scored",
        "signature": "checked" if key is not None else signed,
    }


def _derive(findings: Findings, files: RunFiles) -> Outcome:
    """Everything from the splits to the manifest, each derived from what was derived before and compared."""
    recipe, manifest, splits = files.recipe, files.manifest, files.splits
    scored = findings.read(SCORES_NAME, read_scores) if files.is_scored else None
    pools = selector = statistics = plan = selection = train = None
    if splits is not None:
        check_splits(findings, recipe, splits)
        if recipe.evaluation_size:
            check_held_out(findings, recipe, splits)
        if (files.ledger is None) == (recipe.rounds is None):
            pools = pools_of(recipe, splits.sources, files.ledger)
        selector = derive_selector(findings, recipe, splits)
        if scored is not None:
            check_scored_records(findings, recipe, splits, scored)
            statistics = _derive_statistics(findings, recipe, splits, scored)
    if pools is not None and files.is_given:
        plan = given_plan(findings, pools)
    elif pools is not None and (statistics is not None or not files.is_scored):
        plan = derive_plan(findings, recipe, pools, statistics)
    if pools is not None and plan is not None and selector is not None:
        companion_count = manifest.companion.count if manifest is not None and manifest.companion is not None else 0
        selection = _derive_selection(findings, selector, pools, plan, companion_count)
    if selection is not None:
        train = check_train(findings, recipe, selection, manifest)
    outcome = Outcome(
        ids={} if splits is None else splits.sources,
        pools=pools,
        scored=scored,
        statistics=statistics,
        plan=plan,
        selection=None if selection is None else digest_selection(selection),
    )
    if manifest is not None:
        check_manifest(findings, files, manifest, outcome, train)
    return outcome


def _read_files(
    findings: Findings, manifest: Manifest | None, model: str | None, previous: Ledger | None
) -> RunFiles | None:
    """What the rest follows from, held to the manifest's digests; None where the recipe can't be read."""
    read = findings.read(RECIPE_NAME, lambda path: _read_recipe(path, model))
    if read is None:
        if manifest is not None:
            check_bindings(findings, manifest, [])
        return None
    recipe, fields = read
    files = RunFiles(recipe=recipe, fields=fields, manifest=manifest, splits=None, ledger=None)
    if manifest is not None:
        names = {*artefact_names(recipe, is_scored=files.is_scored)}
        check_bindings(findings, manifest, names - (set() if has_hygiene(fields) else {HYGIENE.name}))
    splits = findings.read(SPLITS_NAME, read_splits)
    return replace(files, splits=splits, ledger=_read_ledger(findings, recipe, splits, previous))


def _read_recipe(path: Path, model: str | None) -> tuple[Recipe, Mapping[str, object]]:
    """The resolved recipe on the model as this machine has it, and its fields as the file has them."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArtefactError(f"{path.name}: not UTF-8: {error}") from error
    document = parse_document(text, path.name)
    recipe = recipe_from_fields(document.value, document, base_dir=path.parent)
    place = model or model_place(path.parent, recipe)
    return recipe if place is None else recipe.model_copy(update={"model": place}), document.value


def _read_manifest(findings: Findings, path: Path) -> tuple[Manifest, str]:
    value = read_object(path)
    manifest = MANIFEST.parse(value, path.name)
    if not MANIFEST.is_sealed(value):
        found = "another, so a field was edited after the run"
        findings.add(MANIFEST.name, "manifest_sha256", "the digest of the other fields", found)
    return manifest, str(value["manifest_sha256"])


def _read_ledger(findings: Findings, recipe: Recipe, splits: SplitIds | None, previous: Ledger | None) -> Ledger | None:
    """The ledger of a later round, compared with its splits; None in a first round, or where it can't be read."""
    if recipe.rounds is None:
        if previous is not None:
            findings.add(ROUNDS.name, "", "a ledger of earlier rounds", "a recipe that names none")
        return None
    ledger = findings.read(ROUNDS.name, ROUNDS.read)
    if ledger is not None and splits is not None:
        check_ledger(findings, recipe, ledger, splits)
    if ledger is not None and previous is not None:
        findings.compare(ROUNDS.name, ROUNDS.to_json(previous), ROUNDS.to_json(ledger))
        findings.checked.append("rounds: the ledger, from the directories of the earlier rounds")
    return ledger


def _derive_statistics(findings: Findings, recipe: Recipe, splits: SplitIds, scored: ScoreFile) -> Statistics | None:
    """The statistics as they follow from the scores, compared with `statistics.json`."""
    resamples = 0 if recipe.calibration == "none" else recipe.calibration.resamples

    def again() -> Statistics:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself warned of small splits
            seed = recipe.bootstrap_seed
            return statistics_of(scored, splits.pool_sizes, resamples=resamples, bootstrap_seed=seed)

    statistics = findings.derive(STATISTICS.name, "statistics that the scores allow", again)
    stored = findings.read(STATISTICS.name, STATISTICS.read)
    if statistics is not None and stored is not None:
        findings.compare(STATISTICS.name, STATISTICS.to_json(statistics), STATISTICS.to_json(stored))
        findings.checked.append("statistics: means, error rates, bootstrap means and sd, from the scores")
    return statistics


def _derive_selection(
    findings: Findings, selector: RecipeSelector, pools: Pools, plan: AllocationPlan, companion_count: int
) -> Selection | None:
    """The picks as they follow from splits, quotas and selector, compared with `selection.json`."""
    selection = findings.derive(
        SELECTION.name,
        "a selection that pools and quotas allow",
        lambda: replace(pools.draw(plan, selector), companion_count=companion_count),
    )
    stored = findings.read(SELECTION.name, SELECTION.read)
    if selection is not None and stored is not None:
        findings.compare(SELECTION.name, asdict(digest_selection(selection)), asdict(stored))
        findings.checked.append("selection: the picks from splits and quotas, and their digests")
    return selection
