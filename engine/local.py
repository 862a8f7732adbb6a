"""The local engine: an asyncio face over one thread that owns the model."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from engine.api import Chunk, EngineStats, GenerationRequest, LoadProgress, ModelInfo
from engine.config import EngineConfig
from engine.errors import EngineError, EngineStopped
from engine.mailbox import Control, Finished, Inbox, Ticket

if TYPE_CHECKING:
    from engine.worker import Worker

Progress = Callable[[LoadProgress], None]


class Engine:
    """A loaded model, ready to complete. Satisfies `CompletionEngine`.

    Make one with `await Engine.load(config)`; any event loop may then use it. The model, its
    caches and every tensor belong to the engine's own thread, so awaiting never blocks the
    loop, and neither does importing torch, which the thread does as well.
    """

    def __init__(self, thread: threading.Thread, inbox: Inbox, worker: Worker) -> None:
        self._thread = thread
        self._inbox = inbox
        self._worker = worker

    @classmethod
    async def load(cls, config: EngineConfig, progress: Progress | None = None) -> Engine:
        """Load the model `config` names, from its prepared snapshot where there is one.

        Args:
            config: which model, and what it may use.
            progress: called on the event loop as loading proceeds.

        Raises:
            ModelError: the model is missing, damaged, or of a kind the engine cannot run.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Worker] = loop.create_future()
        inbox: Inbox = queue.SimpleQueue()

        def tell(step: LoadProgress) -> None:
            if progress is not None:
                _call(loop, progress, step)

        def settle(outcome: Worker | BaseException) -> None:
            if ready.done():  # load() was cancelled meanwhile
                inbox.put(Control.STOP)
            elif isinstance(outcome, BaseException):
                ready.set_exception(outcome)
            else:
                ready.set_result(outcome)

        def main() -> None:
            try:
                _yield_while_waiting()
                from engine.worker import Worker  # imports torch

                worker = Worker.load(config, inbox, tell)
            except EngineError as error:
                _call(loop, settle, error)
            except Exception as error:  # a bug or a broken installation; the loader must hear
                wrapped = EngineError(f"loading failed: {type(error).__name__}: {error}")
                wrapped.__cause__ = error
                _call(loop, settle, wrapped)
            else:
                if _call(loop, settle, worker):
                    worker.run()

        thread = threading.Thread(target=main, name="ghostwright-engine", daemon=True)
        thread.start()
        try:
            return cls(thread, inbox, await ready)
        except asyncio.CancelledError:
            inbox.put(Control.STOP)
            raise

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._worker.info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the request's candidates, interleaved; see `CompletionEngine.generate`."""
        ticket = self._submit(Ticket(request))
        try:
            while True:
                event = await ticket.events.get()
                if isinstance(event, EngineError):
                    raise event
                if isinstance(event, Finished):
                    return
                yield event
        finally:
            ticket.cancel()

    async def warm(self, request: GenerationRequest) -> int:
        """Prefill the request's prompt and keep it; returns the tokens computed."""
        ticket = self._submit(Ticket(request, warm_only=True))
        try:
            event = await ticket.events.get()
            if isinstance(event, EngineError):
                raise event
            assert isinstance(event, Finished), "a warm-up posts nothing else"
            return event.warmed
        finally:
            ticket.cancel()

    def stats(self) -> EngineStats:
        """Counters so far, as of the engine's last step."""
        return self._worker.stats

    async def aclose(self) -> None:
        """Stop the engine's thread; pending requests raise EngineStopped."""
        self._inbox.put(Control.STOP)
        await asyncio.to_thread(self._thread.join)

    def _submit(self, ticket: Ticket) -> Ticket:
        if not self._thread.is_alive() or self._worker.stopping:
            raise EngineStopped("the engine has been stopped")
        self._inbox.put(ticket)
        # The thread sets `stopping` and then empties the inbox a last time: whoever sees it
        # unset after handing over is still answered, anyone else may not be.
        if self._worker.stopping:
            raise EngineStopped("the engine has been stopped")
        return ticket


def _yield_while_waiting() -> None:
    """Have OpenMP's threads sleep, not spin, while they wait for each other.

    Pyright and the editor share the cores with us. A spinning thread keeps its core from the
    very thread it waits for: with one other busy process on two cores, a prefill of 1,024
    tokens took 46 s spinning and 3 s sleeping. Must come before torch is imported, because
    OpenMP reads its environment once; a user's own setting wins.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "passive"


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> bool:
    """Run `function` on the loop from another thread; False when the loop is gone."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True
