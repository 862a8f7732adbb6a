"""`ghostwright bench`: how fast this machine completes, beside llama.cpp where it is at hand."""

from __future__ import annotations

from typing import Annotated

import typer

from engine import DEFAULT_MODEL, default_cache_dir, default_threads
from lsp_server.benchmark.engine_bench import bench_engine, report_rows
from lsp_server.benchmark.llama_cpp import HOW_TO_GET, LlamaCpp
from lsp_server.commands.loading_progress import LoadingDisplay
from lsp_server.commands.options import JsonOnStdout, ModelName
from lsp_server.commands.output import note, print_json, print_table
from lsp_server.errors import SettingsError


def register(app: typer.Typer) -> None:
    """Add the `bench` commands."""
    group = typer.Typer(
        name="bench",
        help="Measure speed on this machine; run it while nothing else runs.",
        no_args_is_help=True,
        add_completion=False,
    )
    group.callback()(lambda: None)
    group.command("engine")(engine_command)
    app.add_typer(group)


def engine_command(
    rounds: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="Rounds; medians are reported.")
    ] = 5,
    batch: Annotated[
        str, typer.Option(metavar="N,N", help="Candidates decoded at once.")
    ] = "1,4,8",
    threads: Annotated[
        int, typer.Option(min=0, max=512, metavar="N", help="0 is one per physical core.")
    ] = 0,
    alone: Annotated[bool, typer.Option("--no-llama-cpp", help="Measure ours alone.")] = False,
    model: ModelName = None,
    as_json: JsonOnStdout = False,
) -> None:
    """Measure prefill and decode, interleaved with llama.cpp's on the same model.

    llama.cpp's binaries are looked for in the folder that GHOSTWRIGHT_LLAMA_CPP names, then on
    the path; its Q4_0 and Q8_0 files are made once, in the cache.
    """
    try:
        batches = [int(each) for each in batch.split(",")]
    except ValueError:
        raise SettingsError(f"--batch cannot be {batch!r}", "use numbers, as in 1,4,8") from None
    if not all(1 <= each <= 64 for each in batches):
        raise SettingsError(f"--batch cannot be {batch!r}", "use numbers from 1 to 64")
    rival = None if alone else LlamaCpp.find()
    if rival is None and not alone:
        note(HOW_TO_GET)
    with LoadingDisplay() as display:
        result = bench_engine(
            model=model or DEFAULT_MODEL,
            cache_dir=default_cache_dir(),
            threads=threads or default_threads(),
            rounds=rounds,
            batches=batches,
            rival=rival,
            step=note,
            tell=display.show,
        )
    if as_json:
        print_json(result)
    else:
        print_table(report_rows(result))
