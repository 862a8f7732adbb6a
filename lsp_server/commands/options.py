"""Options and exit codes that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

NOTHING_FOUND = 1  # exit code

ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A pulled model's name, or a path to one."),
]
JsonOnStdout = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
