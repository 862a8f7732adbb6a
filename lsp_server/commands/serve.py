"""`ghostwright serve`: the language server, on stdio or TCP."""

from __future__ import annotations

import asyncio
import logging
import sys
from enum import StrEnum
from typing import Annotated

import typer

from lsp_server.address import Address
from lsp_server.commands.options import ModelName
from lsp_server.commands.output import note
from lsp_server.errors import SettingsError
from lsp_server.settings_loading import Layer, read_layer


class LogLevel(StrEnum):
    """How much is written to stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("serve")(serve)


def serve(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Speak LSP on stdin and stdout (the default).")
    ] = False,
    tcp: Annotated[
        str | None,
        typer.Option(
            "--tcp",
            metavar="HOST:PORT",
            help="Serve any number of clients at this address; port 0 picks a free one.",
        ),
    ] = None,
    model: ModelName = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="How much to write to stderr.")
    ] = LogLevel.INFO,
) -> None:
    """Run the language server until its client leaves (stdio) or it is stopped (TCP).

    Exits with 0; with 1 when a client on stdio sends `exit` without `shutdown`; with 2 on
    bad input.
    """
    if stdio and tcp is not None:
        raise typer.BadParameter("give either --stdio or --tcp, not both")
    address = Address.parse(tcp) if tcp is not None else None
    overrides = _overrides(model)
    _log_to_stderr(log_level)
    code = asyncio.run(_serve(address, overrides))
    if code:
        raise typer.Exit(code)


async def _serve(address: Address | None, overrides: Layer) -> int:
    # Imported here, so that other commands start without them.
    from lsp_server.app import build
    from lsp_server.transport import serve_stdio, serve_tcp

    async with build(overrides) as app:
        if address is None:
            return await serve_stdio(app.connect)

        def listening(bound: Address) -> None:
            note(f"listening on {bound}")
            app.load_model()

        await serve_tcp(app.connect, address, listening)
        return 0


def _overrides(model: str | None) -> Layer:
    layer = read_layer({"model": {"name": model}}, "the command line")
    if layer.problems:
        raise SettingsError(f"--model cannot be {model!r}", layer.problems[0].remedy)
    return layer


def _log_to_stderr(level: LogLevel) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level.value.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    # pygls logs whole messages, and with them the user's text; what matters is logged here.
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
