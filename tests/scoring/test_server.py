"""Scoring with a server: the same scores and quotas as here, and every way in which a server can be wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from calibudget.allocation.bootstrap import summarise
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.errors import ScoringError
from calibudget.lm.loading import load_model
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import ScorerSettings, to_scores
from calibudget.scoring.server import ServerScorer
from calibudget.scoring.server_protocols import KEY
from tests.conftest import fruit_recipe, tokenizer_with
from tests.scoring.conftest import items_of
from tests.scoring.model_server import ModelServer, serving

PROTOCOLS = ["vllm", "sglang", "tgi", "echo", "echo-text"]
few = pytest.mark.filterwarnings("ignore::calibudget.allocation.bootstrap.SmallCalibrationWarning")
WORDS = "open sesame 0123456789"


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibudget.scoring.server_protocols._BACKOFF", 0.0)
    monkeypatch.delenv(KEY, raising=False)


@pytest.fixture(scope="module")
def language_model(tiny_directory: Path) -> Any:
    return load_model(str(tiny_directory), device="cpu")


@pytest.fixture
def server(language_model: Any) -> Iterator[ModelServer]:
    with serving(ModelServer("vllm", language_model)) as running:
        yield running


def server_scorer(url: str, model: object, **settings: Any) -> ServerScorer:
    return ServerScorer(ScorerSettings(kind="openai", base_url=url, model=str(model), **settings))


@pytest.fixture
def scorer_of(server: ModelServer, tiny_directory: Path) -> Callable[..., ServerScorer]:
    def make(**settings: Any) -> ServerScorer:
        return server_scorer(server.url, tiny_directory, **settings)

    return make


def quotas_of(items: Any, measurements: Any) -> dict[str, int]:
    pools = {"apples": 300, "pears": 500}
    statistics = summarise(
        to_scores(items, measurements, "nll+wrong"), pools, model={}, error="nll+wrong", bootstrap_seed=1
    )
    request = AllocationRequest(policy="calibudget", pool_sizes=pools, statistics=statistics, budget=157, floor=10)
    return dict(plan(request).quotas)


@few
@pytest.mark.parametrize(
    ("protocol", "template"), [*((protocol, "alpaca") for protocol in PROTOCOLS), ("vllm", "chat"), ("tgi", "chat")]
)
def test_scores_and_quotas_are_those_of_this_process(
    server: ModelServer, scorer_of: Callable[..., ServerScorer], language_model: Any, protocol: str, template: Any
) -> None:
    server.protocol = protocol
    items = items_of(6)
    here = measure_all(
        LocalScorer(language_model, ScorerSettings(template=template, max_new_tokens=12), early_end=False), items
    )
    scorer = scorer_of(template=template, max_new_tokens=12)
    there = measure_all(scorer, items)
    assert [one.nll for one in there] == pytest.approx([one.nll for one in here], abs=1e-4)
    assert [one.response_tokens for one in there] == [one.response_tokens for one in here]
    assert [one.text for one in there] == [one.text for one in here]
    assert quotas_of(items, there) == quotas_of(items, here)
    model = scorer.describe()["model"]
    assert isinstance(model, dict)
    assert (model["server"], model["name"]) == (protocol.removesuffix("-text"), "served-model")
    assert scorer.describe()["prompts"] == ("text" if protocol in ("tgi", "echo-text") else "token ids")


def shifted(values: list[Any]) -> list[Any]:
    return [*values[1:], values[0]]


def of_prompt_logprobs(change: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A fault that changes vLLM's rows."""

    def fault(path: str, body: Any, reply: Any) -> Any:
        if body is not None and "prompt_logprobs" in body:
            reply["choices"][0]["prompt_logprobs"] = change(reply["choices"][0]["prompt_logprobs"])
        return reply

    return fault


def with_logprobs(value: Callable[[], Any]) -> Callable[[list[Any]], list[Any]]:
    """A fault that gives every token another log-probability."""

    def change(rows: list[Any]) -> list[Any]:
        return [None, *({i: own | {"logprob": value()} for i, own in row.items()} for row in rows[1:])]

    return change


def with_shifted_values(rows: list[Any]) -> list[Any]:
    """The tokens as they are, each with the log-probability of the next."""
    values = iter(shifted([next(iter(row.values()))["logprob"] for row in rows[1:]]))
    return with_logprobs(lambda: next(values))(rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: None, "another form"),
        (shifted, "another tokenizer's, or shifted"),
        (with_shifted_values, "they are shifted"),
        (lambda rows: rows[1:], "they are cut"),
        (lambda rows: [*rows[:-1], None], "without a log-probability"),
        (
            lambda rows: [None, *({str(int(next(iter(r))) + 1): {"logprob": -1.0}} for r in rows[1:])],
            "another tokenizer's",
        ),
        (with_logprobs(lambda: 0.7), "log-probability of 0.7"),
        (with_logprobs(lambda: -1.0), "not the prompt's"),
        (with_logprobs(lambda: True), "no number"),
    ],
)
def test_log_probabilities_that_are_not_the_prompts_are_refused(
    server: ModelServer, scorer_of: Callable[..., ServerScorer], change: Any, words: str
) -> None:
    server.fault = of_prompt_logprobs(change)
    with pytest.raises(ScoringError, match=words):
        scorer_of()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_log_probabilities_of_the_token_behind_are_refused(
    server: ModelServer, scorer_of: Callable[..., ServerScorer], protocol: str
) -> None:
    """Each token's own place instead of the one before it: nothing moves too early, and every value is wrong."""
    server.protocol, server.late = protocol, 1
    with pytest.raises(ScoringError, match="they are another token's"):
        scorer_of()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_tokenizer_is_refused(server: ModelServer, tmp_path: Path, tiny_directory: Path, protocol: str) -> None:
    """The recipe names a model whose tokenizer has the letters in another order than the served one, and no pairs."""
    server.protocol = protocol
    own = json.loads((tiny_directory / "tokenizer.json").read_text())
    letters = [chr(number) for number in range(ord("a"), ord("z") + 1)]
    ids = own["model"]["vocab"]
    own["model"]["vocab"] = ids | {letter: ids[other] for letter, other in zip(letters, letters[::-1], strict=True)}
    own["model"]["merges"] = []
    tokenizer_with().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(own))
    (tmp_path / "config.json").write_bytes((tiny_directory / "config.json").read_bytes())
    with pytest.raises(ScoringError, match="another tokenizer's"):
        server_scorer(server.url, tmp_path)


def once_in(every: int, wrong: Any) -> Callable[..., Any]:
    """A fault at every n-th request."""
    count = iter(range(10**9))
    lock = threading.Lock()

    def fault(path: str, body: Any, reply: Any) -> Any:
        with lock:
            return reply if next(count) % every else wrong

    return fault


@pytest.mark.parametrize("wrong", [(429, {"retry-after": "0"}), None])
def test_busy_servers_and_cut_connections_are_asked_again(
    server: ModelServer, scorer_of: Callable[..., ServerScorer], wrong: Any
) -> None:
    items = items_of(2)
    expected = measure_all(scorer_of(requests=1), items)
    server.fault = once_in(3, wrong)
    asked = len(server.asked)
    assert measure_all(scorer_of(), items) == expected
    assert len(server.asked) - asked > 2 * len(items)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((429, {}), "status 429 after 7 tries"),
        (None, "7 tries"),
        (b"<html>busy</html>", "no JSON"),
        ({"choices": [{"text": 3}]}, "another form"),
        ((400, {}), "status 400"),
    ],
)
def test_what_a_server_does_wrong_later_is_told_with_the_record(
    server: ModelServer, scorer_of: Callable[..., ServerScorer], wrong: Any, words: str
) -> None:
    scorer = scorer_of()
    server.fault = lambda *_: wrong
    with pytest.raises(ScoringError, match=words) as caught:
        scorer.measure(items_of(1, ["apples"]))
    assert "record apples-0000" in str(caught.value) or "tries" in words


def test_a_slow_server_is_refused(server: ModelServer, tiny_directory: Path) -> None:
    released = threading.Event()

    def waiting(*sent: Any) -> Any:
        released.wait()
        return sent[-1]

    server.fault = waiting
    try:
        with pytest.raises(ScoringError, match="timed out"):
            server_scorer(server.url, tiny_directory, timeout=0.02)
    finally:
        released.set()


def test_a_server_that_is_down_or_serves_another_model_is_refused(
    server: ModelServer, scorer_of: Callable[..., ServerScorer], tiny_directory: Path
) -> None:
    with pytest.raises(ScoringError, match=r"doesn't serve 'other'; it serves \['served-model'\]"):
        scorer_of(served_model="other")
    with pytest.raises(ScoringError, match="refused"):
        server_scorer("http://127.0.0.1:9/v1", tiny_directory)


def test_a_key_goes_into_the_header_and_nowhere_else(
    server: ModelServer,
    scorer_of: Callable[..., ServerScorer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(KEY, WORDS)
    caplog.set_level("DEBUG")
    scorer = scorer_of()
    assert {headers["authorization"] for _, headers, _ in server.asked} == {f"Bearer {WORDS}"}
    assert WORDS not in json.dumps(scorer.describe())
    server.fault = lambda *_: f"no such key: {WORDS}".encode()
    with pytest.raises(ScoringError, match=r"no such key: \[secret\]") as caught:
        scorer_of()
    assert WORDS not in str(caught.value)
    server.fault = lambda *_: (401, {})
    with pytest.raises(ScoringError, match=f"takes another key than the one in {KEY}"):
        scorer_of()
    assert WORDS not in caplog.text
    monkeypatch.setenv(KEY, "two\nlines")
    with pytest.raises(ScoringError, match="no header can") as caught:
        scorer_of()
    assert "lines" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://user:pass@host/v1", "http://host/v1?api_key=abc", "file:///etc", "host:8000"])
def test_an_address_with_a_credential_or_without_a_host_is_refused(tiny_directory: Path, url: str) -> None:
    with pytest.raises(ScoringError, match="base_url") as caught:
        server_scorer(url, tiny_directory)
    assert "pass" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_no_request_is_sent_elsewhere(server: ModelServer, scorer_of: Callable[..., ServerScorer]) -> None:
    server.fault = lambda *_: (302, {"location": f"{server.url}/stolen"})
    with pytest.raises(ScoringError, match="status 302"):
        scorer_of()
    assert not [path for path, _, _ in server.asked if "stolen" in path]


@few
def test_a_run_with_a_server_has_the_quotas_of_a_run_here_and_verifies(
    server: ModelServer, tmp_path: Path, tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, WORDS)
    calibration = {"per_source": 8, "max_new_tokens": 8}
    fields: dict[str, Any] = {"model": str(tiny_directory), "budget": 21, "floor": 2, "cache": False}
    recipe = fruit_recipe(tmp_path, count=40, checked=True, calibration=calibration, **fields)
    here = run(load_recipe(recipe), tmp_path / "here")
    there = run(load_recipe(recipe, ["engine=openai", f"base_url={server.url}"]), tmp_path / "there")
    assert there.plan.quotas == here.plan.quotas
    assert (tmp_path / "there/train.jsonl").read_bytes() == (tmp_path / "here/train.jsonl").read_bytes()
    for path in (tmp_path / "there").rglob("*"):
        if path.is_file():
            assert WORDS.encode() not in path.read_bytes()
            assert server.url.encode() not in path.read_bytes()
    scorer = json.loads((tmp_path / "there/manifest.json").read_text())["scorer"]
    assert scorer["model"]["server"] == "vllm"
    assert scorer["self_check"]["outcome"] == "passed"
    assert len(scorer["model"]["tokenizer_sha256"]) == 64
    assert verify(tmp_path / "there", data_dir=tmp_path, model=str(tiny_directory), sample=16).differences == ()


@contextmanager
def vllm_serving(directory: str) -> Iterator[str]:
    """The base URL of vLLM with a model, in float32, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["vllm", "serve", directory, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "smol"]
    command += ["--dtype", "float32", "--max-model-len", "2048", "--enforce-eager"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with subprocess.Popen(
        command, env=alone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            said = []
            while "startup complete" not in (line := process.stdout.readline()):
                said.append(line)
                assert line, "".join(said[-30:])
            reader = threading.Thread(target=process.stdout.read, daemon=True)  # a full pipe would stop the server
            reader.start()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@few
@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(
    shutil.which("vllm") is None, reason="no vllm command on the PATH; it needs an environment of its own"
)
def test_vllm_itself_gives_the_scores_and_quotas_of_this_process(embedded: Any) -> None:
    items = items_of(3)
    here = measure_all(LocalScorer(embedded, ScorerSettings(max_new_tokens=8)), items)
    with vllm_serving(embedded.model.name_or_path) as url:
        scorer = server_scorer(url, "embedded", max_new_tokens=8, timeout=900.0)
        there = measure_all(scorer, items)
    described: Any = scorer.describe()
    assert (described["model"]["server"], described["prompts"]) == ("vllm", "token ids")
    assert described["self_check"]["outcome"] == "passed"
    assert [one.nll for one in there] == pytest.approx([one.nll for one in here], abs=1e-4)
    assert quotas_of(items, there) == quotas_of(items, here)
