"""How clients reach the server: over stdio, or several at once over TCP.

pygls' own TCP server has one protocol object for all clients and ends with the first that
leaves; here each connection gets a server object of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from pygls.exceptions import JsonRpcParseError

from lsp_server.address import Address
from lsp_server.errors import AddressInUse, BadAddress
from lsp_server.framing import FrameReader, FramingError
from lsp_server.server import GhostwrightServer
from lsp_server.streams import (
    DescriptorWriter,
    SocketWriter,
    read_descriptor,
    take_stdio,
)

log = logging.getLogger(__name__)

Connect = Callable[[], GhostwrightServer]

_ENDED_WITHOUT_SHUTDOWN = 1  # LSP: exit without a shutdown before it


class Writer(Protocol):
    """The way back to a client."""

    def write(self, data: bytes) -> None:
        """Queue bytes; never blocks and never raises."""
        ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    async def wait_closed(self) -> None:
        """Close, and wait for it a bounded time."""
        ...


async def serve_stdio(connect: Connect) -> int:
    """Serve one client on stdin and stdout; returns the exit code.

    Ends with `exit`, with stdin, with the client's process, and with SIGTERM or SIGINT.
    """
    source, target = take_stdio()
    async with _stop_signals() as stop:
        server = connect()
        server.ends_with_client = True
        writer = DescriptorWriter(target, on_lost=server.shutdown)
        stopping = asyncio.create_task(_shut_down_on(stop, server), name="watch signals")
        try:
            return await serve_connection(server, FrameReader(read_descriptor(source)), writer)
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)


async def serve_tcp(
    connect: Connect, address: Address, on_listening: Callable[[Address], None]
) -> None:
    """Serve any number of clients until SIGTERM or SIGINT.

    Args:
        connect: makes a server object for each client.
        address: where to listen.
        on_listening: told the address once clients can connect.

    Raises:
        AddressInUse: another program listens there.
        BadAddress: the host is unknown or not of this machine, or the port is not allowed.
    """
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve_socket(connect, reader, stream))
        connections.add(task)
        task.add_done_callback(connections.discard)

    async with _stop_signals() as stop:
        listener = await _listen(accept, address)
        try:
            bound = listener.sockets[0].getsockname()
            on_listening(Address(bound[0], bound[1]))
            await stop.wait()
        finally:
            listener.close()
            for task in tuple(connections):
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)


async def serve_connection(server: GhostwrightServer, frames: FrameReader, writer: Writer) -> int:
    """Serve one client until it exits or leaves; returns the exit code LSP wants."""
    server.protocol.set_writer(writer)  # pyright: ignore[reportArgumentType]
    reading = asyncio.create_task(_read(frames, server), name="read client")
    ending = asyncio.create_task(server.ended.wait())
    try:
        await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        reading.cancel()
        ending.cancel()
        await asyncio.gather(reading, ending, return_exceptions=True)
        await server.aclose()
        await writer.wait_closed()
    return 0 if server.protocol.was_shut_down or not server.exit_sent else _ENDED_WITHOUT_SHUTDOWN


async def _read(frames: FrameReader, server: GhostwrightServer) -> None:
    while not server.ended.is_set():
        try:
            body = await frames.read()
        except FramingError as error:
            server.protocol.refuse(JsonRpcParseError(f"Parse Error: {error}"))
            continue
        if body is None:
            return
        server.protocol.receive(body)
        # A request's handler starts here, before the next message: it must see the
        # documents as they were when the client asked.
        await asyncio.sleep(0)


async def _serve_socket(
    connect: Connect, reader: asyncio.StreamReader, stream: asyncio.StreamWriter
) -> None:
    peer = stream.get_extra_info("peername")
    log.info("client %s connected", peer)
    try:
        await serve_connection(connect(), FrameReader(reader), SocketWriter(stream))
    except Exception:  # one client's trouble is not the others'
        log.exception("the connection of client %s failed", peer)
        stream.transport.abort()
    log.info("client %s has gone", peer)


async def _shut_down_on(stop: asyncio.Event, server: GhostwrightServer) -> None:
    await stop.wait()
    server.shutdown()


async def _listen(
    accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None], address: Address
) -> asyncio.Server:
    try:
        if address.port:
            return await asyncio.start_server(accept, address.host, address.port)
        # A name like localhost may have two addresses; a chosen port must be a single one.
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, 0, type=socket.SOCK_STREAM
        )
        return await asyncio.start_server(accept, str(found[0][4][0]), 0, family=found[0][0])
    except socket.gaierror as error:
        raise BadAddress(
            f"host {address.host!r} is unknown", "use 127.0.0.1 for this machine"
        ) from error
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"another program listens at {address}", "choose another port, or 0 for any"
            ) from error
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise BadAddress(f"cannot listen at {address}: {why}", "choose another address") from error


@asynccontextmanager
async def _stop_signals() -> AsyncGenerator[asyncio.Event, None]:
    """An event that SIGTERM and SIGINT set while the context lasts."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as handlers:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not possible on Windows or outside the main thread: Python's defaults remain.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop.set)
                handlers.callback(loop.remove_signal_handler, number)
        yield stop
