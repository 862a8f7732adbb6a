"""How far quantized values are from what they stand for."""

from __future__ import annotations

import torch


def relative_error(approximate: torch.Tensor, exact: torch.Tensor) -> float:
    """Mean squared error over signal power, of two float32 tensors of one shape.

    0.01 means that the error carries one percent of the signal's power. An exact tensor of
    zeros has no power: its error is 0 if met exactly, else infinity.
    """
    power = float(exact.square().sum())
    error = float((approximate - exact).square().sum())
    if power == 0.0:
        return 0.0 if error == 0.0 else float("inf")
    return error / power
