"""The command line's frame: the application, and what every failure looks like to the user.

Exit codes, which scripts depend on: 0 ok; 1 nothing found, or a check failed; 2 bad usage or
bad input; 70 a fault of ours; 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from engine import Explained
from lsp_server.commands import bench, complete, demo, eval, model, serve
from lsp_server.commands.output import print_error
from lsp_server.version import installed_version

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_FAULT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130

DEBUG_VARIABLE = "GHOSTWRIGHT_DEBUG"


def build_app() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="ghostwright",
        help="Local code completion; every Python suggestion is type-checked before you see it.",
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in (serve, complete, demo, model, eval, bench):  # in the order of --help
        command.register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: without the program's name; None takes the process's own.
    """
    try:
        result = build_app()(args=arguments, prog_name="ghostwright", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        return report_error(error)
    return result if isinstance(result, int) else EXIT_OK


def report_error(error: BaseException) -> int:
    """Tell the user about `error` in a line or two; returns the exit code."""
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    error = _innermost(error)
    if isinstance(error, Explained):
        print_error(error.what, error.remedy)
        return EXIT_BAD_INPUT
    usage = _usage_line(error)
    if usage is not None:
        if usage:
            print_error(usage, "see: ghostwright --help")
        return EXIT_BAD_INPUT
    text = " ".join(str(error).split())
    print_error(
        f"unexpected {type(error).__name__}{': ' if text else ''}{text}",
        f"set {DEBUG_VARIABLE}=1 for the traceback",
    )
    return EXIT_FAULT


def _innermost(error: BaseException) -> BaseException:
    """The one error in a group (a task group wraps even a single one)."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _usage_line(error: BaseException) -> str | None:
    """A usage error in one line, empty where help was shown; None for any other error.

    Typer raises click's exceptions, its own copy of them in newer versions, which has no
    public name; both know how to put themselves in words.
    """
    in_words = getattr(error, "format_message", None)
    if not callable(in_words):
        return None
    return " ".join(str(in_words()).replace("Value error, ", "").split())


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ghostwright {installed_version()}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if os.environ.get(DEBUG_VARIABLE) else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
