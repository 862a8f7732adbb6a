"""What goes into a format comes out again, signs included; what cannot be is refused."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ModelCorrupt, QuantizationError
from engine.quantization.compensation import quantize_compensated
from engine.quantization.error import relative_error
from engine.quantization.formats import Format, storage_bytes
from engine.quantization.quantize import WeightBuilder, quantize
from engine.quantization.weights import DENSE_DTYPES, concatenate, weight_from

# Of normally distributed weights: a little above what was measured.
WORST = {
    Format.FP32: 0.0,
    Format.BF16: 1e-5,
    Format.FP16: 1e-6,
    Format.INT8: 2e-4,
    Format.INT8_DYNAMIC: 2e-4,
    Format.INT8_STATIC: 2e-4,
    Format.INT4: 1e-2,
    Format.INT4_ZP: 1e-2,
}


def weights(rows: int = 40, columns: int = 96) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))


def scale_of(format: Format) -> float | None:
    return 0.05 if format is Format.INT8_STATIC else None


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("shift", [0.0, -3.0, 3.0])
def test_signs_survive_the_round_trip(format: Format, shift: float) -> None:
    original = weights() + shift
    stored = quantize(original, format, activation_scale=scale_of(format))
    back = stored.dequantize()
    assert relative_error(back, original) <= WORST[format]
    clear = original.abs() > 0.5  # more than half a step of symmetric INT4
    assert torch.equal(back[clear].sign(), original[clear].sign())
    assert stored.nbytes == storage_bytes(format, *original.shape)


def test_the_naive_recipe_loses_every_negative_weight() -> None:
    """A scale from the peak and unsigned codes, without a zero point: the common mistake."""
    original = weights()
    scale = original.abs().max() / 255
    naive = (original / scale).round().clamp(0, 255) * scale
    assert (naive >= 0).all()
    assert relative_error(naive, original) > 0.4
    assert relative_error(quantize(original, Format.INT8).dequantize(), original) < 2e-4


def test_a_zero_point_pays_where_a_group_is_one_sided() -> None:
    original = weights().abs() + 2
    errors = [
        relative_error(quantize(original, format).dequantize(), original)
        for format in (Format.INT4, Format.INT4_ZP)
    ]
    assert errors[1] <= errors[0]


@pytest.mark.parametrize("format", list(Format))
def test_rows_of_zeros_stay_zero_and_can_be_stored(format: Format) -> None:
    original = weights()
    original[3] = 0
    original[7, :32] = 0
    stored = quantize(original, format, activation_scale=scale_of(format))
    back = stored.dequantize()
    assert (back[3] == 0).all()
    assert (back[7, :32] == 0).all()
    again = weight_from(format, stored.tensors(), *original.shape)
    assert torch.equal(again.dequantize(), back)


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused(format: Format, bad: float) -> None:
    original = weights()
    original[2, 5] = bad
    with pytest.raises(QuantizationError, match="NaN or infinite"):
        quantize(original, format, activation_scale=scale_of(format))


@pytest.mark.parametrize("format", [Format.INT4, Format.INT4_ZP, Format.INT8_DYNAMIC])
def test_columns_that_are_no_whole_groups_are_refused(format: Format) -> None:
    with pytest.raises(QuantizationError, match="multiple of 32"):
        quantize(weights(16, 40), format)


@pytest.mark.parametrize("scale", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_static_scale_must_be_usable(scale: float | None) -> None:
    with pytest.raises(QuantizationError):
        quantize(weights(), Format.INT8_STATIC, activation_scale=scale)


def test_a_value_beyond_fp16_is_refused() -> None:
    original = weights()
    original[0, 0] = 1e6
    with pytest.raises(QuantizationError, match="beyond fp16"):
        quantize(original, Format.FP16)


@pytest.mark.parametrize("format", [f for f in Format if f not in DENSE_DTYPES])
@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_a_stored_scale_that_cannot_be_is_named(format: Format, bad: float) -> None:
    tensors = dict(quantize(weights(), format, activation_scale=scale_of(format)).tensors())
    scales = tensors["scales"].clone()
    scales.view(-1)[0] = bad
    with pytest.raises(ModelCorrupt, match="scale"):
        weight_from(format, {**tensors, "scales": scales}, 40, 96)


@pytest.mark.parametrize("format", [f for f in Format if f is not Format.INT8_STATIC])
def test_rows_can_be_looked_up_and_matrices_stacked(format: Format) -> None:
    first, second = quantize(weights(32), format), quantize(weights(16) * 2, format)
    both = concatenate([first, second])
    whole = torch.cat([first.dequantize(), second.dequantize()])
    assert torch.equal(both.dequantize(), whole)
    ids = torch.tensor([47, 0, 33])
    assert torch.equal(both.take(ids), whole[ids])


def test_a_builder_wants_all_rows_and_no_more() -> None:
    builder = WeightBuilder(Format.INT8, 40, 96)
    builder.add(weights(39))
    with pytest.raises(QuantizationError, match="39 rows"):
        builder.finish()
    with pytest.raises(QuantizationError):
        builder.add(weights(2))


@pytest.mark.parametrize("format", [Format.INT4, Format.INT4_ZP])
def test_compensation_lowers_the_error_of_the_products(format: Format) -> None:
    """On correlated inputs, as those of a model are."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(512, 8, generator=generator) @ torch.randn(8, 96, generator=generator)
    inputs += 0.1 * torch.randn(512, 96, generator=generator)
    moment = inputs.T @ inputs / len(inputs)
    weight = weights()
    exact = inputs @ weight.T
    plain = quantize(weight, format, importance=moment.diagonal())
    better = quantize_compensated(weight, format, moment)
    errors = [relative_error(inputs @ w.dequantize().T, exact) for w in (plain, better)]
    assert errors[1] < 0.8 * errors[0]
