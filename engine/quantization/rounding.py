"""Rounding to INT4 in groups: the search for the scale, and zero point, that lose least.

The obvious scale, which just reaches a group's largest value, is seldom the best: a slightly
smaller one clips one value and rounds the other thirty-one more finely. For each of a handful
of candidates the values are rounded, and for those codes the best scale of all follows in closed
form (weighted least squares): with weights h, values w and codes q it is A / B, A = sum(h w q),
B = sum(h q q), and what the error lacks to sum(h w w) is A A / B. The candidate of the largest
A A / B wins. The idea is that of ggml's `make_qx_quants`; h is the mean square of each input
channel, the diagonal of the Hessian that GPTQ (Frantar et al., 2022) minimises the error under.

Values are searched in units of their group's own reach, so neither tiny nor huge ones leave
FP32's range. Tensors have the layout [GROUP, rows, groups]: sums over a group then run over the
first dimension, sixteen columns of sums to a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.errors import QuantizationError
from engine.quantization.formats import GROUP
from engine.quantization.weights import INT4_ZERO

_TOP = 15  # the largest code
_SYMMETRIC_REACHES = (-8.0, -7.5, -7.0, -8.5, 7.0)
_AFFINE_STEPS = (15.0, 14.3, 13.6, 15.7)
_SMALLEST = 2.0**-24  # the smallest positive FP16
_DEAD = 1e-3  # an input channel counts at least this share of the mean: it may yet wake


@dataclass(frozen=True, slots=True)
class Int4Codes:
    """Rounded rows, not yet packed.

    Attributes:
        codes: uint8 [rows, columns], 0..15.
        scales: float16 [rows, groups], finite, never 0.
        zeros: uint8 [rows, groups], 0..15, or None for 8.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None


def grouped_importance(importance: torch.Tensor | None, columns: int) -> torch.Tensor:
    """The weight of each column's error, mean 1: float32 [GROUP, 1, groups].

    Args:
        importance: float32 [columns], the mean square of each input channel; None: all alike.
        columns: input channels.

    Raises:
        QuantizationError: it has another length, or holds NaN, infinity or a negative value.
    """
    if importance is None:
        return torch.ones(GROUP, 1, columns // GROUP)
    if importance.shape != (columns,):
        raise QuantizationError(
            f"the importance has shape {tuple(importance.shape)}, the matrix {columns} columns"
        )
    if not bool((torch.isfinite(importance) & (importance >= 0)).all()):
        raise QuantizationError("the importance of a column is NaN, infinite or negative")
    weights = importance.double()
    mean = weights.mean()
    if mean == 0:
        return torch.ones(GROUP, 1, columns // GROUP)
    weights = (weights / mean).clamp_(min=_DEAD).float()
    return weights.view(-1, GROUP).t().unsqueeze(1).contiguous()


def round_symmetric(rows: torch.Tensor, importance: torch.Tensor) -> Int4Codes:
    """Round finite float32 [rows, columns] to INT4 with the zero point 8.

    Args:
        rows: the values.
        importance: as `grouped_importance` gives it.

    Raises:
        QuantizationError: a scale is beyond FP16.
    """
    w = _by_group(rows)
    low, high = w.amin(0), w.amax(0)
    peak = torch.where(-low > high, low, high)  # signed: it can use the longer half, -8
    peak.masked_fill_(peak == 0, 1.0)
    unit = w / peak
    weighted = unit * importance
    fit, best = torch.zeros_like(peak), torch.full_like(peak, -1.0)
    for reach in _SYMMETRIC_REACHES:
        q = (unit * reach).round_().clamp_(-8, 7)
        _keep_better(fit, best, q, weighted, importance)
    scales = _as_fp16(fit * peak, peak)
    q = _steps(w, scales).clamp_(-8, 7)
    return Int4Codes(_by_row(q.add_(INT4_ZERO)), scales, None)


def round_affine(rows: torch.Tensor, importance: torch.Tensor) -> Int4Codes:
    """Round finite float32 [rows, columns] to INT4 with a zero point per group.

    Args and errors are those of `round_symmetric`.
    """
    w = _by_group(rows)
    low, high = w.amin(0).clamp_(max=0), w.amax(0).clamp_(min=0)
    span = high - low
    span.masked_fill_(span == 0, 1.0)
    unit = w / span
    weighted = unit * importance
    bottom = -low / span  # 0..1: how far up the range zero lies
    fit, best = torch.zeros_like(span), torch.full_like(span, -1.0)
    zeros = torch.zeros_like(span)
    for steps in _AFFINE_STEPS:
        zero = (bottom * steps).round_().clamp_(0, _TOP)
        q = (unit * steps).round_()
        q = torch.minimum(torch.maximum(q, -zero), _TOP - zero)
        zeros = torch.where(_keep_better(fit, best, q, weighted, importance), zero, zeros)
    scales = _as_fp16(fit * span, span)
    q = _steps(w, scales).add_(zeros).clamp_(0, _TOP)
    return Int4Codes(_by_row(q), scales, zeros.to(torch.uint8))


def _keep_better(
    fit: torch.Tensor,
    best: torch.Tensor,
    q: torch.Tensor,
    weighted: torch.Tensor,
    importance: torch.Tensor,
) -> torch.Tensor:
    """Where the codes q lose less than the best so far, as bool; updates fit and best."""
    a = (weighted * q).sum(0)
    b = (q.square_().mul_(importance)).sum(0)
    scale = a / b.clamp_(min=1e-30)
    gain = a * scale
    better = gain > best
    torch.where(better, scale, fit, out=fit)
    torch.where(better, gain, best, out=best)
    return better


def _by_group(rows: torch.Tensor) -> torch.Tensor:
    """[rows, columns] -> [GROUP, rows, groups]."""
    return rows.view(len(rows), -1, GROUP).permute(2, 0, 1).contiguous()


def _by_row(codes: torch.Tensor) -> torch.Tensor:
    """float32 [GROUP, rows, groups] -> uint8 [rows, columns]."""
    return codes.to(torch.uint8).permute(1, 2, 0).reshape(codes.shape[1], -1)


def _as_fp16(scales: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
    """FP16 scales, none of them 0: one too small for FP16 becomes the smallest there is."""
    stored = scales.half()
    if not bool(torch.isfinite(stored).all()):
        raise QuantizationError(
            f"weights of up to {float(reach.abs().max()):.3g} need a scale beyond FP16",
            "store this matrix in INT8 or in floating point",
        )
    smallest = torch.copysign(torch.tensor(_SMALLEST), reach).half()
    return torch.where(stored == 0, smallest, stored)


def _steps(w: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (w / scales.float()).round_()
