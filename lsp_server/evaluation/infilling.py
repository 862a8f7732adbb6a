"""The infilling benchmark: generate for every task, run what came out, and count."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine import GREEDY, CompletionEngine, GenerationRequest, SamplingParams, collect
from lsp_server.evaluation.dataset import Task
from lsp_server.evaluation.sandbox import Limits, Verdict, run_program
from lsp_server.evaluation.statistics import wilson_interval

MAX_TOKENS = 96  # the longest line of the benchmark has some 60
_IN_FLIGHT = 8  # requests at once: what the engine decodes in one step
_TEMPERATURE, _TOP_P = 0.6, 0.95  # of the candidates after the first, which is greedy


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What became of one task.

    Attributes:
        task_id: its name.
        completion: the first candidate.
        exact: whether that is what stood in the hole.
        verdicts: of all candidates, the greedy one first.
    """

    task_id: str
    completion: str
    exact: bool
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether the first candidate passed."""
        return self.verdicts[0] is Verdict.PASSED


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all tasks that were run, and how long that took."""

    results: tuple[TaskResult, ...]
    seconds: float

    @property
    def passed(self) -> int:
        """Tasks whose first candidate passed."""
        return sum(result.passed for result in self.results)

    def summary(self) -> dict[str, object]:
        """JSON-ready figures."""
        total = len(self.results)
        low, high = wilson_interval(self.passed, total)
        firsts = Counter(str(result.verdicts[0]) for result in self.results)
        return {
            "tasks": total,
            "pass_rate": self.passed / total if total else 0.0,
            "exact_match": sum(r.exact for r in self.results) / total if total else 0.0,
            "interval": [low, high],
            "pass_any": sum(Verdict.PASSED in r.verdicts for r in self.results) / max(total, 1),
            "verdicts": dict(firsts),
            "seconds": self.seconds,
        }


async def run_infilling(
    engine: CompletionEngine,
    tasks: Sequence[Task],
    *,
    candidates: int,
    limits: Limits,
    on_result: Callable[[TaskResult], None],
) -> Report:
    """Run all tasks; results come in any order to `on_result`, in the tasks' order at the end.

    Tasks of one problem follow one another, so that their common beginning is prefilled once.

    Raises:
        EngineError: the engine stopped.
    """
    start = time.perf_counter()
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i].prompt, i))
    waiting = iter(order)
    done: dict[int, TaskResult] = {}
    running = asyncio.Semaphore(os.cpu_count() or 1)  # sandboxes

    async def work() -> None:
        for number in waiting:
            done[number] = await _run(engine, tasks[number], candidates, limits, running)
            on_result(done[number])

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, _IN_FLIGHT // candidates)):
            group.create_task(work())
    results = tuple(done[number] for number in sorted(done))
    return Report(results, time.perf_counter() - start)


async def _run(
    engine: CompletionEngine,
    task: Task,
    candidates: int,
    limits: Limits,
    running: asyncio.Semaphore,
) -> TaskResult:
    others = (SamplingParams(_TEMPERATURE, _TOP_P, seed) for seed in range(1, candidates))
    request = GenerationRequest(
        task.prompt, task.suffix, (GREEDY, *others), max_tokens=MAX_TOKENS, max_lines=1
    )
    generation = await collect(engine.generate(request))
    texts = [candidate.text for candidate in generation.candidates]
    verdicts: list[Verdict] = []
    for text in texts:
        async with running:
            verdicts.append(await asyncio.to_thread(run_program, task.program(text), limits))
    return TaskResult(task.task_id, texts[0], task.is_exact(texts[0]), tuple(verdicts))
