"""Standard input and output as asyncio streams that never block the event loop.

Threads of our own carry the bytes. asyncio's pipe transports would make the descriptors
non-blocking, which the process at the other end, or a terminal shared with standard error,
would notice; and pygls writes to stdout from the loop, which stops when a client reads
slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
_DRAIN_SECONDS = 2.0
# A client that lets this much pile up is not reading any more.
_MOST_UNREAD_BYTES = 256 * 1024 * 1024


def take_stdio() -> tuple[int, int]:
    """Descriptors of the client's pipes, taken off stdin and stdout.

    Afterwards nothing else can speak on the protocol's stdout (a print goes to stderr), and
    children find an empty stdin.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return source, target


def read_descriptor(descriptor: int) -> asyncio.StreamReader:
    """A stream of what can be read from `descriptor`, until its end.

    The thread that reads dies with the process: nothing can interrupt a blocked read.
    """
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()

    def pump() -> None:
        while True:
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                log.debug("reading stopped: %s", error)
                chunk = b""
            try:
                if not chunk:
                    loop.call_soon_threadsafe(stream.feed_eof)
                    return
                loop.call_soon_threadsafe(stream.feed_data, chunk)
            except RuntimeError:  # the loop is closed: the server has ended
                return

    threading.Thread(target=pump, name="ghostwright-stdin", daemon=True).start()
    return stream


class DescriptorWriter:
    """Writes to a descriptor, in order, from a thread of its own. Used from the event loop.

    Args:
        descriptor: blocking; stays open.
        on_lost: called on the loop when the reader has gone.
    """

    def __init__(self, descriptor: int, on_lost: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._pump, name="ghostwright-stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queue `data`; dropped after `close` or when nobody reads."""
        if not self._closed:
            self._queue.put(data)

    def close(self) -> None:
        """Write no more than what is queued."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)

    async def wait_closed(self) -> None:
        """Wait until what was queued is written, but not for a reader that has stopped."""
        self.close()
        ended = asyncio.Event()

        def wait() -> None:
            self._thread.join(_DRAIN_SECONDS)
            self._loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=wait, daemon=True).start()
        await ended.wait()

    def _pump(self) -> None:
        while (data := self._queue.get()) is not None:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                log.info("the client reads no more: %s", error)
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._on_lost)
                return


class SocketWriter:
    """A client's socket that neither blocks nor fails. Used from the event loop.

    Args:
        stream: asyncio's writer of the connection.
    """

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        """Queue `data`; a client that reads nothing for too long is cut off."""
        if self._stream.is_closing():
            return
        self._stream.write(data)
        if self._stream.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            log.warning("a client does not read its answers; its connection is closed")
            self._stream.transport.abort()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._stream.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone, but not for a client that has stopped."""
        self.close()
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._stream.wait_closed()
        except (TimeoutError, OSError):
            self._stream.transport.abort()
