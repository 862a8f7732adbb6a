"""Stand-ins for the engine, the checker and the pipeline, for tests of the LSP side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

from engine import (
    Chunk,
    CompletionEngine,
    EngineConfig,
    EngineStats,
    FinishReason,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    Usage,
)
from lsp_server.app import Parts
from lsp_server.completion.outcome import (
    Completion,
    Outcome,
    Rejection,
    Suggestion,
    TokenCounts,
    Trigger,
)
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.settings import Settings
from lsp_server.verification.pool import CheckerKey, OnStatus, SharedVerifier, VerifierLease
from lsp_server.verification.verifier import Verdict, VerdictKind, Verifier


class StubEngine:
    """Says what it is told, a chunk at a time. Owned by a test, on its event loop.

    Attributes:
        texts: the candidates' texts, one chunk each.
        gate: what decoding waits for before its first chunk; None waits for nothing.
        started: how many requests began to decode.
        cancelled: how many ended before their last chunk.
    """

    def __init__(self, *texts: str) -> None:
        self.texts = texts or ("pass",)
        self.gate: asyncio.Event | None = None
        self.started = 0
        self.cancelled = 0
        self.closed = False
        self.changed = asyncio.Condition()

    @property
    def model(self) -> ModelInfo:
        return ModelInfo("stub", "none", 0, 0, "none", 0)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        self.started += 1
        await self._tell()
        finished = False
        try:
            if self.gate is not None:
                await self.gate.wait()
            last = len(request.sampling) - 1
            for index in range(last + 1):
                usage = Usage(7, 3, 2, 0.0, 1.0, 1.0) if index == last else None
                text = self.texts[index % len(self.texts)]
                yield Chunk(index, text, -1.0, 1, FinishReason.STOP_TOKEN, usage)
            finished = True
        finally:
            if not finished:
                self.cancelled += 1
                # The waiters are told from another task: this one may be ending.
                self._telling = asyncio.create_task(self._tell())

    async def warm(self, request: GenerationRequest) -> int:
        return 0

    def stats(self) -> EngineStats:
        return EngineStats(requests=self.started, cancelled=self.cancelled)

    async def aclose(self) -> None:
        self.closed = True

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true, looking after each change of the counters."""
        async with self.changed:
            await self.changed.wait_for(holds)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


class StubVerifier:
    """Finds `rejected` texts wrong and the others clean.

    Attributes:
        seen: text of each open document, by URI.
        verdict: what every check says; None looks at `rejected`.
    """

    def __init__(self, key: CheckerKey, on_status: OnStatus) -> None:
        self.key = key
        self.on_status = on_status
        self.seen: dict[str, str] = {}
        self.disk: list[Mapping[str, bool]] = []
        self.verdict: Verdict | None = None
        self.rejected: set[str] = set()
        self.started = False
        self.closed = asyncio.Event()
        self.timeout_ms = key.timeout_ms

    async def start(self) -> None:
        self.started = True

    def set_timeout(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def update(self, document: DocumentSnapshot) -> None:
        self.seen[document.uri] = document.text

    def forget(self, uri: str) -> None:
        self.seen.pop(uri, None)

    def files_changed(self, changes: Mapping[str, bool]) -> None:
        self.disk.append(changes)

    async def prepare(self, document: DocumentSnapshot, start: int, end: int) -> None:
        pass

    async def check(self, document: DocumentSnapshot, start: int, end: int, text: str) -> Verdict:
        if self.verdict is not None:
            return self.verdict
        return Verdict(VerdictKind.NEW_ERRORS if text in self.rejected else VerdictKind.CLEAN)

    async def aclose(self) -> None:
        self.closed.set()


class StubPipeline:
    """Generates with the engine, asks the checker about each candidate, and no more."""

    def __init__(self, engine: CompletionEngine, verifier: Verifier, world: World) -> None:
        self._engine = engine
        self._verifier = verifier
        self._world = world

    async def run(
        self, document: DocumentSnapshot, offset: int, trigger: Trigger, settings: Settings
    ) -> Completion:
        self._world.runs.append((document, offset, trigger))
        if self._world.failure is not None:
            raise self._world.failure
        good: list[Suggestion] = []
        bad: list[Rejection] = []
        text, after = document.text[:offset], document.text[offset:]
        async for chunk in self._engine.generate(GenerationRequest(text, after, max_tokens=8)):
            verdict = await self._verifier.check(document, offset, offset, chunk.text)
            if verdict.kind is VerdictKind.UNAVAILABLE:
                return Completion(Outcome.UNVERIFIED, reason=verdict.reason)
            if verdict.kind is VerdictKind.CLEAN:
                written = chunk.text.replace("\n", document.eol)
                good.append(Suggestion(written, True, -1.0, self._world.replace_after))
            else:
                bad.append(Rejection(chunk.text, verdict.new_errors))
        outcome = Outcome.SHOWN if good else Outcome.REJECTED
        repeated = tuple(good) * self._world.repeat
        return Completion(outcome, repeated, tuple(bad), tokens=TokenCounts(7, 3, 2))


@dataclass
class World:
    """The stand-ins of one server, in a test's reach.

    Attributes:
        engine: what loading brings up.
        loading: what loading waits for; None waits for nothing.
        load_error: what loading fails with.
        repeat: how often the pipeline repeats its suggestions.
        replace_after: characters right of the cursor that suggestions replace.
        failure: what the pipeline fails with.
        runs: what the pipeline was asked.
        pauses: seconds of each pause, in order.
        resume: what pauses wait for; they last until it is set.
    """

    engine: StubEngine = field(default_factory=StubEngine)
    loading: asyncio.Event | None = None
    load_error: Exception | None = None
    loads: list[EngineConfig] = field(default_factory=list[EngineConfig])
    verifiers: list[StubVerifier] = field(default_factory=list[StubVerifier])
    repeat: int = 1
    replace_after: int = 0
    failure: Exception | None = None
    runs: list[tuple[DocumentSnapshot, int, Trigger]] = field(
        default_factory=list[tuple[DocumentSnapshot, int, Trigger]]
    )
    pauses: list[float] = field(default_factory=list[float])
    resume: asyncio.Event = field(default_factory=asyncio.Event)
    paused: asyncio.Event = field(default_factory=asyncio.Event)

    def parts(self) -> Parts:
        """What to build a server of."""
        return Parts(self._load, self._verifier, self._pipeline, self._pause)

    async def _load(
        self, config: EngineConfig, progress: Callable[[LoadProgress], None]
    ) -> CompletionEngine:
        self.loads.append(config)
        progress(LoadProgress("reading weights", 0.5))
        if self.loading is not None:
            await self.loading.wait()
        if self.load_error is not None:
            raise self.load_error
        return self.engine

    def _verifier(self, key: CheckerKey, on_status: OnStatus) -> SharedVerifier:
        self.verifiers.append(StubVerifier(key, on_status))
        return self.verifiers[-1]

    def _pipeline(self, engine: CompletionEngine, verifier: VerifierLease) -> StubPipeline:
        return StubPipeline(engine, verifier, self)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.paused.set()
        await self.resume.wait()
