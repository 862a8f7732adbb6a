"""The engine as its callers use it, on a tiny random model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from engine import (
    GREEDY,
    Chunk,
    CompletionEngine,
    Engine,
    EngineConfig,
    EngineError,
    EngineStopped,
    FinishReason,
    GenerationRequest,
    InvalidRequest,
    LoadProgress,
    ModelNotFound,
    SamplingParams,
    UnsupportedModel,
    collect,
    worker,
)
from engine.mailbox import Control, Ticket
from tests.support.tiny_models import edit_json, reference_model, write_folder

REQUEST = GenerationRequest("def f(x):\n    ", "\n\nf(1)\n", max_tokens=24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"), reference_model("qwen2"))


@pytest.fixture
def config(folder: Path) -> EngineConfig:
    return EngineConfig(model=str(folder), cache_dir=folder.parent / "cache", threads=1)


@pytest.fixture
async def engine(config: EngineConfig) -> AsyncIterator[Engine]:
    loaded = await Engine.load(config)
    yield loaded
    await loaded.aclose()


async def idle(engine: CompletionEngine) -> None:
    """Wait until no request is left in the engine."""
    while engine.stats().running or engine.stats().waiting:  # noqa: ASYNC110 counters only
        await asyncio.sleep(0)


async def test_loading_reports_progress_and_what_was_loaded(config: EngineConfig) -> None:
    steps: list[LoadProgress] = []
    engine = await Engine.load(config, steps.append)
    assert steps[-1].share == 1.0
    assert engine.model.architecture == "qwen2"
    assert engine.model.quantization == "int8-dynamic, int4-zp"
    assert engine.model.context_tokens == 512  # what the model was trained for
    assert engine.model.weight_bytes > 0
    await engine.aclose()


async def test_greedy_repeats_and_streams_what_it_collects(config: EngineConfig) -> None:
    # In FP32: quantized layers take few rows and many by different ways, so that a prompt
    # whose start is reused gives slightly other logits, and a random model has no favourites.
    engine = await Engine.load(replace(config, precision="fp32"))
    first = await collect(engine.generate(REQUEST))
    second = await collect(engine.generate(REQUEST))
    await engine.aclose()
    [candidate], [again] = first.candidates, second.candidates
    assert candidate.text == again.text
    assert candidate.finish == again.finish
    assert candidate.tokens == 24 or candidate.finish is FinishReason.STOP_TOKEN
    assert first.usage.generated_tokens == candidate.tokens
    assert second.usage.reused_tokens == second.usage.prompt_tokens - 1


async def test_who_leaves_after_the_first_chunk_knows_the_prompt(engine: Engine) -> None:
    async with aclosing(engine.generate(REQUEST)) as chunks:
        first = await anext(chunks)
    assert first.usage is not None
    assert first.usage.prompt_tokens > 0
    assert first.usage.prefill_ms > 0


async def test_candidates_share_one_prefill_and_differ_by_seed(engine: Engine) -> None:
    sampling = (GREEDY, *(SamplingParams(1.5, 1.0, seed) for seed in (1, 2, 2)))
    request = GenerationRequest("x = ", sampling=sampling, max_tokens=12)
    result = await collect(engine.generate(request))
    texts = [candidate.text for candidate in result.candidates]
    assert [c.index for c in result.candidates] == [0, 1, 2, 3]
    assert texts[1] != texts[2] == texts[3]
    assert engine.stats().prefill_tokens == result.usage.prompt_tokens
    alone = await collect(engine.generate(GenerationRequest("x = ", max_tokens=12)))
    assert alone.candidates[0].text == texts[0]


async def test_no_text_of_stop_or_unused_tokens_is_ever_shown(engine: Engine) -> None:
    sampling = tuple(SamplingParams(5.0, 1.0, seed) for seed in range(8))
    result = await collect(
        engine.generate(GenerationRequest("a", sampling=sampling, max_tokens=60))
    )
    for candidate in result.candidates:
        assert "<|" not in candidate.text
        assert "[PAD" not in candidate.text
    assert any(c.finish is FinishReason.STOP_TOKEN for c in result.candidates)


async def test_line_limit_and_stop_strings_end_the_text(engine: Engine) -> None:
    sampling = tuple(SamplingParams(5.0, 1.0, seed) for seed in range(8))
    request = GenerationRequest("a", sampling=sampling, max_tokens=200, max_lines=1, stop=("e",))
    for candidate in (await collect(engine.generate(request))).candidates:
        assert "\n" not in candidate.text
        assert "e" not in candidate.text


async def test_closing_the_stream_stops_decoding_within_one_step(engine: Engine) -> None:
    request = GenerationRequest("y", max_tokens=400, sampling=(SamplingParams(1.0, 1.0, 4),) * 2)
    for _ in range(10):
        before = engine.stats()
        async with aclosing(engine.generate(request)) as chunks:
            async for _ in chunks:
                break
        await idle(engine)
        after = engine.stats()
        if after.cancelled == before.cancelled + 1:  # not one that ended by itself at once
            assert after.steps_after_cancel - before.steps_after_cancel <= 1
            assert after.decode_steps - before.decode_steps < 399
    assert engine.stats().cancelled > 0


async def test_cancelling_the_reading_task_frees_the_slots(engine: Engine) -> None:
    started = asyncio.Event()

    async def read() -> None:
        async with aclosing(engine.generate(GenerationRequest("z", max_tokens=400))) as chunks:
            async for _ in chunks:
                started.set()

    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(engine)
    assert engine.stats().running == 0


async def test_more_requests_than_slots_all_finish(engine: Engine) -> None:
    requests = [
        GenerationRequest(f"v{i} = ", max_tokens=8, sampling=(GREEDY, SamplingParams(1.0, 1.0, i)))
        for i in range(20)
    ]
    together = await asyncio.gather(*(collect(engine.generate(r)) for r in requests))
    for request, result in zip(requests, together, strict=True):
        assert len(result.candidates) == 2
        alone = await collect(engine.generate(request))
        assert [c.text for c in alone.candidates] == [c.text for c in result.candidates]


async def test_a_long_prompt_is_cut_to_the_context_and_prefilled_in_chunks(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PREFILL_CHUNK", 200)
    request = GenerationRequest("p" * 5000, "s" * 5000, max_tokens=10)
    result = await collect(engine.generate(request))
    assert result.usage.prompt_tokens == 512 - 10 > 2 * worker.PREFILL_CHUNK


async def test_warming_makes_the_prompt_free(engine: Engine) -> None:
    computed = await engine.warm(REQUEST)
    assert computed > 1
    assert await engine.warm(REQUEST) == 1
    result = await collect(engine.generate(REQUEST))
    assert result.usage.reused_tokens == result.usage.prompt_tokens - 1


@pytest.mark.parametrize(
    "request_",
    [
        GenerationRequest("a", max_tokens=512),
        GenerationRequest("a", sampling=(GREEDY,) * 9),
    ],
)
async def test_requests_that_cannot_be_carried_out_are_refused_and_harm_nobody(
    engine: Engine, request_: GenerationRequest
) -> None:
    good = asyncio.create_task(collect(engine.generate(REQUEST)))
    with pytest.raises(InvalidRequest):
        await collect(engine.generate(request_))
    assert (await good).candidates


@pytest.mark.parametrize(
    "values", [{"sampling": ()}, {"max_tokens": 0}, {"stop": ("",)}, {"max_lines": 0}]
)
def test_nonsense_requests_are_refused_at_once(values: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        GenerationRequest("a", **values)  # pyright: ignore[reportArgumentType]


async def test_a_failing_step_fails_its_requests_and_nothing_else(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no memory for this step")

    with monkeypatch.context() as patch:
        patch.setattr("engine.runner.Runner.prefill", broken)
        with pytest.raises(EngineError, match="MemoryError: no memory for this step"):
            await collect(engine.generate(REQUEST))
    assert (await collect(engine.generate(REQUEST))).candidates
    await idle(engine)


async def test_closing_fails_what_is_pending_and_what_comes_later(config: EngineConfig) -> None:
    engine = await Engine.load(config)
    chunks = engine.generate(GenerationRequest("z", max_tokens=400))
    first = await anext(chunks)
    assert isinstance(first, Chunk)
    waiting = [asyncio.create_task(collect(engine.generate(REQUEST))) for _ in range(12)]
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(EngineStopped):
        await collect(chunks)
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert not isinstance(outcome, BaseException) or isinstance(outcome, EngineStopped)
    with pytest.raises(EngineStopped):
        await collect(engine.generate(REQUEST))
    with pytest.raises(EngineStopped):
        await engine.warm(REQUEST)
    await engine.aclose()


async def test_a_reader_whose_loop_is_gone_does_not_hurt_the_engine(engine: Engine) -> None:
    def other_loop() -> None:
        async def leave() -> None:
            ticket = engine._submit(Ticket(GenerationRequest("z", max_tokens=300)))  # pyright: ignore[reportPrivateUsage]
            await ticket.events.get()

        asyncio.run(leave())

    await asyncio.to_thread(other_loop)
    assert (await collect(engine.generate(REQUEST))).candidates
    await idle(engine)


async def test_loading_what_is_not_there(config: EngineConfig, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        await Engine.load(EngineConfig(model="no-such-model", cache_dir=tmp_path))


async def test_loading_what_cannot_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", reference_model("qwen2"))
    edit_json(folder / "config.json", model_type="mamba")
    with pytest.raises(UnsupportedModel, match="mamba"):
        await Engine.load(EngineConfig(model=str(folder), cache_dir=tmp_path))


async def test_cancelling_a_load_stops_its_thread(config: EngineConfig) -> None:
    import threading

    task = asyncio.create_task(Engine.load(config))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for thread in threading.enumerate():
        if thread.name == "ghostwright-engine":
            await asyncio.to_thread(thread.join)


async def test_a_request_that_ends_with_its_prefill_is_not_decoded(engine: Engine) -> None:
    for i in range(20):
        await collect(engine.generate(GenerationRequest(f"v{i} = ", max_tokens=1)))
    await idle(engine)
    stats = engine.stats()
    assert (stats.generated_tokens, stats.decode_steps, stats.cancelled) == (20, 0, 0)


async def test_a_request_handed_over_while_the_engine_stops_is_not_forgotten(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await Engine.load(config)
    inbox = engine._inbox  # pyright: ignore[reportPrivateUsage]

    class LateInbox:
        """Hands over only after the thread has taken its last look."""

        def put(self, message: Ticket) -> None:
            inbox.put(Control.STOP)
            engine._thread.join()  # pyright: ignore[reportPrivateUsage]
            inbox.put(message)

    monkeypatch.setattr(engine, "_inbox", LateInbox())
    with pytest.raises(EngineStopped):
        async with asyncio.timeout(20):
            await collect(engine.generate(REQUEST))
    assert not engine._thread.is_alive()  # pyright: ignore[reportPrivateUsage]
