"""An engine and a checker for one command: started together, gone when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from engine import Engine, LoadProgress
from lsp_server.commands.output import note
from lsp_server.completion.pipeline import CompletionPipeline, first_error
from lsp_server.errors import SettingsError
from lsp_server.settings import Settings, engine_config
from lsp_server.settings_loading import Layer, combine, read_layer, read_pyproject

# Nobody types on meanwhile, so a slow machine may take its time.
ONE_SHOT_BUDGET_MS = 120_000


def settings_for(
    root: Path, *, candidates: int | None, max_tokens: int | None, model: str | None
) -> Settings:
    """The project's settings, and over them what the command line says; None says nothing.

    A mistake in the project's file costs a line on stderr and the setting it is in.

    Raises:
        SettingsError: an option has an impossible value.
    """
    project = read_pyproject(root)
    for problem in project.problems:
        note(f"warning: {problem}")
    options: list[Layer] = []
    for section, setting, value, option in (
        ("completion", "invokedCandidates", candidates, "-n"),
        ("completion", "maxTokens", max_tokens, "--max-tokens"),
        ("model", "name", model, "--model"),
    ):
        layer = read_layer({section: {setting: value}}, "the command line")
        if layer.problems:
            raise SettingsError(f"{option} cannot be {value!r}", layer.problems[0].remedy)
        options.append(layer)
    patient = read_layer({"completion": {"timeBudgetMs": ONE_SHOT_BUDGET_MS}}, "the command line")
    return combine(patient, project, *options)


@asynccontextmanager
async def running_pipeline(
    settings: Settings, root: Path, progress: Callable[[LoadProgress], None]
) -> AsyncGenerator[CompletionPipeline, None]:
    """A pipeline for files under `root`; its engine and Pyright stop on every way out.

    Raises:
        EngineError: the model cannot be loaded.
        CheckerUnavailable: Pyright cannot be started.
    """
    from lsp_server.verification.pyright_verifier import PyrightVerifier

    checking = settings.verification
    verifier = PyrightVerifier(
        root, interpreter=checking.interpreter, timeout_ms=checking.timeout_ms
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(verifier.aclose)

        async def load() -> Engine:
            engine = await Engine.load(engine_config(settings), progress)
            stack.push_async_callback(engine.aclose)
            return engine

        try:
            async with asyncio.TaskGroup() as tasks:
                loading = tasks.create_task(load())
                if checking.mode != "off":
                    tasks.create_task(verifier.start())
        except ExceptionGroup as group:
            raise first_error(group) from None
        yield CompletionPipeline(loading.result(), verifier, may_replace=False)
