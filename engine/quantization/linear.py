"""Linear layers over stored weights, all with one call: float32 [rows, in] -> [rows, out].

A layer may take what comes before it (RMSNorm or SwiGLU) and after it (the residual sum) into
its call, so that a compiled kernel can fuse them. `make_linear` picks the layer:

* `NativeLinear`: INT4 and dynamic INT8 through our compiled kernels (`engine.kernels`);
* `TorchLinear`: every format through PyTorch's operators, where no kernel is compiled for
  this chip, and for the formats whose activations stay in floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch.nn import functional

from engine.kernels import native
from engine.kernels.native import Kernels, NativeMatrix, RmsNorm
from engine.quantization.formats import GROUP, LANES, Format
from engine.quantization.packing import int4_codes, int8_codes, rows_between
from engine.quantization.weights import INT8_ZERO, DenseWeight, Int4Weight, Int8Weight, Weight

# Up to so many rows reading the packed weights is faster than widening them first, on AVX2
# and AMX alike (PyTorch's operators only).
FEW_ROWS = 12
_WIDEN_ITEMS = 1 << 24  # most weights in floating point at a time: bounds scratch memory


def hardware_dtype() -> torch.dtype:
    """BF16 where this CPU multiplies it in hardware, else FP32."""
    in_hardware = torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.bfloat16 if in_hardware else torch.float32


class Linear(Protocol):
    """What the decoder needs of a linear layer."""

    @property
    def weight(self) -> Weight:
        """The stored matrix."""
        ...

    @property
    def bias(self) -> torch.Tensor | None:
        """float32 [out] or None."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the weight and bias."""
        ...

    def __call__(
        self,
        x: torch.Tensor,
        *,
        norm: RmsNorm | None = None,
        swiglu: bool = False,
        add_to: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The product of `x` and the weight.

        Args:
            x: float32 [rows, in], contiguous.
            norm: normalise the rows of x first.
            swiglu: x is [gate | up], [rows, 2 in], and the product takes silu(gate) * up.
            add_to: float32 [rows, out]; the product is added to it, in place.

        Returns:
            float32 [rows, out]; `add_to` itself where given.
        """
        ...


def make_linear(
    weight: Weight, bias: torch.Tensor | None = None, *, kernels: Kernels | None = None
) -> Linear:
    """The fastest layer this chip has for a weight.

    Args:
        weight: its memory is used as it lies, mapped or not.
        bias: float32 [out] or None.
        kernels: compiled kernels to use; those of this chip by default.
    """
    kernels = kernels or native.load()
    if kernels is not None and _has_kernel(weight):
        return NativeLinear(weight, bias, kernels)
    return TorchLinear(weight, bias)


def _has_kernel(weight: Weight) -> bool:
    return weight.format in (Format.INT4, Format.INT4_ZP, Format.INT8_DYNAMIC)


class NativeLinear:
    """A layer through the compiled kernels, which round its activations; see `Kernels.linear`."""

    def __init__(self, weight: Weight, bias: torch.Tensor | None, kernels: Kernels) -> None:
        assert not isinstance(weight, DenseWeight)
        self.weight = weight
        self.bias = bias
        self.matrix = NativeMatrix(weight, bias)
        self.kernels = kernels

    @property
    def nbytes(self) -> int:
        """Bytes of the weight and bias."""
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(
        self,
        x: torch.Tensor,
        *,
        norm: RmsNorm | None = None,
        swiglu: bool = False,
        add_to: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `Linear.__call__`."""
        y = torch.empty(x.shape[0], self.weight.rows) if add_to is None else add_to
        added = add_to is not None
        self.kernels.linear(self.matrix, x, y, norm=norm, swiglu=swiglu, add=added)
        return y


class TorchLinear:
    """A layer through PyTorch's operators; owned by the engine thread.

    Packed weights are unpacked once, into the layout that PyTorch's kernels for a few rows
    want; for many rows they are widened a slab at a time and multiplied in BF16 or FP32.
    """

    def __init__(self, weight: Weight, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self._product: Callable[[torch.Tensor], torch.Tensor]
        match weight:
            case DenseWeight():
                self._product = _dense(weight)
            case Int8Weight():
                self._product = _int8(weight)
            case Int4Weight():
                self._product = _int4(weight)

    @property
    def nbytes(self) -> int:
        """Bytes of the weight and bias."""
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(
        self,
        x: torch.Tensor,
        *,
        norm: RmsNorm | None = None,
        swiglu: bool = False,
        add_to: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `Linear.__call__`."""
        y = self._product(layer_input(x, norm=norm, swiglu=swiglu))
        if self.bias is not None:
            y = y.add_(self.bias)
        return y if add_to is None else add_to.add_(y)


def layer_input(
    x: torch.Tensor, *, norm: RmsNorm | None = None, swiglu: bool = False
) -> torch.Tensor:
    """What a layer multiplies: `x` after the norm or SwiGLU that is fused into its call."""
    if norm is not None:
        x = functional.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    if swiglu:
        gate, up = x.chunk(2, dim=1)
        x = functional.silu(gate).mul_(up)
    return x


def round_activations(x: torch.Tensor) -> torch.Tensor:
    """float32 [rows, columns] rounded to 8 bits by row and group of 32 columns, in FP32."""
    grouped = x.view(x.shape[0], -1, GROUP)
    scales = grouped.abs().amax(dim=2, keepdim=True) / 127.0
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    return (grouped / scales).round_().mul_(scales).view_as(x)


def _dense(weight: DenseWeight) -> Callable[[torch.Tensor], torch.Tensor]:
    values = weight.values
    return lambda x: functional.linear(x.to(values.dtype), values).float()


def _int8(weight: Int8Weight) -> Callable[[torch.Tensor], torch.Tensor]:
    words = rows_between(weight.packed.view(torch.int32), 0, weight.rows)
    codes = int8_codes(words).sub(INT8_ZERO).view(torch.int8)
    scales, rows_at_once = weight.scales, max(1, _WIDEN_ITEMS // weight.columns)
    # The kernel wants BF16 scales, whose rounding would shift whole channels; it gets ones,
    # and the FP32 scales are applied to its result.
    ones = torch.ones(weight.rows, dtype=torch.bfloat16)
    wide = hardware_dtype()

    def product(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= FEW_ROWS:
            y = torch.ops.aten._weight_int8pack_mm(x.bfloat16(), codes, ones)
        else:
            x = x.to(wide)
            y = _by_slabs(x, (piece.to(wide) for piece in codes.split(rows_at_once)))
        return y.float().mul_(scales)

    if weight.format is Format.INT8_DYNAMIC:
        return lambda x: product(round_activations(x))
    if weight.activation_scale is None:
        return product
    step = float(weight.activation_scale)

    def static(x: torch.Tensor) -> torch.Tensor:
        rounded = (x / step).round_().clamp_(-127, 127)  # whole numbers: exact in BF16
        return product(rounded).mul_(step)

    return static


def _int4(weight: Int4Weight) -> Callable[[torch.Tensor], torch.Tensor]:
    wide = hardware_dtype()
    step, blocks = max(1, _WIDEN_ITEMS // weight.columns // LANES), weight.packed.shape[0]
    pieces = [_blocks(weight, at, min(at + step, blocks)) for at in range(0, blocks, step)]
    few = _int4_few(weight)

    def product(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= FEW_ROWS and few is not None:
            return few(x)
        x = x.to(wide)
        return _by_slabs(x, (piece.dequantize().to(wide) for piece in pieces)).float()

    return product


def _blocks(weight: Int4Weight, start: int, stop: int) -> Int4Weight:
    """Blocks [start, stop) of 16 rows, as a weight of its own over the same memory."""
    zeros = None if weight.zeros is None else weight.zeros[start:stop]
    rows = min(stop * LANES, weight.rows) - start * LANES
    return Int4Weight(
        weight.packed[start:stop], weight.scales[start:stop], zeros, rows, weight.columns
    )


def _int4_few(weight: Int4Weight) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """PyTorch's weight-only INT4 kernel, None where the shape does not suit it."""
    if weight.rows % LANES:
        return None
    codes = int4_codes(rows_between(weight.packed.view(torch.int32), 0, weight.rows))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
    scales = rows_between(weight.scales, 0, weight.rows).float()
    if weight.zeros is None:
        shift = torch.zeros_like(scales)
    else:
        shift = (8 - rows_between(weight.zeros, 0, weight.rows).float()) * scales
    # [groups, rows, 2]: value = (code - 8) * scale + shift.
    both = torch.stack((scales, shift), dim=2).transpose(0, 1).contiguous().bfloat16()

    def product(x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(x.bfloat16(), packed, GROUP, both)
        return y.float()

    return product


def _by_slabs(x: torch.Tensor, slabs: Iterable[torch.Tensor]) -> torch.Tensor:
    pieces = [functional.linear(x, slab) for slab in slabs]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
