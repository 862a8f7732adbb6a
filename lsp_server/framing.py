"""LSP's base protocol: messages in a byte stream, each behind a Content-Length header.

pygls' own reader never answers a broken header, takes any length a client claims, and dies
of a header line over 64 KiB. This one says what was wrong and finds the next message.
"""

from __future__ import annotations

import asyncio
import json
import re

MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,18})[ \t]*", re.IGNORECASE)
_FIELD = re.compile(rb"[!-9;-~]+[ \t]*:")


class FramingError(Exception):
    """The bytes are not a message; the next `read` looks for the one after them."""


class FrameReader:
    """Takes message bodies out of a stream. Owned by one connection's read loop.

    Args:
        stream: its limit must be at least that of a header line, 64 KiB.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._lost = False  # in the middle of garbage: skip to the next Content-Length

    async def read(self) -> bytes | None:
        """The next body, or None at the end of the stream.

        Raises:
            FramingError: once for every stretch of bytes that is no message.
        """
        length: int | None = None
        while True:
            line = await self._line()
            if line is None:
                return None
            match = _LENGTH.fullmatch(line)
            if match:
                length = int(match.group(1))
                self._lost = False
                if length > MAX_BODY_BYTES:
                    raise self._loses(f"a message of {length} bytes is over {MAX_BODY_BYTES}")
            elif self._lost or _FIELD.match(line):
                continue  # skipping garbage; or a header field we have no use for
            elif line:
                raise self._loses("a header line is not of the form 'Name: value'")
            elif length is None:
                raise self._loses("a message has no usable Content-Length")
            else:
                return await self._body(length)

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
            if self._lost:
                return b"?"
            raise self._loses(f"a header line is over {_MAX_HEADER_BYTES} bytes") from None
        return line.rstrip(b"\r\n") if line else None

    def _loses(self, why: str) -> FramingError:
        self._lost = True
        return FramingError(why)


def frame(message: object) -> bytes:
    """One JSON message with its header."""
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
