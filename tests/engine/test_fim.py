"""Prompt layouts: found by the vocabulary's tokens, cut to the budget around the hole."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from engine.errors import NoFimTokens
from engine.fim import FimLayout, Order
from engine.loading.tokenizer import Tokenizer


def vocabulary(*specials: str, bos: int | None = None) -> Tokenizer:
    return Tokenizer(
        backend=tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[])),
        specials={text: 100 + i for i, text in enumerate(specials)},
        unused=frozenset({7}),
        bos=bos,
        eos=frozenset({50}),
    )


QWEN = vocabulary("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")


@pytest.mark.parametrize(
    ("tokens", "order"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), Order.PSM),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), Order.PSM),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), Order.PSM),  # noqa: RUF001
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), Order.PSM),
        (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), Order.SPM),
    ],
)
def test_each_family_is_found_by_its_tokens(tokens: tuple[str, ...], order: Order) -> None:
    layout = FimLayout.of(vocabulary(*tokens))
    assert (layout.prefix, layout.suffix, layout.middle) == (100, 101, 102)
    assert layout.order is order
    expected = [100, 1, 101, 2, 102] if order is Order.PSM else [101, 2, 100, 1, 102]
    assert layout.prompt([1], [2], 50) == expected


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_incomplete_set_is_refused(missing: int) -> None:
    tokens = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    del tokens[missing]
    with pytest.raises(NoFimTokens, match="use a code model"):
        FimLayout.of(vocabulary(*tokens))


def test_every_special_token_and_eos_stops() -> None:
    layout = FimLayout.of(QWEN)
    assert layout.stop_ids == {50, 100, 101, 102, 103}
    assert layout.banned_ids == {7}


def test_bos_goes_first() -> None:
    tokens = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    assert FimLayout.of(vocabulary(*tokens, bos=9)).prompt([], [], 50) == [9, 100, 101, 102]


@given(
    prefix=st.lists(st.integers(0, 99), max_size=60),
    suffix=st.lists(st.integers(0, 99), max_size=60),
    budget=st.integers(3, 80),
)
def test_the_text_nearest_to_the_hole_is_kept(
    prefix: list[int], suffix: list[int], budget: int
) -> None:
    prompt = FimLayout.of(QWEN).prompt(prefix, suffix, budget)
    at = prompt.index(101)
    kept_prefix, kept_suffix = prompt[1:at], prompt[at + 1 : -1]
    assert prompt[0] == 100
    assert prompt[-1] == 102
    assert kept_prefix == prefix[len(prefix) - len(kept_prefix) :]
    assert kept_suffix == suffix[: len(kept_suffix)]
    assert len(prompt) == min(budget, len(prefix) + len(suffix) + 3)
