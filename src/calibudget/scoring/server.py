"""Scoring with a model that a server holds: NLLs from the prompt's log-probabilities, answers from completions.

Servers differ in what they give and in what is wrong with it, so nothing is believed: the protocol is the first whose
replies pass a check on known text, and every record's tokens are held against the tokenizer here. The log-probabilities
are the server's own, so the last digits differ from those of another server, or of the same model in this process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from typing import Any, Final

from calibudget.errors import ScoringError
from calibudget.lm.encoding import Encoder, Template
from calibudget.lm.loading import context_length, load_tokenizer, tokenizer_digest
from calibudget.lm.model_files import portable_model
from calibudget.messages import shown
from calibudget.records import Message, Record
from calibudget.scoring.scorer import ANSWER_LIMITS, CalibrationItem, Measurement, ScorerSettings, Work, encoded
from calibudget.scoring.server_protocols import (
    PROTOCOLS,
    Connection,
    Prompt,
    RefusedError,
    Request,
    ServerProtocol,
    Stop,
    Token,
    reading,
)
from calibudget.tasks.answers import PARSER_VERSION

#: Two responses to one prompt that differ in one word: log-probabilities may differ from there on, and not before.
_KNOWN: Final = tuple(f"one two three four five {word} seven eight nine ten" for word in ("six", "sand"))
#: Nats by which a server's own arithmetic may move a log-probability between two requests (bfloat16, batching).
_NOISE: Final = 0.3
#: Least nats by which another word must move its own log-probability, and how far that must be above the noise.
_EFFECT, _ABOVE_NOISE = 1e-3, 4.0
#: How tokenizers write spaces and line ends in the names of their tokens.
_SPACES: Final = str.maketrans({"\u2581": " ", "\u0120": " ", "\u010a": "\n"})
#: The server's own next words that are held against others, and those others.
_CHOICES: Final = 4
_OTHERS: Final = (" the", " seven", ".", " a", "0")
#: Most new tokens of an answer kind that sets no limit.
_LONGEST: Final = 4096


class ServerScorer:
    """Scores with a server that gives log-probabilities of prompts: vLLM, SGLang, TGI, or `echo` with `logprobs`.

    Raises:
        ScoringError: the server can't be reached or doesn't serve the model, or its log-probabilities are missing,
            shifted, cut or of another tokenizer's tokens.
        DependencyError: torch or transformers is missing.
    """

    def __init__(self, settings: ScorerSettings) -> None:
        if settings.base_url is None:
            raise ScoringError("engine: openai needs the server's address: base_url: http://host:8000/v1")
        self._settings = settings
        tokenizer = load_tokenizer(settings.model)
        self._context_length = context_length(settings.model)
        self._encoder = Encoder(settings.template, tokenizer, settings.max_length, context_length=self._context_length)
        self._tokenizer = tokenizer
        ids = {self._encoder.end_id, tokenizer.eos_token_id} - {None}
        self._stop = Stop(ids=tuple(sorted(ids)), text=self._encoder.end)
        self._special = frozenset(tokenizer.all_special_ids)
        self._connection = Connection(settings.base_url, requests=settings.requests, timeout=settings.timeout)
        self._served = self._served_model()
        # without a template's own words behind a response, wherever the tokenizer has an end token
        plain: Template = "alpaca" if tokenizer.eos_token_id is not None else settings.template
        self._protocol, self._choices = self._found_protocol(Encoder(plain, tokenizer))

    def describe(self) -> Mapping[str, object]:
        """See `Scorer`; the address isn't in it."""
        return {
            "engine": "openai",
            "model": {
                "name": portable_model(self._served),
                "kind": "server",
                "server": self._protocol.name,
                "tokenizer": portable_model(self._settings.model),
                "tokenizer_sha256": tokenizer_digest(self._tokenizer),
            },
            "template": self._encoder.template,
            "max_length": self._encoder.max_length,
            "max_new_tokens": self._settings.max_new_tokens or dict(ANSWER_LIMITS),
            "prompts": "token ids" if self._protocol.takes_ids else "text",
            "self_check": {"outcome": "passed", "choices": self._choices},
            "parser_version": PARSER_VERSION,
            "versions": {"transformers": version("transformers")},
        }

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """See `Scorer`; each item by itself, for the server makes its own batches."""
        self._encode(items)
        return [(i,) for i in sorted(range(len(items)), key=lambda i: items[i].name)]

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """See `Scorer`."""
        return [work.example.total_length for work in self._encode(items)]

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """See `Scorer`."""
        texts = self._encoder.rendered([item.record for item in items])
        return [self._measured(work, *own) for work, own in zip(self._encode(items), texts, strict=True)]

    def measure_batches(
        self, batches: Mapping[int, Sequence[CalibrationItem]]
    ) -> Iterator[tuple[int, list[Measurement]]]:
        """See `ParallelScorer`."""
        with ThreadPool(self._settings.requests) as pool:  # its threads hold up no exit, as an executor's would
            yield from pool.imap_unordered(lambda batch: (batch[0], self.measure(batch[1])), batches.items())

    def _encode(self, items: Sequence[CalibrationItem]) -> list[Work]:
        return encoded(
            items,
            self._encoder,
            max_new_tokens=self._settings.max_new_tokens,
            context_length=self._context_length,
            otherwise=_LONGEST,
        )

    def _measured(self, work: Work, prompt: str, response: str) -> Measurement:
        ids, rest = work.example.prompt_ids, work.example.response_ids
        try:
            tokens = self._tokens(self._protocol, Prompt(ids=ids + rest, text=prompt + response))
            own = [token.logprob for token in tokens[len(ids) :]]
            logprobs = [value for value in own if value is not None]
            if len(logprobs) != len(own):
                raise RefusedError("tokens of the response without a log-probability")
            text = self._answer(work, Prompt(ids=ids, text=prompt)) if work.limit else None
        except RefusedError as error:
            why = self._connection.told(str(error))
            raise ScoringError(f"{work.item.name}: {self._connection.base_url} gives no score of it: {why}") from error
        return Measurement(
            source=work.item.record.source,
            record_id=work.item.record.record_id,
            response_tokens=len(logprobs),
            nll=-math.fsum(logprobs) / len(logprobs),
            text=text,
        )

    def _answer(self, work: Work, prompt: Prompt) -> str:
        reply = self._post(self._protocol.answer(self._served, prompt, work.limit, self._stop))
        with reading():
            return work.opened + self._protocol.text(reply)

    def _post(self, request: Request) -> Any:
        return self._connection.ask(request.path, request.body)

    def _tokens(self, protocol: ServerProtocol, prompt: Prompt) -> list[Token]:
        """A prompt's tokens as the server saw them, if they are those that were encoded here.

        Raises:
            RefusedError: they are others, more or fewer.
        """
        reply = self._post(protocol.likelihood(self._served, prompt))
        with reading():
            tokens = protocol.tokens(reply, prompt)
        if len(tokens) != len(prompt.ids):
            raise RefusedError(
                f"log-probabilities of {len(tokens)} tokens, where the tokenizer of {self._settings.model!r} makes "
                f"{len(prompt.ids)}: they are cut, or another tokenizer's"
            )
        for place, (token, wanted) in enumerate(zip(tokens, prompt.ids, strict=True)):
            if not self._is_same(token, wanted):
                raise RefusedError(
                    f"token {place + 1} of the prompt is {token.id} ({shown(token.text)}) there and {wanted} "
                    f"({self._tokenizer.decode([wanted])!r}) here: another tokenizer's, or shifted"
                )
        return tokens

    def _is_same(self, token: Token, wanted: int) -> bool:
        """Whether a server's token may be this one; texts of special tokens and parts of characters tell nothing."""
        if token.id is not None and token.id != wanted:
            return False
        if not isinstance(token.text, str) or wanted in self._special:
            return True
        text = self._tokenizer.decode([wanted], clean_up_tokenization_spaces=False)
        return not text.isascii() or token.text.translate(_SPACES).strip() == text.strip()

    def _served_model(self) -> str:
        """The model's name at the server."""
        given = self._settings.served_model
        name = given or self._settings.model
        try:
            with reading():
                names = [str(row["id"]) for row in self._connection.ask("models")["data"]]
        except RefusedError:
            return name  # a server without this list tells by its answers
        if name in names:
            return name
        if len(names) == 1 and given is None:
            return names[0]
        raise ScoringError(
            f"the server {self._connection.base_url} doesn't serve {name!r}; it serves {shown(names, str)}: "
            "say which with server.model"
        )

    def _found_protocol(self, encoder: Encoder) -> tuple[ServerProtocol, int]:
        """The first protocol that passes the checks on known text, and on how many of the server's own choices."""
        faults = []
        for protocol in PROTOCOLS:
            try:
                self._check_tokens(protocol, encoder)
                return protocol, self._check_choices(protocol, encoder)
            except RefusedError as error:
                prompts = "token ids" if protocol.takes_ids else "text"
                faults.append(f"  {protocol.name} ({prompts}): {self._connection.told(str(error))}")
        raise ScoringError(
            f"the server {self._connection.base_url} gives no log-probabilities of prompts that can be trusted:\n"
            + "\n".join(faults)
        )

    def _check_tokens(self, protocol: ServerProtocol, encoder: Encoder) -> None:
        """Two responses that part at one word: what comes before it must be alike, and the word's own not."""
        one, other = (_prompt(encoder, response) for response in _KNOWN)
        parting = next(place for place, pair in enumerate(zip(one.ids, other.ids, strict=False)) if pair[0] != pair[1])
        first, second = (self._tokens(protocol, prompt) for prompt in (one, other))
        if protocol.takes_ids and all(token.text is None for token in first):
            raise RefusedError("no texts of tokens, by which another tokenizer's ids could be told")
        pairs = zip(first[1 : parting + 1], second[1 : parting + 1], strict=True)
        moved = [abs(_known(one) - _known(other)) for one, other in pairs]
        noise, effect = max(moved[:-1], default=0.0), moved[-1]
        if noise > _NOISE or effect < max(_EFFECT, _ABOVE_NOISE * noise):
            raise RefusedError(
                f"another word at token {parting + 1} moves its log-probability by {effect:.3g} and those before it by "
                f"up to {noise:.3g}: they are shifted, or not the prompt's"
            )
        for token in (*first[parting:], *second[parting:]):
            _known(token)

    def _check_choices(self, protocol: ServerProtocol, encoder: Encoder) -> int:
        """What the server itself says next must be likelier than other words in its place; returns how many were.

        A server that reads each token's log-probability off its own place, and not the one before it, is found so.

        Raises:
            RefusedError: another word is likelier, or nothing that the server says is one token of text.
        """
        checked = 0
        words = _KNOWN[0].split()
        for start in (" ".join(words[:count]) for count in range(1, len(words))):
            before = _prompt(encoder, start)
            reply = self._post(protocol.answer(self._served, before, 1, self._stop))
            with reading():
                said = protocol.text(reply)
            chosen = _prompt(encoder, start + said)
            if not said or not said.isascii() or chosen.ids[:-1] != before.ids:
                continue
            others = [_prompt(encoder, start + word) for word in _OTHERS]
            own = _known(self._tokens(protocol, chosen)[-1])
            for other in others:
                if other.ids[:-1] != before.ids or other.ids == chosen.ids:
                    continue
                likelier = _known(self._tokens(protocol, other)[-1])
                if likelier > own + _NOISE:
                    raise RefusedError(
                        f"the server goes on with {said!r}, whose log-probability it gives as {own:.3g}, and that of "
                        f"another word there as {likelier:.3g}: they are another token's"
                    )
            checked += 1
            if checked == _CHOICES:
                break
        if not checked:
            raise RefusedError("nothing that the server says next is one token of text, by which it could be checked")
        return checked


def _prompt(encoder: Encoder, response: str) -> Prompt:
    """A fixed question and the beginning of a response to it, without an end."""
    record = Record(
        source="self-check",
        record_id="",
        prompt_hash="",
        prompt=(Message(role="user", content="Count from one to ten."),),
        completion=response,
        answer=None,
        original={},
    )
    (prompt, text), example = encoder.rendered([record])[0], encoder.encode(record)
    return Prompt(ids=example.prompt_ids + example.response_ids[:-1], text=prompt + text.removesuffix(encoder.end))


def _known(token: Token) -> float:
    """A token's log-probability."""
    if token.logprob is None:
        raise RefusedError("a token behind the first without a log-probability")
    return token.logprob
