"""INT8 linear layers against FP32 arithmetic."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ModelCorrupt
from engine.quantization.error import relative_error
from engine.quantization.linear import (
    WEIGHT_ONLY_ROWS,
    DenseLinear,
    Int8Linear,
    Int8Weight,
    quantize_int8,
    quantize_measured,
)


@pytest.fixture
def weight() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(96, 64) * torch.logspace(-3, 2, 96).unsqueeze(1)


def test_negative_values_and_zero_rows_survive_the_round_trip(weight: torch.Tensor) -> None:
    weight[5] = 0
    quantized = quantize_int8(weight)
    assert quantized.codes.dtype == torch.int8
    back = quantized.dequantize()
    # Half a step of each channel's own scale is all that rounding may cost.
    assert bool(((back - weight).abs() <= quantized.scales.unsqueeze(1) * 0.5001).all())
    assert bool((back[5] == 0).all())
    assert bool((torch.sign(back) * torch.sign(weight) >= 0).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(weight: torch.Tensor, bad: float) -> None:
    weight[3, 4] = bad
    with pytest.raises(ModelCorrupt, match="NaN or infinite"):
        quantize_int8(weight)


@pytest.mark.parametrize("rows", [1, 2, WEIGHT_ONLY_ROWS, WEIGHT_ONLY_ROWS + 1, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_both_kernels_compute_the_same_product(weight: torch.Tensor, rows: int, bias: bool) -> None:
    torch.manual_seed(1)
    x = torch.randn(rows, 64)
    shift = torch.randn(96) if bias else None
    quantized = quantize_int8(weight)
    got = Int8Linear(quantized, shift)(x)
    expected = DenseLinear(quantized.dequantize(), shift)(x)
    assert got.dtype == torch.float32
    assert relative_error(got, expected) < 1e-4  # BF16 has eight bits: (2 ** -9) ** 2, and slack


def test_quantizing_in_pieces_is_quantizing_the_whole(
    weight: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quantize_int8(weight)
    monkeypatch.setattr("engine.quantization.linear._WIDEN_ITEMS", 64 * 7)
    pieces, error = quantize_measured(weight)
    assert torch.equal(pieces.codes, whole.codes)
    assert torch.equal(pieces.scales, whole.scales)
    assert error == pytest.approx(relative_error(whole.dequantize(), weight), rel=1e-4)


def test_a_wide_matrix_is_widened_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    quantized = quantize_int8(torch.randn(1000, 32))
    x = torch.randn(WEIGHT_ONLY_ROWS + 1, 32)
    whole = Int8Linear(quantized)(x)
    monkeypatch.setattr("engine.quantization.linear._WIDEN_ITEMS", 32 * 64)
    torch.testing.assert_close(Int8Linear(quantized)(x), whole)


def test_embedding_rows_are_the_dequantized_rows(weight: torch.Tensor) -> None:
    quantized = quantize_int8(weight)
    ids = torch.tensor([7, 0, 7, 95])
    assert torch.equal(quantized.rows(ids), quantized.dequantize()[ids])


def test_bytes_are_counted() -> None:
    weight = Int8Weight(torch.zeros(8, 4, dtype=torch.int8), torch.ones(8))
    assert Int8Linear(weight).nbytes == 8 * 4 + 8 * 4
    assert Int8Linear(weight, torch.zeros(8)).nbytes == 8 * 4 + 2 * 8 * 4
    assert DenseLinear(torch.zeros(8, 4), torch.zeros(8)).nbytes == 4 * (8 * 4 + 8)


def test_relative_error_is_power_over_power() -> None:
    exact = torch.tensor([3.0, -4.0])
    assert relative_error(exact, exact) == 0
    assert relative_error(torch.tensor([3.0, -4.5]), exact) == pytest.approx(0.25 / 25)
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0
    assert relative_error(torch.ones(2), torch.zeros(2)) == float("inf")
