"""One completion request from top to bottom: context, generate, shape, verify, rank.

The stages overlap: the checker computes its baseline while the model decodes, and each
candidate is checked as soon as it is whole, while the others still decode.

An automatic request shows one suggestion. The greedy candidate is the model's best guess,
so its check goes first, and the rest is abandoned once it passes; the sampled candidates
are there for when it does not. An invoked request shows every good candidate and waits for
all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from dataclasses import dataclass, field

from engine import CompletionEngine, Explained, GenerationRequest, SamplingParams
from lsp_server.completion.findings import GREEDY_INDEX, Findings, Shaped
from lsp_server.completion.outcome import Completion, Outcome, Timing, Trigger
from lsp_server.completion.shape import Shaper
from lsp_server.completion.stream import GenerationMeter, RawCandidate, candidates
from lsp_server.context.builder import Context, Excluded, build
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.settings import CompletionSettings, Settings
from lsp_server.verification.verifier import Verifier

_log = logging.getLogger(__name__)


class CompletionPipeline:
    """Completes places in documents with one engine and one verifier.

    Owned by the event loop. Holds nothing of a request, so requests may run side by side.

    Args:
        engine: writes the candidates.
        verifier: judges them.
        may_replace: whether a suggestion may replace closing brackets, quotes and colons
            right of the cursor; False for callers that can only insert.
    """

    def __init__(
        self, engine: CompletionEngine, verifier: Verifier, *, may_replace: bool = True
    ) -> None:
        self._engine = engine
        self._verifier = verifier
        self._may_replace = may_replace

    async def run(
        self, document: DocumentSnapshot, offset: int, trigger: Trigger, settings: Settings
    ) -> Completion:
        """Complete `document` at code-point `offset`.

        Never raises for a failing engine or checker: the outcome says so. Cancelling the
        task stops the decoding, drops the checks, and raises CancelledError.
        """
        started = time.perf_counter()
        if not settings.enabled:
            return Completion(Outcome.DISABLED)
        context = build(document, offset, settings)
        context_ms = _ms_since(started)
        if isinstance(context, Excluded):
            timing = Timing(context_ms=context_ms, total_ms=context_ms)
            return Completion(Outcome.EXCLUDED, timing=timing, reason=context.reason)
        mode = settings.verification.mode
        findings = Findings(document.eol, accepts_unverified=mode != "required")
        work = _Work(
            self._engine,
            None if mode == "off" else self._verifier,
            Shaper(context.hole, self._may_replace),
            document,
            offset,
            findings,
            first_is_enough=trigger is Trigger.AUTOMATIC,
        )
        request = generation_request(context, trigger, settings.completion)
        await _within(settings.completion.time_budget_ms, work, request)
        meter = work.meter
        timing = Timing(
            context_ms,
            meter.prefill_ms,
            meter.decode_ms,
            verify_ms=_ms_since(meter.ended),
            total_ms=_ms_since(started),
        )
        return findings.completion(timing, meter.tokens, only_one=work.first_is_enough)


def generation_request(
    context: Context, trigger: Trigger, settings: CompletionSettings
) -> GenerationRequest:
    """What the engine is asked: a greedy candidate, then sampled ones.

    The seeds are the candidates' numbers, so the same request gives the same answer.
    """
    count = (
        settings.automatic_candidates
        if trigger is Trigger.AUTOMATIC
        else settings.invoked_candidates
    )
    sampled = (
        SamplingParams(settings.temperature, settings.top_p, seed) for seed in range(1, count)
    )
    return GenerationRequest(
        context.hole.before,
        context.hole.after,
        (SamplingParams(), *sampled),
        max_tokens=settings.max_tokens,
        max_lines=context.max_lines,
    )


class _Enough(Exception):
    """Ends a task group early: what there is to show will not get better."""


@dataclass(slots=True)
class _Work:
    """One running request: generation and the checks beside it.

    Owned by the task that runs the request; every task it starts ends before `run` does.
    """

    engine: CompletionEngine
    verifier: Verifier | None  # None: nothing is checked
    shaper: Shaper
    document: DocumentSnapshot
    offset: int
    findings: Findings
    first_is_enough: bool
    meter: GenerationMeter = field(default_factory=GenerationMeter)
    _greedy_came: bool = False
    _held: list[Shaped] = field(default_factory=list[Shaped])

    async def run(self, request: GenerationRequest) -> None:
        """Generate and judge until all is judged, or there is enough (_Enough in a group)."""
        async with asyncio.TaskGroup() as beside:
            baseline = beside.create_task(self._prepare())
            async with asyncio.TaskGroup() as judges:
                stream = candidates(self.engine, request, self.shaper.is_settled, self.meter)
                async with aclosing(stream):
                    async for raw in stream:
                        for shaped in self._ready(raw):
                            judges.create_task(self._judge(shaped))
                        self._stop_if_enough()
            baseline.cancel()  # nothing needs it any more

    async def _prepare(self) -> None:
        if self.verifier is not None:
            await self.verifier.prepare(self.document, self.offset, self.offset)

    def _ready(self, raw: RawCandidate) -> list[Shaped]:
        """The candidates that can be judged now that `raw` has come.

        Where one is enough, those that come before the greedy candidate wait for it: the
        checker takes one at a time, and the greedy one is the likeliest to be shown.
        """
        joined = self.shaper.shape(raw.text, truncated=raw.truncated)
        if joined is not None:
            shaped = Shaped(raw.index, joined, raw.score)
            if self.findings.add(shaped):
                self._held.append(shaped)
        self._greedy_came = self._greedy_came or raw.index == GREEDY_INDEX
        if self.first_is_enough and not self._greedy_came:
            return []
        ready = sorted(self._held, key=lambda shaped: shaped.index)
        self._held.clear()
        return ready

    async def _judge(self, shaped: Shaped) -> None:
        verdict = None
        if self.verifier is not None:
            end = self.offset + shaped.joined.replace_after
            verdict = await self.verifier.check(self.document, self.offset, end, shaped.joined.text)
        self.findings.judge(shaped.index, verdict)
        self._stop_if_enough()

    def _stop_if_enough(self) -> None:
        greedy_is_out = self._greedy_came and not self.findings.is_pending(GREEDY_INDEX)
        if self.first_is_enough and greedy_is_out and self.findings.has_good:
            raise _Enough


async def _within(budget_ms: int, work: _Work, request: GenerationRequest) -> None:
    """Run `work` for at most `budget_ms`, and record in its findings what ended it."""
    findings = work.findings
    budget = asyncio.timeout(budget_ms / 1000)
    try:
        async with budget:
            await work.run(request)
    except* _Enough:
        pass
    except* Explained as group:
        findings.failure = str(first_error(group))
    except* Exception as group:
        error = first_error(group)
        if not (isinstance(error, TimeoutError) and budget.expired()):
            # A bug of ours. The keystroke gets no answer, the log gets the traceback.
            _log.error("a completion request failed", exc_info=error)
            findings.failure = f"{type(error).__name__}: {error}"
    finally:
        findings.out_of_time = budget.expired()
        work.meter.stop()


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first single exception inside a group of groups."""
    inner = group.exceptions[0]
    return first_error(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
