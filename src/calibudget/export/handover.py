"""`calibudget export`: a finished run's train set in the form and with the configuration that a trainer wants."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from calibudget.errors import ArtefactError, InputError, requires
from calibudget.export.configuration import configuration
from calibudget.export.trainer_rows import write_blend, write_croissant, write_messages, write_tokens
from calibudget.export.trainers import Job, Trainer, trainer_named
from calibudget.messages import counted
from calibudget.pipeline.progress import Progress, silent, whole
from calibudget.pipeline.run_directory import check_no_run
from calibudget.pipeline.train import (
    FinishedRun,
    check_model,
    encoded,
    finished_run,
    model_of,
    rows_to_encode,
    training_options,
    within_context,
)
from calibudget.pipeline.verify import verified
from calibudget.store.canonical import canonical_json
from calibudget.store.checksums import file_digest
from calibudget.store.files import directory_lock, make_directory, write_atomic
from calibudget.store.manifest import Manifest
from calibudget.store.train_set import copy_train, read_train
from calibudget.training.config import TrainingConfig
from calibudget.training.data import TrainingExample, record_of
from calibudget.training.example_order import warmup_steps

#: What `export` says of itself in the exported folder.
EXPORT_NAME = "export.json"
#: Training options that tokens and their counts follow from, without a configuration.
_OPTIONS_OF_ROWS = frozenset({"epochs", "max_length", "too_long"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was handed over.

    Attributes:
        examples: the rows as token ids, in the order of the train set; empty where no tokens were made.
        left_out: what of the training the trainer can't be told, by field, and what it does instead.
    """

    trainer: str
    folder: Path
    examples: tuple[TrainingExample, ...]
    left_out: dict[str, str]
    fields: dict[str, object]


def export(
    run_dir: str | Path,
    trainer: str,
    output_dir: str | Path,
    overrides: Sequence[str] = (),
    *,
    model: str | None = None,
    allow_other_model: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write a finished run's train set for one of `TRAINERS`, into a folder that isn't there yet, or is empty.

    The run has to verify. Overrides and the rest are as `train` takes them.

    Raises:
        InputError: no such trainer, or an option that isn't used for it.
        ArtefactError: the run isn't finished or doesn't verify, or the folder holds something or lies in a run's.
        TrainingError: options or rows that can't be trained on, another model, or one that the trainer doesn't know.
        DependencyError: the model's libraries are missing.
    """
    target, directory, output = trainer_named(trainer), Path(run_dir), Path(output_dir)
    run = finished_run(directory)
    check_no_run(output.parent)
    if output.is_symlink() or (output.exists() and (not output.is_dir() or any(output.iterdir()))):
        raise ArtefactError(f"{output}: holds something already, or is a link; name a new or an empty folder")
    _check_used(target, overrides)
    if target.trains:
        with requires(f"export --for {trainer}", "train"):
            import calibudget.training.target_layers  # noqa: F401 - before the long part, whether it is there
    options = training_options(run.recipe, overrides)
    with whole(progress, "verifying"):
        verified(directory, "nothing is handed over")
    with _new_folder(output) as folder:
        if target.rows in ("hub", "croissant"):
            made = _TrainSet(run=run, config=options.config)
        else:
            made = _with_tokens(run, options, model, allow_other_model=allow_other_model, progress=progress)
        exported = _write(trainer, target, made, folder)
    return replace(exported, folder=output)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrainSet:
    """A train set to hand over: as it is, or as token ids with the model that they belong to."""

    run: FinishedRun
    config: TrainingConfig
    outline: Any = None
    encoder: Any = None
    examples: tuple[TrainingExample, ...] = ()


def _check_used(target: Trainer, overrides: Sequence[str]) -> None:
    """Refuse training options that nothing in the folder would follow."""
    for name in (option.partition("=")[0].strip() for option in overrides):
        if not target.trains and not (target.rows == "blend" and name in _OPTIONS_OF_ROWS):
            raise InputError(
                f"{name}: no configuration is written for {target.title} that could follow it; leave it out"
            )


def _with_tokens(
    run: FinishedRun, options: Any, model: str | None, *, allow_other_model: bool, progress: Progress
) -> _TrainSet:
    """Encode the train set as `train` does, without loading the model's weights."""
    from calibudget.lm.loading import outline_model

    outline = outline_model(model or model_of(run.recipe))
    check_model(run.manifest, outline.identity, outline.tokenizer, allow_other=allow_other_model)
    config = within_context(options, outline.context_length)
    encoder, examples = encoded(run.recipe, rows_to_encode(run), outline, config, progress)
    return _TrainSet(run=run, config=config, outline=outline, encoder=encoder, examples=examples)


def _write(trainer: str, target: Trainer, made: _TrainSet, folder: Path) -> Exported:
    """Write rows, configuration, `README.md` and `export.json`."""
    left_out = _left_out(target, made.config)
    fields: dict[str, object] = {
        "schema": "calibudget.export/1",
        "trainer": trainer,
        "manifest_sha256": made.run.manifest_sha256,
        "selected_sha256": made.run.manifest.selection.selected_sha256,
        "template": made.run.recipe.template,
        "left_out": left_out,
    }
    examples, has_place = made.examples, False
    if made.outline is not None:
        from calibudget.lm.loading import tokenizer_digest

        has_place = made.outline.identity["kind"] == "directory"
        spare = len(examples) % min(made.config.batch_size, len(examples))
        if target.whole_batches and spare:
            left_out["batch_size"] = f"makes no step of {counted(spare, 'row')} of each epoch, which fill no batch"
        _write_examples(trainer, target, made, folder)
        fields |= {
            "model": made.outline.identity,
            "tokenizer_sha256": tokenizer_digest(made.outline.tokenizer),
            "rows": len(examples),
            "tokens": sum(example.length for example in examples),
            "taught_tokens": sum(example.response_length for example in examples),
        }
    elif target.rows == "hub":
        fields["rows"] = copy_train(made.run.train_file, folder / "train")
        write_atomic(folder / "dataset_dict.json", canonical_json({"splits": ["train"]}))
    else:
        fields["rows"] = write_croissant(
            folder,
            read_train(made.run.train_file),
            f"calibudget-{made.run.manifest.selection.selected_sha256[:12]}",
            _summary(made.run.manifest),
        )
    text = _card(trainer, target, made.run.manifest, left_out, has_place=has_place)
    write_atomic(folder / "README.md", text.encode())
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    digests = {name: file_digest(folder / name) for name in names if not name.startswith("model/")}
    fields["files"] = {name: {"bytes": found.bytes, "sha256": found.sha256} for name, found in digests.items()}
    write_atomic(folder / EXPORT_NAME, canonical_json(fields))
    return Exported(trainer=trainer, folder=folder, examples=examples, left_out=left_out, fields=fields)


def _write_examples(trainer: str, target: Trainer, made: _TrainSet, folder: Path) -> None:
    if target.rows == "blend":
        texts = made.encoder.rendered([record_of(row) for row in rows_to_encode(made.run)])
        rows = [(example, *text) for example, text in zip(made.examples, texts, strict=True)]
        write_blend(folder, rows, made.config.epochs)
        return
    if target.rows == "messages":
        write_messages(folder, made.examples, made.encoder.bos_id)
    else:
        write_tokens(folder, made.examples, saved=target.rows == "dataset")
    from calibudget.training.target_layers import target_modules

    model, files = _model(made.outline, folder)
    total = -(-len(made.examples) // made.config.batch_size) * made.config.epochs
    job = Job(
        model=model,
        model_files=files,
        model_directory="model" if model == "model" else str(files),
        config=made.config,
        targets=target_modules(made.outline.model, made.config.target_modules),
        examples=len(made.examples),
        warmup_steps=warmup_steps(total, made.config.warmup_fraction),
    )
    for name, data in configuration(trainer, job).items():
        write_atomic(folder / name, data)


def _model(outline: Any, folder: Path) -> tuple[str, Path]:
    """What trainers load: a hub id or a directory; a GGUF file is no model to them, so its conversion goes along."""
    kind, directory = outline.identity["kind"], outline.directory
    if kind == "hub":
        return str(outline.identity["name"]), directory
    if kind == "directory":
        return str(directory.resolve()), directory.resolve()
    (folder / "model").mkdir()
    for path in sorted(directory.iterdir()):
        if path.name != "complete.json":  # the cache's own
            shutil.copyfile(path, folder / "model" / path.name)  # a link would let an edit change the cache
    return "model", folder / "model"


def _left_out(target: Trainer, config: TrainingConfig) -> dict[str, str]:
    """What the trainer can't be told and would do otherwise than the configuration says."""
    left_out = dict(target.without or {})
    usual = TrainingConfig()
    for name in ("beta1", "beta2", "epsilon", "target_modules"):
        if getattr(config, name) == getattr(usual, name):
            left_out.pop(name, None)
    if config.learning_rate_ratio == 1.0:
        left_out.pop("learning_rate_ratio", None)
    if config.loss != "token_mean" and target.trains:
        left_out["loss"] = "trainers take the mean over response tokens"
    if config.recovery_steps and target.trains:
        left_out["recovery_steps"] = "no steps on the companion set after the last epoch"
    return left_out


def _summary(manifest: Manifest) -> str:
    """One sentence on how the examples were chosen."""
    selection = manifest.selection
    beside = f" and {selection.companion_count} of a companion set" if selection.companion_count else ""
    return (
        f"{selection.count} examples of {len(manifest.sources)} sources{beside}, budgeted by the policy "
        f"{manifest.allocation.policy} of CaliBudget."
    )


def _card(
    name: str, trainer: Trainer, manifest: Manifest, left_out: Mapping[str, str], *, has_place: bool = False
) -> str:
    """What the folder holds, how it is used, and what of the training isn't carried over.

    `has_place` is whether the configuration names a directory of this machine.
    """
    front = ["---", "task_categories: [text-generation]", "tags: [calibudget, sft]", "---", ""]
    lines = front if name == "huggingface" else []
    lines += [f"# A train set for {trainer.title}", "", _summary(manifest), ""]
    if trainer.start is not None:
        lines += ["Train in this folder:", "", f"    {trainer.start}", ""]
        if has_place:
            lines += ["The configuration names the model where it lies here. Elsewhere, write its place there.", ""]
    if trainer.rows in ("parquet", "dataset", "messages"):
        lines += [
            "The rows are token ids under the template that was scored. The response and the token that ends it are "
            "taught, the prompt isn't. Row by row they stand in the order of the run's train set.",
            "",
        ]
    lines += [f"| source | {manifest.allocation.unit} |", "|---|---:|"]
    lines += [f"| {_escaped(label)} | {source.quota} |" for label, source in sorted(manifest.sources.items())]
    lines += ["", f"Digest of the selected ids: `{manifest.selection.selected_sha256}`"]
    if left_out:
        lines += ["", f"{trainer.title} can't be told:", ""]
        lines += [f"- `{field}`: {instead}" for field, instead in left_out.items()]
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    """A label as Markdown shows it; the marks that it would read stand behind a backslash."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", label)


@contextmanager
def _new_folder(output: Path) -> Iterator[Path]:
    """A folder that becomes `output` when the block ends, and vanishes with all that it holds when it raises."""
    parent = output.resolve().parent
    name = sha256(output.resolve().name.encode(errors="surrogateescape")).hexdigest()[:16]
    held = parent / f".calibudget-{name}.tmp"  # the same for the same output, so what a killed writer left goes
    folder = held / "files"
    if held.is_symlink():
        raise ArtefactError(f"{held}: is a link, which isn't ours to follow; remove it, or name another folder")
    try:
        made = make_directory(held)
    except OSError as error:
        raise ArtefactError(f"{output}: can't be made: {error.strerror or error}; name another folder") from error
    with directory_lock(held):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder
            with suppress(FileNotFoundError):
                output.rmdir()
            folder.rename(output)
        finally:
            shutil.rmtree(held, ignore_errors=True)
            with suppress(OSError):  # folders that were made for nothing
                for path in made[1:]:
                    path.rmdir()


def check_push(repository: str | None, trainer: str) -> None:
    """Refuse a `--push` that can't be done, before anything is written."""
    if repository is None:
        return
    if trainer != "huggingface":
        raise InputError("--push belongs to --for huggingface: only a data set goes to the hub")
    from huggingface_hub import get_token

    if get_token() is None:
        raise InputError("--push: no token is set; set HF_TOKEN, or log in with `hf auth login`")


def push(folder: Path, repository: str) -> str:
    """Upload an exported `DatasetDict` and its card; the address is returned.

    Raises:
        InputError: the hub refuses it, or can't be reached.
    """
    from datasets import DatasetDict
    from huggingface_hub import HfApi

    try:
        DatasetDict.load_from_disk(str(folder)).push_to_hub(repository, private=True)
        found = HfApi().upload_file(
            path_or_fileobj=str(folder / "README.md"), path_in_repo="README.md", repo_id=repository, repo_type="dataset"
        )
    except Exception as error:  # the hub's client has errors of several libraries, which share no root
        said = " ".join(str(error).split())
        raise InputError(
            f"--push {repository}: {type(error).__name__}: {said}; {folder} is whole, "
            f"`hf upload {repository} {folder} --repo-type dataset --private` tries again"
        ) from error
    return str(getattr(found, "repo_url", repository))
