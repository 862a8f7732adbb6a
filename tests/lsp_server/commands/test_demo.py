"""`ghostwright demo`: the sample is whole, nothing in the package is touched."""

from __future__ import annotations

import ast
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import typer

from engine import LoadProgress
from lsp_server.commands import demo, oneshot
from lsp_server.completion.pipeline import CompletionPipeline
from lsp_server.demo import places as sample
from lsp_server.settings import Settings
from tests.support.pipeline_stubs import ScriptedEngine, ScriptedVerifier, new_error, whole


def run(*options: str) -> int:
    app = typer.Typer()
    demo.register(app)
    result: object = app(args=list(options), standalone_mode=False)
    return result if isinstance(result, int) else 0


def test_each_place_is_a_line_cut_off_that_the_author_finished(tmp_path: Path) -> None:
    found = sample.places(sample.copy_sample(tmp_path))
    original = (tmp_path / "shop" / sample.SAMPLE).read_text(encoding="utf-8")
    assert len(found) >= 3
    for place in found:
        text = place.document.text
        assert place.author
        assert text[: place.offset] + place.author + text[place.offset :] == original
        assert text[place.offset] == "\n"


def test_the_copy_is_python_and_leaves_the_package_alone(tmp_path: Path) -> None:
    root = sample.copy_sample(tmp_path)
    copied = sorted((root / "shop").iterdir())
    assert [path.name for path in copied] == ["__init__.py", "orders.py", "stock.py"]
    for path in copied:
        ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture
def roots(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Runs the demo with a stand-in model; collects the folders it worked in."""
    seen: list[Path] = []

    @asynccontextmanager
    async def scripted(
        settings: Settings, root: Path, progress: Callable[[LoadProgress], None]
    ) -> AsyncGenerator[CompletionPipeline, None]:
        seen.append(root)
        verifier = ScriptedVerifier({".bad": new_error("reportCallIssue", "too many")})
        yield CompletionPipeline(ScriptedEngine(whole(".good", ".bad")), verifier)

    monkeypatch.setattr(oneshot, "running_pipeline", scripted)
    return seen


def test_what_the_model_says_is_what_is_printed(
    roots: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    assert "amount = amount.good" in out
    assert "amount = amount.bad" in out
    assert "reportCallIssue" in out
    assert "4 suggestions passed Pyright, 4 were thrown out" in out
    assert not roots[0].exists(), "the copy is gone"


def test_json(roots: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["shown"], answer["rejected"]) == (4, 4)
    assert {"line", "column", "author", "candidates", "rejected", "timing", "tokens"} == set(
        answer["places"][0]
    )
