"""LSP's base protocol: messages in a byte stream, each behind a Content-Length header.

pygls' own reader never answers a broken header, takes any length a client claims, and dies
of a header line over 64 KiB. This one says what was wrong and finds the next message.
"""

from __future__ import annotations

import asyncio
import re

MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_KEPT_BYTES = 256
_CHUNK_BYTES = 64 * 1024
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,18})[ \t]*\Z", re.IGNORECASE)
_FIELD = re.compile(rb"[!-9;-~]+[ \t]*:")


class FramingError(Exception):
    """The bytes are not a message; the next `read` looks for the one after them."""


class FrameReader:
    """Takes message bodies out of a stream. Owned by one connection's read loop.

    Args:
        stream: what the client sends.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._lost = False  # in the middle of garbage: skip to the next Content-Length
        self._length: int | None = None  # of the body whose header is being read

    async def read(self) -> bytes | None:
        """The next body, or None at the end of the stream.

        Raises:
            FramingError: once for every stretch of bytes that is no message.
        """
        while True:
            line = await self._line()
            if line is None:
                return None
            if not line and self._length is not None:
                length, self._length = self._length, None
                return await self._body(length)
            self._header(line)

    def _header(self, line: bytes) -> None:
        match = _LENGTH.search(line)  # garbage may run into the next header's line
        if match is None and not self._lost and _FIELD.match(line):
            return  # a header field we have no use for
        length = int(match.group(1)) if match is not None else None
        fault = ""
        if length is not None and length > MAX_BODY_BYTES:
            fault = f"a message of {length} bytes is over {MAX_BODY_BYTES}"
            length = None
        elif not line:
            fault = "a message has no usable Content-Length"
        elif match is None or match.start() > 0:
            fault = "a header line is not of the form 'Name: value'"
        told, self._lost = self._lost, length is None
        self._length = length
        if fault and not told:
            raise FramingError(fault)

    async def _body(self, length: int) -> bytes | None:
        while len(self._buffer) < length:
            if not await self._fill():
                return None  # the client left in the middle of a message
        return self._take(length)

    async def _line(self) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            if len(self._buffer) > _MAX_HEADER_BYTES:
                # No header is that long. Its end may be the next message's, so that is kept.
                del self._buffer[:-_KEPT_BYTES]
                self._header(b"?")
            searched = len(self._buffer)
            if not await self._fill():
                return None
        return self._take(end + 1).rstrip(b"\r\n")

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _fill(self) -> bool:
        try:
            data = await self._stream.read(_CHUNK_BYTES)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)
