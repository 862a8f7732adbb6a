"""Linear layers over every format, against FP32 arithmetic on the same weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from engine.kernels import native
from engine.kernels.native import RmsNorm
from engine.quantization.error import relative_error
from engine.quantization.formats import Format
from engine.quantization.linear import FEW_ROWS, NativeLinear, TorchLinear, make_linear
from engine.quantization.quantize import quantize
from engine.quantization.weights import Weight

OUT, IN = 112, 128


def stored(format: Format, rows: int = OUT, columns: int = IN) -> Weight:
    torch.manual_seed(4)
    weight = torch.randn(rows, columns) * torch.logspace(-2, 1, rows).unsqueeze(1)
    scale = 0.03 if format is Format.INT8_STATIC else None
    return quantize(weight, format, activation_scale=scale)


# Error power over signal power: BF16 keeps eight bits, an INT8 group of 32 some seven, and a
# static scale must serve the largest value of all.
LIMIT = {Format.FP32: 1e-9, Format.FP16: 1e-6, Format.INT8_STATIC: 4e-4}


@pytest.mark.parametrize("rows", [1, 2, FEW_ROWS, FEW_ROWS + 1, 70])
@pytest.mark.parametrize("format", list(Format))
def test_a_layer_computes_the_product_of_what_it_stores(format: Format, rows: int) -> None:
    weight = stored(format)
    x, bias = torch.randn(rows, IN), torch.randn(OUT)
    expected = functional.linear(x, weight.dequantize(), bias)
    for layer in (make_linear(weight, bias), TorchLinear(weight, bias)):
        got = layer(x)
        assert got.dtype == torch.float32
        assert relative_error(got, expected) < LIMIT.get(format, 6e-5), type(layer).__name__


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("format", list(Format))
def test_what_is_fused_into_a_call_equals_what_is_done_around_it(format: Format, rows: int) -> None:
    weight = stored(format)
    norm = RmsNorm(torch.rand(IN) + 0.5, 1e-6)
    x, wide, residual = torch.randn(rows, IN), torch.randn(rows, 2 * IN), torch.randn(rows, OUT)
    for layer in (make_linear(weight), TorchLinear(weight)):
        normed = layer(functional.rms_norm(x, (IN,), norm.weight, norm.eps))
        assert relative_error(layer(x, norm=norm), normed) < 1e-5
        gated = layer(functional.silu(wide[:, :IN]) * wide[:, IN:])
        assert relative_error(layer(wide, swiglu=True), gated) < 1e-5
        total = residual.clone()
        assert layer(x, add_to=total) is total
        assert relative_error(total, residual + layer(x)) < 1e-9


def test_layers_without_a_kernel_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    for format in (Format.INT4, Format.INT4_ZP, Format.INT8_DYNAMIC):
        assert isinstance(make_linear(stored(format)), NativeLinear) == (native.load() is not None)
    for format in (Format.FP32, Format.BF16, Format.INT8, Format.INT8_STATIC):
        assert isinstance(make_linear(stored(format)), TorchLinear)
    monkeypatch.setenv(native.VARIABLE, "torch")
    assert isinstance(make_linear(stored(Format.INT4)), TorchLinear)


@pytest.mark.parametrize("format", [Format.INT8, Format.INT4, Format.INT4_ZP])
def test_a_wide_matrix_is_widened_in_pieces(
    format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = stored(format, rows=1000)
    x = torch.randn(FEW_ROWS + 1, IN)
    whole = TorchLinear(weight)(x)
    monkeypatch.setattr("engine.quantization.linear._WIDEN_ITEMS", IN * 64)
    torch.testing.assert_close(TorchLinear(weight)(x), whole)


def test_rows_that_are_no_whole_blocks() -> None:
    weight = stored(Format.INT4_ZP, rows=50)
    for rows in (1, 40):
        x = torch.randn(rows, IN)
        expected = x @ weight.dequantize().T
        for layer in (make_linear(weight), TorchLinear(weight)):
            assert relative_error(layer(x), expected) < 6e-5


def test_bytes_are_counted() -> None:
    layer = TorchLinear(stored(Format.FP32, 8, 4), torch.zeros(8))
    assert layer.nbytes == 4 * (8 * 4 + 8)
    assert make_linear(stored(Format.INT4)).nbytes == stored(Format.INT4).nbytes


def test_relative_error_is_power_over_power() -> None:
    exact = torch.tensor([3.0, -4.0])
    assert relative_error(exact, exact) == 0
    assert relative_error(torch.tensor([3.0, -4.5]), exact) == pytest.approx(0.25 / 25)
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0
    assert relative_error(torch.ones(2), torch.zeros(2)) == float("inf")
