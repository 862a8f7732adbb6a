"""The formats a matrix can be stored in, what each costs, and which is the next better one."""

from __future__ import annotations

import enum

GROUP = 32  # columns that share one scale in INT4, and one activation scale in INT8_DYNAMIC
PACKING = "rows16-columns4"  # the layout of packed weights; see `packing`
LANES = 16  # rows that the packed layouts interleave: one vector of 32-bit sums


class Format(enum.StrEnum):
    """How the weights of one matrix are stored, and what becomes of its activations."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"
    """Symmetric, one FP32 scale per output channel; activations stay in floating point."""
    INT8_DYNAMIC = "int8-dynamic"
    """The same weights; activations are rounded to INT8 at run time, one scale per row and
    group of 32 columns."""
    INT8_STATIC = "int8-static"
    """The same weights; activations are rounded with one scale that calibration chose."""
    INT4 = "int4"
    """Symmetric, groups of 32 columns with an FP16 scale each."""
    INT4_ZP = "int4-zp"
    """Groups of 32 columns with an FP16 scale and a zero point in 0..15 each."""


INT8_FORMATS = frozenset({Format.INT8, Format.INT8_DYNAMIC, Format.INT8_STATIC})
INT4_FORMATS = frozenset({Format.INT4, Format.INT4_ZP})

_UP: dict[Format, Format] = {
    Format.INT4: Format.INT4_ZP,
    Format.INT4_ZP: Format.INT8_DYNAMIC,
    Format.INT8: Format.BF16,
    Format.INT8_DYNAMIC: Format.BF16,
    Format.INT8_STATIC: Format.BF16,
    Format.FP16: Format.FP32,
    Format.BF16: Format.FP32,
    Format.FP32: Format.FP32,
}

_DENSE_BYTES = {Format.FP32: 4, Format.BF16: 2, Format.FP16: 2}


def one_up(format: Format) -> Format:
    """The next more precise format; FP32 is the last and stays."""
    return _UP[format]


def column_step(format: Format) -> int:
    """What the number of columns must be a multiple of."""
    if format in _DENSE_BYTES:
        return 1
    return 4 if format in (Format.INT8, Format.INT8_STATIC) else GROUP


def row_blocks(rows: int) -> int:
    """How many blocks of interleaved rows hold so many rows."""
    return -(-rows // LANES)


def storage_bytes(format: Format, rows: int, columns: int) -> int:
    """Bytes of a matrix in this format: codes, scales and zero points, padding included."""
    if format in _DENSE_BYTES:
        return rows * columns * _DENSE_BYTES[format]
    padded = row_blocks(rows) * LANES
    if format in INT8_FORMATS:
        return padded * columns + 4 * rows + (4 if format is Format.INT8_STATIC else 0)
    per_group = 2 if format is Format.INT4 else 3
    return padded * columns // 2 + padded * columns // GROUP * per_group
