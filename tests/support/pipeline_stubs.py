"""Scripted stand-ins for the engine and the checker, for tests of the pipeline.

Both do what their script says and keep a journal of it, so that a test can see the order
of things. A script pauses at an event, never for a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from engine import (
    Chunk,
    EngineStats,
    FinishReason,
    GenerationRequest,
    ModelInfo,
    Usage,
)
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.verification.verifier import NewError, Verdict, VerdictKind

Step = Chunk | asyncio.Event | Exception

STUB_USAGE = Usage(
    prompt_tokens=40,
    reused_tokens=30,
    generated_tokens=12,
    queue_ms=0.0,
    prefill_ms=5.0,
    decode_ms=7.0,
)


def whole(
    *texts: str, logprobs: tuple[float, ...] = (), finish: FinishReason = FinishReason.STOP_TOKEN
) -> list[Step]:
    """A script that sends each candidate in one piece, then the usage."""
    last = len(texts) - 1
    return [
        Chunk(
            index,
            text,
            logprobs[index] if logprobs else -1.0 - index,
            tokens=1,
            finish=finish,
            usage=STUB_USAGE if index == last else None,
        )
        for index, text in enumerate(texts)
    ]


@dataclass
class ScriptedEngine:
    """An engine that plays a script: chunks, events to wait for, and errors to raise.

    Attributes:
        script: played by every request.
        journal: what happened, in order; shared with the checker where order matters.
        requests: what was asked.
    """

    script: list[Step]
    journal: list[str] = field(default_factory=list[str])
    requests: list[GenerationRequest] = field(default_factory=list[GenerationRequest])

    @property
    def model(self) -> ModelInfo:
        return ModelInfo("scripted", "none", 0, 0, "none", 0)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        self.journal.append("generate")
        ended = False
        try:
            for step in self.script:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
            ended = True
        finally:
            self.journal.append("ended" if ended else "closed")

    async def warm(self, request: GenerationRequest) -> int:
        return 0

    def stats(self) -> EngineStats:
        return EngineStats()

    async def aclose(self) -> None:
        self.journal.append("engine closed")


@dataclass
class ScriptedVerifier:
    """A checker whose verdicts are looked up by the candidate's text; others are clean.

    Attributes:
        verdicts: by text; an event is waited for first, then the text is clean.
        journal: what happened, in order.
        checked: what each check was asked: start, end, text.
        raises: what `check` raises instead of answering.
        baseline_gate: what `prepare` waits for.
        asked: set by the first check.
    """

    verdicts: Mapping[str, Verdict | asyncio.Event] = field(
        default_factory=dict[str, Verdict | asyncio.Event]
    )
    journal: list[str] = field(default_factory=list[str])
    checked: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    raises: Exception | None = None
    baseline_gate: asyncio.Event | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, document: DocumentSnapshot) -> None:
        self.journal.append("update")

    def forget(self, uri: str) -> None:
        self.journal.append("forget")

    async def prepare(self, document: DocumentSnapshot, start: int, end: int) -> None:
        self.journal.append("prepare")
        if self.baseline_gate is not None:
            try:
                await self.baseline_gate.wait()
            except asyncio.CancelledError:
                self.journal.append("prepare dropped")
                raise

    async def check(self, document: DocumentSnapshot, start: int, end: int, text: str) -> Verdict:
        self.journal.append(f"check {text}")
        self.checked.append((start, end, text))
        self.asked.set()
        if self.raises is not None:
            raise self.raises
        verdict = self.verdicts.get(text, Verdict(VerdictKind.CLEAN))
        if isinstance(verdict, asyncio.Event):
            try:
                await verdict.wait()
            except asyncio.CancelledError:
                self.journal.append(f"dropped {text}")
                raise
            return Verdict(VerdictKind.CLEAN)
        return verdict

    async def aclose(self) -> None:
        self.journal.append("verifier closed")


def new_error(rule: str = "reportAttributeAccessIssue", message: str = "no such thing") -> Verdict:
    """A verdict with one new error in the first line."""
    return Verdict(VerdictKind.NEW_ERRORS, (NewError(rule, message, 1),))
