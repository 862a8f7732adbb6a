"""Linear layers over INT8 or FP32 weights, all with one call: [rows, in] -> [rows, out] in FP32.

INT8 is symmetric per output channel: `weight[o, i] = codes[o, i] * scales[o]`, codes in
[-127, 127]. Activations are not quantized: on real code that cost ten times the divergence
from FP32 that the weights alone cost. The kernel depends on the number of rows:

* few rows (decode): PyTorch's weight-only kernel over BF16 activations, which reads each
  weight once and is bound by memory;
* many rows (prefill): the codes are widened once and multiplied in BF16 where the chip
  multiplies BF16 in hardware (AMX, AVX512-BF16), in FP32 elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from engine.errors import ModelCorrupt
from engine.quantization.error import ErrorMeter

# Above this many rows widening the weights first is faster, on AVX2 and AMX alike.
WEIGHT_ONLY_ROWS = 12
_WIDEN_ITEMS = 1 << 24  # most weights in floating point at a time: bounds scratch memory


def hardware_dtype() -> torch.dtype:
    """BF16 where this CPU multiplies it in hardware, else FP32."""
    in_hardware = torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.bfloat16 if in_hardware else torch.float32


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


def quantize_measured(weight: torch.Tensor) -> tuple[Int8Weight, float]:
    """`quantize_int8`, and the relative error it cost; a few rows at a time to save memory.

    Raises:
        ModelCorrupt: the weight holds NaN or infinity.
    """
    quantized: list[Int8Weight] = []
    error = ErrorMeter()
    for rows in weight.split(max(1, _WIDEN_ITEMS // weight.shape[1])):
        piece = quantize_int8(rows)
        error.add(piece.dequantize(), rows)
        quantized.append(piece)
    codes = torch.cat([piece.codes for piece in quantized])
    return Int8Weight(codes, torch.cat([piece.scales for piece in quantized])), error.relative


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
        self._wide = hardware_dtype()
        self._step = max(1, _WIDEN_ITEMS // weight.codes.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and bias."""
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.weight.codes.nbytes + self.weight.scales.nbytes + bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [rows, in] -> float32 [rows, out]."""
        if x.shape[0] <= WEIGHT_ONLY_ROWS:
            product = torch.ops.aten._weight_int8pack_mm(
                x.bfloat16(), self.weight.codes, self._ones
            )
        else:
            x = x.to(self._wide)
            pieces = [
                functional.linear(x, codes.to(self._wide))
                for codes in self.weight.codes.split(self._step)
            ]
            product = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
        y = product.float().mul_(self.weight.scales)
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
