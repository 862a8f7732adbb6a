"""Linear layers over INT8 or FP32 weights, all with one call: [rows, in] -> [rows, out] in FP32.

INT8 is symmetric per output channel: `weight[o, i] = codes[o, i] * scales[o]`, codes in
[-127, 127]. Which kernel computes the product depends on the number of rows:

* few rows (decode): PyTorch's weight-only kernel over BF16 activations, which reads each
  weight once and is bound by memory;
* many rows (prefill): activations are quantized to INT8 per row (never per tensor: one
  outlier row would ruin the others) and multiplied in integers, which VNNI and AMX run at
  several times the speed of floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from engine.errors import ModelCorrupt

# Above this many rows the integer product is at least as fast on AVX2, VNNI and AMX alike.
WEIGHT_ONLY_ROWS = 4


class Linear(Protocol):
    """What the decoder needs of a linear layer."""

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, scales and bias."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [rows, in] -> float32 [rows, out]."""
        ...


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """A quantized matrix.

    Attributes:
        codes: int8 [out, in].
        scales: float32 [out].
    """

    codes: torch.Tensor
    scales: torch.Tensor

    def dequantize(self) -> torch.Tensor:
        """float32 [out, in]."""
        return self.codes.float() * self.scales.unsqueeze(1)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Only these rows (int64 [n]), as float32 [n, in]: an embedding look-up."""
        return self.codes[ids].float() * self.scales[ids].unsqueeze(1)


def quantize_int8(weight: torch.Tensor) -> Int8Weight:
    """Round float32 [out, in] to INT8, symmetric, one scale per output channel.

    Raises:
        ModelCorrupt: the weight holds NaN or infinity.
    """
    peak = weight.abs().amax(dim=1)
    if not bool(torch.isfinite(peak).all()):
        raise ModelCorrupt("a weight is NaN or infinite and cannot be quantized")
    scales = peak / 127.0
    # A channel of zeros has no scale of its own: any will do, and 1 keeps it finite.
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = (weight / scales.unsqueeze(1)).round_().clamp_(-127, 127).to(torch.int8)
    return Int8Weight(codes, scales)


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations to INT8 with one scale per row: int8 [rows, in], float32 [rows, 1]."""
    scales = x.abs().amax(dim=1, keepdim=True).div_(127.0).clamp_(min=1e-30)
    return (x / scales).round_().to(torch.int8), scales


class Int8Linear:
    """A linear layer over INT8 weights; owned by the engine thread.

    Args:
        weight: the quantized matrix; its memory is used as it lies, mapped or not.
        bias: float32 [out] or None.
    """

    def __init__(self, weight: Int8Weight, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        # The kernel wants BF16 scales, whose rounding would shift whole channels; it gets
        # ones, and the FP32 scales are applied to its result.
        self._ones = torch.ones(len(weight.scales), dtype=torch.bfloat16)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and bias."""
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.weight.codes.nbytes + self.weight.scales.nbytes + bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [rows, in] -> float32 [rows, out]."""
        codes, scales = self.weight.codes, self.weight.scales
        if x.shape[0] <= WEIGHT_ONLY_ROWS:
            y = torch.ops.aten._weight_int8pack_mm(x.bfloat16(), codes, self._ones)
            y = y.float().mul_(scales)
        else:
            quantized, row_scales = quantize_rows(x)
            y = torch._int_mm(quantized, codes.t()).float().mul_(row_scales).mul_(scales)
        return y if self.bias is None else y.add_(self.bias)


class DenseLinear:
    """A linear layer over FP32 weights: the reference, and the fallback.

    Args:
        weight: float32 [out, in].
        bias: float32 [out] or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    @property
    def nbytes(self) -> int:
        """Bytes of weights and bias."""
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [rows, in] -> float32 [rows, out]."""
        return functional.linear(x, self.weight, self.bias)
