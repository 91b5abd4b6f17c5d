"""A tokenizer's chat template: the text of a prompt and of its response, parts of one rendering.

A record's text is what the template makes of its whole conversation. The prompt is the beginning of it that generation
starts from; the response is the rest, up to the token that ends the turn. Where the template's own generation prompt
isn't such a beginning (it opens reasoning that the conversation doesn't hold, or there is none), the prompt ends where
the assistant's words begin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

from calibudget.errors import ScoringError
from calibudget.lm.model_digest import told
from calibudget.tasks.time_limits import ask

#: The day that chat templates are told, so that a prompt doesn't change overnight.
_TEMPLATE_DAY: Final = datetime(2024, 7, 26, tzinfo=UTC)
_TODAY: Final = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
_PROBE: Final = "calibudget-probe"
_NAME: Final = "the model's chat template (chat_template.jinja or tokenizer_config.json)"
_OPENED: Final = re.compile(r"(<(?:think|thinking|thought|reasoning)>|\[THINK\])\s*\Z", re.IGNORECASE)

#: Seconds that a rendering is waited for; five of computing end it before, where the system can tell.
_PATIENCE_S: Final = 60.0
#: The rendering is put in its place for one call at a time.
_ONE_AT_A_TIME: Final = Lock()

Turns = Sequence[Mapping[str, object]]
Tools = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation as its template renders it.

    Attributes:
        prompt: what generation starts from.
        lead: what the template puts between the prompt and the assistant's words, such as reasoning left empty.
        words: the assistant's words, as the template puts them.
        trail: what stands between them and the end of the turn, often nothing.
    """

    prompt: str
    lead: str
    words: str
    trail: str


class ChatTemplate:
    """One chat template of a tokenizer, tried on one question, with some tools if it needs them.

    Attributes:
        end_id: the token that ends an assistant's turn: the first special token after its words, or EOS where the
            template writes none.
        special: matches the text of any special token.
        knows_tools: whether the template says anything of tools.

    Raises:
        ScoringError: the template doesn't take a question and its answer, or leaves the answer out.
    """

    def __init__(self, tokenizer: Any, template: str, tools: Tools = ()) -> None:
        self._tokenizer = tokenizer
        self._template = _TODAY.sub(lambda match: repr(_TEMPLATE_DAY.strftime(match[2])), template)
        self.knows_tools = "tool" in self._template
        question = [{"role": "user", "content": "?"}]
        begin, found, self._tail = self._render([*question, _answer(_PROBE)], tools).rpartition(_PROBE)
        if not found:
            raise ScoringError(f"{_NAME} leaves out what an assistant says")
        plain, opened = self._render(question, tools), self._render(question, tools, opens=True)
        self._generates = begin.startswith(opened) and (opened != plain or not begin[len(opened) :].strip())
        special = {token: str(one.content) for token, one in tokenizer.added_tokens_decoder.items() if one.special}
        self.special = re.compile("|".join(map(re.escape, special.values())) or r"(?!)")
        self.end_id, end = self._turn_end(special)
        self._trail = self._tail.partition(end)[0] if end else ""

    def prompt(self, turns: Turns, tools: Tools = ()) -> str:
        """What generation starts from.

        Raises:
            ScoringError: the template doesn't take these turns.
        """
        if self._generates:
            return self._render(turns, tools, opens=True)
        return self._render([*turns, _answer(_PROBE)], tools).rpartition(_PROBE)[0]

    def conversation(self, turns: Turns, words: str, tools: Tools = ()) -> Conversation:
        """The turns and the assistant's words after them.

        Raises:
            ScoringError: the template doesn't take these turns, renders the prompt otherwise when an answer follows,
                or changes the answer.
        """
        prompt, whole = self.prompt(turns, tools), self._render([*turns, _answer(words)], tools)
        if not whole.startswith(prompt) or not whole.endswith(self._tail):
            raise ScoringError(f"{_NAME} renders the prompt otherwise once the response follows it")
        response = whole[len(prompt) : len(whole) - len(self._tail)]
        if response.endswith(words):
            return Conversation(prompt=prompt, lead=response.removesuffix(words), words=words, trail=self._trail)
        said = opened_reasoning(prompt) + response  # a response may begin with the mark that the prompt ends with
        if not "".join(said.split()).endswith("".join(words.split())):
            raise ScoringError(
                f"{_NAME} changes the response or leaves a part of it out (its reasoning, often); take that out of the "
                "data, or choose template: alpaca"
            )
        return Conversation(prompt=prompt, lead="", words=response, trail=self._trail)

    def _render(self, turns: Turns, tools: Tools = (), *, opens: bool = False) -> str:
        from unittest.mock import patch  # which imports asyncio

        from transformers import tokenization_utils_base

        bounded = patch.object(tokenization_utils_base, "render_jinja_template", _rendered)
        with told(f"{_NAME} doesn't take these turns"), _ONE_AT_A_TIME, bounded:
            text = self._tokenizer.apply_chat_template(
                list(turns),
                tools=list(tools) or None,
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=opens,
                date_string=_TEMPLATE_DAY.strftime("%d %b %Y"),
            )
        return str(text)

    def _turn_end(self, special: Mapping[int, str]) -> tuple[int, str]:
        """The first special token after an assistant's words and its text, or EOS and none."""
        tail = self._tokenizer(self._tail, add_special_tokens=False, verbose=False).input_ids
        end = next((token for token in tail if token in special), None)
        if end is not None:
            return end, special[end]
        if self._tokenizer.eos_token_id is None:
            raise ScoringError(f"{_NAME} ends no turn and the tokenizer has no EOS token: nothing could end")
        return int(self._tokenizer.eos_token_id), ""


def _rendered(**asked: object) -> tuple[list[str], list[object]]:
    """What transformers renders, in a process whose time and memory are bounded: the template comes with the model."""
    answer = ask("template", asked, _PATIENCE_S)
    if not isinstance(answer, dict):
        raise ScoringError(f"{_NAME} takes too much time or memory")
    if "error" in answer:
        raise ScoringError(f"{_NAME} doesn't take these turns: {answer['error']}")
    texts, generated = answer["made"]
    return texts, generated


def opened_reasoning(prompt: str) -> str:
    """The mark of reasoning ("<think>") that a prompt ends with, so that what follows is reasoning; often empty."""
    found = _OPENED.search(prompt[-64:])
    return found[1] if found else ""


def _answer(words: str) -> dict[str, object]:
    return {"role": "assistant", "content": words}
