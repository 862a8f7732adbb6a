"""Keeps one Pyright running: starts it, notices its death, starts it again with a back-off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from lsp_server.errors import CheckerUnavailable
from lsp_server.verification.pyright import PyrightProcess

log = logging.getLogger(__name__)

# Seconds before the first, second... restart in a row; the last one repeats.
RESTART_DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# A child that lived this long was not killed by what it was started with.
_HEALTHY_SECONDS = 60.0
CLOSED = "the type checker was closed"


class PyrightSupervisor:
    """Owns the child process. Lives on one event loop; `aclose` ends child and task.

    Args:
        launch: starts a child, or raises CheckerUnavailable.
        on_outage: told once per outage, in one line; an outage ends with `answered`.
        pause: sleeps that many seconds; tests hand in their own.
    """

    def __init__(
        self,
        launch: Callable[[], Awaitable[PyrightProcess]],
        on_outage: Callable[[str], None],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._launch = launch
        self._on_outage = on_outage
        self._pause = pause
        self._task: asyncio.Task[None] | None = None
        self._child: PyrightProcess | None = None
        self._failure = ""
        self._discarded_because = ""
        self._in_outage = False
        self._closed = False
        self._decided = asyncio.Event()  # there is a child, or a reason why there is none

    @property
    def pid(self) -> int | None:
        """Process id of the running child."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def child(self) -> PyrightProcess:
        """The running child; starts it, or waits while it is starting again.

        Raises:
            CheckerUnavailable: it could not be started, or this supervisor is closed.
        """
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="pyright supervisor")
        while not self._closed:
            if self._child is not None:
                if self._child.alive:
                    return self._child
                self._child = None  # dead, but the task has not noticed yet
                self._decided.clear()
            if self._failure:
                raise CheckerUnavailable(self._failure)
            await self._decided.wait()
        raise CheckerUnavailable(CLOSED)

    def answered(self) -> None:
        """The child has done its work: if there was an outage, it is over."""
        self._in_outage = False

    def discard(self, child: PyrightProcess, reason: str) -> None:
        """Kill a child that does not answer; another one is started."""
        self._discarded_because = reason
        child.kill()

    async def aclose(self) -> None:
        """End the child and wait until it is gone. Safe to call twice."""
        self._closed = True
        self._decided.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        restarts = 0
        while True:
            started = loop.time()
            reason = await self._one_life()
            self._report(reason)
            if loop.time() - started >= _HEALTHY_SECONDS:
                restarts = 0
            await self._pause(RESTART_DELAYS[min(restarts, len(RESTART_DELAYS) - 1)])
            restarts += 1
            self._failure = ""
            self._decided.clear()

    async def _one_life(self) -> str:
        """Start a child and wait for its end; returns why it ended."""
        try:
            child = await self._launch()
        except CheckerUnavailable as error:
            # Whoever asks now is told at once instead of waiting for the next attempt.
            self._failure = str(error)
            self._decided.set()
            return self._failure
        try:
            self._child = child
            self._decided.set()
            await child.wait_gone()
        finally:
            self._child = None
            self._decided.clear()
            await child.aclose()
        reason = self._discarded_because or f"Pyright stopped (exit code {child.exit_code})"
        self._discarded_because = ""
        return reason

    def _report(self, reason: str) -> None:
        log.warning("%s; starting it again", reason)
        if not self._in_outage:
            self._in_outage = True
            self._on_outage(reason)
