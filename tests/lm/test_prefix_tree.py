from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.lm.encoding import Encoded
from calibudget.lm.prefix_tree import grow


def example(prompt: Any, response: Any = (7, 8, 2)) -> Any:
    return Encoded(prompt_ids=tuple(prompt), response_ids=tuple(response))


def spelled(parts: Any, number: Any) -> Any:
    part = parts[number]
    before = () if part.parent is None else spelled(parts, part.parent)
    assert part.depth == len(before)
    return before + part.ids


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=30)


@pytest.mark.slow
@given(prompts, st.booleans())
def test_every_example_is_spelled_by_its_parts(prompts: Any, long: Any) -> None:
    examples = [example([5] * 20 * long + prompt) for prompt in prompts]
    parts, ends = grow(examples)
    assert all(part.parent is None or part.parent < number for number, part in enumerate(parts))
    for one, end in zip(examples, ends, strict=True):
        assert spelled(parts, end) == one.prompt_ids + one.response_ids[:-1]
        assert parts[end].depth < len(one.prompt_ids)
    assert sum(len(part.ids) for part in parts) <= sum(one.total_length - 1 for one in examples)
