"""A server in this process, reached over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from lsp_server.app import App, build
from lsp_server.framing import FrameReader
from lsp_server.settings_loading import Layer
from lsp_server.streams import SocketWriter
from lsp_server.transport import serve_connection
from tests.support.lsp_client import RawClient
from tests.support.server_stubs import World

Connect = Callable[[], Awaitable[RawClient]]


@pytest.fixture
def world() -> World:
    """The stand-ins behind the server."""
    return World()


@pytest.fixture
async def app(world: World) -> AsyncGenerator[App, None]:
    """A server of stand-ins."""
    async with build(Layer(), world.parts()) as built:
        yield built


@pytest.fixture
async def connect(app: App) -> AsyncGenerator[Connect, None]:
    """Makes clients, each on its own connection."""
    serving: set[asyncio.Task[int]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(
            asyncio.create_task(
                serve_connection(app.connect(), FrameReader(reader), SocketWriter(writer))
            )
        )

    async with AsyncExitStack() as stack:
        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        stack.callback(listener.close)
        port = listener.sockets[0].getsockname()[1]

        async def connected() -> RawClient:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            client = RawClient(reader, writer)
            stack.push_async_callback(client.aclose)
            stack.callback(writer.close)
            return client

        yield connected
    await asyncio.gather(*serving)


@pytest.fixture
async def client(connect: Connect) -> RawClient:
    """A client that has shaken hands, with the model ready."""
    client = await connect()
    await client.start()
    return client
