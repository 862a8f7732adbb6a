"""The one engine of this process: loading in the background, ready, or failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from engine import CompletionEngine, EngineConfig, EngineError, LoadProgress, ModelNotFound

log = logging.getLogger(__name__)

Load = Callable[[EngineConfig, Callable[[LoadProgress], None]], Awaitable[CompletionEngine]]

_RETRY_SECONDS = 5.0


class LoadPhase(StrEnum):
    """How far the engine is."""

    IDLE = "idle"  # nobody has asked for it
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LoadState:
    """A moment of loading; `stage` and `share` as in LoadProgress."""

    phase: LoadPhase
    stage: str = ""
    share: float = 0.0
    error: EngineError | None = None


class ModelHolder:
    """Loads the engine once and hands it to every session. Owned by the app, on its loop.

    Args:
        load: brings up an engine; `Engine.load` outside tests.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._failed_at = 0.0
        self.config: EngineConfig | None = None
        self.engine: CompletionEngine | None = None
        self.state = LoadState(LoadPhase.IDLE)

    def start(self, config: EngineConfig) -> None:
        """Begin to load, unless it is loading or ready; a failed load is tried again."""
        if self.state.phase in (LoadPhase.LOADING, LoadPhase.READY):
            return
        self.config = config
        self._set(LoadState(LoadPhase.LOADING, "starting"))
        self._task = asyncio.create_task(self._run(config), name="load model")

    def retry_if_missing(self) -> None:
        """Look again for a model that was not there: the user may have pulled it since."""
        missing = isinstance(self.state.error, ModelNotFound)
        due = asyncio.get_running_loop().time() - self._failed_at >= _RETRY_SECONDS
        if missing and due and self.config is not None:
            self.start(self.config)

    async def follow(self) -> AsyncGenerator[LoadState, None]:
        """The state now and after each change, up to the first that is not loading.

        A slow reader misses states in between, never the last one.
        """
        while True:
            changed = self._changed
            state = self.state
            yield state
            if state.phase is not LoadPhase.LOADING:
                return
            await changed.wait()

    async def final(self) -> LoadState:
        """The state, once it is not loading any more."""
        while self.state.phase is LoadPhase.LOADING:
            await self._changed.wait()
        return self.state

    async def aclose(self) -> None:
        """Stop loading, or the engine. Safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.engine is not None:
            await self.engine.aclose()

    async def _run(self, config: EngineConfig) -> None:
        def progress(step: LoadProgress) -> None:
            if self.state.phase is LoadPhase.LOADING:
                self._set(LoadState(LoadPhase.LOADING, step.stage, step.share))

        started = asyncio.get_running_loop().time()
        try:
            self.engine = await self._load(config, progress)
        except EngineError as error:
            self._fail(error)
        except Exception as error:  # a bug must show as a failed load, not as endless loading
            log.exception("loading the model failed")
            self._fail(EngineError(f"loading failed: {type(error).__name__}: {error}"))
        else:
            seconds = asyncio.get_running_loop().time() - started
            log.info("model %s ready after %.1f s", config.model, seconds)
            self._set(LoadState(LoadPhase.READY, "ready", 1.0))

    def _fail(self, error: EngineError) -> None:
        log.error("model cannot be used: %s", error)
        self._failed_at = asyncio.get_running_loop().time()
        self._set(LoadState(LoadPhase.FAILED, error=error))

    def _set(self, state: LoadState) -> None:
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
