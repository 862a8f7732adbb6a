"""Prefill and decode as users get them, timed: the engine's own runner, sampler and chunks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import engine
from engine.api import GREEDY, LoadProgress, ModelInfo
from engine.benchmark.traffic import snapshot_bytes
from engine.config import EngineConfig
from engine.decoding.sampler import Sampler
from engine.errors import InvalidRequest
from engine.kernels import native
from engine.kv.cache import PromptCache, TailCache
from engine.loading import snapshot
from engine.loading.store import resolve_model
from engine.models.head import Best
from engine.models.spec import DecoderSpec
from engine.runner import Runner
from engine.worker import PREFILL_CHUNK

KernelClock = Callable[[], float]  # seconds spent inside kernels since the process began


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """How long some decode steps took.

    Attributes:
        seconds: of all steps, picking the tokens included.
        steps: how many, each of one token for every candidate.
        kernel_seconds: of them inside kernels; None where nobody counts that.
    """

    seconds: float
    steps: int
    kernel_seconds: float | None


class Passes:
    """A loaded model to be timed. Owned by one thread, which sets its number of threads.

    Args:
        runner: the model.
        opened: the snapshot it was made from.
        kernel_clock: what tells kernels from the Python around them, where there is such a
            counter.
    """

    def __init__(
        self,
        runner: Runner,
        opened: snapshot.Snapshot,
        kernel_clock: KernelClock | None = None,
    ) -> None:
        self.info: ModelInfo = runner.info
        self.spec: DecoderSpec = opened.spec
        self._runner = runner
        self._tokenizer = opened.tokenizer
        self._weight_bytes = snapshot_bytes(opened)
        self._kernel_clock = kernel_clock

    @classmethod
    def load(cls, config: EngineConfig, tell: Callable[[LoadProgress], None]) -> Passes:
        """Load the configured model and run it once, so that its pages are in memory.

        Raises:
            ModelError: the model is missing, damaged or unsupported.
        """
        torch.set_num_threads(config.threads)
        source = resolve_model(config.model, config.cache_dir)
        opened = snapshot.load(source, config.cache_dir, tell, config.policy)
        kernels = native.load()
        clock = None if kernels is None else lambda: kernels.seconds
        passes = cls(Runner(config, opened), opened, clock)
        tell(LoadProgress("warming up", 0.95))
        passes.decode(passes.code_tokens(2 * PREFILL_CHUNK, 0)[: passes._room // 2], 1, 2)
        return passes

    @property
    def _room(self) -> int:
        return self._runner.context

    def code_tokens(self, count: int, seed: int) -> list[int]:
        """`count` token ids of real code, from a place the seed chooses."""
        files = sorted(Path(engine.__file__).parent.rglob("*.py"))
        lines = "".join(path.read_text("utf-8") for path in files).splitlines(keepends=True)
        start = random.Random(seed).randrange(len(lines))
        tokens: list[int] = []
        while len(tokens) < count:  # round again from the first line: a prompt may be long
            tokens += self._tokenizer.encode("".join(lines[start:]))
            start = 0
        return tokens[:count]

    def prefill(self, tokens: list[int]) -> float:
        """Seconds from a prompt's tokens to the choice of the first new one; reuses nothing.

        Raises:
            InvalidRequest: the prompt does not fit the context, or is empty.
        """
        self._check(tokens, 1)
        start = time.perf_counter()
        best = self._prefill(PromptCache(self._runner.kv_shape), tokens)
        Sampler(GREEDY).pick(*best.row(0))
        return time.perf_counter() - start

    @torch.inference_mode()
    def decode(self, prompt: list[int], candidates: int, steps: int) -> DecodeTime:
        """Time greedy steps behind a prompt; what the model takes for an end is gone past.

        Args:
            prompt: token ids, prefilled before the clock starts.
            candidates: sequences decoded at once; each begins with another token.
            steps: tokens decoded for each.

        Raises:
            InvalidRequest: it does not fit the context, or asks for nothing.
        """
        self._check(prompt, steps)
        if candidates < 1:
            raise InvalidRequest(f"{candidates} candidates asked for", "use at least 1")
        cache = PromptCache(self._runner.kv_shape)
        best = self._prefill(cache, prompt)
        tails = TailCache(cache, candidates, steps)
        samplers = [Sampler(GREEDY) for _ in range(candidates)]
        tokens: list[int] = best.ids[0, :candidates].tolist()
        clock = self._kernel_clock
        inside = clock() if clock else 0.0
        start = time.perf_counter()
        for _ in range(steps):
            best = self._runner.decode(tokens, [tails])
            tokens = [sampler.pick(*best.row(i))[0] for i, sampler in enumerate(samplers)]
        seconds = time.perf_counter() - start
        return DecodeTime(seconds, steps, clock() - inside if clock else None)

    def bytes_per_token(self, context: int) -> int:
        """Bytes one decode step of one stream reads with `context` tokens behind it."""
        return self._weight_bytes + self._runner.kv_shape.bytes_per_token * context

    @torch.inference_mode()
    def _prefill(self, cache: PromptCache, tokens: list[int]) -> Best:
        """The best tokens after the last one."""
        last = (len(tokens) - 1) // PREFILL_CHUNK * PREFILL_CHUNK
        for at in range(0, last, PREFILL_CHUNK):
            self._runner.prefill(cache, tokens[at : at + PREFILL_CHUNK])
        return self._runner.prefill(cache, tokens[last:])

    def _check(self, tokens: list[int], steps: int) -> None:
        if not tokens or steps < 1:
            raise InvalidRequest("nothing to measure", "give at least one token and one step")
        if len(tokens) + steps > self._room:
            raise InvalidRequest(
                f"{len(tokens)} prompt tokens and {steps} new ones do not fit the context",
                f"the whole context is {self._room} tokens",
            )
