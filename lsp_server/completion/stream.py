"""From the engine's interleaved chunks to candidates, each as soon as it is whole."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from engine import Chunk, CompletionEngine, FinishReason, GenerationRequest, Usage
from lsp_server.completion.outcome import TokenCounts


@dataclass(frozen=True, slots=True)
class RawCandidate:
    """What the model wrote for one candidate.

    Attributes:
        index: 0-based, in the order of the request; 0 is the greedy one.
        text: LF line ends.
        score: mean natural-log probability of its tokens.
        truncated: it ended at the token limit.
    """

    index: int
    text: str
    score: float
    truncated: bool


@dataclass(slots=True)
class GenerationMeter:
    """What one request cost so far; the engine's own figures where it gave them.

    Owned by the request that reads the stream. A request that is given up early never gets
    its last chunk, so time and tokens are counted here as well.
    """

    _usage: Usage | None = None
    _complete: bool = False
    _tokens: int = 0
    _started: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _ended: float | None = None

    def count(self, chunk: Chunk) -> None:
        """Account for one chunk."""
        self._first = self._first or time.perf_counter()
        self._tokens += chunk.tokens
        if chunk.usage is not None:
            self._usage = chunk.usage
            self._complete = chunk.finish is not None

    def stop(self) -> None:
        """Generation is over, or was given up."""
        self._ended = self._ended or time.perf_counter()

    @property
    def ended(self) -> float:
        """When generation ended, in seconds of `time.perf_counter`; now if it has not."""
        return self._ended or time.perf_counter()

    @property
    def prefill_ms(self) -> float:
        """Until the first token, waiting included where the engine's figure is missing."""
        if self._usage is not None:
            return self._usage.prefill_ms
        return ((self._first or self.ended) - self._started) * 1000

    @property
    def decode_ms(self) -> float:
        """From the first token to the end."""
        if self._usage is not None and self._complete:
            return self._usage.decode_ms
        return (self.ended - self._first) * 1000 if self._first else 0.0

    @property
    def tokens(self) -> TokenCounts:
        """Of the prompt nothing is known until the engine has told its usage."""
        usage = self._usage
        if usage is None:
            return TokenCounts(generated=self._tokens)
        generated = usage.generated_tokens if self._complete else self._tokens
        return TokenCounts(usage.prompt_tokens, usage.reused_tokens, generated)


@dataclass(slots=True)
class _Partial:
    pieces: list[str] = field(default_factory=list[str])
    logprob: float = 0.0
    tokens: int = 0
    done: bool = False

    def take(self, chunk: Chunk) -> None:
        self.pieces.append(chunk.text)
        self.logprob += chunk.logprob
        self.tokens += chunk.tokens

    def finish(self, index: int, reason: FinishReason | None) -> RawCandidate:
        self.done = True
        return RawCandidate(
            index,
            "".join(self.pieces),
            self.logprob / max(1, self.tokens),
            reason is FinishReason.LENGTH,
        )


async def candidates(
    engine: CompletionEngine,
    request: GenerationRequest,
    is_settled: Callable[[str], bool],
    meter: GenerationMeter,
) -> AsyncGenerator[RawCandidate, None]:
    """Yield each candidate of `request` once, when it is finished or settled.

    A candidate is settled when more text would not change what becomes of it. When all
    are, or the caller leaves (`aclose`, cancellation), the engine's iterator is closed.

    Raises:
        EngineError: what the engine raises.
    """
    partials = [_Partial() for _ in request.sampling]
    decoding = set(range(len(partials)))
    async with _closing(engine.generate(request)) as chunks:
        async for chunk in chunks:
            meter.count(chunk)
            decoding -= {chunk.index} if chunk.finish is not None else set()
            partial = partials[chunk.index]
            if not partial.done:
                partial.take(chunk)
                if chunk.finish is not None or is_settled("".join(partial.pieces)):
                    yield partial.finish(chunk.index, chunk.finish)
            if decoding and all(each.done for each in partials):
                break
    meter.stop()


@runtime_checkable
class _Closable(Protocol):
    async def aclose(self) -> None: ...


@asynccontextmanager
async def _closing(chunks: AsyncIterator[Chunk]) -> AsyncGenerator[AsyncIterator[Chunk], None]:
    """Close the engine's iterator on every way out, where it can be closed."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, _Closable):
            await chunks.aclose()
