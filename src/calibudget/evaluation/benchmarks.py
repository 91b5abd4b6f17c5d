"""The benchmarks: which records, from files or the hub, and how a model's text on each is judged.

Items whose prompt a training set holds: reported with their ids, since their scores say nothing.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, cast

from calibudget.errors import DataError, InputError, refuse_as
from calibudget.evaluation.aggregates import CODE_TASKS, COMMON_TASKS, MATH_TASKS, MODERN_TASKS
from calibudget.evaluation.panel_prompts import RENDERINGS, Item
from calibudget.keys import order_key
from calibudget.records import Message, Record, SourceFile
from calibudget.scoring.scorer import CalibrationItem
from calibudget.sources.file_formats import flat
from calibudget.sources.identity import identify
from calibudget.sources.inputs import inputs_of
from calibudget.sources.json_files import Fields
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import read_source
from calibudget.store.artefacts import ids_sha256
from calibudget.store.canonical import loads_object
from calibudget.tasks.answers import AnswerSpec
from calibudget.tasks.presets import PRESETS
from calibudget.values import check_labels

#: Who judges a text: the answer parser, the code sandbox, or the instruction checkers.
Check = Literal["answer", "code", "instructions"]
#: Role of the keyed order under which `limit` takes the first items of a task.
_ROLE: Final = "evaluation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Where a benchmark's records are and how long an answer may be.

    Attributes:
        name: its name in panels, files and on the command line.
        path: file below the data directory; empty of the user's own tasks, which say themselves where they are.
        hub: data set of the hub, its subset ("*" for one a task of its own) and split; None likewise.
        max_new_tokens: most tokens decoded an answer; None goes by the kind of answer, as calibration does.
        check: who judges.
    """

    name: str
    path: str = ""
    hub: tuple[str, str | None, str] | None = None
    max_new_tokens: int | None = None
    check: Check = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One task's items, ready to be put to a model.

    Attributes:
        items: each a record and how its answer is checked; ids are unique.
        files: what was read, bound by its bytes.
        left_out: records that the task doesn't ask.
        subset: which part of the task the items are, in words; None for all.
    """

    task: Task
    items: tuple[CalibrationItem, ...]
    files: tuple[SourceFile, ...]
    left_out: int
    subset: str | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    @property
    def items_sha256(self) -> str:
        """Digest of the ids asked, in code-point order."""
        return ids_sha256(sorted(item.record.record_id for item in self.items))

    @property
    def own_answer(self) -> AnswerSpec | None:
        """How the answers of a task of the user's own are checked; None for a task of `TASKS`."""
        return None if self.name in TASKS else self.items[0].answer

    def limited(self, count: int) -> Benchmark:
        """The first `count` items in keyed order; all where there are no more."""
        order = sorted(self.items, key=lambda item: order_key(_ROLE, 0, self.name, item.record.record_id))
        subset = ", ".join(filter(None, [self.subset, f"first {count} in keyed order"]))
        return replace(self, items=tuple(order[:count]), subset=subset)

    def only(self, ids: Iterable[str]) -> Benchmark:
        """The items with these ids, in their order.

        Raises:
            DataError: one of them isn't there.
        """
        by_id = {item.record.record_id: item for item in self.items}
        wanted = list(ids)
        missing = [one for one in wanted if one not in by_id]
        if missing:
            raise DataError(
                f"task {self.name!r}: ids that aren't there: {len(missing):,} of {len(wanted):,}, "
                f"the first {missing[0]!r}"
            )
        return replace(self, items=tuple(by_id[one] for one in wanted))


def _commonsense(name: str, hub: str, subset: str | None, split: str) -> Task:
    return Task(name=name, path=f"commonsense/{name}.test.jsonl.gz", hub=(hub, subset, split), max_new_tokens=32)


def _modern(name: str, file: str, hub: tuple[str, str | None, str], tokens: int, check: Check = "answer") -> Task:
    return Task(name=name, path=f"modern/{file}.jsonl.gz", hub=hub, max_new_tokens=tokens, check=check)


#: The ten tasks of the paper and the six of the modern panel, by name.
TASKS: Final[Mapping[str, Task]] = MappingProxyType(
    {
        task.name: task
        for task in (
            Task(
                name="math",
                path="math/math.test.jsonl.gz",
                hub=("DigitalLearningGmbH/MATH-lighteval", None, "test"),
                max_new_tokens=512,
            ),
            Task(
                name="gsm8k", path="math/gsm8k.test.jsonl.gz", hub=("openai/gsm8k", "main", "test"), max_new_tokens=512
            ),
            _commonsense("boolq", "google/boolq", None, "validation"),
            _commonsense("piqa", "ybisk/piqa", None, "validation"),
            _commonsense("social_i_qa", "allenai/social_i_qa", None, "validation"),
            _commonsense("hellaswag", "Rowan/hellaswag", None, "validation"),
            _commonsense("winogrande", "allenai/winogrande", "winogrande_xl", "validation"),
            _commonsense("arc_easy", "allenai/ai2_arc", "ARC-Easy", "test"),
            _commonsense("arc_challenge", "allenai/ai2_arc", "ARC-Challenge", "test"),
            _commonsense("openbookqa", "allenai/openbookqa", "main", "test"),
            _modern("bbh", "bbh.test", ("SaylorTwift/bbh", "*", "test"), 256),
            _modern("gsm_plus", "gsmplus_testmini.test", ("qintongli/GSM-Plus", None, "testmini"), 512),
            _modern("humaneval", "humaneval.test", ("openai/openai_humaneval", None, "test"), 512, "code"),
            _modern("ifeval", "ifeval.test", ("google/IFEval", None, "train"), 1280, "instructions"),
            _modern("math500", "math500.test", ("HuggingFaceH4/MATH-500", None, "test"), 512),
            _modern("mbpp", "mbpp.all", ("google-research-datasets/mbpp", "full", "test"), 512, "code"),
        )
    }
)
#: Name of the frozen panel (`frozen_panel`) on the command line and in the evidence.
PANEL: Final = "panel-320"
#: Stands among tasks for a run's own evaluation split, and is its panel's name; its tasks' names begin with it.
HELD_OUT: Final = "held-out"
#: Names that stand for several tasks on the command line.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "math-tasks": MATH_TASKS,
        "commonsense": COMMON_TASKS,
        "paper": (*MATH_TASKS, *COMMON_TASKS),
        "modern": MODERN_TASKS,
        PANEL: MODERN_TASKS,
        "code": CODE_TASKS,
        "all": (*MATH_TASKS, *COMMON_TASKS, *MODERN_TASKS),
    }
)


def expand_tasks(names: Iterable[str]) -> dict[str, str | None]:
    """Task names and groups to tasks, each with the file that the user gave it ("hellaswag=my/file.jsonl").

    Any other name with a file is a task of the user's own; `HELD_OUT` stands for itself, since a run's recipe knows its
    tasks.

    Raises:
        InputError: an unknown name (the known ones are listed), one given twice, or none.
    """
    found: dict[str, str | None] = {}
    for text in names:
        name, _, path = text.partition("=")
        if name in (*GROUPS, HELD_OUT) and path:
            raise InputError(f"task {text!r}: {name} is several tasks, which take a file each: task=file")
        if name not in (*TASKS, *GROUPS, HELD_OUT):
            _check_own_name(name, has_file=bool(path))
        for task in GROUPS.get(name, (name,)):
            if task in found:
                raise InputError(f"task {task!r} is given twice")
            found[task] = path or None
    if not found:
        raise InputError(f"no task is given; choose of {', '.join([*TASKS, *GROUPS])}")
    return found


def _check_own_name(name: str, *, has_file: bool) -> None:
    if not has_file:
        known = ", ".join([*TASKS, *GROUPS, HELD_OUT])
        raise InputError(f"task {name!r} is unknown; choose of {known}, or say name=file for a task of your own")
    with refuse_as(InputError, f"task {name!r}: can't be the name of a task", ValueError):
        check_labels([name])
    if name.startswith(HELD_OUT):
        raise InputError(f"task {name!r}: names that begin with {HELD_OUT!r} are those of a run's own evaluation split")


def has_choices(name: str) -> bool:
    """Whether every item of a task is multiple choice, so that it can be judged by likelihood too."""
    return name in PRESETS and PRESETS[name].answer.kind == "choice"


def check_likelihood(names: Iterable[str]) -> None:
    """Refuse to judge tasks by likelihood of which none has choices, as far as that is known by their names."""
    names = list(names)
    if all(name in TASKS for name in names) and not any(map(has_choices, names)):
        known = ", ".join(filter(has_choices, TASKS))
        raise InputError(
            f"likelihood: none of the tasks asked ({', '.join(names)}) is multiple choice; those are {known}"
        )


def load_benchmark(name: str, data_dir: Path | None, *, path: str | None = None) -> Benchmark:
    """Read the records of a task of `TASKS`, from files below `data_dir`; without one from the hub or its cache.

    A path or glob is read instead of the task's own file, in original fields or the instruction format.

    Raises:
        DataError: a file is missing or can't be read, or a record can't be used (a label out of range, no gold);
            file and line are named.
        DependencyError: the hub or a checker needs a package that isn't installed.
    """
    task = TASKS[name]
    source = _source(task, data_dir, path)
    root = data_dir or Path()
    return _rendered(task, source, root) if name in RENDERINGS else _from_preset(task, source, root)


def _source(task: Task, data_dir: Path | None, path: str | None) -> SourceSpec:
    preset = None if task.name in RENDERINGS else task.name
    if path is not None or data_dir is not None:
        return SourceSpec(label=task.name, kind="task", path=path or task.path, preset=preset, duplicates="keep")
    hub, subset, split = task.hub or ("", None, "")
    return SourceSpec(
        label=task.name, kind="task", hub=hub, subset=subset, split=split, preset=preset, duplicates="keep"
    )


def own_benchmark(source: SourceSpec, data_dir: Path | None) -> Benchmark:
    """A task of the user's own, its records read as those of a source.

    Warns:
        UserWarning: rows have columns that nothing uses.
    """
    return _from_preset(Task(name=source.label), replace(source, kind="task", duplicates="keep"), data_dir or Path())


def _from_preset(task: Task, source: SourceSpec, data_dir: Path) -> Benchmark:
    read = read_source(source, data_dir)
    if task.name not in TASKS and read.tally.columns_not_used:
        warnings.warn(f"{source.name}: columns not used: {', '.join(read.tally.columns_not_used)}", stacklevel=2)
    items = tuple(CalibrationItem(record=record, answer=source.answers) for record in read.records)
    return Benchmark(task=task, items=items, files=read.files, left_out=0)


def _rendered(task: Task, source: SourceSpec, data_dir: Path) -> Benchmark:
    files: list[SourceFile] = []
    items: list[CalibrationItem] = []
    seen: Counter[str] = Counter()
    left_out = 0
    for tell_place, fields in _rows(source, data_dir, files):
        try:
            if isinstance(fields, DataError):
                raise fields
            item = RENDERINGS[task.name](fields)
        except DataError as error:
            raise DataError(f"task {task.name!r}: {tell_place()}: {error}") from error
        if item is None:
            left_out += 1
            continue
        record = _record(task.name, item, fields)
        seen[record.record_id] += 1
        if seen[record.record_id] > 1:
            record = replace(record, record_id=f"{record.record_id}#{seen[record.record_id]}")
        items.append(CalibrationItem(record=record, answer=item.answer))
    if not items:
        raise DataError(f"task {task.name!r}: no records in {', '.join(source.paths) or source.hub}")
    return Benchmark(task=task, items=tuple(items), files=tuple(files), left_out=left_out)


def _rows(source: SourceSpec, data_dir: Path, files: list[SourceFile]) -> Iterator[tuple[Callable[[], str], Fields]]:
    """All rows with where they stand, in words; the files are bound as they are read."""
    for part in _parts(source):
        named = {"task": part.subset} if part.hub else {}
        for given in inputs_of(part, data_dir)[0]:
            for at, fields in flat(given.blocks()):
                yield partial(given.place, at), fields if isinstance(fields, DataError) else {**named, **fields}
            files.append(given.bound())


def _parts(source: SourceSpec) -> Sequence[SourceSpec]:
    """The source, or of a hub data set the subsets that make up the task."""
    if source.subset != "*":
        return [source]
    from datasets import get_dataset_config_names

    return [replace(source, subset=name) for name in sorted(get_dataset_config_names(source.hub))]


def _record(task: str, item: Item, fields: Mapping[str, object]) -> Record:
    identity = identify((Message(role="user", content=item.question),), item.reference)
    return Record(
        source=task,
        record_id=item.own_id or identity.record_id,
        prompt_hash=identity.prompt_hash,
        prompt=(Message(role="user", content=item.prompt.strip()),),
        completion=item.reference.strip(),
        answer=item.gold,
        original=fields,
    )


def training_prompts(path: Path) -> frozenset[str]:
    """Prompt hashes of a training set: `train.jsonl`, `train.parquet`, or any file that a source could be.

    Raises:
        DataError: the file is missing or holds no training examples; file and line are named.
    """
    spec = SourceSpec(label="train", path=str(path.absolute()), duplicates="keep")
    return frozenset(record.prompt_hash for record in read_source(spec, path.parent).records)


def calibration_items(benchmark: Benchmark, record_ids: Iterable[str]) -> tuple[str, ...]:
    """Ids of the items that are one of these records, prompt and response alike; in code-point order."""
    known = frozenset(map(bare_id, record_ids))

    def is_known(record: Record) -> bool:
        return bare_id(record.record_id) in known or identify(record.prompt, record.completion).record_id in known

    return tuple(sorted(item.record.record_id for item in benchmark.items if is_known(item.record)))


def bare_id(record_id: str) -> str:
    """An id without the number that copies of one record bear under `duplicates: keep`."""
    return re.sub(r"#\d+$", "", record_id)


def shared_items(benchmark: Benchmark, prompts: Iterable[str]) -> tuple[str, ...]:
    """Ids of the items whose prompt, case and spacing apart, is one of these; in code-point order."""
    known = frozenset(prompts)
    return tuple(sorted(item.record.record_id for item in benchmark.items if item.record.prompt_hash in known))


PANEL_SIZE: Final = 320
_PANEL_FILE: Final = "panel-320.json"


def frozen_panel() -> dict[str, tuple[str, ...]]:
    """The committed panel: 320 prompts spread equally over the six modern tasks, ids by task in keyed order.

    The paper's panel has as many prompts over the same six data sets; which ones, it doesn't say. Ours are the first of
    each task in keyed order under the role "panel", as many as `apportion` gives each at equal weight. The file, not
    this rule, says which prompts are asked.
    """
    data = (resources.files("calibudget.evaluation") / _PANEL_FILE).read_bytes()
    tasks = cast("dict[str, list[str]]", loads_object(data, _PANEL_FILE)["tasks"])
    return {task: tuple(own) for task, own in tasks.items()}


def on_panel(benchmark: Benchmark) -> Benchmark:
    """A modern benchmark cut down to its prompts of the panel.

    Raises:
        DataError: the task has no part in the panel, or the data lacks one of its prompts.
    """
    picks = frozen_panel()
    if benchmark.name not in picks:
        raise DataError(f"task {benchmark.name!r} has no part in the panel; it has {', '.join(picks)}")
    return replace(benchmark.only(picks[benchmark.name]), subset=PANEL)
