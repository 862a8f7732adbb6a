"""Sampling: greedy is the maximum, the nucleus is respected, seeds repeat."""

from __future__ import annotations

import pytest
import torch

from engine.api import GREEDY, SamplingParams
from engine.decoding.sampler import Sampler
from engine.errors import InvalidRequest


@pytest.fixture
def logits() -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randn(1000) * 2


def pick(sampler: Sampler, logits: torch.Tensor) -> tuple[int, float]:
    """Pick from the best 256 tokens of these logits."""
    values, ids = logits.topk(min(256, len(logits)))
    return sampler.pick(ids, values, float(logits.logsumexp(dim=0)))


def picks(params: SamplingParams, logits: torch.Tensor, count: int) -> list[int]:
    sampler = Sampler(params)
    return [pick(sampler, logits)[0] for _ in range(count)]


def test_greedy_takes_the_maximum_and_its_log_probability(logits: torch.Tensor) -> None:
    token, logprob = pick(Sampler(GREEDY), logits)
    assert token == int(logits.argmax())
    assert logprob == pytest.approx(float(logits.log_softmax(0)[token]), abs=1e-5)


def test_the_same_seed_repeats_and_another_does_not(logits: torch.Tensor) -> None:
    one = SamplingParams(1.0, 0.95, seed=1)
    assert picks(one, logits, 30) == picks(one, logits, 30)
    assert picks(one, logits, 30) != picks(SamplingParams(1.0, 0.95, seed=2), logits, 30)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 1.0])
def test_only_the_nucleus_is_drawn(logits: torch.Tensor, temperature: float, top_p: float) -> None:
    # At temperature 3 the nucleus is wider than the 256 tokens looked at: those share it then.
    probability, order = (logits / temperature).softmax(0).sort(descending=True)
    size = int((probability.cumsum(0) < top_p - 1e-6).sum()) + 1
    nucleus = set(order[:size].tolist())
    drawn = picks(SamplingParams(temperature, top_p, seed=5), logits, 400)
    assert set(drawn) <= nucleus
    if size > 20:
        assert len(set(drawn)) > 10


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    drawn = picks(SamplingParams(1.0, 1.0, seed=11), logits, 6000)
    shares = [drawn.count(token) / len(drawn) for token in range(3)]
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_banned_tokens_are_never_drawn(logits: torch.Tensor) -> None:
    logits[100:] = float("-inf")
    assert max(picks(SamplingParams(5.0, 1.0, seed=2), logits, 300)) < 100


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1.0},
        {"temperature": 99.0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"seed": -1},
        {"seed": 1 << 63},
    ],
)
def test_impossible_parameters_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        SamplingParams(**values)  # pyright: ignore[reportArgumentType]


def test_the_largest_draw_never_picks_a_banned_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest(*_: object, **__: object) -> torch.Tensor:
        return torch.ones(1)  # what a draw just below one becomes once it is scaled and rounded

    monkeypatch.setattr(torch, "rand", largest)
    for seed in range(50):  # in some of them the probabilities add up to less than one
        logits = torch.full((400,), float("-inf"))
        logits[:20] = torch.randn(20, generator=torch.Generator().manual_seed(seed))
        token, logprob = pick(Sampler(SamplingParams(1.0, 1.0, 0)), logits)
        assert token < 20
        assert logprob > float("-inf")


def test_a_temperature_too_small_to_divide_by_is_greedy(logits: torch.Tensor) -> None:
    assert picks(SamplingParams(1e-42, 0.9, 1), logits, 3) == [int(logits.argmax())] * 3
