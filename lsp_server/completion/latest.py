"""Newest request wins: of all requests about one subject, only the last one runs.

Cancelling, superseding and shutting down are one mechanism here: the task that does the
work is cancelled, which stops decoding and drops a check wherever they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from lsp_server.completion.outcome import Completion, Outcome

Work = Callable[[], Coroutine[Any, Any, Completion]]
Pause = Callable[[float], Awaitable[None]]


Key = tuple[str, str]  # document URI, LSP method


class Latest:
    """Runs the newest request of each document and method, and cancels the older ones.

    Owned by one session, on its event loop. The method is part of the key because at one
    keystroke an editor asks for the popup's items and for ghost text: were they to share a
    key, each would end the other and the user would see only one of them.

    Args:
        pause: sleeps that many seconds; tests hand in their own.
    """

    def __init__(self, pause: Pause = asyncio.sleep) -> None:
        self._pause = pause
        self._tickets: dict[Key, _Ticket] = {}
        self._tasks: set[asyncio.Task[Completion]] = set()

    async def run(self, key: Key, work: Work, *, debounce_ms: int = 0) -> Completion:
        """Do `work` after the debounce, unless a newer request of the key comes first.

        Returns:
            What `work` returned, or a completion that was SUPERSEDED: at once, while the
            work is still being cleaned up.

        Raises:
            asyncio.CancelledError: the caller was cancelled, and the work with it.
            Exception: whatever `work` raises.
        """
        self.supersede(key)
        task = asyncio.create_task(self._after(debounce_ms / 1000, work))
        self._tasks.add(task)
        task.add_done_callback(self._settle)
        ticket = _Ticket(task)
        self._tickets[key] = ticket
        try:
            await asyncio.wait({task, ticket.superseded}, return_when=asyncio.FIRST_COMPLETED)
            if ticket.superseded.done():
                return Completion(Outcome.SUPERSEDED)
            return task.result()
        finally:
            ticket.superseded.cancel()
            task.cancel()
            if self._tickets.get(key) is ticket:
                del self._tickets[key]

    def supersede(self, key: Key) -> None:
        """End the key's request, if one runs: its answer is no longer wanted."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            ticket.task.cancel()
            if not ticket.superseded.done():
                ticket.superseded.set_result(None)

    def supersede_all(self, uri: str) -> None:
        """End the document's requests of every method: its text is another one now."""
        for key in tuple(self._tickets):
            if key[0] == uri:
                self.supersede(key)

    async def aclose(self) -> None:
        """Cancel everything and wait until it has ended."""
        for key in tuple(self._tickets):
            self.supersede(key)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _after(self, seconds: float, work: Work) -> Completion:
        if seconds > 0:
            await self._pause(seconds)
        return await work()

    def _settle(self, task: asyncio.Task[Completion]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left to hear it; asyncio would complain


class _Ticket:
    """One running request; made on the loop that runs it."""

    def __init__(self, task: asyncio.Task[Completion]) -> None:
        self.task = task
        self.superseded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
