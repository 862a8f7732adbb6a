"""Stored matrices: one class per layout, all with the same face.

Each is [rows, columns] = [output channels, input channels], knows its format and its bytes,
and can give its values back in FP32, whole or a few rows at a time. The packed layouts are
described in `packing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from engine.errors import ModelCorrupt
from engine.quantization.formats import (
    GROUP,
    INT8_FORMATS,
    LANES,
    Format,
    column_step,
    row_blocks,
)
from engine.quantization.packing import int4_codes, int8_codes, rows_at, rows_between

INT8_ZERO = 128  # what is added to an INT8 code to store it as a byte
INT4_ZERO = 8  # the zero point of symmetric INT4
DENSE_DTYPES = {
    Format.FP32: torch.float32,
    Format.BF16: torch.bfloat16,
    Format.FP16: torch.float16,
}

_SLAB_ITEMS = 1 << 22  # values widened at a time: bounds the scratch memory of dequantizing


@dataclass(frozen=True, slots=True)
class DenseWeight:
    """A matrix in floating point.

    Attributes:
        values: float32, bfloat16 or float16 [rows, columns].
    """

    values: torch.Tensor

    @property
    def format(self) -> Format:
        """FP32, BF16 or FP16."""
        return next(f for f, dtype in DENSE_DTYPES.items() if dtype is self.values.dtype)

    @property
    def rows(self) -> int:
        """Output channels."""
        return self.values.shape[0]

    @property
    def columns(self) -> int:
        """Input channels."""
        return self.values.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes

    def dequantize(self) -> torch.Tensor:
        """float32 [rows, columns]."""
        return self.values.float()

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """Only these rows (int64 [n]), as float32 [n, columns]."""
        return self.values[ids].float()

    def tensors(self) -> dict[str, torch.Tensor]:
        """What to store, by suffix."""
        return {"values": self.values}


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """A matrix in INT8, symmetric, one scale per row: `value = scale * code`.

    Attributes:
        packed: uint8 [blocks, columns / 4, 64]; byte [b, j, 4 r + i] is the code of row
            16 b + r, column 4 j + i, plus 128. Codes are in [-127, 127], padding rows hold 0.
        scales: float32 [rows], positive.
        rows: output channels.
        columns: input channels.
        format: INT8, INT8_DYNAMIC or INT8_STATIC.
        activation_scale: float32 [], of INT8_STATIC only.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    rows: int
    columns: int
    format: Format = Format.INT8
    activation_scale: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def dequantize(self) -> torch.Tensor:
        """float32 [rows, columns]."""
        values = torch.empty(self.rows, self.columns)
        words = self.packed.view(torch.int32)
        for piece in _slabs(self.rows, self.columns):
            codes = rows_between(words, piece.start, piece.stop)
            values[piece] = _widen_int8(codes, self.scales[piece])
        return values

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """Only these rows (int64 [n]), as float32 [n, columns]."""
        return _widen_int8(rows_at(self.packed.view(torch.int32), ids), self.scales[ids])

    def tensors(self) -> dict[str, torch.Tensor]:
        """What to store, by suffix."""
        stored = {"packed": self.packed, "scales": self.scales}
        if self.activation_scale is not None:
            stored["activation_scale"] = self.activation_scale
        return stored


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """A matrix in INT4 by groups of 32 columns: `value = scale * (code - zero)`.

    Attributes:
        packed: uint8 [blocks, columns / 8, 64]; byte [b, j, 4 r + i] has the code of row
            16 b + r, column 8 j + i in its low nibble and of column 8 j + 4 + i in its high.
        scales: float16 [blocks, columns / 32, 16], finite; never 0 in a real row, but possibly
            negative, which gives the longer half of the range to the positive side. Padding
            rows have scale 0.
        zeros: uint8 of the shape of `scales`, each 0..15; None means 8 everywhere.
        rows: output channels.
        columns: input channels.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    rows: int
    columns: int

    @property
    def format(self) -> Format:
        """INT4, or INT4_ZP where there are zero points."""
        return Format.INT4 if self.zeros is None else Format.INT4_ZP

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def dequantize(self) -> torch.Tensor:
        """float32 [rows, columns]."""
        values = torch.empty(self.rows, self.columns)
        words = self.packed.view(torch.int32)
        for piece in _slabs(self.rows, self.columns):
            where = piece.start, piece.stop
            zeros = None if self.zeros is None else rows_between(self.zeros, *where)
            values[piece] = _widen_int4(
                rows_between(words, *where), rows_between(self.scales, *where), zeros
            )
        return values

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """Only these rows (int64 [n]), as float32 [n, columns]."""
        zeros = None if self.zeros is None else rows_at(self.zeros, ids)
        words = rows_at(self.packed.view(torch.int32), ids)
        return _widen_int4(words, rows_at(self.scales, ids), zeros)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What to store, by suffix."""
        stored = {"packed": self.packed, "scales": self.scales}
        if self.zeros is not None:
            stored["zeros"] = self.zeros
        return stored


Weight = DenseWeight | Int8Weight | Int4Weight


def concatenate(parts: Sequence[Weight]) -> Weight:
    """One matrix of the rows of several, all of one format and of whole blocks but the last."""
    first = parts[0]
    if len(parts) == 1:
        return first
    rows = sum(part.rows for part in parts)
    tensors = {
        suffix: torch.cat([part.tensors()[suffix] for part in parts])
        for suffix in first.tensors()
        if suffix != "activation_scale"
    }
    match first:
        case DenseWeight():
            return DenseWeight(tensors["values"])
        case Int8Weight():
            return replace(first, rows=rows, packed=tensors["packed"], scales=tensors["scales"])
        case Int4Weight():
            return Int4Weight(
                tensors["packed"], tensors["scales"], tensors.get("zeros"), rows, first.columns
            )


def _slabs(rows: int, columns: int) -> list[slice]:
    step = max(1, _SLAB_ITEMS // columns // LANES) * LANES
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _widen_int8(words: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    codes = int8_codes(words).float().sub_(INT8_ZERO)
    return codes.mul_(scales.unsqueeze(1))


def _widen_int4(
    words: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None
) -> torch.Tensor:
    codes = int4_codes(words).float().view(len(words), -1, GROUP)
    codes.sub_(INT4_ZERO if zeros is None else zeros.float().unsqueeze(2))
    return codes.mul_(scales.float().unsqueeze(2)).view(len(words), -1)


def weight_from(
    format: Format, tensors: Mapping[str, torch.Tensor], rows: int, columns: int
) -> Weight:
    """A weight over stored tensors, used where they lie, mapped or not.

    Args:
        format: what they claim to be.
        tensors: by suffix, as `tensors()` named them; others are ignored.
        rows: output channels.
        columns: input channels.

    Raises:
        ModelCorrupt: a tensor is missing, of the wrong shape or dtype, or a scale is NaN,
            infinite or zero, or a zero point is not in 0..15. Codes are not read: a mapped
            model must start without touching all its bytes.
    """
    if columns % column_step(format):
        raise ModelCorrupt(f"{columns} columns cannot be {format}: not whole groups")

    def get(name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        tensor = tensors.get(name)
        if tensor is None:
            raise ModelCorrupt(f"an {format} matrix lacks its {name}")
        if tensor.dtype is not dtype or tuple(tensor.shape) != shape:
            raise ModelCorrupt(
                f"the {name} of an {format} matrix are {tensor.dtype} {tuple(tensor.shape)}, "
                f"not {dtype} {shape}"
            )
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    if format in DENSE_DTYPES:
        return DenseWeight(get("values", DENSE_DTYPES[format], rows, columns))
    blocks = row_blocks(rows)
    if format in INT8_FORMATS:
        packed = get("packed", torch.uint8, blocks, columns // 4, 4 * LANES)
        scales = get("scales", torch.float32, rows)
        activation_scale = None
        if format is Format.INT8_STATIC:
            activation_scale = get("activation_scale", torch.float32)
            _check_positive(format, "activation scale", activation_scale)
        _check_positive(format, "scale", scales)
        return Int8Weight(packed, scales, rows, columns, format, activation_scale)
    packed = get("packed", torch.uint8, blocks, columns // 8, 4 * LANES)
    grouped = (blocks, columns // GROUP, LANES)
    scales = get("scales", torch.float16, *grouped)
    real = rows_between(scales, 0, rows)
    if not bool((torch.isfinite(real) & (real != 0)).all()):
        raise ModelCorrupt(f"a scale of an {format} matrix is NaN, infinite or zero")
    zeros = None
    if format is Format.INT4_ZP:
        zeros = get("zeros", torch.uint8, *grouped)
        if bool((zeros > 15).any()):
            raise ModelCorrupt(f"a zero point of an {format} matrix is above 15")
    return Int4Weight(packed, scales, zeros, rows, columns)


def _check_positive(format: Format, what: str, scales: torch.Tensor) -> None:
    if not bool((torch.isfinite(scales) & (scales > 0)).all()):
        raise ModelCorrupt(f"the {what} of an {format} matrix is NaN, infinite or not positive")
