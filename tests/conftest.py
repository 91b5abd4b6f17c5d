"""Fixtures that several packages' tests share: a tiny random language model and records for it."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from calibudget.keys import order_key
from calibudget.records import Bootstrap, Message, Record, SourceStatistics, Split, Statistics

# A test that takes long on a busy machine isn't a wrong one; benchmarks measure time.
settings.register_profile("calibudget", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=15)  # for `make check`
settings.load_profile("calibudget")

os.environ.pop("COLUMNS", None)  # readline, which pytest loads, sets it for the processes that test side by side

TEXTS = [
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.",
    "### Instruction: ### Response: the correct answer is answer1 answer2 true false",
    "How many apples are 12 and 345? The quick brown fox jumps over the lazy dog 67890.",
]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ["apple", "river", "seven", "stone", "cloud", "green", "paper", "table", "window", "garden", "silver"]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests keep nothing in the user's cache but models that were converted, which takes a minute; they take these.

    What is known by its content alone, identities, is shared by the processes that test together.
    """
    from calibudget.lm.gguf import cache_root

    base, users = tmp_path_factory.getbasetemp(), cache_root()
    models = base / "cache" / "calibudget" / "models"
    models.mkdir(parents=True)
    identities = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "identities"
    identities.mkdir(exist_ok=True)
    models.with_name("identities").symlink_to(identities)
    for path in users.iterdir() if users.is_dir() else ():
        if path.is_dir():
            (models / path.name).symlink_to(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        yield
    for path in models.iterdir():
        if path.is_dir() and not path.is_symlink() and not (users / path.name).exists():
            users.mkdir(parents=True, exist_ok=True)
            shutil.move(path, users / path.name)


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """A command that was run in this process leaves its signal handlers behind; none of them outlives its test.

    A background job (`nohup make test &`) begins with SIGINT ignored, and so would each process that a test starts:
    within tests it is what it is in the foreground.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if before[signal.SIGINT] == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    unraisable = sys.unraisablehook
    yield
    sys.unraisablehook = unraisable
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def tokenizer_with(
    *, adds_bos: bool = False, pad: str | None = "<|im_end|>", chat_template: Any = CHAT_TEMPLATE
) -> Any:
    """A byte-level BPE trained on the spot: <|endoftext|> 0, <|im_start|> 1, <|im_end|> 2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
        )
    roles: dict[str, Any] = {"bos_token": special[1], "eos_token": special[2], "pad_token": pad}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)
    fast.chat_template = chat_template
    return fast


def model_of(family: str = "llama", **settings: Any) -> Any:
    """A tiny random model of a family, its weights large enough for its words to vary."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    torch.set_num_threads(1)  # threads only get into each other's way on a model of this size
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **(shape | settings)))
    if family == "gemma2":
        model.set_attn_implementation("eager")  # as loading does: see there
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model.eval()


def adapter_of(model: Any, directory: Path, *, seed: int = 0, layers: tuple[str, ...] = ("q_proj",)) -> Path:
    """A random LoRA adapter of a model, written by peft; the model is as it was."""
    import peft
    import torch

    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, target_modules=list(layers), init_lora_weights=False, task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft's own
        wrapped = peft.get_peft_model(model, config)
        wrapped.save_pretrained(str(directory))
        wrapped.unload()
    return directory


def record_of(
    source: str = "apples",
    number: int = 0,
    *,
    prompt: Any = None,
    completion: Any = None,
    answer: Any = None,
    **fields: Any,
) -> Any:
    """A record whose prompt and response vary in length with its number."""
    words = [WORDS[(number * 5 + i * 7) % len(WORDS)] for i in range(3 + number * 5 % 11)]
    asked = prompt or f"{' '.join(words)} {number}?"
    usual: dict[str, Any] = {
        "source": source,
        "record_id": f"{source}-{number:04d}",
        "prompt_hash": f"{number:064x}",
        "prompt": asked if isinstance(asked, tuple) else (Message(role="user", content=asked),),
        "completion": completion or f"the correct answer is answer{number % 2 + 1}",
        "answer": answer or f"answer{number % 2 + 1}",
        "original": {},
    }
    return Record(**(usual | fields))


def statistics_of(sources: Mapping[str, Any], *, error: Any = "nll+wrong", resamples: int = 2) -> Statistics:
    """Statistics of made-up sources; a source's fields are the usual ones but for those that are given."""
    usual = {"pool_size": 500, "calibration_size": 100, "mean_nll": 1.0, "error_rate": 0.5 if error != "nll" else None}
    usual |= {"mean_error": 1.0, "bootstrap_sd": 0.1}
    rows = {label: SourceStatistics(**{**usual, **fields}) for label, fields in sources.items()}
    return Statistics(model={}, error=error, bootstrap=Bootstrap(resamples=resamples, seed=42), sources=rows)


def split_of(records: list[Record], *, calibration: int = 0) -> Split:
    """The split of a source by seeds of 42, whose first records are those that calibrate."""

    def ordered(role: str, of_role: list[Record]) -> tuple[Record, ...]:
        return tuple(sorted(of_role, key=lambda one: order_key(role, 42, one.source, one.record_id)))

    return Split(
        source=records[0].source,
        calibration=ordered("calibration", records[:calibration]),
        candidates=ordered("selection", records[calibration:]),
        read=len(records),
        duplicates=0,
        skipped=0,
        shared_prompts=0,
    )


def write_rows(path: Path, rows: Iterable[object]) -> Path:
    """Write JSON lines, and the folders above them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def bytes_in(directory: Path) -> dict[str, bytes]:
    """A directory's files but for locks, by their paths in it."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets."""
    folder = os.environ.get("CALIBUDGET_DATA")
    if not folder:
        pytest.skip("CALIBUDGET_DATA names no folder with the real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tiny random Llama (115 thousand parameters) and its tokenizer, as safetensors."""
    directory = tmp_path_factory.mktemp("tiny-llama")
    model_of(num_key_value_heads=2).save_pretrained(directory)
    tokenizer_with().save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def embedded() -> Any:
    """The embedded model on the CPU, loaded once in a process; to be used, never changed."""
    from calibudget.lm.loading import load_model

    return load_model("embedded", device="cpu")


@pytest.fixture
def embedded_once(embedded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads the embedded model gets the one that is loaded."""
    from calibudget.lm import loading

    plain = loading.load_model

    def load(model: Any, **more: Any) -> Any:
        name = model if isinstance(model, str) else model.name
        return plain(model, **more) if name != "embedded" or more.get("adapter") else embedded

    monkeypatch.setattr(loading, "load_model", load)


@pytest.fixture
def s3_endpoint(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Point the S3 client at an endpoint, by the environment and fsspec's configuration alone."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("s3fs")
    environment = {
        "AWS_ACCESS_KEY_ID": "an-id",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
    }

    def point(url: str, **options: object) -> None:
        for name, value in {**environment, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setitem(fsspec.config.conf, "s3", options)
        fsspec.get_filesystem_class("s3").clear_instance_cache()

    return point


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The endpoint of an S3 server on this machine."""
    moto = pytest.importorskip("moto.server")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3_bucket(s3_server: str, s3_endpoint: Callable[..., None]) -> Any:
    """The file system of that server, with an empty bucket `rows` in it."""
    import fsspec

    s3_endpoint(s3_server)
    with closing(HTTPConnection(s3_server.removeprefix("http://"))) as connection:
        connection.request("POST", "/moto-api/reset")
        assert connection.getresponse().status == 200
    system = fsspec.filesystem("s3")
    system.mkdir("rows")
    return system


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, and what it told."""

    code: int
    out: str
    err: str


@pytest.fixture(name="calibudget")
def _calibudget(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `calibudget` with these arguments in this process, as the console script does."""
    from calibudget.cli.entry import entry

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["calibudget", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            entry()
        captured = capsys.readouterr()
        return Outcome(code=leave.value.code, out=captured.out, err=captured.err)  # type: ignore[arg-type]

    return call


def fruit_recipe(folder: Path, *, count: int = 24, checked: bool = False, **fields: Any) -> Path:
    """Write a recipe and the rows of its two sources, whose answers go by turns; `fields` are the recipe's own."""
    sources: dict[str, Any] = {}
    for label in ("apples", "pears"):
        rows = [
            {"prompt": f"How many {label} are {i} and {i + 1}?", "completion": f"the correct answer is answer{i % 2}"}
            for i in range(count)
        ]
        write_rows(folder / f"{label}.jsonl", rows)
        answer = {"kind": "choice", "labels": ["answer0", "answer1"]} if checked else "none"
        sources[label] = {"path": f"{label}.jsonl", "answer": answer}
    usual: dict[str, Any] = {"budget": 12, "floor": 4, "error": "nll+wrong" if checked else "nll"}
    usual["calibration"] = {"per_source": 4, "resamples": 2, "max_new_tokens": 4}
    (folder / "recipe.yaml").write_text(json.dumps({**usual, "sources": sources, **fields}))
    return folder / "recipe.yaml"


@pytest.fixture(scope="session")
def fruits_with_cache(tmp_path_factory: pytest.TempPathFactory, tiny_directory: Path) -> tuple[Path, Path]:
    """A finished run with the tiny model, and the cache that knows where its model lies."""
    from calibudget.pipeline.run import run
    from calibudget.recipe.load import load_recipe

    root = tmp_path_factory.mktemp("finished")
    fields: dict[str, Any] = {"model": str(tiny_directory), "data_dir": str(root)}
    recipe = fruit_recipe(root, **fields, companion={"path": "companion.jsonl", "answer": "none"})
    write_rows(root / "companion.jsonl", [{"prompt": f"{n}?", "completion": f"it is answer{n % 2}"} for n in range(3)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        run(load_recipe(recipe), root / "run")
    return root / "run", root / "cache"


@pytest.fixture
def two_fruits(fruits_with_cache: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run with the tiny model; to be copied, never changed.

    Another process that tests makes the same run, and would tell in a cache of both where *its* model lies.
    """
    run_dir, cache = fruits_with_cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return run_dir


#: Fixtures that load torch, transformers or moto: seconds of every process that meets one of them.
_HEAVY = frozenset({"tiny_directory", "model_of", "tokenizer_with", "s3_server"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What loads a model library, or kills and resumes whole processes, is too slow for `make check`."""
    for item in items:
        if "crash" in item.path.parts or not _HEAVY.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None]:
    """One line, at the end, for what a missing program kept from being tested."""
    yield
    skipped = sum("bubblewrap" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    if skipped:
        terminalreporter.write_line(
            f"{skipped} tests of the sandbox were skipped for want of bubblewrap: sudo apt-get install bubblewrap "
            "(Fedora: dnf install bubblewrap)"
        )


@pytest.fixture
def ray_leftovers() -> Iterator[None]:
    """Ray leaves pipes of its own to the garbage collector, whose warning would fail whatever test comes next."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    """A cluster of this machine with two processors, the same for all tests of a module."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
