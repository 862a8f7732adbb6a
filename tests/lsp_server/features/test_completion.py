"""The popup's items over a real connection."""

from __future__ import annotations

from typing import Any

from tests.lsp_server.conftest import Connect
from tests.support.lsp_client import RawClient, position, span
from tests.support.server_stubs import World

URI = "file:///project/a.py"
METHOD = "textDocument/completion"


async def complete(client: RawClient, line: int, character: int, kind: int | None = None) -> Any:
    params: dict[str, Any] = {
        "textDocument": {"uri": URI},
        "position": position(line, character),
    }
    if kind is not None:
        params["context"] = {"triggerKind": kind}
    return await client.request(METHOD, params)


async def test_the_item_extends_the_word_at_the_cursor(client: RawClient, world: World) -> None:
    world.engine.texts = ("bar()\n    more()",)
    client.open(URI, "  x = foo\n")
    answer = await complete(client, 0, 9)
    [item] = answer["items"]
    assert answer["isIncomplete"] is True
    assert item["label"] == "foobar()…"
    assert item["filterText"] == "foobar()"
    assert item["textEdit"] == {"range": span(0, 6, 0, 9), "newText": "foobar()\n    more()"}
    assert item["detail"] == "Ghostwright"
    assert item["preselect"] is False
    assert item["insertTextFormat"] == 1
    assert "insertTextMode" not in item
    assert item["documentation"]["kind"] == "plaintext"
    assert item["documentation"]["value"].endswith("passed Pyright")


async def test_client_abilities_are_used(connect: Connect, world: World) -> None:
    world.engine.texts = ("'```'",)
    client = await connect()
    item_abilities = {
        "insertTextModeSupport": {"valueSet": [1, 2]},
        "documentationFormat": ["markdown", "plaintext"],
    }
    await client.start(
        capabilities={"textDocument": {"completion": {"completionItem": item_abilities}}}
    )
    client.open(URI, "x = ")
    [item] = (await complete(client, 0, 4))["items"]
    assert item["insertTextMode"] == 1
    assert item["documentation"]["kind"] == "markdown"
    assert item["documentation"]["value"].startswith("````python\n'```'\n````\n")


async def test_every_label_is_short_and_not_empty(client: RawClient, world: World) -> None:
    world.engine.texts = ("\n\n    " + "y" * 200,)
    client.open(URI, "if x:")
    [item] = (await complete(client, 0, 5))["items"]
    assert 0 < len(item["label"]) <= 61
    assert "\n" not in item["label"]


async def test_typing_is_debounced_and_a_bare_request_is_not(
    client: RawClient, world: World
) -> None:
    client.open(URI, "x")
    await complete(client, 0, 1)
    assert world.pauses == []
    world.resume.set()
    for kind in (1, 2, 3):
        await complete(client, 0, 1, kind)
    assert len(world.pauses) == 3


async def test_a_replaced_bracket_lies_in_the_range(client: RawClient, world: World) -> None:
    world.replace_after = 1
    client.open(URI, "f(\u00e9\U0001f600)")
    [item] = (await complete(client, 0, 5))["items"]
    assert item["textEdit"]["range"] == span(0, 5, 0, 6)


async def test_nothing_is_an_empty_list(client: RawClient) -> None:
    assert (await complete(client, 0, 0))["items"] == []
