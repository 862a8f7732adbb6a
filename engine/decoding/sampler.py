"""Picking the next token of one candidate."""

from __future__ import annotations

import torch

from engine.api import SamplingParams


class Sampler:
    """Picks one candidate's tokens; owned by the engine thread.

    Greedy at temperature 0, else nucleus sampling (Holtzman et al., 2020) by inverting the
    cumulative distribution at one uniform number per token. The numbers depend on the seed
    alone, so the same seed and logits give the same text whatever else runs.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._random = torch.Generator().manual_seed(params.seed)

    def pick(self, ids: torch.Tensor, logits: torch.Tensor, log_total: float) -> tuple[int, float]:
        """Choose one of the best tokens; also the choice's log-probability.

        The log-probability is the model's own: at temperature 1 and without a nucleus.

        Args:
            ids: int64 [k], best first.
            logits: float32 [k].
            log_total: the logarithm of the sum of e^logit over the whole vocabulary.
        """
        place = 0 if self._params.temperature == 0.0 else self._sample(logits)
        return int(ids[place]), float(logits[place]) - log_total

    def _sample(self, logits: torch.Tensor) -> int:
        scaled = (logits - logits[0]) / self._params.temperature  # never overflows upwards
        cumulative = scaled.softmax(dim=0).cumsum(dim=0)
        # The smallest head whose probability reaches top_p.
        size = min(int((cumulative < self._params.top_p).sum()) + 1, len(cumulative))
        cumulative = cumulative[:size]
        draw = torch.rand(1, generator=self._random) * cumulative[-1]
        # Rounding can make the draw the whole sum, behind which only impossible tokens lie.
        draw = draw.minimum(cumulative[-1].nextafter(torch.zeros(())))
        place = int(torch.searchsorted(cumulative, draw, right=True))
        return min(place, size - 1)  # NaN, of a tiny temperature, is last
