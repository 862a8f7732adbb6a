"""Ghost text over a real connection."""

from __future__ import annotations

from typing import Any

import pytest

from lsp_server.completion.outcome import Trigger
from tests.lsp_server.conftest import Connect
from tests.support.lsp_client import RawClient, inline_params, position, span
from tests.support.server_stubs import World

URI = "file:///project/a.py"
METHOD = "textDocument/inlineCompletion"


async def items(client: RawClient, line: int, character: int, kind: int = 1) -> list[Any]:
    result = await client.request(METHOD, inline_params(URI, line, character, kind))
    return result["items"]


async def test_the_capability_is_advertised(connect: Connect) -> None:
    client = await connect()
    capabilities = await client.start()
    assert capabilities["inlineCompletionProvider"] is not None
    assert capabilities["completionProvider"]["triggerCharacters"] == ["."]
    assert capabilities["textDocumentSync"]["openClose"] is True
    assert capabilities["textDocumentSync"]["change"] == 2


async def test_the_item_replaces_the_line_up_to_the_cursor(client: RawClient) -> None:
    client.open(URI, "def f():\n    x\n")
    [item] = await items(client, 1, 5)
    assert item["insertText"] == item["filterText"] == "    xpass"
    assert item["range"] == span(1, 0, 1, 5)


async def test_the_range_covers_what_the_suggestion_replaces(
    client: RawClient, world: World
) -> None:
    world.replace_after = 1
    client.open(URI, "f()\n")
    [item] = await items(client, 0, 2)
    assert item["range"] == span(0, 0, 0, 3)
    assert item["insertText"] == "f(pass"


async def test_invoked_gives_all_and_automatic_gives_one(client: RawClient, world: World) -> None:
    world.repeat = 3
    world.resume.set()
    client.open(URI, "\n")
    assert len(await items(client, 0, 0, kind=1)) == 3
    assert len(await items(client, 0, 0, kind=2)) == 1
    assert [trigger for _, _, trigger in world.runs] == [Trigger.INVOKED, Trigger.AUTOMATIC]


async def test_only_automatic_requests_are_debounced(client: RawClient, world: World) -> None:
    client.open(URI, "\n")
    await items(client, 0, 0, kind=1)
    assert world.pauses == []
    number = client.ask(METHOD, inline_params(URI, 0, 0, kind=2))
    await world.paused.wait()
    assert world.pauses == [0.06]
    assert len(world.runs) == 1
    world.resume.set()
    assert (await client.answer(number))["result"]["items"]


async def test_nothing_is_an_empty_list(client: RawClient, world: World) -> None:
    client.open(URI, "\n")
    await items(client, 0, 0)
    world.verifiers[0].rejected = {"pass"}
    assert await items(client, 0, 0) == []


async def test_a_document_that_is_not_open_gets_an_empty_list(client: RawClient) -> None:
    assert await items(client, 0, 0) == []


async def test_a_broken_pipeline_gets_an_empty_list(client: RawClient, world: World) -> None:
    client.open(URI, "\n")
    world.failure = RuntimeError("broken")
    assert await items(client, 0, 0) == []
    world.failure = None
    assert await items(client, 0, 0)


async def test_text_comes_in_the_documents_line_ends(client: RawClient, world: World) -> None:
    world.engine.texts = ("x = 1\ny = 2",)
    client.open(URI, "a\r\nb\r\n")
    [item] = await items(client, 2, 0)
    assert item["insertText"] == "x = 1\r\ny = 2"


async def test_an_untitled_document_is_completed(client: RawClient) -> None:
    client.open("untitled:Untitled-1", "x = ")
    result = await client.request(METHOD, inline_params("untitled:Untitled-1", 0, 4))
    assert result["items"][0]["insertText"] == "x = pass"


@pytest.mark.parametrize(
    ("encoding", "cursor"), [("utf-16", 7), ("utf-8", 9), ("utf-32", 6), (None, 7)]
)
async def test_emoji_before_the_cursor(
    connect: Connect, world: World, encoding: str | None, cursor: int
) -> None:
    client = await connect()
    general = {"positionEncodings": ["utf-7", encoding]} if encoding else {}
    capabilities = await client.start(capabilities={"general": general})
    assert capabilities["positionEncoding"] == (encoding or "utf-16")
    client.open(URI, "s = '😋'")
    [item] = await items(client, 0, cursor)
    assert world.runs[0][1] == 6
    assert item["range"] == span(0, 0, 0, cursor)


@pytest.mark.parametrize(("line", "character"), [(99, 0), (0, 99), (2**31 - 1, 2**31 - 1)])
async def test_a_position_outside_is_clamped(client: RawClient, line: int, character: int) -> None:
    client.open(URI, "x = ")
    [item] = await items(client, line, character)
    assert item["range"] == span(0, 0, 0, 4)


async def test_the_popups_selected_item_is_extended(client: RawClient, world: World) -> None:
    client.open(URI, "os.pa\n")
    params = inline_params(URI, 0, 5)
    params["context"]["selectedCompletionInfo"] = {"range": span(0, 3, 0, 5), "text": "path"}
    result = await client.request(METHOD, params)
    document, offset, _ = world.runs[0]
    assert (document.text, offset) == ("os.path\n", 7)
    assert result["items"][0]["insertText"] == "pathpass"
    assert result["items"][0]["range"] == span(0, 3, 0, 5)
    world.replace_after = 1
    assert (await client.request(METHOD, params))["items"] == []


async def test_copilots_extra_fields_do_no_harm(client: RawClient) -> None:
    client.open(URI, "x = ")
    params = inline_params(URI, 0, 4) | {"formattingOptions": {"tabSize": 4}}
    params["textDocument"]["version"] = 1
    params["position"] = position(0, 4)
    assert (await client.request(METHOD, params))["items"]
