"""`ghostwright complete` from the outside: exit codes, streams, one clear line."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine import LoadProgress
from lsp_server.cli import main
from lsp_server.commands import oneshot
from lsp_server.completion.pipeline import CompletionPipeline
from lsp_server.settings import Settings
from tests.support.pipeline_stubs import ScriptedEngine, ScriptedVerifier, Step, new_error, whole

SOURCE = "first = 1\nsecond = \n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """What the stand-in model writes; `bad` is what its checker rejects."""
    steps: list[Step] = []

    @asynccontextmanager
    async def scripted(
        settings: Settings, root: Path, progress: Callable[[LoadProgress], None]
    ) -> AsyncGenerator[CompletionPipeline, None]:
        progress(LoadProgress("layer 1 of 2", 0.5))
        progress(LoadProgress("layer 2 of 2", 1.0))
        verifier = ScriptedVerifier({"bad": new_error()})
        yield CompletionPipeline(ScriptedEngine(steps), verifier, may_replace=False)

    monkeypatch.setattr(oneshot, "running_pipeline", scripted)
    return steps


def test_json_on_stdout_and_nothing_else(
    source: Path, script: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    script.extend(whole("2", "bad"))
    assert main(["complete", f"{source}:2:10", "-n", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert [candidate["text"] for candidate in answer["candidates"]] == ["2"]
    [rejected] = answer["rejected"]
    assert rejected["text"] == "bad"
    assert rejected["new_errors"][0]["rule"] == "reportAttributeAccessIssue"
    assert err.splitlines() == ["layer 1 of 2"], "one line for one stage"


def test_text_for_people(
    source: Path, script: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    script.extend(whole("2"))
    assert main(["complete", f"{source}:2:10"]) == 0
    assert "     2 second = 2" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_nothing_found_exits_with_1_and_says_why(
    source: Path, script: list[Step], options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    script.extend(whole("bad"))
    assert main(["complete", f"{source}:2:10", *options]) == 1
    out, err = capsys.readouterr()
    assert "every candidate would have added an error" in out + err
    if options:
        assert json.loads(out)["candidates"] == []


def test_a_project_that_switched_it_off(
    source: Path, script: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    (source.parent / "pyproject.toml").write_text("[tool.ghostwright]\nenabled = false\n")
    assert main(["complete", f"{source}:2:10"]) == 1
    assert "switched off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "options", "words"),
    [
        ("{dir}/missing.py:1:1", [], "does not exist"),
        ("{dir}:1:1", [], "directory"),
        ("{dir}/binary.py:1:1", [], "binary"),
        ("{dir}/latin.py:1:1", [], "not UTF-8"),
        ("{dir}/a.py:9:1", [], "line 9 does not exist"),
        ("{dir}/a.py:1:99", [], "column 99 does not exist"),
        ("{dir}/a.py:0:1", [], "LINE is 0"),
        ("{dir}/a.py:1:x", [], "COLUMN is x"),
        ("{dir}/a.py", [], "not a place"),
        ("{dir}/a.py:1:1", ["-n", "0"], "-n cannot be 0"),
        ("{dir}/a.py:1:1", ["-n", "x"], "-n"),
        ("{dir}/a.py:1:1", ["--max-tokens", "-3"], "--max-tokens cannot be -3"),
        ("{dir}/a.py:1:1", ["--bogus"], "--bogus"),
    ],
)
def test_bad_input_exits_with_2_and_one_clear_line(
    source: Path,
    script: list[Step],
    place: str,
    options: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (source.parent / "binary.py").write_bytes(b"a\0")
    (source.parent / "latin.py").write_bytes(b"# \xe9\n")
    assert main(["complete", place.format(dir=source.parent), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert words in line


def test_columns_are_counted_without_the_byte_order_mark(
    source: Path, script: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    script.extend(whole("1"))
    source.write_bytes(b"\xef\xbb\xbfx = \n")
    assert main(["complete", f"{source}:1:5"]) == 0
    assert "x = 1" in capsys.readouterr().out


def test_a_missing_model_exits_with_2_and_names_the_remedy(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["complete", f"{source}:2:10", "--model", str(source.parent / "no.gguf")]) == 2
    assert "no.gguf" in capsys.readouterr().err
