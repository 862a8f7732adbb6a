"""Hundreds of random requests and cancellations: nothing leaks, nobody changes another's text."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from engine import (
    GREEDY,
    Candidate,
    Engine,
    EngineConfig,
    GenerationRequest,
    SamplingParams,
    collect,
)
from tests.support.tiny_models import reference_model, write_folder

BUDGET = 2 * 1024 * 1024
STEMS = ("def f(x):\n    ", "import os\n" * 20, "x", "", "日本 = 1\n", "class A:\n  pass\n" * 30)


def random_request(chance: random.Random) -> GenerationRequest:
    """Few prompts, often extended, so that caches are shared, cut and copied."""
    prefix = chance.choice(STEMS) + chance.choice(("", "a", "ab", "abc = "))
    sampled = (SamplingParams(1.0, 0.9, chance.randrange(99)) for _ in range(chance.randrange(8)))
    return GenerationRequest(
        prefix,
        chance.choice(("", "\n\nf(1)\n")),
        sampling=(GREEDY, *sampled),
        max_tokens=chance.choice((1, 2, 5, 17, 40)),
        max_lines=chance.choice((None, None, 1)),
        stop=chance.choice(((), (), ("e", "\n\n"))),
    )


async def leave_early(engine: Engine, request: GenerationRequest, chance: random.Random) -> None:
    """Read a few chunks and go, or be cancelled while waiting."""
    if chance.random() < 0.5:
        task = asyncio.create_task(collect(engine.generate(request)))
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return
    async with aclosing(engine.generate(request)) as chunks:
        left = chance.randrange(6)
        async for _ in chunks:
            left -= 1
            if left < 0:
                break


@pytest.mark.parametrize("seed", range(3))
async def test_random_traffic(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    folder = write_folder(tmp_path / "tiny", reference_model("qwen2"))
    engine = await Engine.load(
        EngineConfig(
            model=str(folder),
            cache_dir=tmp_path,
            threads=1,
            kv_budget_bytes=BUDGET,
            precision="fp32",
        )
    )
    kept: dict[GenerationRequest, tuple[Candidate, ...]] = {}

    async def keep(request: GenerationRequest) -> None:
        kept[request] = (await collect(engine.generate(request))).candidates

    async def warm(request: GenerationRequest) -> None:
        assert await engine.warm(request) > 0

    tasks: list[asyncio.Task[None]] = []
    for _ in range(120):
        request = random_request(chance)
        pick = chance.randrange(3)
        tasks.append(
            asyncio.create_task(
                keep(request)
                if pick == 0
                else warm(request)
                if pick == 1
                else leave_early(engine, request, chance)
            )
        )
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    while engine.stats().running or engine.stats().waiting:  # noqa: ASYNC110 counters only
        await asyncio.sleep(0)
    assert 0 < engine.stats().kv_bytes <= BUDGET
    for request, together in kept.items():
        alone = (await collect(engine.generate(request))).candidates
        assert [(c.text, c.finish, c.tokens) for c in alone] == [
            (c.text, c.finish, c.tokens) for c in together
        ]
    await engine.aclose()
