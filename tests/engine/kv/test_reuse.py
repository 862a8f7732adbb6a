"""The store of finished prompts against a naive oracle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kv.cache import KvShape, PromptCache
from engine.kv.reuse import PromptStore, common_prefix

SHAPE = KvShape(layers=1, kv_heads=1, head_dim=2, prefill_dtype=torch.float32)
tokens = st.lists(st.integers(0, 2), max_size=12)


def naive_common(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def filled(ids: Sequence[int]) -> PromptCache:
    """A cache whose stored keys spell its tokens, so that copies can be checked."""
    cache = PromptCache(SHAPE)
    extend(cache, ids)
    return cache


def extend(cache: PromptCache, ids: Sequence[int]) -> None:
    cache.reserve(len(cache) + len(ids))
    rows = torch.tensor(ids, dtype=torch.float32).view(-1, 1, 1).expand(-1, 1, 2)
    if ids:
        cache.write(0, len(cache), rows, -rows)
    cache.tokens.extend(ids)


def check_integrity(cache: PromptCache) -> None:
    if not len(cache):
        return
    keys, values = cache.read(0, len(cache))
    expected = torch.tensor(cache.tokens, dtype=torch.float32)
    assert torch.equal(keys[0, :, 0], expected)
    assert torch.equal(values[0, :, 1], -expected)


@given(a=tokens, b=tokens)
def test_common_prefix(a: list[int], b: list[int]) -> None:
    assert common_prefix(a, b) == naive_common(a, b)


@given(prompts=st.lists(tokens.filter(bool), min_size=1, max_size=12), keep=st.booleans())
def test_acquire_gives_the_longest_known_prefix(prompts: list[list[int]], keep: bool) -> None:
    store = PromptStore(SHAPE, 1 << 30)
    running: list[PromptCache] = []
    seen: list[list[int]] = []
    for prompt in prompts:
        cache = store.acquire(prompt, running)
        check_integrity(cache)
        assert cache.tokens == prompt[: len(cache)]
        assert len(cache) < len(prompt)  # the last token is computed anew
        if keep:  # nothing was cut or evicted: nothing longer can be known
            known = max((naive_common(prompt, old) for old in seen), default=0)
            assert len(cache) == min(known, len(prompt) - 1)
        extend(cache, prompt[len(cache) :])
        if keep:
            running.append(cache)
        else:
            store.release(cache)
        seen.append(prompt)


def test_a_running_cache_is_copied_not_shared() -> None:
    store = PromptStore(SHAPE, 1 << 30)
    running = filled([1, 2, 3, 4])
    cache = store.acquire([1, 2, 9], [running])
    assert cache.tokens == [1, 2]
    extend(cache, [9])
    check_integrity(cache)
    check_integrity(running)


def test_a_long_prompt_is_not_cut_for_a_short_share() -> None:
    store = PromptStore(SHAPE, 1 << 30)
    store.release(filled([1] * 10))
    assert store.acquire([1, 2], []).tokens == [1]
    assert len(store.acquire([1] * 11, [])) == 10


def test_the_budget_evicts_the_least_recently_used() -> None:
    one = filled([0] * 3)
    store = PromptStore(SHAPE, 2 * one.nbytes)
    for first in (1, 2, 3):
        store.release(filled([first, 5, 5]))
    assert store.nbytes <= 2 * one.nbytes
    assert len(store.acquire([1, 5, 5, 5], [])) == 0
    assert len(store.acquire([2, 5, 5, 5], [])) == 3


@pytest.mark.parametrize("size", [1, 255, 256, 257, 600])
def test_growth_keeps_what_is_stored(size: int) -> None:
    cache = filled([1, 2, 3])
    cache.reserve(size)
    check_integrity(cache)
    assert cache.nbytes == max(1, -(-max(size, 3) // 256)) * 256 * SHAPE.bytes_per_token
