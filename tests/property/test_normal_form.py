"""Laws of the normal form and of the ids (docs/formats.md)."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
import rfc8785
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calibudget.records import Message
from calibudget.sources.identity import identify, normal_instruction, normal_response

WHITE = " \t\n\r\x0b\x0c\x1c\x85\u00a0\u2003\u2028\u3000"
texts = st.text(st.characters(codec="utf-8"), max_size=40)
words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=WHITE), min_size=1, max_size=8), min_size=1, max_size=6
)
gaps = st.text(WHITE, min_size=1, max_size=3)


def user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


@given(texts)
def test_normal_forms_are_their_own_normal_forms(text: str) -> None:
    assert normal_instruction(normal_instruction(text)) == normal_instruction(text)
    assert normal_response(normal_response(text)) == normal_response(text)


@given(texts, texts)
def test_the_id_is_the_digest_of_the_rfc_8785_array(instruction: str, response: str) -> None:
    normal = unicodedata.normalize("NFC", instruction), unicodedata.normalize("NFC", response)
    array = [" ".join(normal[0].split()), normal[1].strip()]
    identity = identify(user(instruction), response)
    assert identity.record_id == hashlib.sha256(rfc8785.dumps(array)).hexdigest()
    assert identity.prompt_hash == hashlib.sha256(array[0].casefold().encode()).hexdigest()


@given(words, st.data())
def test_white_space_and_unicode_form_of_an_instruction_never_matter(parts: list[str], data: st.DataObject) -> None:
    assume(all(part.split() == [part] for part in parts))
    spaced = "".join(data.draw(gaps) + part for part in parts) + data.draw(gaps)
    assert identify(user(spaced), "x") == identify(user(" ".join(parts)), "x")
    decomposed = unicodedata.normalize("NFD", spaced)
    assert identify(user(decomposed), "x") == identify(user(spaced), "x")


@given(texts, texts, gaps)
def test_only_the_ends_of_a_response_may_differ(prompt: str, response: str, gap: str) -> None:
    padded = identify(user(prompt), gap + response + gap)
    assert padded.record_id == identify(user(prompt), response).record_id


@pytest.mark.slow
@given(st.lists(st.tuples(texts, texts), min_size=2, max_size=8))
def test_ids_are_equal_only_where_normal_forms_are(pairs: list[tuple[str, str]]) -> None:
    forms = {(normal_instruction(prompt), normal_response(response)) for prompt, response in pairs}
    assert len({identify(user(prompt), response).record_id for prompt, response in pairs}) == len(forms)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), min_size=1, max_size=4), texts)
def test_the_messages_id_is_the_digest_of_its_rfc_8785_array(turns: list[tuple[str, str]], response: str) -> None:
    assume(len(turns) > 1 or turns[0][0] != "user")
    normal = [
        [role, normal_response(text) if role == "assistant" else normal_instruction(text)] for role, text in turns
    ]
    array = ["messages", [*normal, ["assistant", normal_response(response)]]]
    prompt = tuple(Message(role=role, content=text) for role, text in turns)
    identity = identify(prompt, response)
    folded = ["messages", [[role, text.casefold()] for role, text in normal]]
    assert identity.record_id == hashlib.sha256(rfc8785.dumps(array)).hexdigest()
    assert identity.prompt_hash == hashlib.sha256(rfc8785.dumps(folded)).hexdigest()
