"""How the event loop and the engine thread talk: tickets one way, events the other.

A ticket is made by the loop and handed over once; after that the loop only ever sets its
cancel flag and reads its queue, and the engine thread only ever posts events. Nothing here
knows tensors.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from engine.api import Chunk, GenerationRequest
from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a ticket; `warmed` counts the prompt tokens a warm-up computed."""

    warmed: int = 0


Event = Chunk | Finished | EngineError


class Control(Enum):
    """Messages to the engine thread that are not requests."""

    STOP = "stop"


class Ticket:
    """One request on its way through the engine.

    Args:
        request: what is wanted.
        warm_only: prefill and keep the cache, decode nothing.

    Must be created on the event loop that will read `events`.
    """

    def __init__(self, request: GenerationRequest, *, warm_only: bool = False) -> None:
        self.request = request
        self.warm_only = warm_only
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.decode_steps = 0  # written by the engine thread after each step
        self._loop = asyncio.get_running_loop()
        self._steps_when_cancelled: int | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the reader has gone; the engine thread looks before every step."""
        return self._steps_when_cancelled is not None

    @property
    def steps_after_cancel(self) -> int:
        """Decode steps that finished for this ticket after it was cancelled."""
        if self._steps_when_cancelled is None:
            return 0
        return self.decode_steps - self._steps_when_cancelled

    def cancel(self) -> None:
        """Called by the event loop; the engine thread acts on it before its next step."""
        if self._steps_when_cancelled is None:
            self._steps_when_cancelled = self.decode_steps

    def post(self, events: Sequence[Event]) -> None:
        """Called by the engine thread, once per step: hand events to the reader."""
        if not events or self.cancelled:
            return
        try:
            self._loop.call_soon_threadsafe(self._receive, tuple(events))
        except RuntimeError:  # the loop was closed under its reader: nobody is left to tell
            self.cancel()

    def _receive(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.events.put_nowait(event)


Message = Ticket | Control
Inbox = queue.SimpleQueue[Message]
