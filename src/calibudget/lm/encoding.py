"""The one encoding that scoring, training and generation share.

Prompt and response are tokenised apart and joined, so a prompt has the same ids whatever follows it; the tokenizer's
own BOS stands once in front if it adds one, and the end token closes the response. Text of a record is data: a
special token spelled out in it ("</s>") is encoded as ordinary text (under `chat` only the response is, since a
template's own special tokens can't be told from those in a turn).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from calibudget.errors import InputTypeError, ScoringError
from calibudget.lm.identity import told
from calibudget.records import Message, Record

Template = Literal["alpaca", "chat"]

_ALPACA_HEADER: Final = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
)
_ALPACA_TURNS: Final = {"user": "### Instruction:\n{}\n\n", "assistant": "### Response:\n{}\n\n"}
_ALPACA_RESPONSE: Final = "### Response:\n"
#: The day that chat templates are told, so that a prompt doesn't change overnight.
_TEMPLATE_DAY: Final = datetime(2024, 7, 26, tzinfo=UTC)
_TODAY: Final = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
_PROBE: Final = "calibudget-probe"
_TOKENIZER: Final = "the model's tokenizer (tokenizer.json) can't"
_TEMPLATE: Final = "the model's chat template (chat_template.jinja or tokenizer_config.json) doesn't"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One record as token ids.

    Attributes:
        prompt_ids: ids of the prompt, BOS included; what generation starts from.
        response_ids: ids that training teaches and scoring scores, the end token included unless truncation cut
            it; at least one.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]

    @property
    def total_length(self) -> int:
        """Prompt and surviving response together, in tokens."""
        return len(self.prompt_ids) + len(self.response_ids)


class Encoder:
    """Turns records into token ids under one template (paper, appendix "Tokenization": response-only encoding).

    Attributes:
        template: "alpaca" or "chat".
        max_length: tokens that prompt and response together are cut to, or None: nothing is cut, and a record
            longer than the context is refused.
        embedding_size: ids that the model embeds, or None where no model is at hand; a record with another id is
            refused.
        end_id: the token that closes a response: the tokenizer's EOS, or under "chat" what its template ends a
            turn with.
    """

    def __init__(
        self,
        template: Template,
        tokenizer: Any,
        max_length: int | None = None,
        *,
        context_length: int | None = None,
        embedding_size: int | None = None,
    ) -> None:
        _check_length(max_length, context_length)
        if template not in ("alpaca", "chat"):
            raise ScoringError(f"template {template!r}: known are alpaca and chat")
        if template == "chat" and not getattr(tokenizer, "chat_template", None):
            raise ScoringError("template: chat needs a tokenizer with a chat template, and this one has none")
        self.template = template
        self.max_length = max_length
        self.embedding_size = embedding_size
        self._tokenizer = tokenizer
        self._limit = max_length or context_length
        self._bos = _own_bos(tokenizer)
        self._chat_template = _dated(tokenizer.get_chat_template()) if template == "chat" else None
        self.end_id = self._turn_end() if template == "chat" else self._eos()

    def encode(self, record: Record) -> Encoded:
        """One record's ids.

        Raises:
            ScoringError: the record can't be encoded; its source and id are named. See `encode_all`.
        """
        return self.encode_all([record])[0]

    def encode_all(self, records: Sequence[Record]) -> list[Encoded]:
        """Many records' ids, in their order, at a fraction of the cost of one by one.

        Raises:
            ScoringError: a record with an empty response, turns that the template doesn't take, an id that the
                model doesn't embed, a prompt that leaves no room for any response token, or more tokens than the
                context where nothing may be cut.
        """
        prompts = self.prompt_ids(records)
        responses = self._ids([self._response(record) for record in records], as_data=True)
        return [self._join(*parts) for parts in zip(records, prompts, responses, strict=True)]

    def prompt_ids(self, records: Sequence[Record]) -> list[tuple[int, ...]]:
        """The ids that generation starts from; the same as `encode_all` gives."""
        if self.template == "chat":
            found = self._ids([self._chat_text(record) for record in records], as_data=False)
        else:
            found = self._ids([_alpaca_text(record) for record in records], as_data=True)
        return [ids if self._bos is None or ids[:1] == (self._bos,) else (self._bos, *ids) for ids in found]

    def rendered(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """The texts whose tokens `encode_all` gives: the prompt under the template, and the response with its end.

        A BOS that the tokenizer puts in front by itself isn't in the text, so that it comes once.
        """
        bos = "" if self._bos is None else str(self._tokenizer.decode([self._bos], skip_special_tokens=False))
        render = self._chat_text if self.template == "chat" else _alpaca_text
        end = str(self._tokenizer.decode([self.end_id], skip_special_tokens=False))
        return [(render(record).removeprefix(bos), self._response(record) + end) for record in records]

    @property
    def bos_id(self) -> int | None:
        """The token that the tokenizer itself puts in front of a text, None where it puts none."""
        return self._bos

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids, special tokens left out."""
        with told(f"{_TOKENIZER} decode its own ids"):
            text = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _ids(self, texts: list[str], *, as_data: bool) -> list[tuple[int, ...]]:
        """Each text's ids; what stands several times (a prompt before each of its choices) is tokenised once."""
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return []
        with told(f"{_TOKENIZER} encode these texts"):
            batch = self._tokenizer(
                distinct,
                add_special_tokens=False,
                split_special_tokens=as_data,
                return_attention_mask=False,
                verbose=False,
            )
        ids = {text: tuple(own) for text, own in zip(distinct, batch["input_ids"], strict=True)}
        return [ids[text] for text in texts]

    def _join(self, record: Record, prompt: tuple[int, ...], response: tuple[int, ...]) -> Encoded:
        taught = (*response, self.end_id)
        self._check_embedded(record, max(*prompt, *taught))
        total = len(prompt) + len(taught)
        if self._limit is not None and total > self._limit:
            if self.max_length is None:
                raise ScoringError(
                    f"{_name(record)}: {total} tokens are more than the model's context of {self._limit}; "
                    "leave the record out, or set max_length to have responses cut"
                )
            taught = taught[: max(self._limit - len(prompt), 0)]
        if not taught:
            raise ScoringError(
                f"{_name(record)}: its prompt of {len(prompt)} tokens leaves no response token within "
                f"max_length {self._limit}; raise max_length or leave the record out"
            )
        return Encoded(prompt_ids=prompt, response_ids=taught)

    def _check_embedded(self, record: Record, largest: int) -> None:
        if self.embedding_size is not None and largest >= self.embedding_size:
            raise ScoringError(
                f"{_name(record)}: its token {self._tokenizer.convert_ids_to_tokens(largest)!r} has the id {largest} "
                f"and the model embeds {self.embedding_size} ids; give the model its own tokenizer, or leave the "
                "record out"
            )

    def _response(self, record: Record) -> str:
        if not record.completion.strip():
            raise ScoringError(f"{_name(record)}: its response is empty")
        return record.completion

    def _chat_text(self, record: Record) -> str:
        turns = [turn.fields for turn in record.prompt]
        if record.uses_tools and "tool" not in str(self._chat_template):
            raise ScoringError(f"{_name(record)}: the chat template knows no tools, and this record has some")
        try:
            return self._render(turns, add_generation_prompt=True, tools=record.tools)
        except ScoringError as error:
            raise ScoringError(f"{_name(record)}: {error}") from error

    def _render(
        self, turns: list[dict[str, Any]], *, add_generation_prompt: bool, tools: Sequence[Mapping[str, object]] = ()
    ) -> str:
        with told(f"{_TEMPLATE} take these turns"):
            text = self._tokenizer.apply_chat_template(
                turns,
                tools=list(tools) or None,
                chat_template=self._chat_template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                date_string=_TEMPLATE_DAY.strftime("%d %b %Y"),
            )
        return str(text)

    def _eos(self) -> int:
        if self._tokenizer.eos_token_id is None:
            raise ScoringError("the tokenizer has no EOS token, so no response could end; choose template: chat")
        return int(self._tokenizer.eos_token_id)

    def _turn_end(self) -> int:
        """The first special token after an assistant's words in the template, or EOS where it has none."""
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}]
        _, found, tail = self._render(turns, add_generation_prompt=False).rpartition(_PROBE)
        special = {token for token, added in self._tokenizer.added_tokens_decoder.items() if added.special}
        ends = (i for i in self._ids([tail if found else ""], as_data=False)[0] if i in special)
        end = next(ends, None)
        return self._eos() if end is None else end


def _dated(chat_template: str) -> str:
    """The template with today's date replaced by the fixed day."""
    return _TODAY.sub(lambda match: repr(_TEMPLATE_DAY.strftime(match[2])), chat_template)


def _alpaca_text(record: Record) -> str:
    """The Alpaca prompt; a system turn stands before the first instruction, and further turns follow as blocks.

    One user turn gives exactly the instruction format of the design; each further user or assistant turn adds its
    own instruction or response block in front of the last response marker.
    """
    turns = list(record.prompt)
    if record.uses_tools:
        raise ScoringError(f"{_name(record)}: the alpaca template knows no tools; choose template: chat")
    if len(turns) > 1 and turns[0].role == "system":
        first = Message(role=turns[1].role, content=f"{turns[0].content}\n\n{turns[1].content}")
        turns[:2] = [first]
    unknown = [turn.role for turn in turns if turn.role not in _ALPACA_TURNS]
    if unknown or not turns or turns[-1].role != "user":
        fault = f"a {unknown[0]} turn" if unknown else "a prompt that doesn't end with a user turn"
        raise ScoringError(f"{_name(record)}: the alpaca template doesn't take {fault}")
    blocks = "".join(_ALPACA_TURNS[turn.role].format(turn.content) for turn in turns)
    return _ALPACA_HEADER + blocks + _ALPACA_RESPONSE


def _own_bos(tokenizer: Any) -> int | None:
    """The BOS id if the tokenizer itself puts one in front of a text."""
    bos = tokenizer.bos_token_id
    with told(f"{_TOKENIZER} encode a letter"):
        return int(bos) if bos is not None and tokenizer("a").input_ids[:1] == [bos] else None


def _check_length(max_length: int | None, context_length: int | None) -> None:
    if max_length is None:
        return
    if isinstance(max_length, bool) or not isinstance(max_length, int):
        raise InputTypeError(f"max_length must be an integer, not {max_length!r}")
    if max_length <= 0:
        raise ScoringError(f"max_length must be positive, not {max_length}")
    if context_length is not None and max_length > context_length:
        raise ScoringError(f"max_length {max_length} is more than the model's context of {context_length}")


def _name(record: Record) -> str:
    return f"source {record.source}, record {record.record_id}"
