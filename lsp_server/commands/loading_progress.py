"""What a person sees on stderr while a model loads."""

from __future__ import annotations

import re

from rich.console import Console
from rich.status import Status

from engine import LoadProgress


class LoadingDisplay:
    """One moving line on a terminal; one line per stage anywhere else.

    Owned by the command that loads; use it as a context manager around the loading.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._stage = ""

    def __enter__(self) -> LoadingDisplay:
        if self._console.is_terminal:
            self._status = self._console.status("loading the model")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the moving line away. Safe to call twice."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def show(self, progress: LoadProgress) -> None:
        """Show how far loading has come."""
        if self._status is not None:
            self._status.update(f"{progress.stage}  {progress.share:.0%}")
            return
        # `layer 3 of 24` is the same stage as `layer 2 of 24`: one line for both.
        stage = re.sub(r"\d+", "#", progress.stage)
        if stage != self._stage:
            self._console.print(progress.stage, highlight=False, markup=False)
        self._stage = stage
