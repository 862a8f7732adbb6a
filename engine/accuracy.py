"""How far each format's logits are from FP32's. Torch-free; the work is in `logits`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.api import Tell
from engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class LogitsReport:
    """One precision's logits against FP32's, over positions of real code.

    Attributes:
        precision: `auto` or a format's name.
        weight_bytes: of all weights that a decoded token reads.
        positions: how many.
        largest, mean: absolute difference of a logit.
        divergence: mean Kullback-Leibler divergence from FP32's distribution, in nats.
        agreement: share of positions whose most likely token is FP32's.
        decode_divergence, decode_agreement: the same with few rows at a time, as a decode
            step takes them; kernels differ by the number of rows.
    """

    precision: str
    weight_bytes: int
    positions: int
    largest: float
    mean: float
    divergence: float
    agreement: float
    decode_divergence: float
    decode_agreement: float


def compare_logits(
    config: EngineConfig, precisions: Sequence[str], positions: int, tell: Tell
) -> Iterator[LogitsReport]:
    """Compare precisions with FP32 on code of the standard library, one after another.

    Args:
        config: which model, and how many threads.
        precisions: `auto` or format names.
        positions: tokens to compare at.
        tell: told of progress.

    Raises:
        ModelError: the model is missing, damaged or unsupported.
        ConfigError: a precision is unknown.
    """
    from engine.logits import compare  # imports torch

    return compare(config, precisions, positions, tell)
