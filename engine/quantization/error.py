"""How far quantized values are from what they stand for."""

from __future__ import annotations

import torch


class ErrorMeter:
    """Mean squared error over signal power, gathered piece by piece.

    0.01 means that the error carries one percent of the signal's power.
    """

    def __init__(self) -> None:
        self._error = 0.0
        self._power = 0.0

    def add(self, approximate: torch.Tensor, exact: torch.Tensor) -> None:
        """Take in two float32 tensors of one shape."""
        self._error += float((approximate - exact).square().sum())
        self._power += float(exact.square().sum())

    @property
    def relative(self) -> float:
        """The error so far. A signal of zeros has no power: 0 if met exactly, else infinity."""
        if self._power == 0.0:
            return 0.0 if self._error == 0.0 else float("inf")
        return self._error / self._power


def relative_error(approximate: torch.Tensor, exact: torch.Tensor) -> float:
    """The relative error of two whole tensors."""
    meter = ErrorMeter()
    meter.add(approximate, exact)
    return meter.relative
