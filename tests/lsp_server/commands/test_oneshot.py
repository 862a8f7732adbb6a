"""An engine and a checker for one command, with stand-ins: what starts must also stop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine import EngineConfig, LoadProgress, ModelNotFound
from lsp_server.commands import oneshot
from lsp_server.commands.oneshot import (
    ONE_SHOT_BUDGET_MS,
    engine_config,
    running_pipeline,
    settings_for,
)
from lsp_server.completion.pipeline import CompletionPipeline
from lsp_server.errors import CheckerUnavailable, SettingsError
from lsp_server.settings import Settings
from lsp_server.verification import pyright_verifier
from tests.support.pipeline_stubs import ScriptedEngine, ScriptedVerifier


class Parts:
    """Stand-ins for what the command starts; each can be told to fail or to wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal: list[str] = []
        self.load_gate: asyncio.Event | None = None
        self.load_error: Exception | None = None
        self.start_error: Exception | None = None
        self.start_gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        parts = self

        class Loader:
            @staticmethod
            async def load(config: EngineConfig, progress: object) -> ScriptedEngine:
                parts.begun.set()
                if parts.load_gate is not None:
                    await parts.load_gate.wait()
                if parts.load_error is not None:
                    raise parts.load_error
                return ScriptedEngine([], parts.journal)

        class Startable(ScriptedVerifier):
            def __init__(self, root: Path, *, interpreter: str, timeout_ms: int) -> None:
                super().__init__(journal=parts.journal)

            async def start(self) -> None:
                parts.journal.append("verifier started")
                if parts.start_gate is not None:
                    await parts.start_gate.wait()
                if parts.start_error is not None:
                    raise parts.start_error

        monkeypatch.setattr(oneshot, "Engine", Loader)
        monkeypatch.setattr(pyright_verifier, "PyrightVerifier", Startable)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


def ignore(progress: LoadProgress) -> None:
    """Nobody watches."""


async def start(settings: Settings | None = None) -> None:
    async with running_pipeline(settings or Settings(), Path(), ignore) as pipeline:
        assert isinstance(pipeline, CompletionPipeline)


async def test_both_are_started_and_closed(parts: Parts) -> None:
    await start()
    assert parts.journal == ["verifier started", "engine closed", "verifier closed"]


async def test_no_checker_is_started_that_is_not_wanted(parts: Parts) -> None:
    await start(Settings.model_validate({"verification": {"mode": "off"}}))
    assert "verifier started" not in parts.journal


async def test_a_missing_model_is_told_without_waiting_for_the_checker(parts: Parts) -> None:
    parts.load_error = ModelNotFound("no model", "pull it")
    parts.start_gate = asyncio.Event()
    with pytest.raises(ModelNotFound):
        await start()
    assert parts.journal[-1] == "verifier closed"


async def test_a_failing_checker_closes_the_engine_too(parts: Parts) -> None:
    parts.start_error = CheckerUnavailable("no node", "install it")
    with pytest.raises(CheckerUnavailable):
        await start()
    assert parts.journal == ["verifier started", "engine closed", "verifier closed"]


async def test_an_interrupted_start_closes_what_there_is(parts: Parts) -> None:
    parts.load_gate = asyncio.Event()
    starting = asyncio.create_task(start())
    await parts.begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert parts.journal[-1] == "verifier closed"


def test_options_override_the_project_and_the_project_overrides_ours(tmp_path: Path) -> None:
    plain = settings_for(tmp_path, candidates=None, max_tokens=None, model=None)
    assert plain.completion.time_budget_ms == ONE_SHOT_BUDGET_MS
    (tmp_path / "pyproject.toml").write_text(
        "[tool.ghostwright.completion]\nmax-tokens = 7\ninvoked-candidates = 3\n"
        "time-budget-ms = 900\n"
    )
    settings = settings_for(tmp_path, candidates=2, max_tokens=None, model="mine")
    completion = settings.completion
    assert (completion.max_tokens, completion.invoked_candidates) == (7, 2)
    assert (completion.time_budget_ms, settings.model.name) == (900, "mine")


def test_a_mistake_in_the_project_is_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ghostwright]\nenabledd = true\n")
    assert settings_for(tmp_path, candidates=None, max_tokens=None, model=None).enabled
    assert "enabledd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("candidates", "max_tokens", "model"),
    [(0, None, None), (99, None, None), (None, 0, None), (None, None, "")],
)
def test_impossible_options(
    tmp_path: Path, candidates: int | None, max_tokens: int | None, model: str | None
) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_for(tmp_path, candidates=candidates, max_tokens=max_tokens, model=model)
    assert caught.value.what.startswith(("-n ", "--max-tokens ", "--model "))
    assert caught.value.remedy


def test_the_engine_has_room_for_context_and_answer() -> None:
    settings = Settings.model_validate(
        {"model": {"contextTokens": 500, "threads": 3}, "completion": {"maxTokens": 100}}
    )
    config = engine_config(settings)
    assert (config.context_tokens, config.threads) == (600, 3)
    assert engine_config(Settings()).threads >= 1
