"""LSP's base protocol: messages in a byte stream, each behind a Content-Length header.

pygls' own reader never answers a broken header, takes any length a client claims, and dies
of a header line over 64 KiB. This one says what was wrong and finds the next message.
"""

from __future__ import annotations

import asyncio
import re

MAX_BODY_BYTES = 64 * 1024 * 1024
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,18})[ \t]*\Z", re.IGNORECASE)
_FIELD = re.compile(rb"[!-9;-~]+[ \t]*:")


class FramingError(Exception):
    """The bytes are not a message; the next `read` looks for the one after them."""


class FrameReader:
    """Takes message bodies out of a stream. Owned by one connection's read loop.

    Args:
        stream: its limit is that of a header line.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
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
        try:
            return await self._stream.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None  # the client left in the middle of a message

    async def _line(self) -> bytes | None:
        try:
            line = await self._stream.readline()
        except ConnectionError:
            return None
        except ValueError:  # asyncio's way to say "over the limit"; it dropped the bytes
            return b"?"
        return line.rstrip(b"\r\n") if line else None
