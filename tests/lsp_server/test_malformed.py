"""Broken messages: an error reply where LSP has one, and a server that lives on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lsp_server.conftest import Connect
from tests.support.lsp_client import RawClient, inline_params
from tests.support.server_stubs import World

URI = "file:///project/a.py"
INLINE = "textDocument/inlineCompletion"


async def assert_alive(client: RawClient) -> None:
    client.open(URI, "x\n")
    assert (await client.request(INLINE, inline_params(URI, 0, 0)))["items"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"Content-Length: 5\r\n\r\n{nope", -32700),
        (b"Content-Length: 2\r\n\r\n\xff\xfe", -32700),
        (b"Content-Length: 0\r\n\r\n", -32700),
        (b"Content-Length: 100000\r\n\r\n" + b"[" * 100000, -32700),
        (b"Content-Length: 2\r\n\r\n[]", -32600),
        (b"Content-Length: 1\r\n\r\n7", -32600),
        (b"Content-Length: 4\r\n\r\nnull", -32600),
        (b"Content-Length: x\r\n\r\n", -32700),
        (b"Content-Length: -5\r\n\r\n", -32700),
        (b"Content-Length: 99999999999999999\r\n\r\n", -32700),
        (b"Content-Length: 9999999999999999999999999999\r\n\r\n", -32700),
        (b"\r\n", -32700),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", -32700),
        (b"x" * 200_000 + b"\r\n", -32700),
    ],
)
async def test_bytes_that_are_no_message(client: RawClient, data: bytes, code: int) -> None:
    client.send_bytes(data)
    answer = await client.answer(None)
    assert answer["error"]["code"] == code
    await assert_alive(client)
    assert len([each for each in client.answers if each["id"] is None]) == 1


@pytest.mark.parametrize("size", [10, 65_536, 65_537, 300_000])
async def test_a_message_glued_to_garbage_is_found(client: RawClient, size: int) -> None:
    """Both arrive in one read: what is dropped of the garbage must not reach the message."""
    body = b'{"jsonrpc": "2.0", "id": 91, "method": "ghostwright/stats"}'
    client.send_bytes(b"\xff" * size + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert (await client.answer(91))["result"]["phase"]
    assert (await client.answer(None))["error"]["code"] == -32700
    await assert_alive(client)


async def test_a_body_with_the_header_of_a_huge_one_is_skipped(client: RawClient) -> None:
    client.send_bytes(b"Content-Length: 999999999999\r\n\r\n" + b'{"jsonrpc": "2.0"}\n' * 1000)
    assert (await client.answer(None))["error"]["code"] == -32700
    await assert_alive(client)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"jsonrpc": "2.0", "id": 91, "method": "no/such"}, -32601),
        ({"jsonrpc": "2.0", "id": 91, "method": "$/no"}, -32601),
        ({"jsonrpc": "2.0", "id": 91, "method": INLINE}, -32602),
        ({"jsonrpc": "2.0", "id": 91, "method": INLINE, "params": [1]}, -32602),
        ({"jsonrpc": "2.0", "id": 91, "method": INLINE, "params": {"position": 3}}, -32602),
        ({"jsonrpc": "2.0", "id": 91, "method": "initialize", "params": {}}, -32600),
        ({"jsonrpc": "2.0", "id": 91, "method": 5}, -32600),
        ({"jsonrpc": "1.0", "id": 91, "method": INLINE}, -32600),
        ({"id": 91, "method": INLINE}, -32600),
        ({"jsonrpc": "2.0", "id": 91}, -32600),
    ],
)
async def test_a_bad_request_is_answered(client: RawClient, message: Any, code: int) -> None:
    client.send(message)
    assert (await client.answer(91))["error"]["code"] == code
    await assert_alive(client)


@pytest.mark.parametrize("bad_id", [None, True, 1.5, [], {}])
async def test_a_bad_id_is_answered_with_null(client: RawClient, bad_id: object) -> None:
    client.send({"jsonrpc": "2.0", "id": bad_id, "method": "ghostwright/stats"})
    assert (await client.answer(None))["error"]["code"] == -32600
    await assert_alive(client)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "no/such", "params": {}},
        {"jsonrpc": "2.0", "method": "textDocument/didOpen"},
        {"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": 5}},
        {
            "jsonrpc": "2.0",
            "method": "textDocument/didChange",
            "params": {
                "textDocument": {"uri": "file:///unknown.py", "version": 1},
                "contentChanges": [{"text": ""}],
            },
        },
        {"jsonrpc": "2.0", "method": "$/cancelRequest"},
        {"jsonrpc": "2.0", "id": 4711, "result": None},
        {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}},
        {"jsonrpc": "2.0", "id": "x", "error": 7},
    ],
)
async def test_what_cannot_be_answered_is_not(client: RawClient, message: object) -> None:
    client.send(message)
    await assert_alive(client)
    assert all("error" not in answer for answer in client.answers)
    assert client.noted("window/showMessage") == []


async def test_invalid_parameters_are_named(client: RawClient) -> None:
    number = client.ask(INLINE, {"textDocument": {"uri": URI}, "position": {"line": 1}})
    message = (await client.answer(number))["error"]["message"]
    assert "$.params.position.character" in message
    assert "$.params.context" in message


async def test_a_nested_jsonrpc_key_is_data(connect: Connect) -> None:
    client = await connect()
    await client.initialize(initializationOptions={"completion": {"jsonrpc": "2.0", "id": 1}})
    [warning] = [
        (await client.note("window/showMessage"))["params"]["message"],
    ]
    assert "ghostwright.completion.jsonrpc" in warning


async def test_requests_before_initialize_are_refused(connect: Connect) -> None:
    client = await connect()
    client.open(URI, "x\n")
    number = client.ask(INLINE, inline_params(URI, 0, 0))
    assert (await client.answer(number))["error"]["code"] == -32002
    await client.start()
    await assert_alive(client)


async def test_a_bad_initialize_can_be_repeated(connect: Connect) -> None:
    client = await connect()
    number = client.ask("initialize", {"capabilities": 5})
    assert (await client.answer(number))["error"]["code"] == -32602
    await client.start()
    await assert_alive(client)


async def test_requests_after_shutdown_are_refused(client: RawClient) -> None:
    assert await client.request("shutdown") is None
    number = client.ask(INLINE, inline_params(URI, 0, 0))
    assert (await client.answer(number))["error"]["code"] == -32600
    client.notify("exit")
    await client.until_end()


async def test_a_message_in_pieces_is_put_together(client: RawClient) -> None:
    for byte in b"content-length : 59\r\nX-Other: 1\r\n\r\n":
        client.send_bytes(bytes([byte]))
    client.send_bytes(b'{"jsonrpc": "2.0", "id": 91, "method": "ghostwright/stats"}')
    assert (await client.answer(91))["result"]["phase"]


async def test_one_clients_garbage_is_not_the_others(connect: Connect) -> None:
    good, bad = await connect(), await connect()
    await good.start()
    bad.send_bytes(b"\x00\xff" * 5000)
    bad.send({"jsonrpc": "2.0", "id": 1, "method": "nope"})
    assert (await bad.answer(1))["error"]["code"] == -32002
    await assert_alive(good)


async def test_half_a_surrogate_pair_does_no_harm(client: RawClient, world: World) -> None:
    client.open(URI, "s = '\ud83d'\n")
    assert (await client.request(INLINE, inline_params(URI, 0, 4)))["items"]
    assert world.runs[0][0].text == "s = '\ufffd'\n"
    start = {"line": 0, "character": 6}
    client.change(URI, 2, {"range": {"start": start, "end": start}, "text": "\ude0b"})
    await client.request(INLINE, inline_params(URI, 0, 4))
    assert world.runs[1][0].text == "s = '\U0001f60b'\n"
