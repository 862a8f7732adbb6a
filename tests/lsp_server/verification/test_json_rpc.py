"""The connection against a peer that is a socket in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from lsp_server.errors import CheckerUnavailable
from lsp_server.verification.json_rpc import JsonRpcConnection


class Peer:
    """The other end: raw bytes in, messages out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        self.writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def receive(self) -> dict[str, Any]:
        header = await self.reader.readuntil(b"\r\n\r\n")
        return json.loads(await self.reader.readexactly(int(header.split(b":")[1])))


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[tuple[JsonRpcConnection, Peer, list[Any]]]:
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    peer = Peer(*await asyncio.open_connection(sock=there))
    told: list[Any] = []
    connection = JsonRpcConnection(
        reader,
        writer,
        answer=lambda method, params: {"asked": method, "with": params},
        notified=lambda method, params: told.append((method, params)),
    )
    try:
        yield connection, peer, told
    finally:
        await connection.aclose()
        peer.writer.close()
        with contextlib.suppress(OSError):
            await peer.writer.wait_closed()


async def test_answers_find_their_requests_in_any_order() -> None:
    async with connected() as (connection, peer, _):
        asking = [asyncio.create_task(connection.request("m", i)) for i in range(3)]
        received = [await peer.receive() for _ in asking]
        for message in reversed(received):
            peer.send({"id": message["id"], "result": message["params"]})
        assert await asyncio.gather(*asking) == [0, 1, 2]


async def test_an_error_answer_is_raised() -> None:
    async with connected() as (connection, peer, _):
        asking = asyncio.create_task(connection.request("m", None))
        message = await peer.receive()
        peer.send({"id": message["id"], "error": {"code": -1, "message": "no such thing"}})
        with pytest.raises(CheckerUnavailable, match="no such thing"):
            await asking


async def test_the_answer_to_an_abandoned_request_is_ignored() -> None:
    async with connected() as (connection, peer, _):
        abandoned = asyncio.create_task(connection.request("m", None))
        first = await peer.receive()
        abandoned.cancel()
        asking = asyncio.create_task(connection.request("m", None))
        second = await peer.receive()
        peer.send({"id": first["id"], "result": "late"})
        peer.send({"id": second["id"], "result": "own"})
        assert await asking == "own"


async def test_the_peers_requests_are_answered_and_notifications_handed_on() -> None:
    async with connected() as (_, peer, told):
        peer.send({"method": "note", "params": [1]})
        peer.send({"id": "x7", "method": "ask", "params": 2})
        assert await peer.receive() == {
            "jsonrpc": "2.0",
            "id": "x7",
            "result": {"asked": "ask", "with": 2},
        }
        assert told == [("note", [1])]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"Content-Length: 9",
        b"Content-Length: 9\r\n\r\n{",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 99999999999999\r\n\r\n",
        b"Something: 1\r\n\r\n{}",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 2\r\n\r\n{]",
        b"Content-Length: 1\r\n\r\n\xff",
        b"x" * 200_000,
    ],
)
async def test_whatever_ends_the_conversation_fails_what_is_pending(garbage: bytes) -> None:
    async with connected() as (connection, peer, _):
        asking = asyncio.create_task(connection.request("m", None))
        await peer.receive()
        peer.writer.write(garbage)
        peer.writer.close()
        with pytest.raises(CheckerUnavailable, match="stopped"):
            await asking
        await connection.wait_closed()
        with pytest.raises(CheckerUnavailable, match="stopped"):
            await connection.request("m", None)
        connection.notify("m", None)


async def test_closing_fails_what_is_pending() -> None:
    async with connected() as (connection, peer, _):
        asking = asyncio.create_task(connection.request("m", None))
        await peer.receive()
        await connection.aclose()
        with pytest.raises(CheckerUnavailable):
            await asking
        assert connection.closed
