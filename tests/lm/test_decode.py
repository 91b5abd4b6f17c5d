"""Decoding from cached keys and values against transformers' own greedy `generate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibudget.lm.encoding import Encoded
from tests.conftest import model_of

WINDOWED = {"num_key_value_heads": 2, "sliding_window": 8}
#: Low enough for the scores of a tiny model to feel it.
SOFTCAP = {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 0.5}
FAMILIES: dict[str, Any] = {
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "gemma": {"num_key_value_heads": 1, "head_dim": 16},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8} | SOFTCAP,
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8},
    "mistral": WINDOWED,
    "phi": {},
    "phi3": {"num_key_value_heads": 2},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4},
}


def prompts() -> Any:
    return [tuple((7 * i * j + 11 * j + i) % 300 + 10 for j in range(3 + 4 * i)) for i in range(6)]


def generated(model: Any, prompt: Any, limit: Any) -> Any:
    """Plain greedy ids of one prompt, the end token left out."""
    import torch

    with torch.no_grad():
        ids = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=limit,
            eos_token_id=2,
            pad_token_id=2,
        )[0, len(prompt) :].tolist()
    return tuple(ids[: ids.index(2)]) if 2 in ids else tuple(ids)


def decoded(model: Any, examples: Any, limits: Any) -> Any:
    from calibudget.lm.decode import Continuation, continue_greedily
    from calibudget.lm.forward import teacher_forced

    results, layout = teacher_forced(model, examples)
    continuations = [
        Continuation(
            example=example,
            part=part,
            start=(*example.response_ids[: result.agreed], result.next_id),  # type: ignore[arg-type]
            limit=limit,
        )
        for part, example, result, limit in zip(layout.ends, examples, results, limits, strict=True)
    ]
    return continue_greedily(model, layout, continuations, frozenset({2}), release=True)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cache that a GPU's kernel decodes from, with what the kernel promises done sequence by sequence."""
    import torch

    from calibudget.lm import kv_cache

    calls = []

    def attention(
        query: Any, key: Any, value: Any, starts: Any, _longest: Any, *, scale: Any, window: Any, used: Any
    ) -> Any:
        calls.append(len(used))
        outputs = []
        for row, (start, count) in enumerate(zip(starts[1][:-1].tolist(), used.tolist(), strict=True)):
            seen = slice(start + max(0, count - (window or count)), start + count)
            states = (query[row][:, None], key[seen].transpose(0, 1), value[seen].transpose(0, 1))
            outputs.append(
                torch.nn.functional.scaled_dot_product_attention(*states, scale=scale, enable_gqa=True)[:, 0]
            )
        return torch.stack(outputs)

    monkeypatch.setattr(kv_cache, "kernel_takes", lambda _: True)
    monkeypatch.setattr(kv_cache, "varlen_attention", attention)
    return calls


@pytest.mark.parametrize("family", ["llama", "mistral", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_the_kernels_cache_gives_the_same(family: Any, kernel: list[int]) -> None:
    """Rows end at different steps and leave the batch; capped scores, which the kernel lacks, go without it."""
    model = model_of(family, **FAMILIES[family])
    limits = [16, 7, 40, 12, 30, 12]
    expected = [generated(model, prompt, limit) for prompt, limit in zip(prompts(), limits, strict=True)]
    examples = [Encoded(prompt_ids=p, response_ids=(t[0] ^ 1, 2)) for p, t in zip(prompts(), expected, strict=True)]
    assert decoded(model, examples, limits) == expected
    assert (min(kernel) < max(kernel) == 6) if family != "gemma2" else not kernel


@pytest.mark.parametrize(
    ("family", "agreed"),
    [
        ("llama", 0),
        *(pytest.param(family, 5, marks=[] if family == "llama" else pytest.mark.slow) for family in FAMILIES),
    ],
)
def test_it_is_plain_greedy_decoding(family: Any, agreed: int) -> None:
    model = model_of(family, **FAMILIES[family])
    limits = [16, 7, 40, 12, 30, 12]
    expected = [generated(model, prompt, limit) for prompt, limit in zip(prompts(), limits, strict=True)]
    references = [(*text[:agreed], 5 if text[agreed] != 5 else 6, 2) for text in expected]
    examples = [Encoded(prompt_ids=p, response_ids=r) for p, r in zip(prompts(), references, strict=True)]
    assert decoded(model, examples, limits) == expected


def test_rows_that_end_leave_the_others_alone() -> None:
    """A model that says the end token after some id: rows end at different steps."""
    import torch

    model = model_of(num_key_value_heads=2)
    texts = [generated(model, prompt, 40) for prompt in prompts()]
    ending = texts[0][10]
    with torch.no_grad():
        model.lm_head.weight[2] = 3 * model.lm_head.weight[ending]
    limits = [40] * 6
    expected = [generated(model, prompt, 40) for prompt in prompts()]
    assert len({len(text) for text in expected}) > 1
    open_rows = [i for i, text in enumerate(expected) if text]
    examples = [Encoded(prompt_ids=prompts()[i], response_ids=(expected[i][0] ^ 1, 2)) for i in open_rows]
    assert decoded(model, examples, limits[: len(open_rows)]) == [expected[i] for i in open_rows]


def test_an_early_end_stops_only_its_row() -> None:
    from calibudget.lm.decode import Continuation, continue_greedily
    from calibudget.lm.forward import teacher_forced

    model = model_of(num_key_value_heads=2)
    expected = [generated(model, prompt, 32) for prompt in prompts()]
    examples = [Encoded(prompt_ids=p, response_ids=(t[0] ^ 1, 2)) for p, t in zip(prompts(), expected, strict=True)]
    results, layout = teacher_forced(model, examples)
    base = [
        Continuation(example=e, part=part, start=(r.next_id,), limit=32)  # type: ignore[arg-type]
        for part, e, r in zip(layout.ends, examples, results, strict=True)
    ]
    early = [replace(one, is_final=lambda ids: len(ids) >= 4) if i % 2 else one for i, one in enumerate(base)]
    texts = continue_greedily(model, layout, early, frozenset({2}))
    assert texts == [text[:4] if i % 2 else text for i, text in enumerate(expected)]
