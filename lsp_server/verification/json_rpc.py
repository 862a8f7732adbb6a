"""JSON-RPC 2.0 over a pair of asyncio streams, as LSP frames it; no types of any protocol.

Small on purpose: the checker's answers are on the path of every suggestion, so messages stay
plain dictionaries, and the end of the peer is noticed by the one task that reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any, cast

from lsp_server.errors import CheckerUnavailable

log = logging.getLogger(__name__)

Message = dict[str, Any]
RequestHandler = Callable[[str, Any], Any]

_HEADER_END = b"\r\n\r\n"
# A frame larger than this is not an answer about one file; the peer has lost its mind.
_MAX_FRAME_BYTES = 256 * 1024 * 1024


class JsonRpcConnection:
    """One peer. Owned by the event loop it is started in; `aclose` ends its reader.

    Args:
        reader: the peer's output.
        writer: the peer's input.
        answer: called for each request of the peer; what it returns is the result.
        notified: called for each notification of the peer.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answer: RequestHandler,
        notified: Callable[[str, Any], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._notified = notified
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._closed = asyncio.Event()
        self._reading = asyncio.create_task(self._read_all(), name="json-rpc reader")

    @property
    def closed(self) -> bool:
        """Whether the peer's output has ended; nothing is answered any more."""
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        """Return once the peer's output has ended."""
        await self._closed.wait()

    async def request(self, method: str, params: object) -> Any:
        """Ask the peer and wait for its result; leaving early ignores the late answer.

        Raises:
            CheckerUnavailable: the peer is gone, or answered with an error.
        """
        if self.closed:
            raise CheckerUnavailable("the type checker stopped")
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            self._pending.pop(number, None)

    def notify(self, method: str, params: object) -> None:
        """Tell the peer something; silently nothing once it is gone."""
        self._send({"method": method, "params": params})

    async def aclose(self) -> None:
        """Close the peer's input and stop reading; pending requests fail."""
        self._writer.close()
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, message: Message) -> None:
        if self._writer.is_closing():
            return
        # ensure_ascii keeps lone surrogates, which editors do send, out of the encoder.
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii")
        self._writer.write(b"Content-Length: %d%b%b" % (len(body), _HEADER_END, body))

    async def _read_all(self) -> None:
        try:
            while True:
                self._dispatch(await self._read_message())
        except (EOFError, OSError):
            log.debug("the type checker closed its output")
        except (ValueError, asyncio.LimitOverrunError) as error:
            log.warning("the type checker sent something that is not JSON-RPC: %s", error)
        finally:
            self._closed.set()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(CheckerUnavailable("the type checker stopped"))

    async def _read_message(self) -> Message:
        header = await self._reader.readuntil(_HEADER_END)
        length = -1
        for field in header.split(b"\r\n"):
            name, _, value = field.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        if not 0 <= length <= _MAX_FRAME_BYTES:
            raise ValueError(f"no usable Content-Length in {header!r}")
        message = json.loads(await self._reader.readexactly(length))
        if not isinstance(message, dict):
            raise ValueError("a message is not an object")
        return cast(Message, message)

    def _dispatch(self, message: Message) -> None:
        if "method" not in message:
            self._settle(message)
        elif "id" in message:
            self._reply(message)
        else:
            self._notified(str(message["method"]), message.get("params"))

    def _settle(self, message: Message) -> None:
        future = self._pending.get(message.get("id", -1))
        if future is None or future.done():
            return  # the caller has left
        if "error" in message:
            future.set_exception(CheckerUnavailable(f"the type checker failed: {message['error']}"))
        else:
            future.set_result(message.get("result"))

    def _reply(self, message: Message) -> None:
        result = self._answer(str(message["method"]), message.get("params"))
        self._send({"id": message["id"], "result": result})
