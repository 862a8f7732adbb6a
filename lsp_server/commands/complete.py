"""`ghostwright complete FILE:LINE:COLUMN`: the verified candidates at one place."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from lsp_server.commands.options import NOTHING_FOUND, JsonOnStdout, ModelName
from lsp_server.commands.output import note, print_json
from lsp_server.completion.outcome import Completion, Outcome, Trigger
from lsp_server.completion.rendering import as_json, nothing_line, print_completion
from lsp_server.documents.reading import parse_location, read_document
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.documents.workspace import find_root


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("complete")(complete)


def complete(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE:LINE:COLUMN",
            help="Where to complete; both numbers count from 1, columns in characters.",
            show_default=False,
        ),
    ],
    candidates: Annotated[
        int | None,
        typer.Option("-n", "--candidates", metavar="N", help="Candidates to generate."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Most tokens of one.")
    ] = None,
    model: ModelName = None,
    as_data: JsonOnStdout = False,
) -> None:
    """Print the completions at one place of a file that Pyright has passed.

    Exits with 0 when there is one, with 1 when there is none, with 2 on bad input.
    """
    location = parse_location(place)
    document = read_document(location.path)
    offset = location.offset_in(document)
    completion = asyncio.run(
        _completed(document, offset, candidates=candidates, max_tokens=max_tokens, model=model)
    )
    _show(document, offset, completion, as_data=as_data)
    if not completion.suggestions:
        raise typer.Exit(NOTHING_FOUND)


async def _completed(
    document: DocumentSnapshot,
    offset: int,
    *,
    candidates: int | None,
    max_tokens: int | None,
    model: str | None,
) -> Completion:
    # Imported here, so that other commands start without them.
    from lsp_server.commands.loading_progress import LoadingDisplay
    from lsp_server.commands.oneshot import running_pipeline, settings_for

    assert document.path is not None, "the document was read from a file"
    root = find_root(document.path)
    settings = settings_for(root, candidates=candidates, max_tokens=max_tokens, model=model)
    if not settings.enabled:
        return Completion(Outcome.DISABLED)
    with LoadingDisplay() as display:
        async with running_pipeline(settings, root, display.show) as pipeline:
            display.stop()
            return await pipeline.run(document, offset, Trigger.INVOKED, settings)


def _show(
    document: DocumentSnapshot, offset: int, completion: Completion, *, as_data: bool
) -> None:
    if as_data:
        print_json(as_json(completion))
        if not completion.suggestions:
            note(nothing_line(completion))
    else:
        print_completion(Console(highlight=False), document, offset, completion)
