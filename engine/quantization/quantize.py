"""From FP32 to any stored format, a slab of rows at a time.

`WeightBuilder` is the one place where packed weights come into being: rows arrive in order, in
FP32 or as codes that already are in the format, and go straight to their places.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from engine.errors import QuantizationError
from engine.quantization.formats import (
    GROUP,
    INT8_FORMATS,
    LANES,
    Format,
    column_step,
    row_blocks,
)
from engine.quantization.packing import int4_words, int8_words, put_rows
from engine.quantization.rounding import (
    Int4Codes,
    grouped_importance,
    round_affine,
    round_symmetric,
)
from engine.quantization.weights import (
    DENSE_DTYPES,
    INT8_ZERO,
    DenseWeight,
    Int4Weight,
    Int8Weight,
    Weight,
)

_SLAB_ITEMS = 1 << 17  # keeps the intermediates of rounding inside the CPU's caches


class WeightBuilder:
    """Builds one matrix from its rows, in order; makes no copy of more than a slab in FP32.

    Args:
        format: what to store.
        rows: output channels, all told.
        columns: input channels.
        importance: float32 [columns], the mean square of each input channel on calibration
            code; weighs the errors of INT4. None: all columns count alike.
        activation_scale: the activations' one scale, for INT8_STATIC only.

    Raises:
        QuantizationError: the columns are not whole groups, the importance does not fit, or
            INT8_STATIC has no usable activation scale.
    """

    def __init__(
        self,
        format: Format,
        rows: int,
        columns: int,
        *,
        importance: torch.Tensor | None = None,
        activation_scale: float | None = None,
    ) -> None:
        step = column_step(format)
        if rows < 1 or columns < 1 or columns % step:
            raise QuantizationError(
                f"a matrix of {rows} x {columns} cannot be {format}: "
                f"its columns must be a positive multiple of {step}",
                "store it in floating point",
            )
        self.format, self.rows, self.columns = format, rows, columns
        self._filled = 0
        blocks = row_blocks(rows)
        grouped = (blocks, columns // GROUP, LANES)
        self._activation_scale: torch.Tensor | None = None
        if format in DENSE_DTYPES:
            self._values = torch.empty(rows, columns, dtype=DENSE_DTYPES[format])
        elif format in INT8_FORMATS:
            self._packed = torch.empty(blocks, columns // 4, 4 * LANES, dtype=torch.uint8)
            self._packed[-1] = INT8_ZERO  # the last block alone has padding rows
            self._scales = torch.empty(rows)
            if format is Format.INT8_STATIC:
                self._activation_scale = _usable(activation_scale)
        else:
            self._packed = torch.empty(blocks, columns // 8, 4 * LANES, dtype=torch.uint8)
            self._packed[-1] = 0
            self._scales = torch.zeros(grouped, dtype=torch.float16)
            affine = format is Format.INT4_ZP
            self._zeros = torch.zeros(grouped, dtype=torch.uint8) if affine else None
            self._importance = grouped_importance(importance, columns)

    def add(self, values: torch.Tensor) -> None:
        """Round and store the next rows, float32 [n, columns].

        Raises:
            QuantizationError: they hold NaN or infinity, or values beyond the format's range.
        """
        for rows in _slabs(values):
            if not bool(torch.isfinite(rows).all()):
                raise QuantizationError("a weight is NaN or infinite and cannot be quantized")
            if self.format in DENSE_DTYPES:
                self._add_dense(rows)
            elif self.format in INT8_FORMATS:
                self.add_int8(*round_int8(rows))
            else:
                rounded = round_symmetric if self._zeros is None else round_affine
                self.add_int4(rounded(rows, self._importance))

    def _add_dense(self, rows: torch.Tensor) -> None:
        stored = rows.to(self._values.dtype)
        if not bool(torch.isfinite(stored).all()):
            raise QuantizationError(
                f"a weight of {float(rows.abs().max()):.3g} is beyond {self.format}",
                "store this matrix in fp32",
            )
        self._values[self._next(len(rows))] = stored

    def add_int8(self, codes: torch.Tensor, scales: torch.Tensor) -> None:
        """Store rows that are INT8 already: int8 [n, columns] in [-127, 127], float32 [n]."""
        place = self._next(len(codes))
        self._scales[place] = scales
        # Adding 128 to a byte flips its highest bit.
        put_rows(
            self._packed.view(torch.int32),
            place.start,
            int8_words(codes.view(torch.uint8) ^ INT8_ZERO),
        )

    def add_int4(self, rows: Int4Codes) -> None:
        """Store rows that are INT4 already; zero points must be there just for INT4_ZP."""
        assert (rows.zeros is None) == (self._zeros is None)
        start = self._next(len(rows.codes)).start
        put_rows(self._packed.view(torch.int32), start, int4_words(rows.codes))
        put_rows(self._scales, start, rows.scales)
        if self._zeros is not None and rows.zeros is not None:
            put_rows(self._zeros, start, rows.zeros)

    def _next(self, count: int) -> slice:
        start = self._filled
        self._filled += count
        if self._filled > self.rows:
            raise QuantizationError(f"got {self._filled} rows or more, not {self.rows}")
        return slice(start, self._filled)

    def finish(self) -> Weight:
        """The matrix, once all rows are there.

        Raises:
            QuantizationError: rows are missing.
        """
        if self._filled != self.rows:
            raise QuantizationError(f"got {self._filled} rows, not {self.rows}")
        if self.format in DENSE_DTYPES:
            return DenseWeight(self._values)
        if self.format in INT8_FORMATS:
            return Int8Weight(
                self._packed,
                self._scales,
                self.rows,
                self.columns,
                self.format,
                self._activation_scale,
            )
        return Int4Weight(self._packed, self._scales, self._zeros, self.rows, self.columns)


def quantize(
    weight: torch.Tensor,
    format: Format,
    *,
    importance: torch.Tensor | None = None,
    activation_scale: float | None = None,
) -> Weight:
    """Store float32 [rows, columns] in a format; see `WeightBuilder` for args and errors."""
    rows, columns = weight.shape
    builder = WeightBuilder(
        format, rows, columns, importance=importance, activation_scale=activation_scale
    )
    builder.add(weight)
    return builder.finish()


def round_int8(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round finite float32 [n, columns], one scale per row: int8 [n, columns], float32 [n]."""
    peak = rows.abs().amax(dim=1)
    # A row of zeros has no scale of its own; 1 will do. One too small for FP32's normal
    # range would be lost in the division.
    scales = torch.where(peak > 0, peak / 127, 1.0).clamp_(min=torch.finfo(torch.float32).tiny)
    codes = (rows / scales.unsqueeze(1)).round_().clamp_(-127, 127)
    return codes.to(torch.int8), scales


def _slabs(values: torch.Tensor) -> Iterator[torch.Tensor]:
    """A few rows at a time, as contiguous float32."""
    step = max(1, _SLAB_ITEMS // values.shape[1] // LANES) * LANES
    return (rows.float().contiguous() for rows in values.split(step))


def _usable(activation_scale: float | None) -> torch.Tensor:
    scale = torch.tensor(float("nan") if activation_scale is None else float(activation_scale))
    if not bool(torch.isfinite(scale) & (scale > 0)):
        raise QuantizationError(
            f"static INT8 cannot work with an activation scale of {activation_scale}",
            "calibrate the model first, or use dynamic INT8",
        )
    return scale
