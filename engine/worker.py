"""The engine thread: takes tickets in, advances every request by a step, posts what came out.

A step is: take in what arrived, drop what was cancelled, prefill one chunk of the oldest
waiting prompt, decode one token of every running candidate. Prefill goes in chunks so that a
long prompt neither delays the others' tokens for long nor its own cancellation.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from engine.api import (
    Chunk,
    EngineStats,
    FinishReason,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    Usage,
)
from engine.config import EngineConfig
from engine.decoding.sampler import Sampler
from engine.decoding.stop import StopRule
from engine.errors import EngineError, EngineStopped, InvalidRequest
from engine.kv.cache import PromptCache, TailCache
from engine.kv.reuse import PromptStore
from engine.loading import snapshot
from engine.loading.store import resolve_model
from engine.loading.tokenizer import StreamDecoder
from engine.mailbox import Control, Event, Finished, Inbox, Ticket
from engine.models.head import Best
from engine.runner import Runner

# Tokens between two looks at the inbox. On two cores 0.3 s with AMX, where half as many take a
# tenth more time each; over 2 s with AVX2.
PREFILL_CHUNK = 512

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Candidate:
    """One candidate while it decodes."""

    index: int
    sampler: Sampler
    stop: StopRule
    text: StreamDecoder
    last_token: int = 0
    decoded: int = 0


@dataclass(slots=True, eq=False)
class _Running:
    """One admitted request: prefilling while `tails` is None, then decoding."""

    ticket: Ticket
    prompt: list[int]
    cache: PromptCache
    reused: int
    submitted: float
    started: float
    first_logits: float = 0.0
    tails: TailCache | None = None
    candidates: list[_Candidate] = field(default_factory=list[_Candidate])
    generated: int = 0
    events: list[Event] = field(default_factory=list[Event])

    @property
    def ended(self) -> bool:
        """Whether its last event is among `events`: it must take part in nothing more."""
        return bool(self.events) and not isinstance(self.events[-1], Chunk)

    @property
    def slots(self) -> int:
        """Rows it takes, or will take, in a decode step."""
        return len(self.candidates) if self.tails else len(self.ticket.request.sampling)


class Worker:
    """Runs requests on one model; created and run by the engine thread.

    Attributes:
        info: what is loaded.
        stats: counters as of the last step, replaced as a whole; any thread may read it.
        stopping: set once no more tickets are taken.
    """

    def __init__(self, config: EngineConfig, runner: Runner, inbox: Inbox) -> None:
        self.info: ModelInfo = runner.info
        self.stats = EngineStats()
        self.stopping = False
        self._config = config
        self._runner = runner
        self._inbox = inbox
        self._store = PromptStore(runner.kv_shape, config.kv_budget_bytes)
        self._waiting: deque[tuple[Ticket, float]] = deque()
        self._running: list[_Running] = []

    @classmethod
    def load(
        cls, config: EngineConfig, inbox: Inbox, tell: Callable[[LoadProgress], None]
    ) -> Worker:
        """Load the configured model. Must run on the thread that will call `run`.

        Raises:
            ModelError: the model is missing, damaged or unsupported.
        """
        torch.set_num_threads(config.threads)  # of this thread's pool
        source = resolve_model(config.model, config.cache_dir)
        runner = Runner(config, snapshot.load(source, config.cache_dir, tell, config.policy))
        tell(LoadProgress("ready", 1.0))
        return cls(config, runner, inbox)

    def run(self) -> None:
        """Serve until told to stop."""
        try:
            while self._take_in():
                self.step()
        except BaseException:
            log.exception("the engine thread died")
            raise
        finally:
            self.stopping = True
            self._fail_all(EngineStopped("the engine has been stopped"))

    @torch.inference_mode()
    def step(self) -> None:
        """Advance every request by one prefill chunk or one token."""
        self._drop_cancelled()
        self._admit()
        for running in self._running:
            if running.tails is None:
                self._guarded([running], lambda running=running: self._prefill(running))
                break  # one chunk a step, so that the others keep decoding
        decoding = [r for r in self._running if r.tails is not None and not r.ended]
        if decoding:
            self._guarded(decoding, lambda: self._decode(decoding))
        self._post()

    def _take_in(self) -> bool:
        """Empty the inbox, waiting for a message when there is nothing to do; False to stop."""
        idle = not self._running and not self._waiting
        while True:
            try:
                message = self._inbox.get(block=idle)
            except queue.Empty:
                return True
            if message is Control.STOP:
                return False
            assert isinstance(message, Ticket)
            refusal = self._refusal(message.request)
            if refusal is None:
                self._waiting.append((message, time.perf_counter()))
                self._count(requests=1)
                idle = False
            else:
                message.post([refusal])

    def _drop_cancelled(self) -> None:
        for running in [r for r in self._running if r.ticket.cancelled]:
            self._count(cancelled=1, steps_after_cancel=running.ticket.steps_after_cancel)
            self._retire(running)
        live = deque(entry for entry in self._waiting if not entry[0].cancelled)
        self._count(cancelled=len(self._waiting) - len(live))
        self._waiting = live

    def _admit(self) -> None:
        """Start waiting requests, oldest first, while there are slots for them."""
        while self._waiting:
            ticket, submitted = self._waiting[0]
            used = sum(running.slots for running in self._running)
            if used + len(ticket.request.sampling) > self._config.max_batch and self._running:
                break
            self._waiting.popleft()
            try:
                self._running.append(self._start(ticket, submitted))
            except EngineError as error:
                ticket.post([error])
            except Exception as error:
                log.exception("a request could not be started")
                ticket.post([EngineError(f"the request failed: {type(error).__name__}: {error}")])
        self._gauge()

    def _refusal(self, request: GenerationRequest) -> InvalidRequest | None:
        """Why the request can never be carried out, if so."""
        if len(request.sampling) > self._config.max_batch:
            return InvalidRequest(
                f"{len(request.sampling)} candidates asked for",
                f"this engine decodes at most {self._config.max_batch} at once",
            )
        if request.max_tokens > self._runner.context - self._runner.layout.overhead - 1:
            return InvalidRequest(
                f"max_tokens is {request.max_tokens}",
                f"the whole context is {self._runner.context} tokens",
            )
        return None

    def _start(self, ticket: Ticket, submitted: float) -> _Running:
        prompt = self._runner.prompt(ticket.request)
        cache = self._store.acquire(prompt, [running.cache for running in self._running])
        return _Running(ticket, prompt, cache, len(cache), submitted, time.perf_counter())

    def _prefill(self, running: _Running) -> None:
        done = len(running.cache)
        chunk = running.prompt[done : done + PREFILL_CHUNK]
        best = self._runner.prefill(running.cache, chunk)
        self._count(prefill_tokens=len(chunk))
        if len(running.cache) < len(running.prompt):
            return
        running.first_logits = time.perf_counter()
        self._count(reused_tokens=running.reused)
        if running.ticket.warm_only:
            running.events.append(Finished(len(running.prompt) - running.reused))
            return
        request = running.ticket.request
        running.tails = TailCache(running.cache, len(request.sampling), request.max_tokens)
        running.candidates = [
            _Candidate(
                index,
                Sampler(params),
                StopRule(request.stop, request.max_lines),
                self._runner.stream_decoder(),
            )
            for index, params in enumerate(request.sampling)
        ]
        self._advance(running, best, [0] * len(running.candidates))

    def _decode(self, decoding: list[_Running]) -> None:
        """One token of every candidate of these requests."""
        tokens = [c.last_token for running in decoding for c in running.candidates]
        tails = [running.tails for running in decoding if running.tails is not None]
        best = self._runner.decode(tokens, tails)
        self._count(decode_steps=1)
        at = 0
        for running in decoding:
            running.ticket.decode_steps += 1
            rows = len(running.candidates)
            self._advance(running, best, range(at, at + rows))
            at += rows

    def _advance(self, running: _Running, best: Best, rows: Sequence[int]) -> None:
        """Pick a token for each candidate from its row, and see who is done."""
        going: list[int] = []
        chunks: list[Chunk] = []
        for number, candidate in enumerate(running.candidates):
            chunk = self._pick(running, candidate, best, rows[number])
            chunks.append(chunk)
            if chunk.finish is None:
                going.append(number)
        if running.ticket.decode_steps == 0:  # who leaves early still learns what it cost
            chunks[0] = replace(chunks[0], usage=self._usage(running))
        if not going:
            chunks[-1] = replace(chunks[-1], usage=self._usage(running))
        running.events.extend(chunks)
        if not going:
            running.events.append(Finished())
        elif len(going) < len(running.candidates):
            assert running.tails is not None
            running.tails.keep(going)
            running.candidates = [running.candidates[number] for number in going]

    def _pick(self, running: _Running, candidate: _Candidate, best: Best, row: int) -> Chunk:
        token, logprob = candidate.sampler.pick(*best.row(row))
        candidate.last_token = token
        candidate.decoded += 1
        running.generated += 1
        self._count(generated_tokens=1)
        finish: FinishReason | None = None
        if token in self._runner.layout.stop_ids:
            text = candidate.stop.push(candidate.text.flush())
            finish = FinishReason.STOP_TOKEN
        else:
            text = candidate.stop.push(candidate.text.push(token))
            if candidate.decoded >= running.ticket.request.max_tokens:
                text += candidate.stop.push(candidate.text.flush())
                finish = FinishReason.LENGTH
        if candidate.stop.stopped:
            finish = FinishReason.STOP_TEXT
        elif finish is not None:
            text += candidate.stop.flush()
        return Chunk(candidate.index, text, logprob, 1, finish)

    def _usage(self, running: _Running) -> Usage:
        now = time.perf_counter()
        return Usage(
            prompt_tokens=len(running.prompt),
            reused_tokens=running.reused,
            generated_tokens=running.generated,
            queue_ms=(running.started - running.submitted) * 1e3,
            prefill_ms=(running.first_logits - running.started) * 1e3,
            decode_ms=(now - running.first_logits) * 1e3,
        )

    def _post(self) -> None:
        """Hand each request's events over, and retire those that ended."""
        stepped = list(self._running)
        for running in stepped:
            if running.ended:
                self._retire(running)
        self._gauge()  # first: who reads the last event finds its slots free
        for running in stepped:
            events, running.events = running.events, []
            running.ticket.post(events)

    def _retire(self, running: _Running) -> None:
        self._running.remove(running)
        self._store.release(running.cache)

    def _guarded(self, affected: list[_Running], action: Callable[[], None]) -> None:
        """Run `action`; if it fails, the affected requests fail and everything else goes on."""
        try:
            action()
        except Exception as error:
            log.exception("a step failed")
            failure = EngineError(f"the request failed: {type(error).__name__}: {error}")
            for running in affected:
                running.cache.truncate(0)  # its keys and values are not to be trusted
                running.events.append(failure)

    def _fail_all(self, error: EngineError) -> None:
        for running in self._running:
            running.ticket.post([error])
        for ticket, _ in self._waiting:
            ticket.post([error])
        self._running, self._waiting = [], deque()
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                break
            if isinstance(message, Ticket):
                message.post([error])
        self._gauge()

    def _count(self, **increments: int) -> None:
        fresh = {name: getattr(self.stats, name) + by for name, by in increments.items()}
        self.stats = replace(self.stats, **fresh)

    def _gauge(self) -> None:
        self.stats = replace(
            self.stats,
            running=sum(running.slots for running in self._running),
            waiting=len(self._waiting),
            kv_bytes=self._store.nbytes
            + sum(r.cache.nbytes + (r.tails.nbytes if r.tails else 0) for r in self._running),
        )
