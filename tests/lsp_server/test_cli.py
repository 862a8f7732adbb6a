"""The command line's frame: exit codes, one-line errors, and a start without heavy imports."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from engine import EngineError
from lsp_server import cli
from lsp_server.errors import ServerError

HEAVY = ("torch", "transformers", "huggingface_hub", "numpy", "pygls", "lsprotocol")


def all_below(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from all_below(child)


def program(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the real program."""
    return subprocess.run(
        [sys.executable, "-m", "lsp_server", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The application `main` runs; tests add commands that fail."""
    made = cli.build_app()
    monkeypatch.setattr(cli, "build_app", lambda: made)
    return made


@pytest.mark.parametrize("kind", [*all_below(EngineError), *all_below(ServerError)])
def test_every_typed_error_is_one_line_and_exit_2(
    kind: type[Exception], app: typer.Typer, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.command()
    def fail() -> None:
        raise kind("what happened", "what to do")

    assert cli.main(["fail"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: what happened (what to do)\n"


def test_an_error_out_of_a_task_group_is_the_error_itself(
    app: typer.Typer, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.command()
    def fail() -> None:
        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(part())

        async def part() -> None:
            raise EngineError("from a task")

        asyncio.run(run())

    assert cli.main(["fail"]) == 2
    assert capsys.readouterr().err == "error: from a task\n"


def test_a_fault_of_ours_is_one_line_and_the_way_to_more(
    app: typer.Typer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.command()
    def fail() -> None:
        raise ValueError("two\nlines")

    assert cli.main(["fail"]) == 70
    err = capsys.readouterr().err
    assert err == (
        "error: unexpected ValueError: two lines (set GHOSTWRIGHT_DEBUG=1 for the traceback)\n"
    )
    monkeypatch.setenv("GHOSTWRIGHT_DEBUG", "1")
    assert cli.main(["fail"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_130(app: typer.Typer) -> None:
    @app.command()
    def fail() -> None:
        raise KeyboardInterrupt

    assert cli.main(["fail"]) == 130


def test_a_commands_own_exit_code_is_kept(app: typer.Typer) -> None:
    @app.command()
    def fail() -> None:
        raise typer.Exit(1)

    assert cli.main(["fail"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["model", "nonsense"], "nonsense"),
        (["model", "pull", "--nonsense"], "--nonsense"),
        (["model", "pull", "--source", "moon"], "moon"),
        (["model", "verify", "a", "b"], "b"),
    ],
)
def test_bad_usage_is_one_clear_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert "--help" in line


@pytest.mark.parametrize("arguments", [[], ["model"]])
def test_no_command_shows_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert "Usage: ghostwright" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ghostwright ")


def test_the_start_imports_nothing_heavy() -> None:
    code = f"import sys, lsp_server.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


def test_building_the_commands_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lsp_server.cli import build_app; build_app();"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


def test_results_go_to_stdout_and_all_else_to_stderr(tmp_path: Path) -> None:
    done = program("model", "list", "--json", GHOSTWRIGHT_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0
    assert json.loads(done.stdout)["cache_dir"] == str(tmp_path)
    failed = program("model", "verify", "nosuch", "--json", GHOSTWRIGHT_CACHE_DIR=str(tmp_path))
    assert (failed.returncode, failed.stdout) == (2, "")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    environment = {**os.environ, "GHOSTWRIGHT_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "lsp_server", "model", "list", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
