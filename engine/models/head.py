"""The output head: from hidden states to logits, or straight to the best tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.kernels.native import Kernels, NativeMatrix, RmsNorm, Sketched
from engine.quantization.linear import Linear, NativeLinear
from engine.quantization.sketch import Sketch
from engine.quantization.weights import Int8Weight

BEST = 256  # tokens looked at when one is picked: what lies behind has no share in a nucleus


@dataclass(frozen=True, slots=True)
class Best:
    """The best tokens of some rows.

    Attributes:
        ids: int64 [rows, k], best first.
        logits: float32 [rows, k].
        log_total: float32 [rows], the logarithm of the sum of e^logit over the vocabulary.
    """

    ids: torch.Tensor
    logits: torch.Tensor
    log_total: torch.Tensor

    def row(self, row: int) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Tokens, logits and logarithmic total of one row, as a sampler takes them."""
        return self.ids[row], self.logits[row], float(self.log_total[row])


class Head:
    """A head ready to run; owned by the engine thread.

    Args:
        linear: hidden -> vocabulary.
        norm: the final norm, which is part of its input.
        sketch: of `linear`, or None; used where the compiled kernels are.
        kernels: the compiled kernels, or None.
    """

    def __init__(
        self, linear: Linear, norm: RmsNorm, sketch: Sketch | None, kernels: Kernels | None
    ) -> None:
        self.linear = linear
        self.norm = norm
        self._kernels = kernels
        self._sketch: tuple[NativeMatrix, NativeMatrix] | None = None
        if sketch is not None and kernels is not None and _is_exact(linear):
            self._sketch = (
                NativeMatrix(sketch.projection, None),
                NativeMatrix(sketch.table, None),
            )

    def best(self, hidden: torch.Tensor, banned: torch.Tensor) -> Best:
        """The best tokens of float32 [rows, hidden], `banned` (int64 [n]) never among them."""
        k = min(BEST, self.linear.weight.rows)
        if self._kernels is None:
            logits = self.linear(hidden, norm=self.norm)
            logits[:, banned] = float("-inf")
            values, ids = logits.topk(k)
            return Best(ids, values, logits.logsumexp(dim=1))
        if self._sketch is None:
            logits = self.linear(hidden, norm=self.norm)
            return Best(*self._kernels.top(logits, k, banned, None))
        assert isinstance(self.linear, NativeLinear)
        logits = torch.empty(len(hidden), self.linear.weight.rows)
        sketched = Sketched(*self._sketch, self.linear.matrix, hidden, self.norm)
        return Best(*self._kernels.top(logits, k, banned, sketched))


def _is_exact(linear: Linear) -> bool:
    return (
        isinstance(linear, NativeLinear)
        and isinstance(linear.weight, Int8Weight)
        and linear.bias is None
    )
