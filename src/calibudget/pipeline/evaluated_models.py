"""What `calibudget evaluate` is pointed at: a model, a run, or several adapters of one base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from calibudget.errors import ArtefactError, InputError, ScoringError
from calibudget.evaluation.generation import MakeScorer
from calibudget.evaluation.results import EVALUATION
from calibudget.hardware import Device, Dtype
from calibudget.lm.loading import adapted, check_adapter_files, check_loadable
from calibudget.pipeline.progress import Progress, whole
from calibudget.pipeline.run_directory import EVALUATION_WORK, RECIPE_NAME, recipe_of_run
from calibudget.pipeline.shared_resources import Shared
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import Scorer, ScorerSettings
from calibudget.store.manifest import MANIFEST
from calibudget.store.train_set import TRAIN_NAMES
from calibudget.values import check_labels, nfc

if TYPE_CHECKING:
    from calibudget.lm.loading import LanguageModel

Template = Literal["alpaca", "chat"]

#: Folder of a run's trained adapter.
ADAPTER_NAME: Final = "adapter"
#: The model's identity in evaluations of a run that the fake scorer made.
FAKE: Final[Mapping[str, object]] = {
    "name": "fake",
    "note": "texts are made from hashes, by no model: the scores say nothing of any",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How texts are generated; see `LocalScorer` and `load_model`. No template means the run's own, else alpaca."""

    template: Template | None = None
    device: Device = "auto"
    dtype: Dtype = "auto"
    batch_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is evaluated.

    Attributes:
        adapters: directories of adapters by name; None is the base itself.
        output: where results go; with several adapters, where each has a folder.
        train: the run's training set, None where there is no run.
        is_fake: whether the run's scores are those of the fake scorer, whose texts are its own too.
        sha256: digest that the model must have, since the results join the run that it scored; None for any.
    """

    model: str
    adapters: Mapping[str, Path | None]
    output: Path
    train: Path | None = None
    template: Template = "alpaca"
    is_fake: bool = False
    sha256: str | None = None

    @property
    def outputs(self) -> list[Path]:
        """Where each adapter's results go."""
        return [self.output / name for name in self.adapters]


class Scored(NamedTuple):
    """One adapter's name ("" where there is only one), the scorers of the model under it, and its identity."""

    name: str
    make_scorer: MakeScorer
    model: Mapping[str, object]


def find_subject(
    target: str | Path, adapters: Sequence[Path], output_dir: Path | None, model: str | None = None
) -> Subject:
    """What a target stands for: a run directory by its recipe, anything else by its name as a model.

    Raises:
        InputError: a model without an output directory, or named twice; adapters of one name.
    """
    directory = Path(target)
    named: dict[str, Path | None] = _named(adapters)
    if not (directory / RECIPE_NAME).is_file():
        if output_dir is None:
            raise InputError(f"{target}: is no run directory, so name where the results go (--output-dir)")
        if model is not None:
            raise InputError(f"{target}: is no run directory but a model itself, so leave out --model {model}")
        return Subject(model=str(target), adapters=named or {"": None}, output=output_dir)
    recipe = recipe_of_run(directory, model=model)
    own = directory / ADAPTER_NAME
    trains = [directory / name for name in TRAIN_NAMES]
    return Subject(
        model=recipe.model or "",
        adapters=named or {"": own if own.is_dir() else None},
        output=output_dir or directory,
        train=next((path for path in trains if path.exists()), None),
        template=recipe.template,
        is_fake=recipe.engine == "fake" and model is None,
        sha256=_scored_by(directory) if output_dir is None else None,
    )


def _scored_by(directory: Path) -> str | None:
    """Digest of the model that scored a run; None where none did, or the run isn't finished."""
    manifest = MANIFEST.of(directory)
    model = None if manifest is None else (manifest.scorer or {}).get("model")
    sha256 = model.get("sha256") if isinstance(model, Mapping) else None
    return None if sha256 is None else str(sha256)


def _named(adapters: Sequence[Path]) -> dict[str, Path | None]:
    """Adapters by the name of their folder, or of the run that it lies in; one alone needs no name.

    Those whose folders couldn't lie beside each other in the output are refused.
    """
    if len(adapters) == 1:
        return {"": adapters[0]}
    names = [path.absolute().parent.name if path.name == ADAPTER_NAME else path.name for path in adapters]
    seen: dict[str, Path] = {}
    for name, adapter in zip(names, adapters, strict=True):
        try:
            check_labels([name])
        except ValueError as error:
            raise InputError(f"adapter {adapter}: no folder can have its name, {name!r}; rename it") from error
        other = seen.setdefault(nfc(nfc(name).casefold()), adapter)
        if other is not adapter:
            raise InputError(
                f"adapters {other} and {adapter}: both would have the folder {name!r} of the output; rename one "
                "(the folder of a run, for its own adapter), or evaluate them one after another"
            )
    return dict(zip(names, adapters, strict=True))


def check_unbegun(subject: Subject) -> None:
    """Refuse outputs of which one is finished or begun, unless they are to be gone on with."""
    directory, outputs = subject.output, subject.outputs
    finished = [output for output in outputs if (output / EVALUATION.name).exists()]
    if len(finished) == len(outputs):
        raise ArtefactError(f"{directory}: holds an evaluation already; name another --output-dir")
    for output in outputs:
        if (output / EVALUATION_WORK).exists() and output not in finished:
            raise ArtefactError(
                f"{output}: holds an unfinished evaluation; go on with --resume, or delete {EVALUATION_WORK} in it"
            )
    if finished:
        raise ArtefactError(
            f"{directory}: holds the evaluations of {len(finished)} of the {len(outputs)} adapters; "
            "go on with --resume, or name another --output-dir"
        )


def check_subject(subject: Subject, engine: Generation) -> None:
    """Refuse a model or an adapter that can't be loaded, before anything is read for it.

    The fake scorer loads none; adapters that aren't there are refused all the same.
    """
    if subject.is_fake:
        for own in filter(None, subject.adapters.values()):
            check_adapter_files(own)
        return
    for adapter in subject.adapters.values():
        check_loadable(subject.model, device=engine.device, dtype=engine.dtype, adapter=adapter)


def scorers_of(subject: Subject, engine: Generation, shared: Shared | None, progress: Progress) -> Iterator[Scored]:
    """The scorers of each adapter in turn, the base model loaded once, or shared.

    Raises:
        ScoringError, DependencyError: the model or an adapter can't be loaded, or the model is another one.
    """
    if subject.is_fake:
        for name in subject.adapters:
            yield Scored(name, _fake, FAKE)
        return
    from calibudget.lm.loading import load_model

    load = load_model if shared is None else shared.model
    with whole(progress, "loading the model"):
        base = load(subject.model, device=engine.device, dtype=engine.dtype)
    if subject.sha256 not in (None, base.identity["sha256"]):
        raise ScoringError(
            f"model {subject.model!r}: isn't the one that scored this run (sha256 {subject.sha256}); say where that "
            "lies (--model), or name another place for the results (--output-dir)"
        )
    for name, adapter in subject.adapters.items():
        with adapted(base, adapter) as model:
            make = partial(_local, model, engine.template or subject.template, engine.batch_tokens)
            yield Scored(name, cache(make), model.identity)  # a scorer tries its model out, once a setting is enough


def _fake(_max_new_tokens: int | None, *, early_end: bool) -> Scorer:  # noqa: ARG001 - its texts are as long as they are
    return FakeScorer()


def _local(
    model: LanguageModel, template: Template, batch_tokens: int | None, max_new_tokens: int | None, *, early_end: bool
) -> Scorer:
    from calibudget.scoring.local import LocalScorer

    return LocalScorer(
        model,
        ScorerSettings(template=template, batch_tokens=batch_tokens, max_new_tokens=max_new_tokens),
        early_end=early_end,
    )
