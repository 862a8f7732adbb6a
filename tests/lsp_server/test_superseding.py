"""Newest wins, cancelling, and answers that come too late, over a real connection."""

from __future__ import annotations

import asyncio

from tests.lsp_server.conftest import Connect
from tests.support.lsp_client import RawClient, inline_params, position, span
from tests.support.server_stubs import World

URI = "file:///project/a.py"
OTHER = "file:///project/b.py"
INLINE = "textDocument/inlineCompletion"
POPUP = "textDocument/completion"


async def decoding(client: RawClient, world: World, uri: str = URI) -> int:
    """Start a request and wait until it decodes; returns its id."""
    world.engine.gate = world.engine.gate or asyncio.Event()
    started = world.engine.started
    number = client.ask(INLINE, inline_params(uri, 0, 0))
    await world.engine.until(lambda: world.engine.started > started)
    return number


async def test_a_newer_request_ends_the_older_one(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    older = await decoding(client, world)
    newer = client.ask(INLINE, inline_params(URI, 0, 1))
    assert (await client.answer(older))["result"]["items"] == []
    await world.engine.until(lambda: world.engine.cancelled == 1)
    assert world.engine.gate is not None
    world.engine.gate.set()
    assert (await client.answer(newer))["result"]["items"]
    stats = await client.request("ghostwright/stats")
    assert stats["outcomes"] == {"superseded": 1, "shown": 1}


async def test_popup_and_ghost_text_do_not_end_each_other(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    ghost = await decoding(client, world)
    params = {"textDocument": {"uri": URI}, "position": position(0, 0)}
    popup = client.ask(POPUP, params)
    await world.engine.until(lambda: world.engine.started == 2)
    assert world.engine.gate is not None
    world.engine.gate.set()
    assert (await client.answer(ghost))["result"]["items"]
    assert (await client.answer(popup))["result"]["items"]


async def test_documents_do_not_end_each_other(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    client.open(OTHER, "x\n")
    first = await decoding(client, world)
    second = await decoding(client, world, OTHER)
    assert world.engine.gate is not None
    world.engine.gate.set()
    assert (await client.answer(first))["result"]["items"]
    assert (await client.answer(second))["result"]["items"]


async def test_clients_with_the_same_document_do_not_end_each_other(
    connect: Connect, world: World
) -> None:
    clients = [await connect(), await connect()]
    numbers: list[int] = []
    for client in clients:
        await client.start()
        client.open(URI, "x\n")
        numbers.append(await decoding(client, world))
    assert world.engine.gate is not None
    world.engine.gate.set()
    for client, number in zip(clients, numbers, strict=True):
        assert (await client.answer(number))["result"]["items"]


async def test_a_cancelled_request_stops_decoding(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    number = await decoding(client, world)
    client.notify("$/cancelRequest", {"id": number})
    assert (await client.answer(number))["error"]["code"] == -32800
    await world.engine.until(lambda: world.engine.cancelled == 1)
    stats = await client.request("ghostwright/stats")
    assert stats["outcomes"] == {"cancelled": 1}
    assert stats["engine"]["cancelled"] == 1


async def test_cancelling_the_unknown_does_no_harm(client: RawClient) -> None:
    for unknown in (77, "x"):
        client.notify("$/cancelRequest", {"id": unknown})
    client.open(URI, "x\n")
    assert await client.request(INLINE, inline_params(URI, 0, 0))


async def test_a_change_ends_requests_about_the_old_text(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    number = await decoding(client, world)
    client.change(URI, 2, {"range": span(0, 0, 0, 0), "text": "y"})
    assert (await client.answer(number))["result"]["items"] == []
    await world.engine.until(lambda: world.engine.cancelled == 1)


async def test_a_change_that_changes_nothing_ends_nothing(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    number = await decoding(client, world)
    client.change(URI, 2, {"range": span(0, 0, 0, 1), "text": "x"})
    assert world.engine.gate is not None
    world.engine.gate.set()
    assert (await client.answer(number))["result"]["items"]


async def test_closing_ends_the_documents_requests(client: RawClient, world: World) -> None:
    client.open(URI, "x\n")
    number = await decoding(client, world)
    client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    assert (await client.answer(number))["result"]["items"] == []


async def test_a_request_sees_the_text_of_its_own_moment(client: RawClient, world: World) -> None:
    """All three messages arrive in one read, so nothing but their order tells them apart."""
    client.open(URI, "old\n")
    await client.request("ghostwright/stats")
    client.change(URI, 2, {"text": "new\n"})
    number = client.ask(INLINE, inline_params(URI, 0, 3))
    client.change(URI, 3, {"text": "newer\n"})
    assert (await client.answer(number))["result"]["items"] == []
    assert all(document.text == "new\n" for document, _, _ in world.runs)


async def test_a_vanished_client_takes_its_requests_with_it(connect: Connect, world: World) -> None:
    stays, leaves = await connect(), await connect()
    for client in (stays, leaves):
        await client.start()
        client.open(URI, "x\n")
    await decoding(leaves, world)
    number = await decoding(stays, world)
    leaves.abort()
    await world.engine.until(lambda: world.engine.cancelled == 1)
    assert world.engine.gate is not None
    world.engine.gate.set()
    assert (await stays.answer(number))["result"]["items"]
