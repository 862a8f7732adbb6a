"""The sketch of the head: what it costs, and that the best tokens come out as without it."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import native
from engine.kernels.native import RmsNorm
from engine.models.head import Head
from engine.quantization.formats import Format
from engine.quantization.linear import make_linear
from engine.quantization.quantize import quantize
from engine.quantization.sketch import DIRECTIONS, build_sketch, worth_sketching
from engine.quantization.weights import Weight

VOCAB, HIDDEN = 4000, 704


@pytest.fixture(scope="module")
def states() -> torch.Tensor:
    """Hidden states that vary in some directions more than in others, as a model's do."""
    torch.manual_seed(0)
    return torch.randn(600, HIDDEN) * torch.logspace(0, -1.5, HIDDEN)


@pytest.fixture(scope="module")
def head() -> Weight:
    torch.manual_seed(1)
    return quantize(torch.randn(VOCAB, HIDDEN), Format.INT8_DYNAMIC)


def test_it_is_a_fraction_of_the_head(head: Weight, states: torch.Tensor) -> None:
    sketch = build_sketch(head, states.T @ states / len(states))
    assert (sketch.table.rows, sketch.table.columns) == (VOCAB, DIRECTIONS)
    assert (sketch.projection.rows, sketch.projection.columns) == (DIRECTIONS, HIDDEN)
    assert sketch.nbytes < head.nbytes / 2
    approximate = states @ sketch.projection.dequantize().T @ sketch.table.dequantize().T
    exact = states @ head.dequantize().T
    correlation = torch.corrcoef(torch.stack((approximate.flatten(), exact.flatten())))[0, 1]
    assert correlation > 0.98


@pytest.mark.skipif(native.load() is None, reason="no compiled kernels")
def test_the_best_tokens_are_those_of_the_whole_head(head: Weight, states: torch.Tensor) -> None:
    norm = RmsNorm(torch.ones(HIDDEN), 1e-6)
    sketch = build_sketch(head, states.T @ states / len(states))
    linear, kernels = make_linear(head), native.load()
    banned = torch.tensor([17, 18])
    with_sketch = Head(linear, norm, sketch, kernels).best(states, banned)
    whole = Head(linear, norm, None, kernels).best(states, banned)
    # The sketch multiplies the best with activations in FP32, the whole head rounds them.
    agree = (with_sketch.ids[:, 0] == whole.ids[:, 0]).float().mean()
    assert agree > 0.98
    close = (with_sketch.logits[:, 0] - whole.logits[:, 0]).abs() / whole.logits[:, 0].abs()
    assert close.max() < 0.02
    assert not torch.isin(with_sketch.ids, banned).any()


def test_small_heads_are_read_whole() -> None:
    assert worth_sketching(151_936, 896)
    assert not worth_sketching(272, 64)
