"""`ghostwright eval`: how often completions are right, and what quantization costs them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from engine import (
    AUTO,
    DEFAULT_MODEL,
    PRECISIONS,
    Engine,
    EngineConfig,
    compare_logits,
)
from lsp_server.commands.loading_progress import LoadingDisplay
from lsp_server.commands.options import JsonOnStdout, ModelName
from lsp_server.commands.output import megabytes, note, print_json, print_table
from lsp_server.commands.step_progress import shown_steps
from lsp_server.evaluation.dataset import Task, read_tasks
from lsp_server.evaluation.infilling import Report, run_infilling
from lsp_server.evaluation.sandbox import Limits
from lsp_server.evaluation.statistics import mcnemar

_DEFAULT = "infilling"

Precision = Annotated[
    str,
    typer.Option(metavar="NAME", help=f"{', '.join(PRECISIONS)}; fp32 is the unquantized model."),
]


class _DefaultGroup(TyperGroup):
    """A group whose first argument may also be a data file, for the `infilling` command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click's `Command.parse_args`."""
        asks_for_help = any(arg in ("-h", "--help") for arg in args)
        if args and not asks_for_help and not set(args) & set(self.commands):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the `eval` commands."""
    group = typer.Typer(
        name="eval",
        cls=_DefaultGroup,
        help="Measure how often completions are right: `eval DATA.jsonl.gz`, `eval logits`.",
        no_args_is_help=True,
        add_completion=False,
    )
    group.command(_DEFAULT)(infilling_command)
    group.command("logits")(logits_command)
    app.add_typer(group)


def infilling_command(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Tasks: .jsonl.gz or .jsonl.")],
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N tasks.")
    ] = None,
    candidates: Annotated[
        int, typer.Option("-n", min=1, max=8, metavar="N", help="Candidates per task.")
    ] = 1,
    precision: Precision = AUTO,
    compare: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A second precision, to run on the same tasks."),
    ] = None,
    seconds: Annotated[
        int, typer.Option(min=1, max=600, metavar="N", help="Processor time of a program.")
    ] = Limits().seconds,
    model: ModelName = None,
    as_json: JsonOnStdout = False,
) -> None:
    """Fill the holes of a benchmark and run its tests in a sandbox.

    DATA holds a JSON object a line, with task_id, entry_point, prompt, suffix,
    canonical_solution and test, as HumanEval-Infilling has them. The first candidate is greedy
    and is the one that counts. With --compare the second precision runs on the same tasks, and
    what it gains and loses is counted.
    """
    tasks = read_tasks(data, limit)
    name, limits = model or DEFAULT_MODEL, Limits(seconds=seconds)
    first = _evaluate(name, precision, tasks, candidates, limits)
    result: dict[str, object] = {"model": name, "precision": precision, **first.summary()}
    if compare is not None:
        second = _evaluate(name, compare, tasks, candidates, limits)
        result["compared"] = {"precision": compare, **second.summary(), **_paired(first, second)}
    if as_json:
        print_json(result)
    else:
        _print(result)


def _evaluate(
    model: str, precision: str, tasks: list[Task], candidates: int, limits: Limits
) -> Report:
    return asyncio.run(_run(EngineConfig(model, precision=precision), tasks, candidates, limits))


async def _run(config: EngineConfig, tasks: list[Task], candidates: int, limits: Limits) -> Report:
    with LoadingDisplay() as display:
        engine = await Engine.load(config, display.show)
    try:
        with shown_steps(f"{config.precision}: running tasks", len(tasks)) as step:
            return await run_infilling(
                engine, tasks, candidates=candidates, limits=limits, on_result=lambda _: step()
            )
    finally:
        await engine.aclose()


def _paired(first: Report, second: Report) -> dict[str, object]:
    """What the second precision gains and loses on the very same tasks."""
    pairs = list(zip(first.results, second.results, strict=True))
    gained = sum(b.passed and not a.passed for a, b in pairs)
    lost = sum(a.passed and not b.passed for a, b in pairs)
    return {
        "retained": second.passed / first.passed if first.passed else None,
        "gained": gained,
        "lost": lost,
        "p_value": mcnemar(gained, lost),
        "same_text": sum(a.completion == b.completion for a, b in pairs),
    }


def _print(result: dict[str, Any]) -> None:
    rows = [("precision", "tasks", "pass", "95 %", "exact", "seconds")]
    for run in (result, result.get("compared")):
        if run is not None:
            low, high = run["interval"]
            interval = f"{low:.1%} to {high:.1%}"
            share = f"{run['pass_rate']:.1%}"
            exact = f"{run['exact_match']:.1%}"
            rows.append(
                (
                    run["precision"],
                    str(run["tasks"]),
                    share,
                    interval,
                    exact,
                    f"{run['seconds']:.0f}",
                )
            )
    print_table(rows)
    compared = result.get("compared")
    if compared is not None and compared["retained"] is not None:
        print(
            f"{compared['precision']} keeps {compared['retained']:.1%} of {result['precision']}'s "
            f"passes: {compared['gained']} gained, {compared['lost']} lost "
            f"(p = {compared['p_value']:.2f})"
        )


def logits_command(
    positions: Annotated[
        int, typer.Option(min=128, metavar="N", help="Tokens of real code to compare at.")
    ] = 2000,
    formats: Annotated[
        str, typer.Option(metavar="NAMES", help="Precisions, with commas between.")
    ] = ",".join(name for name in PRECISIONS if name != "fp32"),
    model: ModelName = None,
    as_json: JsonOnStdout = False,
) -> None:
    """Compare the logits of every format with FP32's on code of the standard library.

    `few rows` are passes of 16 rows, as decode takes them; the others are of 128, as prefill.
    """
    names = [name.strip() for name in formats.split(",") if name.strip()]
    config = EngineConfig(model or DEFAULT_MODEL)
    with LoadingDisplay() as display:
        reports = list(compare_logits(config, names, positions, display.show))
    if as_json:
        print_json({"model": config.model, "formats": [asdict(report) for report in reports]})
        return
    rows = [
        ("format", "weights", "largest", "mean", "KL", "agree", "KL, few rows", "agree, few rows")
    ]
    for r in reports:
        rows.append(
            (
                r.precision,
                megabytes(r.weight_bytes),
                f"{r.largest:.2f}",
                f"{r.mean:.4f}",
                f"{r.divergence:.2e}",
                f"{r.agreement:.2%}",
                f"{r.decode_divergence:.2e}",
                f"{r.decode_agreement:.2%}",
            )
        )
    note(f"{reports[0].positions if reports else 0} positions")
    print_table(rows)
