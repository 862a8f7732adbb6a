"""How far a long command is: a bar on a terminal, one line a stage elsewhere; always stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from engine import PullProgress
from lsp_server.commands.output import note


@contextmanager
def shown_progress() -> Generator[Callable[[PullProgress], None]]:
    """Give a callback to report to, and clear the bar afterwards."""
    if not sys.stderr.isatty():
        yield _StageLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("starting", total=None)

        def report(progress: PullProgress) -> None:
            bar.update(
                task,
                description=progress.stage,
                completed=progress.done_bytes,
                total=progress.total_bytes or None,
            )

        yield report


class _StageLines:
    """Prints each stage once, when it begins."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, progress: PullProgress) -> None:
        if progress.stage != self._stage:
            self._stage = progress.stage
            note(progress.stage)
