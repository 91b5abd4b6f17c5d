"""The one encoding that scoring, training and generation share.

Under `alpaca` prompt and response are tokenised apart and joined, so a prompt has the same ids whatever follows it; the
tokenizer's own BOS stands once in front if it adds one, and the end token closes the response. Under `chat` they are
the ids of the chat template's own rendering of the whole conversation, up to the end of its last turn, and a record for
which that can't be is refused. Text of a record is data: a special token spelled out in it ("</s>") is encoded as
ordinary text (under `chat` only in the response, since a template's own can't be told from those in a turn).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from calibudget.errors import InputTypeError, ScoringError, refuse_as
from calibudget.lm.chat import ChatTemplate, Conversation, Tools, opened_reasoning
from calibudget.lm.model_digest import told
from calibudget.records import Message, Record

Template = Literal["alpaca", "chat"]

_ALPACA_HEADER: Final = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
)
_ALPACA_TURNS: Final = {"user": "### Instruction:\n{}\n\n", "assistant": "### Response:\n{}\n\n"}
_ALPACA_RESPONSE: Final = "### Response:\n"
_TOKENIZER: Final = "the model's tokenizer (tokenizer.json) can't"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatParts:
    """One conversation as text and as ids, the end of its last turn among those that are taught."""

    text: Conversation
    prompt_ids: tuple[int, ...]
    taught_ids: tuple[int, ...]


class Encoder:
    """Turns records into token ids under one template (paper, appendix "Tokenization": response-only encoding).

    Attributes:
        max_length: tokens that prompt and response together are cut to, or None: nothing is cut, and a record
            longer than the context is refused.
        embedding_size: ids that the model embeds, or None where no model is at hand; a record with another id is
            refused.
        bos_id: the token that the tokenizer itself puts in front of a text, None where it puts none.
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
        self.bos_id = _own_bos(tokenizer)
        self._chats: dict[bool, ChatTemplate] = {}
        self.end_id = self._chat(()).end_id if template == "chat" else self._eos()

    def encode(self, record: Record) -> Encoded:
        """One record's ids.

        Raises:
            ScoringError: the record can't be encoded; its source and id are named. See `encode_all`.
        """
        return self.encode_all([record])[0]

    def encode_all(self, records: Sequence[Record]) -> list[Encoded]:
        """Many records' ids, in their order, at a fraction of the cost of one by one.

        Raises:
            ScoringError: a record with an empty response, turns that the template doesn't take or whose response it
                changes, an id that the model doesn't embed, a prompt that leaves no room for any response token, or
                more tokens than the context where nothing may be cut.
        """
        for record in records:
            if not record.completion.strip():
                raise ScoringError(f"{record.name}: its response is empty")
        if self.template == "chat":
            return [self._join(record, chat.prompt_ids, chat.taught_ids) for record, chat in self._chat_parts(records)]
        prompts = self.prompt_ids(records)
        responses = self._ids([record.completion for record in records], as_data=True)
        return [
            self._join(record, prompt, (*response, self.end_id))
            for record, prompt, response in zip(records, prompts, responses, strict=True)
        ]

    def prompt_ids(self, records: Sequence[Record]) -> list[tuple[int, ...]]:
        """The ids that generation starts from; the same as `encode_all` gives."""
        if self.template == "chat":
            return [chat.prompt_ids for _, chat in self._chat_parts(records)]
        found = self._ids([alpaca_text(record) for record in records], as_data=True)
        return [ids if self.bos_id is None or ids[:1] == (self.bos_id,) else (self.bos_id, *ids) for ids in found]

    def rendered(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """The texts whose tokens `encode_all` gives: the prompt under the template, and the response with its end.

        A BOS that the tokenizer puts in front by itself isn't in the text, so that it comes once.
        """
        end = self.end
        if self.template != "chat":
            return [(alpaca_text(record), record.completion + end) for record in records]
        bos = "" if self.bos_id is None else str(self._tokenizer.decode([self.bos_id], skip_special_tokens=False))
        parts = (chat.text for _, chat in self._chat_parts(records))
        return [(part.prompt.removeprefix(bos), f"{part.lead}{part.words}{part.trail}{end}") for part in parts]

    def opened_reasoning(self, encoded: Encoded) -> str:
        """The mark of reasoning that a record's prompt opens at its end ("<think>"), empty where it opens none."""
        if self.template != "chat":
            return ""
        return opened_reasoning(self._tokenizer.decode(list(encoded.prompt_ids[-8:]), skip_special_tokens=False))

    @property
    def end(self) -> str:
        """The text of the token that closes a response."""
        return str(self._tokenizer.decode([self.end_id], skip_special_tokens=False))

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

    def _join(self, record: Record, prompt: tuple[int, ...], taught: tuple[int, ...]) -> Encoded:
        self._check_embedded(record, max(*prompt, *taught))
        total = len(prompt) + len(taught)
        if self._limit is not None and total > self._limit:
            if self.max_length is None:
                raise ScoringError(
                    f"{record.name}: {total} tokens are more than the model's context of {self._limit}; "
                    "leave the record out, or set max_length to have responses cut"
                )
            taught = taught[: max(self._limit - len(prompt), 0)]
        if not taught:
            raise ScoringError(
                f"{record.name}: its prompt of {len(prompt)} tokens leaves no response token within "
                f"max_length {self._limit}; raise max_length or leave the record out"
            )
        return Encoded(prompt_ids=prompt, response_ids=taught)

    def _check_embedded(self, record: Record, largest: int) -> None:
        if self.embedding_size is not None and largest >= self.embedding_size:
            raise ScoringError(
                f"{record.name}: its token {self._tokenizer.convert_ids_to_tokens(largest)!r} has the id {largest} "
                f"and the model embeds {self.embedding_size} ids; give the model its own tokenizer, or leave the "
                "record out"
            )

    def _chat(self, tools: Tools) -> ChatTemplate:
        """The tokenizer's chat template, of several the one named for conversations with tools or without."""
        if bool(tools) not in self._chats:
            with told("template: chat"):
                template = self._tokenizer.get_chat_template(tools=list(tools) or None)
            self._chats[bool(tools)] = ChatTemplate(self._tokenizer, template, tools)
        return self._chats[bool(tools)]

    def _conversation(self, record: Record) -> Conversation:
        chat = self._chat(record.tools)
        if record.uses_tools and not chat.knows_tools:
            raise ScoringError(f"{record.name}: the chat template knows no tools, and this record has some")
        with refuse_as(ScoringError, record.name, ScoringError):
            return chat.conversation([turn.fields for turn in record.prompt], record.completion, record.tools)

    def _chat_parts(self, records: Sequence[Record]) -> Iterator[tuple[Record, _ChatParts]]:
        """Prompt and response of each record, cut out of the ids of their whole text.

        Where the prompt's last token goes on into what the template puts before the response, that is prompt too.
        """
        texts = [self._conversation(record) for record in records]
        wholes = self._ids([f"{text.prompt}{text.lead}{text.words}{text.trail}" for text in texts], as_data=False)
        prompts = self._ids([text.prompt for text in texts], as_data=False)
        longer = self._ids([text.prompt + text.lead for text in texts], as_data=False)
        for record, text, whole, *prompt in zip(records, texts, wholes, prompts, longer, strict=True):
            chat = self._chat(record.tools)
            ids = next((ids for ids in prompt if whole[: len(ids)] == ids), None)
            if ids is None:
                raise ScoringError(
                    f"{record.name}: under the chat template its prompt and response share a token, so neither can "
                    "be told from the other; choose template: alpaca"
                )
            if ids != prompt[0]:
                text = replace(text, prompt=text.prompt + text.lead, lead="")
            taught = whole[len(ids) :]
            if chat.special.search(text.words):
                lead, trail = self._ids([text.lead, text.trail], as_data=False)
                taught = (*lead, *self._ids([text.words], as_data=True)[0], *trail)
            yield record, _ChatParts(text=text, prompt_ids=ids, taught_ids=(*taught, chat.end_id))

    def _eos(self) -> int:
        if self._tokenizer.eos_token_id is None:
            raise ScoringError("the tokenizer has no EOS token, so no response could end; choose template: chat")
        return int(self._tokenizer.eos_token_id)


def alpaca_text(record: Record) -> str:
    """The Alpaca prompt; a system turn stands before the first instruction, and further turns follow as blocks.

    One user turn gives exactly the instruction format of the design; each further user or assistant turn adds its
    own instruction or response block in front of the last response marker.
    """
    turns = list(record.prompt)
    if record.uses_tools:
        raise ScoringError(f"{record.name}: the alpaca template knows no tools; choose template: chat")
    if len(turns) > 1 and turns[0].role == "system":
        first = Message(role=turns[1].role, content=f"{turns[0].content}\n\n{turns[1].content}")
        turns[:2] = [first]
    unknown = [turn.role for turn in turns if turn.role not in _ALPACA_TURNS]
    if unknown or not turns or turns[-1].role != "user":
        fault = f"a {unknown[0]} turn" if unknown else "a prompt that doesn't end with a user turn"
        raise ScoringError(f"{record.name}: the alpaca template doesn't take {fault}")
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
