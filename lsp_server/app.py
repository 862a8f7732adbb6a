"""Puts the server together: the only place that constructs its parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from engine import CompletionEngine, Engine
from lsp_server.completion.latest import Pause
from lsp_server.completion.pipeline import CompletionPipeline
from lsp_server.model_holder import Load, ModelHolder
from lsp_server.server import GhostwrightServer
from lsp_server.session import MakePipeline, Services
from lsp_server.settings import engine_config
from lsp_server.settings_loading import Layer, combine
from lsp_server.status import RequestRecord
from lsp_server.verification.pool import (
    CheckerKey,
    MakeVerifier,
    OnStatus,
    SharedVerifier,
    VerifierLease,
    VerifierPool,
)
from lsp_server.verification.pyright_verifier import PyrightVerifier


@dataclass(frozen=True, slots=True)
class Parts:
    """What the server is made of; tests put stand-ins here.

    Attributes:
        load: brings up the engine.
        make_verifier: makes a workspace's checker.
        make_pipeline: joins both.
        pause: sleeps that many seconds.
    """

    load: Load
    make_verifier: MakeVerifier
    make_pipeline: MakePipeline
    pause: Pause = asyncio.sleep


class App:
    """Everything the connections share. Owned by the process's one event loop."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def connect(self) -> GhostwrightServer:
        """A server object for a new client."""
        return GhostwrightServer(self.services)

    def load_model(self) -> None:
        """Load the model now instead of when the first client asks for it."""
        settings = combine(self.services.overrides)
        self.services.holder.start(self.services.make_config(settings))

    async def aclose(self) -> None:
        """End the engine and all checkers."""
        await asyncio.gather(self.services.pool.aclose(), self.services.holder.aclose())


@asynccontextmanager
async def build(
    overrides: Layer | None = None, parts: Parts | None = None
) -> AsyncGenerator[App, None]:
    """A server without clients, nothing started; all it starts ends with the context.

    Args:
        overrides: settings of the command line; they win over the clients'.
        parts: what to build it from; the real engine and Pyright if not given.
    """
    parts = parts or Parts(Engine.load, _pyright, _pipeline)
    app = App(
        Services(
            holder=ModelHolder(parts.load),
            pool=VerifierPool(parts.make_verifier, pause=parts.pause),
            record=RequestRecord(),
            make_pipeline=parts.make_pipeline,
            make_config=engine_config,
            overrides=overrides or Layer(),
            pause=parts.pause,
        )
    )
    try:
        yield app
    finally:
        await app.aclose()


def _pyright(key: CheckerKey, on_status: OnStatus) -> SharedVerifier:
    return PyrightVerifier(
        key.root, interpreter=key.interpreter, timeout_ms=key.timeout_ms, on_status=on_status
    )


def _pipeline(engine: CompletionEngine, verifier: VerifierLease) -> CompletionPipeline:
    return CompletionPipeline(engine, verifier)
