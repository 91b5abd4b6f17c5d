"""Under `chat` a record's ids are those of its template's own rendering of the whole conversation.

The templates are those of fourteen model families, written after their documentation; each is put on tokenizers of both
kinds, byte-level and with spaces as letters, that know its special tokens.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibudget.errors import ScoringError
from calibudget.lm.encoding import Encoder
from calibudget.records import Message
from tests.conftest import record_of

TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("templates/*"))}
#: What each family's special tokens look like, BOS and EOS first.
SPECIAL = {
    "chatml": ["<s>", "<|im_end|>", "<|im_start|>"],
    "smollm2": ["<|endoftext|>", "<|im_end|>", "<|im_start|>"],
    "smollm3": ["<|begin_of_text|>", "<|im_end|>", "<|im_start|>"],
    "qwen2.5": [None, "<|im_end|>", "<|im_start|>", "<|endoftext|>"],
    "qwen3": [None, "<|im_end|>", "<|im_start|>", "<|endoftext|>"],
    "qwen3-thinking": [None, "<|im_end|>", "<|im_start|>", "<|endoftext|>"],
    "qwq": [None, "<|im_end|>", "<|im_start|>", "<|endoftext|>"],
    "llama3": ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>"],
    "gemma2": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
    "gemma3": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
    "mistral": [
        "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    ],
    "phi3": ["<s>", "<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"],
    "phi4": ["<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|im_sep|>"],
    "deepseek-r1": [
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>",
    ],
    "zephyr": ["<s>", "</s>"],
    "command-r": [
        "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
    ],
    "gpt-oss": [
        "<|startoftext|>", "<|return|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>",
    ],
}  # fmt: skip
#: Added tokens that aren't special, and so are seen in generated text.
REASONING = ["<think>", "</think>"]
#: Templates that take no system turn, and those that know tools.
NO_SYSTEM = {"gemma2"}
TOOLS = {"smollm3", "qwen2.5", "qwen3", "llama3", "mistral", "command-r", "gpt-oss"}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
CALL = {
    "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"at": 1}}}]
}
TEXTS = [
    "Below is an instruction. assistant user system model What is 2 + 2? The answer is 4.\n\nThink, then answer.",
    "How many apples are 12 and 345? caf\u00e9 \u7b54\u6848\u662fB\u3002 The quick brown fox jumps over the lazy dog.",
]


def make_tokenizer(family: Any, kind: Any) -> Any:
    """A tokenizer of a kind, trained on the spot, with a family's special tokens and template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bos, eos, *others = SPECIAL[family]  # type: ignore[misc]
    special = [token for token in (bos, eos, *others) if token]  # type: ignore[has-type]
    tokenizer = Tokenizer(models.BPE(byte_fallback=kind == "spaces", unk_token=None))
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="first"), decoders.ByteFallback()])
        alphabet = []
        special += [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if bos:  # type: ignore[has-type]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",  # type: ignore[has-type]
            special_tokens=[(bos, tokenizer.token_to_id(bos))],  # type: ignore[has-type]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=eos)  # type: ignore[has-type]
    fast.add_tokens(REASONING)
    fast.chat_template = TEMPLATES[family]
    if family == "command-r":
        fast.chat_template = {"default": TEMPLATES[family], "tool_use": TEMPLATES["command-r-tools"]}
    return fast


@pytest.fixture(scope="module")
def tokenizers() -> Any:
    return {(family, kind): make_tokenizer(family, kind) for family in SPECIAL for kind in ("bytes", "spaces")}


def conversation(record: Any, *pairs: Any, completion: Any, tools: Any = ()) -> Any:
    turns = tuple(Message.of({"role": role, "content": content} | dict(*more)) for role, content, *more in pairs)
    return replace(record, prompt=turns, completion=completion, tools=tuple(tools))


def whole_ids(tokenizer: Any, record: Any, **settings: Any) -> Any:
    """The template's own ids of a whole conversation, on the day that templates are told."""
    turns = [turn.fields for turn in record.prompt] + settings.pop("answer", [])
    template = tokenizer.get_chat_template(tools=list(record.tools) or None)
    for found in re.finditer(r"strftime_now\('(.*?)'\)", template):
        template = template.replace(found[0], repr(datetime(2024, 7, 26).strftime(found[1])))
    return tuple(
        tokenizer.apply_chat_template(
            turns, tools=list(record.tools) or None, chat_template=template, return_dict=False, **settings
        )
    )


def check(tokenizer: Any, record: Any) -> Any:
    """Prompt and response are the beginning of the whole conversation, and nothing of it is left but its very end."""
    encoder = Encoder("chat", tokenizer)
    encoded = encoder.encode(record)
    whole = whole_ids(tokenizer, record, answer=[{"role": "assistant", "content": record.completion}])
    ours = encoded.prompt_ids + encoded.response_ids
    assert ours == whole[: len(ours)]
    assert tokenizer.decode(whole[len(ours) :], skip_special_tokens=True).strip() == ""
    taught = encoder.opened_reasoning(encoded) + tokenizer.decode(encoded.response_ids[:-1])
    assert "".join(taught.split()).endswith("".join(record.completion.split()))
    assert encoder.prompt_ids([record]) == [encoded.prompt_ids]
    prompt, response = encoder.rendered([record])[0]
    if tokenizer.backend_tokenizer.pre_tokenizer.__class__.__name__ == "ByteLevel":
        assert tuple(tokenizer(prompt + response).input_ids)[-len(ours) :] == ours
    return encoded


SINGLE = [("user", "What is 2 + 2?")]
SYSTEM = [("system", "Be brief."), *SINGLE]
SEVERAL = [*SINGLE, ("assistant", "4"), ("user", "And 3 + 3?"), ("assistant", "6"), ("user", "Thanks. 5 + 5?")]
CALLED = [*SINGLE, ("assistant", "", CALL), ("tool", "Sunny", {"tool_call_id": "call00001", "name": "weather"})]


@pytest.mark.parametrize("kind", ["bytes", "spaces"])
@pytest.mark.parametrize("family", SPECIAL)
def test_a_conversation_is_encoded_as_its_template_renders_it(tokenizers: Any, family: Any, kind: str) -> None:
    tokenizer, record = tokenizers[family, kind], record_of()
    for pairs in (SINGLE, SEVERAL):
        check(tokenizer, conversation(record, *pairs, completion="The answer is 4.\n\nDone, caf\u00e9 \u7b54\u6848"))
    asked = conversation(record, *SYSTEM, completion="4")
    if family in NO_SYSTEM:
        with pytest.raises(ScoringError, match=r"record apples-0000: .*System role not supported"):
            Encoder("chat", tokenizer).encode(asked)
    else:
        check(tokenizer, asked)


@pytest.mark.parametrize("family", SPECIAL)
def test_tools_are_rendered_or_refused(tokenizers: Any, family: Any) -> None:
    tokenizer = tokenizers[family, "bytes"]
    record = conversation(record_of(), *CALLED, completion="It is sunny.", tools=[WEATHER])
    if family in TOOLS:
        encoded = check(tokenizer, record)
        assert "weather" in tokenizer.decode(encoded.prompt_ids)
    else:
        with pytest.raises(ScoringError, match="record apples-0000: the chat template knows no tools"):
            Encoder("chat", tokenizer).encode(record)


texts = st.text(st.characters(codec="utf-8", exclude_characters="<[{\x00"), min_size=1, max_size=12).map(str.strip)


@pytest.mark.parametrize("family", SPECIAL)
@settings(max_examples=8)
@given(words=st.lists(texts.filter(bool), min_size=2, max_size=6).filter(lambda words: len(words) % 2 == 0))
def test_whatever_turns_hold_their_ids_are_the_templates(tokenizers: Any, family: Any, words: Any) -> None:
    roles = ["user", "assistant"] * (len(words) // 2)
    record = conversation(record_of(), *zip(roles[:-1], words[:-1], strict=True), completion=words[-1])
    check(tokenizers[family, "bytes"], record)


@pytest.mark.parametrize("family", ["qwen3", "qwen3-thinking"])
def test_reasoning_is_taught_where_the_template_renders_it(tokenizers: Any, family: str) -> None:
    tokenizer = tokenizers[family, "bytes"]
    record = conversation(record_of(), *SINGLE, completion="<think>\nTwo and two.\n</think>\n\n4")
    encoded = check(tokenizer, record)
    assert "Two and two." in tokenizer.decode(encoded.response_ids)
    opened = "" if family == "qwen3" else "<think>"
    assert Encoder("chat", tokenizer).opened_reasoning(encoded) == opened
    assert tokenizer.decode(encoded.prompt_ids).rstrip().endswith(opened or "assistant")


@pytest.mark.parametrize("family", ["deepseek-r1", "qwq"])
def test_reasoning_that_the_template_drops_is_refused_by_name(tokenizers: Any, family: str) -> None:
    """Their generation prompts open reasoning that their whole conversations don't hold."""
    tokenizer = tokenizers[family, "bytes"]
    encoded = check(tokenizer, conversation(record_of(), *SINGLE, completion="4"))
    generating = whole_ids(tokenizer, conversation(record_of(), *SINGLE, completion="4"), add_generation_prompt=True)
    assert tokenizer.decode(generating).rstrip().endswith("<think>")
    assert generating[: len(encoded.prompt_ids)] == encoded.prompt_ids
    assert Encoder("chat", tokenizer).opened_reasoning(encoded) == ""
    record = conversation(record_of(), *SINGLE, completion="<think>\nTwo and two.\n</think>\n\n4")
    with pytest.raises(ScoringError, match=r"record apples-0000: .*changes the response or leaves a part of it out"):
        Encoder("chat", tokenizer).encode(record)


def test_the_prompt_is_the_generation_prompt_where_it_can_be(tokenizers: Any) -> None:
    for (family, kind), tokenizer in tokenizers.items():
        record = conversation(record_of(), *SINGLE, completion="4")
        generating = whole_ids(tokenizer, record, add_generation_prompt=True)
        # the last of them puts empty reasoning there, whose line breaks are one token of this tokenizer
        opens = family in {"deepseek-r1", "qwq"} or (family, kind) == ("qwen3-thinking", "spaces")
        assert (Encoder("chat", tokenizer).encode(record).prompt_ids == generating) is not opens, (family, kind)


def test_a_template_that_ignores_the_generation_prompt(tokenizers: Any) -> None:
    """One that never writes it, and one that always does."""
    tokenizer = make_tokenizer("chatml", "bytes")
    turn = "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    record = conversation(record_of(), *SEVERAL, completion="10")
    for template in (turn, turn + "<|im_start|>assistant{{ '\\n' }}"):
        tokenizer.chat_template = template
        encoder = Encoder("chat", tokenizer)
        encoded = encoder.encode(record)
        whole = whole_ids(tokenizer, record, answer=[{"role": "assistant", "content": "10"}])
        ours = encoded.prompt_ids + encoded.response_ids
        assert ours == whole[: len(ours)]
        assert tokenizer.decode(encoded.prompt_ids).endswith("<|im_start|>assistant\n")
        assert tokenizer.decode(encoded.response_ids) == "10<|im_end|>"


def test_named_templates_are_chosen_by_the_records_tools(tokenizers: Any) -> None:
    tokenizer = tokenizers["command-r", "bytes"]
    with_tools = conversation(record_of(), *SINGLE, completion="Sunny.", tools=[WEATHER])
    assert "## Available Tools" in tokenizer.decode(check(tokenizer, with_tools).prompt_ids)
    without = conversation(record_of(), *SINGLE, completion="Sunny.")
    assert "## Available Tools" not in tokenizer.decode(check(tokenizer, without).prompt_ids)
    nameless = make_tokenizer("chatml", "bytes")
    nameless.chat_template = {"rag": TEMPLATES["chatml"]}
    with pytest.raises(ScoringError, match=r"template: chat.*\['rag'\]"):
        Encoder("chat", nameless)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("{{ turn.content | upper }}", "leaves out what an assistant says"),
        ("", "leaves out what an assistant says"),
        ("{{ turn.content[:16] }}", "changes the response or leaves a part of it out"),
        ("{{ turn.content | replace('secret', '') }}", "changes the response or leaves a part of it out"),
    ],
)
def test_a_template_that_changes_the_response_is_refused(answer: str, fault: str) -> None:
    tokenizer = make_tokenizer("chatml", "bytes")
    tokenizer.chat_template = (
        "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{% if turn.role == 'assistant' %}" + answer +
        "{% else %}{{ turn.content }}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )  # fmt: skip
    with pytest.raises(ScoringError, match=fault):
        Encoder("chat", tokenizer).encode(conversation(record_of(), *SINGLE, completion="a secret of some length"))


def test_special_tokens_spelled_out_in_a_response_are_text(tokenizers: Any) -> None:
    for tokenizer in tokenizers.values():
        encoder = Encoder("chat", tokenizer)
        end = tokenizer.convert_ids_to_tokens(encoder.end_id)
        encoded = encoder.encode(conversation(record_of(), *SINGLE, completion=f"It ends with {end} here."))
        assert encoded.response_ids.count(encoder.end_id) == 1
