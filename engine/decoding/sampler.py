"""Picking the next token of one candidate."""

from __future__ import annotations

import torch

from engine.api import SamplingParams

_HEAD = 256  # candidates looked at first; nearly always hold the whole nucleus


class Sampler:
    """Picks one candidate's tokens; owned by the engine thread.

    Greedy at temperature 0, else nucleus sampling (Holtzman et al., 2020) by inverting the
    cumulative distribution at one uniform number per token. The numbers depend on the seed
    alone, so the same seed and logits give the same text whatever else runs.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._random = torch.Generator().manual_seed(params.seed)

    def pick(self, logits: torch.Tensor) -> tuple[int, float]:
        """Choose from float32 logits [vocab]; also the choice's log-probability.

        The log-probability is the model's own: at temperature 1 and without a nucleus.
        """
        token = int(logits.argmax()) if self._params.temperature == 0.0 else self._sample(logits)
        return token, float(logits[token] - logits.logsumexp(dim=0))

    def _sample(self, logits: torch.Tensor) -> int:
        scaled = (logits - logits.max()) / self._params.temperature  # never overflows upwards
        total = scaled.logsumexp(dim=0)
        values, ids = scaled.topk(min(_HEAD, len(scaled)))
        cumulative = (values - total).exp().cumsum(dim=0)
        if float(cumulative[-1]) < self._params.top_p and len(ids) < len(scaled):
            values, ids = scaled.sort(descending=True)
            cumulative = (values - total).exp().cumsum(dim=0)
        # The smallest head whose probability reaches top_p.
        size = int((cumulative < self._params.top_p).sum()) + 1
        cumulative = cumulative[:size]
        draw = torch.rand(1, generator=self._random) * cumulative[-1]
        # Rounding can make the draw the whole sum, behind which only impossible tokens lie.
        draw = draw.minimum(cumulative[-1].nextafter(torch.zeros(())))
        place = int(torch.searchsorted(cumulative, draw, right=True))
        return int(ids[min(place, len(cumulative) - 1)])  # NaN, of a tiny temperature, is last
