"""`ghostwright demo`: the main job on a real file, and what Pyright threw out of it."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from lsp_server.commands.options import NOTHING_FOUND, JsonOnStdout, ModelName
from lsp_server.commands.output import print_json
from lsp_server.completion.outcome import Completion, Trigger
from lsp_server.completion.rendering import as_json, print_completion, printable
from lsp_server.demo.places import Place, copy_sample, places


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("demo")(demo)


def demo(
    model: ModelName = None,
    as_data: JsonOnStdout = False,
) -> None:
    """Complete a few places of a real file; show what was suggested and what was thrown out.

    The file ships with Ghostwright. At each place the rest of a line is cut off and the model
    writes it again, knowing only that file; Pyright knows the classes it imports as well.
    """
    show = _Collector() if as_data else _Printer(Console(highlight=False))
    with tempfile.TemporaryDirectory(prefix="ghostwright-demo-") as folder:
        asyncio.run(_complete_all(Path(folder).resolve(), model, show))
    show.finish()
    if not show.shown:
        raise typer.Exit(NOTHING_FOUND)


async def _complete_all(folder: Path, model: str | None, show: _Collector | _Printer) -> None:
    # Imported here, so that other commands start without them.
    from lsp_server.commands.loading_progress import LoadingDisplay
    from lsp_server.commands.oneshot import running_pipeline, settings_for

    root = copy_sample(folder)
    settings = settings_for(root, candidates=None, max_tokens=None, model=model)
    with LoadingDisplay() as display:
        async with running_pipeline(settings, root, display.show) as pipeline:
            display.stop()
            for place in places(root):
                completion = await pipeline.run(
                    place.document, place.offset, Trigger.INVOKED, settings
                )
                show.take(place, completion)


@dataclass(slots=True)
class _Tally:
    """What was suggested and thrown out so far."""

    shown: int = 0
    rejected: int = 0

    def count(self, completion: Completion) -> None:
        self.shown += len(completion.suggestions)
        self.rejected += len(completion.rejected)


class _Collector(_Tally):
    """Keeps the results and prints them as one JSON value."""

    def __init__(self) -> None:
        super().__init__()
        self._places: list[dict[str, Any]] = []

    def take(self, place: Place, completion: Completion) -> None:
        self.count(completion)
        line, column = place.document.position_at(place.offset)
        where = {"line": line + 1, "column": column + 1, "author": place.author}
        self._places.append(where | as_json(completion))

    def finish(self) -> None:
        print_json({"places": self._places, "shown": self.shown, "rejected": self.rejected})


class _Printer(_Tally):
    """Prints each result in colour as it comes."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def take(self, place: Place, completion: Completion) -> None:
        self.count(completion)
        line, column = place.document.position_at(place.offset)
        path = place.document.path
        name = path.name if path is not None else place.document.uri
        title = Text(f"{name}:{line + 1}:{column + 1}", "bold cyan")
        title.append(f"  its author wrote: {printable(place.author)}", "not bold dim")
        self._console.print(title, soft_wrap=True)
        print_completion(self._console, place.document, place.offset, completion)
        self._console.print()

    def finish(self) -> None:
        self._console.print(
            Text(
                f"{self.shown} suggestions passed Pyright, {self.rejected} were thrown out before "
                "anyone saw them.",
                "bold",
            ),
            soft_wrap=True,
        )
