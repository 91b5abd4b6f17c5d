"""How servers are asked for the log-probabilities of a prompt and for a greedy answer, and how their replies are read.

Requests are retried with waiting, and a server's key is repeated by no message.

None of this is a standard. vLLM adds `prompt_logprobs` to the completions of OpenAI's interface, SGLang and TGI have
an endpoint of their own, and others know the older `echo` with `logprobs`. A reply may be anything; `reading` turns
what another form raises into a refusal.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import urllib3
from urllib3.util import Retry, Timeout

from calibudget.errors import ScoringError
from calibudget.messages import redacted, shown

#: The variable of the environment that holds the server's key. A recipe can't name another: one that came from
#: somebody else could send any secret of the environment to any address.
KEY: Final = "CALIBUDGET_SERVER_KEY"
#: Statuses after which the same request may succeed; 500 is what many servers say to a request that they don't know.
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
_RETRIES: Final = 6
#: Seconds of the first wait; each is twice the one before it.
_BACKOFF: Final = 0.5
#: Characters of a server's own words that a message tells.
_MOST_TOLD: Final = 200
#: Plain greedy decoding; servers take penalties from the model's generation configuration unless they are named.
_PLAIN: Final = {"temperature": 0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


class RefusedError(ScoringError):
    """A server's answer to a request that it doesn't take."""


class Connection:
    """A server of the interface that OpenAI's completions have, and others beside it.

    At most `requests` connections are kept; a reply, or its next part, is waited for `timeout` seconds.

    Raises:
        ScoringError: an address that is none, or that holds a credential; a key that no header can hold.
    """

    def __init__(self, base_url: str, *, requests: int, timeout: float) -> None:
        if redacted(base_url) != base_url:
            raise ScoringError(f"base_url {redacted(base_url)}: holds a credential; put the key into {KEY}")
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ScoringError(f"base_url {base_url!r}: give an address such as http://host:8000/v1")
        self.base_url = base_url.rstrip("/")
        self._key = os.environ.get(KEY, "")
        if not (self._key.isascii() and self._key.isprintable()):
            raise ScoringError(f"{KEY}: holds characters that no header can; set it to the server's key alone")
        headers = {"user-agent": "calibudget"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        retry = Retry(
            total=_RETRIES,
            redirect=False,
            allowed_methods=None,
            status_forcelist=_PASSING,
            backoff_factor=_BACKOFF,
            raise_on_status=False,
        )
        limit = Timeout(connect=min(timeout, 10.0), read=timeout)
        self._pool = urllib3.PoolManager(maxsize=requests, headers=headers, retries=retry, timeout=limit)

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The reply to a posted body, or to a plain request, as JSON.

        A path with a leading slash is below the server's root (the base URL without /v1), others below the base URL.

        Raises:
            RefusedError: the server doesn't take this request.
            ScoringError: it can't be reached, is too slow, wants another key, or answers what is no JSON.
        """
        url = f"{self.base_url.removesuffix('/v1')}{path}" if path.startswith("/") else f"{self.base_url}/{path}"
        try:
            reply = self._pool.request("GET" if body is None else "POST", url, json=body, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            why = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            raise ScoringError(f"server {url}: {self.told(str(why))} ({_RETRIES + 1} tries)") from None
        if reply.status in (401, 403):
            wrong = "takes another key than the one in" if self._key else "wants a key: set"
            raise ScoringError(f"server {url}: {wrong} {KEY}")
        if reply.status in _PASSING:
            raise ScoringError(
                f"server {url}: answers with status {reply.status} after {_RETRIES + 1} tries: {self._body(reply.data)}"
            )
        if reply.status != 200:
            raise RefusedError(f"status {reply.status}: {self._body(reply.data)}")
        try:
            return json.loads(reply.data)
        except (ValueError, RecursionError):
            raise RefusedError(f"a reply that is no JSON: {self._body(reply.data)}") from None

    def _body(self, data: bytes) -> str:
        """The beginning of a reply; the key goes before it is cut, so that no piece of it stays."""
        words = self.told(data[: 100 * _MOST_TOLD].decode("utf-8", "replace")).split()
        return " ".join(words)[:_MOST_TOLD] or "nothing"

    def told(self, text: str) -> str:
        """A server's words without the key, which it may repeat."""
        return redacted(text.replace(self._key, "[secret]") if self._key else text)


#: Rounding may lift a probability over one by this, in nats.
_ROUNDING: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a server is to read, as token ids and as the text that they are tokens of."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What ends an answer: ids of end tokens, and the text of the template's own."""

    ids: tuple[int, ...]
    text: str


class Token(NamedTuple):
    """What a server says of one token of a prompt: id, text and log-probability in nats, None where it says none."""

    id: int | None
    text: str | None
    logprob: float | None


class Request(NamedTuple):
    """A path, below the base URL or with a leading slash below the server's root, and the body to post there."""

    path: str
    body: dict[str, object]


class ServerProtocol(Protocol):
    """One way to ask.

    Attributes:
        name: what the manifest calls it.
        takes_ids: whether prompts go as token ids; else as text, which the server tokenises itself.
    """

    name: str
    takes_ids: bool

    def likelihood(self, model: str, prompt: Prompt, /) -> Request:
        """Ask for the log-probability of every token of the prompt."""

    def tokens(self, reply: Any, prompt: Prompt, /) -> list[Token]:
        """The prompt's tokens as the server saw them."""

    def answer(self, model: str, prompt: Prompt, limit: int, stop: Stop, /) -> Request:
        """Ask for the greedy continuation, of at most `limit` tokens."""

    def text(self, reply: Any, /) -> str:
        """The continuation."""


@contextmanager
def reading() -> Iterator[None]:
    """While a reply is read: a refusal of one that isn't of the form."""
    try:
        yield
    except ScoringError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise RefusedError(f"a reply of another form ({type(error).__name__}: {shown(str(error), str)})") from error


def _logprob(value: object) -> float | None:
    """A log-probability; None, which the first token has, stays None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a log-probability that is no number")
    if not math.isfinite(value) or value > _ROUNDING:
        raise ValueError(f"a log-probability of {value}")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text that is none")
    return value


def _id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a token id that is no integer")
    return value


class _Completions:
    """What vLLM and `echo` share: OpenAI's completions."""

    def text(self, reply: Any) -> str:
        return _text(reply["choices"][0]["text"])


class _Vllm(_Completions):
    """vLLM: `prompt_logprobs` beside the completion, keyed by token id."""

    name = "vllm"
    takes_ids = True

    def likelihood(self, model: str, prompt: Prompt) -> Request:
        body = {"model": model, "prompt": list(prompt.ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
        return Request("completions", body)

    def tokens(self, reply: Any, prompt: Prompt) -> list[Token]:
        return [
            self._token(row, prompt.ids[place] if place < len(prompt.ids) else -1)
            for place, row in enumerate(reply["choices"][0]["prompt_logprobs"])
        ]

    def _token(self, row: Mapping[str, Any] | None, wanted: int) -> Token:
        """A row holds the prompt's own token and the likeliest one; the first token has no row."""
        if row is None:
            return Token(None, None, None)
        key = str(wanted) if str(wanted) in row else next(iter(row))
        return Token(int(key), row[key].get("decoded_token"), _logprob(row[key]["logprob"]))

    def answer(self, model: str, prompt: Prompt, limit: int, stop: Stop) -> Request:
        body = {"model": model, "prompt": list(prompt.ids), "max_tokens": limit, "stop_token_ids": list(stop.ids)}
        return Request("completions", body | _PLAIN)


class _Sglang:
    """SGLang: its own `generate`, whose rows are log-probability, id and text."""

    name = "sglang"
    takes_ids = True

    def likelihood(self, _model: str, prompt: Prompt) -> Request:
        more = {"return_logprob": True, "logprob_start_len": 0, "return_text_in_logprobs": True}
        return Request("/generate", self._body(prompt, {"max_new_tokens": 1}) | more)

    def tokens(self, reply: Any, _prompt: Prompt) -> list[Token]:
        rows = reply["meta_info"]["input_token_logprobs"]
        return [Token(_id(row[1]), row[2], _logprob(row[0])) for row in rows]

    def answer(self, _model: str, prompt: Prompt, limit: int, stop: Stop) -> Request:
        return Request("/generate", self._body(prompt, {"max_new_tokens": limit, "stop_token_ids": list(stop.ids)}))

    def text(self, reply: Any) -> str:
        return _text(reply["text"])

    def _body(self, prompt: Prompt, sampling: Mapping[str, object]) -> dict[str, object]:
        return {"input_ids": list(prompt.ids), "sampling_params": {**sampling, **_PLAIN}}


class _Tgi:
    """Text Generation Inference: `decoder_input_details`; it takes text only."""

    name = "tgi"
    takes_ids = False

    def likelihood(self, _model: str, prompt: Prompt) -> Request:
        parameters = {"max_new_tokens": 1, "do_sample": False, "details": True, "decoder_input_details": True}
        return Request("/generate", {"inputs": prompt.text, "parameters": parameters})

    def tokens(self, reply: Any, _prompt: Prompt) -> list[Token]:
        return [Token(_id(row["id"]), row["text"], _logprob(row["logprob"])) for row in reply["details"]["prefill"]]

    def answer(self, _model: str, prompt: Prompt, limit: int, stop: Stop) -> Request:
        parameters = {"max_new_tokens": limit, "do_sample": False, "stop": [stop.text]}
        return Request("/generate", {"inputs": prompt.text, "parameters": parameters})

    def text(self, reply: Any) -> str:
        return _text(reply["generated_text"])


class _Echo(_Completions):
    """OpenAI's older completions: `echo` gives the prompt back with `logprobs`, token texts without ids."""

    name = "echo"

    def __init__(self, *, takes_ids: bool) -> None:
        self.takes_ids = takes_ids

    def likelihood(self, model: str, prompt: Prompt) -> Request:
        return Request("completions", self._body(model, prompt, 1) | {"echo": True, "logprobs": 1})

    def tokens(self, reply: Any, prompt: Prompt) -> list[Token]:
        found = reply["choices"][0]["logprobs"]
        rows = list(zip(found["tokens"], found["token_logprobs"], strict=True))
        generated = len(rows) == len(prompt.ids) + 1  # a server may end at once, and then gives no new token
        return [Token(None, _text(text), _logprob(value)) for text, value in (rows[:-1] if generated else rows)]

    def answer(self, model: str, prompt: Prompt, limit: int, stop: Stop) -> Request:
        return Request("completions", self._body(model, prompt, limit) | {"stop": [stop.text]})

    def _body(self, model: str, prompt: Prompt, limit: int) -> dict[str, object]:
        asked = list(prompt.ids) if self.takes_ids else prompt.text
        return {"model": model, "prompt": asked, "max_tokens": limit, "temperature": 0}


#: In the order in which they are tried: those that name token ids first.
PROTOCOLS: Final[tuple[ServerProtocol, ...]] = (
    _Vllm(),
    _Sglang(),
    _Tgi(),
    _Echo(takes_ids=True),
    _Echo(takes_ids=False),
)
