"""`calibudget train`: its options, and LoRA+ on the train set of a finished run, bound to its manifest."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from calibudget.errors import ArtefactError, RecipeError, TrainingError, requires
from calibudget.hardware import Device
from calibudget.pipeline.progress import Progress, silent, whole
from calibudget.pipeline.run_directory import check_no_run, recipe_of_run, records_again
from calibudget.pipeline.shared_resources import Shared
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import parse_assignment
from calibudget.selection.train_rows import train_row
from calibudget.store.checksums import SUMS_NAME, extend_sums, file_digest
from calibudget.store.files import check_writable, resolved
from calibudget.store.manifest import MANIFEST, Manifest
from calibudget.store.train_set import TRAIN_NAMES, read_train, train_files
from calibudget.training.config import Execution, TrainingConfig, parse_options
from calibudget.training.job import ADAPTER_NAME, TrainingJob, check_usable
from calibudget.training.report import LOG_NAME, Listener, TrainingResult
from calibudget.training.trackers import check_trackers

if TYPE_CHECKING:
    from calibudget.lm.encoding import Encoder
    from calibudget.training.data import TrainingExample
    from calibudget.training.devices import Devices


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What is trained and how it is run.

    Attributes:
        config: the paper's unless told otherwise, with the recipe's training seed.
        given: names of the options that were told; the others are defaults.
    """

    config: TrainingConfig
    execution: Execution
    given: frozenset[str] = frozenset()


def training_options(recipe: Recipe, overrides: Sequence[str] = ()) -> TrainingOptions:
    """The options of a run's training.

    Overrides are `key=value` texts, keys being fields of `TrainingConfig` or `Execution`, values YAML.

    Raises:
        TrainingError: an unknown field, or a value of the wrong type or out of range; the field is named.
    """
    return options_from(recipe, dict(parse_assignment(override, "option") for override in overrides))


def options_from(recipe: Recipe, fields_given: Mapping[str, object]) -> TrainingOptions:
    """`training_options` of options that are values already."""
    given = {"seed": recipe.training_seed, **fields_given}
    of_execution = {field.name for field in fields(Execution)}
    of_config = {key: value for key, value in given.items() if key not in of_execution}
    return TrainingOptions(
        config=parse_options(TrainingConfig, of_config, elsewhere=of_execution),
        execution=parse_options(Execution, {key: value for key, value in given.items() if key in of_execution}),
        given=frozenset(fields_given),
    )


def within_context(options: TrainingOptions, context: int | None) -> TrainingConfig:
    """The configuration for a model's context: a `max_length` that wasn't told is the context where that is shorter.

    Raises:
        TrainingError: a `max_length` that was told is beyond the context.
    """
    config = options.config
    if context is None or config.max_length <= context:
        return config
    if "max_length" in options.given:
        raise TrainingError(
            f"max_length: {config.max_length} is more than the model's context of {context}; say {context} or less, or "
            "leave it out"
        )
    return replace(config, max_length=context)


def train(
    run_dir: str | Path,
    overrides: Sequence[str] = (),
    *,
    also: Sequence[str | Path] = (),
    output_dir: str | Path | None = None,
    model: str | None = None,
    allow_other_model: bool = False,
    resume: bool = False,
    shared: Shared | None = None,
    progress: Progress = silent,
    listener: Listener | None = None,
) -> TrainingResult:
    """Train an adapter on a finished run's train set.

    Args:
        run_dir: the run directory.
        overrides: see `training_options`.
        also: directories of earlier rounds, whose selected examples are trained on too; the companion set is this
            run's.
        output_dir: where `adapter/` and `training.jsonl` go; the run directory itself by default, whose sums then
            bind them too.
        model: another name for the model, such as a directory that holds it; the recipe's by default.
        allow_other_model: train a model other than the one that the run was calibrated on.
        resume: go on with an unfinished training.
        shared: what this training has in common with runs in this process; its model isn't changed.
        progress: told of the stages before training.
        listener: told after each step.

    Returns:
        The result, in every process of a training on several devices.

    Raises:
        ArtefactError: the run isn't finished, its train set isn't the manifest's, or the output is taken.
        TrainingError: options or a train set that can't be trained on, another model than the calibrated one, or
            another tokenizer than the one that a token budget was counted with.
        InterruptedRunError: stopped on request; `resume` goes on.
        DependencyError: torch, transformers, peft or accelerate isn't installed.
    """
    directory = Path(run_dir)
    runs = [finished_run(Path(path)) for path in (directory, *also)]
    options = training_options(runs[0].recipe, overrides)
    with requires("training", "train"):
        from calibudget.training import loop
        from calibudget.training.devices import Devices
    check_trackers(options.execution.report_to)
    output = Path(output_dir) if output_dir is not None else directory
    conclude = partial(_bind, output) if resolved(output) == resolved(directory) else None
    devices = Devices(options.execution.device)
    if devices.is_main:
        if conclude is None:
            check_no_run(output)
        check_usable(output, resume=resume)
        check_writable(output)
    with whole(progress, "loading the model"):
        language_model = _load(model or model_of(runs[0].recipe), devices, options.execution, shared)
    calibrated_on = check_model(
        runs[0].manifest, language_model.identity, language_model.tokenizer, allow_other=allow_other_model
    )
    job = _job(runs, language_model, options, output, calibrated_on, progress)
    return loop.train(job, devices=devices, resume=resume, listener=listener, conclude=conclude)


def _bind(output: Path) -> None:
    made = [output / LOG_NAME, *sorted((output / ADAPTER_NAME).iterdir())]
    extend_sums(output, [path.relative_to(output).as_posix() for path in made])


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A finished run whose train set is the one that its manifest binds."""

    recipe: Recipe
    manifest: Manifest
    manifest_sha256: str
    train_file: Path


def finished_run(directory: Path) -> FinishedRun:
    """A finished run, its train set held against the manifest.

    Raises:
        ArtefactError: it isn't finished, or its train set is another one.
    """
    if not directory.is_dir():
        raise ArtefactError(f"{directory}: is no directory; give the one that `calibudget run` wrote")
    if not (directory / SUMS_NAME).is_file():
        raise ArtefactError(f"{directory}: holds no finished run ({SUMS_NAME} is missing); run the recipe to its end")
    manifest, digest = MANIFEST.read_sealed(directory / MANIFEST.name)
    return FinishedRun(
        recipe=recipe_of_run(directory),
        manifest=manifest,
        manifest_sha256=digest,
        train_file=_check_train_file(directory, manifest),
    )


def _rows(runs: Sequence[FinishedRun]) -> Iterator[dict[str, object]]:
    """The rows of the first run, then the other runs' without their companion sets."""
    yield from rows_to_encode(runs[0])
    for run in runs[1:]:
        yield from (row for row in rows_to_encode(run) if row["role"] == "source")


def rows_to_encode(run: FinishedRun) -> Iterator[dict[str, object]]:
    """The rows of a run as turns to encode: rendered ones are made of their originals again, as those to score were."""
    if not is_rendered(run):
        yield from read_train(run.train_file)
        return
    for role, record in records_again(run.recipe, run.train_file):
        yield train_row(record, role, layout="turns")


def is_rendered(run: FinishedRun) -> bool:
    """Whether the rows of a run hold texts under the template."""
    return (run.manifest.train_set or {}).get("layout") == "rendered"


def _evidence(runs: Sequence[FinishedRun], calibrated_on: str | None) -> dict[str, object]:
    """What the adapter's card says of where its train set comes from."""
    first = runs[0].manifest
    evidence: dict[str, object] = {
        "manifest_sha256": runs[0].manifest_sha256,
        "selected_sha256": first.selection.selected_sha256,
        "train_sha256": first.artefacts[train_files(runs[0].train_file.name)[0]].sha256,
        "policy": first.allocation.policy,
    }
    if calibrated_on is not None:
        evidence["calibrated_on"] = calibrated_on
    if len(runs) > 1:
        evidence["earlier_manifests_sha256"] = [run.manifest_sha256 for run in runs[1:]]
    return evidence


def _check_train_file(directory: Path, manifest: Manifest) -> Path:
    """The train set, its bytes those that the manifest binds."""
    names = [name for name in TRAIN_NAMES if manifest.artefacts.keys() >= set(train_files(name))]
    if len(names) != 1:
        raise ArtefactError(f"{directory}: its manifest binds {len(names)} train sets, not one")
    for file in train_files(names[0]):
        if file_digest(directory / file) != manifest.artefacts[file]:
            raise ArtefactError(
                f"{directory / file}: isn't the train set of {MANIFEST.name} (its digest differs); `calibudget verify` "
                "says more"
            )
    return directory / names[0]


def model_of(recipe: Recipe) -> str:
    """The model that a run's recipe names."""
    if recipe.model is None:
        raise RecipeError("the run's recipe names no model; name one with --model")
    return recipe.model


def _load(name: str, devices: Devices, execution: Execution, shared: Shared | None) -> Any:
    """A model to put factors on: loaded for that, or a twin of the shared one; on a CPU if it is to be parted."""
    from calibudget.lm.loading import load_model, twin
    from calibudget.lm.quantised import ON_LOADING

    where = cast(Device, devices.device.type)
    if devices.shards(execution.shard):
        if execution.dtype in ON_LOADING:
            raise TrainingError(f"shard: a model in {execution.dtype} isn't parted; leave one of the two out")
        of_a_gpu = where == "cuda" and execution.dtype == "auto"
        return load_model(name, device="cpu", dtype="bfloat16" if of_a_gpu else execution.dtype)
    if shared is None:
        return load_model(name, device=where, dtype=execution.dtype)
    return twin(shared.model(name, device=where, dtype=execution.dtype))


def check_model(manifest: Manifest, identity: Mapping[str, object], tokenizer: Any, *, allow_other: bool) -> str | None:
    """The model that a run was calibrated on, where that is another one than this, which has to be allowed.

    Raises:
        TrainingError: it is another one, or counts tokens otherwise than the run's budget did, and isn't allowed.
    """
    from calibudget.lm.loading import tokenizer_digest

    calibrated_on = _other_model(manifest, identity, tokenizer)
    if calibrated_on is not None and not allow_other:
        raise TrainingError(
            f"the run was calibrated on {calibrated_on} and this is {_named(identity)}: quotas don't carry over to "
            "another model; train the calibrated one, or say --allow-other-model"
        )
    counted = (manifest.token_counter or {}).get("tokenizer_sha256")
    if not allow_other and counted is not None and counted != tokenizer_digest(tokenizer):
        raise TrainingError(
            f"the run's token budget was counted with another tokenizer than that of {identity.get('name')!r}: a token "
            "is another amount of text there; train the model that the recipe names, or say --allow-other-model"
        )
    return calibrated_on


def _other_model(manifest: Manifest, loaded: Mapping[str, object], tokenizer: Any) -> str | None:
    """The model that a run was calibrated on, if that is another one: quotas don't carry over (paper 5).

    Of a model that a server held the tokenizer alone is known.
    """
    from calibudget.lm.loading import tokenizer_digest

    calibrated = None if manifest.scorer is None else manifest.scorer.get("model")
    if not isinstance(calibrated, Mapping):
        return None
    if calibrated.get("kind") == "server":
        is_same = calibrated.get("tokenizer_sha256") == tokenizer_digest(tokenizer)
        return None if is_same else _named(calibrated)
    key = "sha256" if calibrated.get("sha256") else "name"
    return None if calibrated.get(key) == loaded.get(key) else _named(calibrated)


def _named(model: Mapping[str, object]) -> str:
    digest = f" (sha256 {model['sha256']})" if model.get("sha256") else ""
    return f"{model.get('name')!r}{digest}"


def encoded(
    recipe: Recipe,
    rows: Iterable[Mapping[str, object]],
    language_model: Any,
    config: TrainingConfig,
    progress: Progress,
) -> tuple[Encoder, tuple[TrainingExample, ...]]:
    """Rows as they are trained on, and what encoded them."""
    from calibudget.lm.encoding import Encoder
    from calibudget.training.data import encode_examples

    progress("encoding", 0, None)
    encoder = Encoder(recipe.template, language_model.tokenizer, embedding_size=language_model.embedding_size)
    examples = encode_examples(rows, encoder, max_length=config.max_length, too_long=config.too_long)
    progress("encoding", len(examples), len(examples))
    return encoder, examples


def _job(
    runs: Sequence[FinishedRun],
    language_model: Any,
    options: TrainingOptions,
    output: Path,
    calibrated_on: str | None,
    progress: Progress,
) -> TrainingJob:
    """What is trained: the rows of all runs, encoded."""
    recipe, config = runs[0].recipe, within_context(options, language_model.context_length)
    if recipe.max_length is not None and config.max_length < recipe.max_length:
        warnings.warn(
            f"max_length {config.max_length} is less than the calibration.max_length {recipe.max_length} that the run "
            f"was measured with: longer examples are {'refused' if config.too_long == 'refuse' else 'cut'}",
            stacklevel=3,
        )
    _, examples = encoded(recipe, _rows(runs), language_model, config, progress)
    return TrainingJob(
        language_model=language_model,
        examples=examples,
        config=config,
        execution=options.execution,
        output_dir=output,
        evidence=_evidence(runs, calibrated_on),
    )
