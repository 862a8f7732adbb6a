"""Settings, loading, outages and folders, as a client meets them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine import ModelNotFound
from lsp_server.app import App
from lsp_server.verification.verifier import Verdict, VerdictKind
from tests.lsp_server.conftest import Connect
from tests.support.lsp_client import RawClient, inline_params
from tests.support.server_stubs import World

INLINE = "textDocument/inlineCompletion"
ASKABLE = {"workspace": {"configuration": True}}


def uri_in(folder: Path) -> str:
    return (folder / "a.py").as_uri()


async def items(client: RawClient, uri: str = "file:///project/a.py") -> list[Any]:
    return (await client.request(INLINE, inline_params(uri, 0, 0)))["items"]


async def ready_items(client: RawClient, uri: str = "file:///project/a.py") -> list[Any]:
    """The items once the model is loaded, which takes a turn of the loop even here."""
    await client.request("ghostwright/ready")
    return await items(client, uri)


def shown(client: RawClient) -> list[str]:
    return [params["message"] for params in client.noted("window/showMessage")]


async def test_requests_while_loading_are_empty(connect: Connect, world: World) -> None:
    world.loading = asyncio.Event()
    client = await connect()
    await client.initialize()
    client.open("file:///project/a.py", "x\n")
    assert await items(client) == []
    assert (await client.request("ghostwright/stats"))["outcomes"] == {"model_loading": 1}
    world.loading.set()
    assert await client.request("ghostwright/ready") == {"phase": "ready", "error": None}
    assert await ready_items(client)


async def test_loading_is_shown_as_progress(connect: Connect, world: World) -> None:
    world.loading = asyncio.Event()
    client = await connect()
    await client.initialize(capabilities={"window": {"workDoneProgress": True}})
    await client.until(lambda: bool(client.noted("$/progress")))
    assert client.requests[0]["method"] == "window/workDoneProgress/create"
    token = client.requests[0]["params"]["token"]
    world.loading.set()
    await client.until(
        lambda: any(each["value"]["kind"] == "end" for each in client.noted("$/progress"))
    )
    reports = client.noted("$/progress")
    assert {each["token"] for each in reports} == {token}
    assert reports[0]["value"]["kind"] == "begin"
    assert any(each["value"].get("percentage") == 50 for each in reports)


async def test_a_missing_model_is_told_once_and_looked_for_again(
    connect: Connect, world: World
) -> None:
    world.load_error = ModelNotFound("no model x", "ghostwright model pull x")
    client = await connect()
    await client.initialize()
    ready = await client.request("ghostwright/ready")
    assert ready["phase"] == "failed"
    client.open("file:///project/a.py", "x\n")
    assert await items(client) == []
    assert await items(client) == []
    assert shown(client) == ["Ghostwright: no model x (ghostwright model pull x)"]
    world.load_error = None
    client.notify("workspace/didChangeConfiguration", {"settings": None})
    await client.until(lambda: True)
    while (await client.request("ghostwright/ready"))["phase"] != "ready":
        pass
    assert await ready_items(client)


async def test_a_broken_loader_is_a_failed_load(connect: Connect, world: World) -> None:
    world.load_error = RuntimeError("bug")
    client = await connect()
    await client.initialize()
    assert "bug" in (await client.request("ghostwright/ready"))["error"]


async def test_one_engine_serves_all(connect: Connect, world: World) -> None:
    for _ in range(3):
        client = await connect()
        await client.initialize()
        await client.request("ghostwright/ready")
    assert len(world.loads) == 1


async def test_disabled_means_no_model(connect: Connect, world: World) -> None:
    client = await connect()
    await client.initialize(initializationOptions={"enabled": False})
    assert (await client.request("ghostwright/ready"))["phase"] == "idle"
    client.open("file:///project/a.py", "x\n")
    assert await items(client) == []
    assert world.loads == []
    assert world.verifiers == []


async def test_settings_come_from_all_sources(
    connect: Connect, world: World, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.ghostwright.model]\nname = 'project'\ncontext-tokens = 200\nthreads = 3\n"
    )
    client = await connect()
    client.configuration = {"ghostwright": {"model": {"threads": 1}}}
    await client.initialize(
        rootUri=tmp_path.as_uri(),
        capabilities=ASKABLE,
        initializationOptions={"model": {"name": "editor", "threads": 2}},
    )
    await client.request("ghostwright/ready")
    [config] = world.loads
    assert (config.model, config.threads, config.context_tokens) == ("editor", 1, 264)


async def test_mistakes_are_told_once_and_the_rest_applies(connect: Connect, world: World) -> None:
    client = await connect()
    client.configuration = {
        "ghostwright": {"completion": {"maxTokns": 8}, "model": {"name": "x", "threads": -1}}
    }
    await client.initialize(capabilities=ASKABLE)
    await client.request("ghostwright/ready")
    [message] = shown(client)
    assert "ghostwright.completion.maxTokns (did you mean maxTokens?)" in message
    assert "ghostwright.model.threads cannot be -1" in message
    assert world.loads[0].model == "x"
    client.notify("workspace/didChangeConfiguration", {"settings": None})
    asked = [r for r in client.requests if r["method"] == "workspace/configuration"]
    await client.until(
        lambda: (
            len([r for r in client.requests if r["method"] == "workspace/configuration"])
            > len(asked)
        )
    )
    await client.request("ghostwright/stats")
    assert len(shown(client)) == 1


async def test_pushed_settings_apply_where_nothing_can_be_asked(
    client: RawClient, world: World
) -> None:
    client.open("file:///project/a.py", "x\n")
    assert await ready_items(client)
    client.notify(
        "workspace/didChangeConfiguration",
        {"settings": {"ghostwright": {"completion": {"max_tokens": "many"}}}},
    )
    await client.note("window/showMessage")
    client.notify(
        "workspace/didChangeConfiguration", {"settings": {"ghostwright": {"enabled": False}}}
    )
    assert await items(client) == []  # not answered by the settings of before


async def test_another_timeout_reaches_the_running_checker(client: RawClient, world: World) -> None:
    client.open("file:///project/a.py", "x\n")
    assert await ready_items(client)
    client.notify(
        "workspace/didChangeConfiguration",
        {"settings": {"ghostwright": {"verification": {"timeoutMs": 1234}}}},
    )
    [verifier] = world.verifiers
    while verifier.timeout_ms != 1234:
        await client.request("ghostwright/stats")
    assert await ready_items(client)
    assert len(world.verifiers) == 1


@pytest.mark.parametrize("answer", [None, [], 7, "x", {"a": 1}, [None] * 9])
async def test_any_answer_about_settings_is_survived(
    connect: Connect, world: World, answer: object
) -> None:
    client = await connect()
    client.configuration = {"ghostwright": answer, "python": answer}
    await client.initialize(capabilities=ASKABLE)
    assert (await client.request("ghostwright/ready"))["phase"] == "ready"


async def test_the_editors_python_is_a_hint(connect: Connect, world: World, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    client = await connect()
    client.configuration = {
        "python": {
            "pythonPath": "python",
            "defaultInterpreterPath": "${workspaceFolder}/bin/python",
        }
    }
    await client.initialize(rootUri=tmp_path.as_uri(), capabilities=ASKABLE)
    client.open(uri_in(tmp_path), "x\n")
    assert await ready_items(client, uri_in(tmp_path))
    assert world.verifiers[0].key.interpreter == str(python)


async def test_each_folder_has_its_own_checker(
    connect: Connect, world: World, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    client = await connect()
    await client.initialize(
        workspaceFolders=[{"uri": each.as_uri(), "name": each.name} for each in folders]
    )
    for folder in (*folders, tmp_path):
        client.open(uri_in(folder), "x\n")
        assert await ready_items(client, uri_in(folder))
    client.open(folders[0].as_uri() + "/b.txt", "text\n", "plaintext")
    roots = {verifier.key.root: set(verifier.seen) for verifier in world.verifiers}
    assert roots == {
        folders[0]: {uri_in(folders[0]), uri_in(tmp_path)},
        folders[1]: {uri_in(folders[1])},
    }


async def test_changed_folders_move_documents(
    connect: Connect, world: World, tmp_path: Path
) -> None:
    client = await connect()
    await client.initialize(rootUri=tmp_path.as_uri())
    inner = tmp_path / "inner"
    client.open(uri_in(inner), "x\n")
    assert await ready_items(client, uri_in(inner))
    client.notify(
        "workspace/didChangeWorkspaceFolders",
        {"event": {"added": [{"uri": inner.as_uri(), "name": "inner"}], "removed": []}},
    )
    while len(world.verifiers) < 2:
        await client.request("ghostwright/stats")
    assert world.verifiers[1].key.root == inner
    assert set(world.verifiers[1].seen) == {uri_in(inner)}


async def test_the_checker_sees_edits_saves_and_closes(client: RawClient, world: World) -> None:
    uri = "file:///project/a.py"
    client.open(uri, "x\n")
    assert await ready_items(client)
    verifier = world.verifiers[0]
    client.change(uri, 2, {"text": "y\n"})
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    created = {"uri": "file:///project/new.py", "type": 1}
    client.notify("workspace/didChangeWatchedFiles", {"changes": [created]})
    await client.request("ghostwright/stats")
    assert verifier.seen == {uri: "y\n"}
    assert verifier.disk == [{uri: False}, {"file:///project/new.py": True}]
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    await client.request("ghostwright/stats")
    assert verifier.seen == {}


async def test_an_outage_is_told_once_until_it_is_over(client: RawClient, world: World) -> None:
    client.open("file:///project/a.py", "x\n")
    assert await ready_items(client)
    verifier = world.verifiers[0]
    for told in (1, 2):
        verifier.verdict = Verdict(VerdictKind.UNAVAILABLE, reason="Pyright stopped")
        verifier.on_status("Pyright stopped")
        assert await items(client) == []
        assert await items(client) == []
        assert len(shown(client)) == told
        verifier.verdict = None
        assert await ready_items(client)
    assert "Pyright stopped" in shown(client)[0]


async def test_a_closed_connection_leaves_nothing_behind(
    connect: Connect, world: World, app: App
) -> None:
    client = await connect()
    await client.initialize()
    client.open("file:///project/a.py", "x\n")
    assert await ready_items(client)
    assert world.verifiers[0].seen
    client.abort()
    await world.paused.wait()  # the checker's grace has begun
    assert world.verifiers[0].seen == {}
    world.resume.set()
    await world.verifiers[0].closed.wait()


async def test_settings_changes_register_where_the_client_wants(connect: Connect) -> None:
    client = await connect()
    dynamic = {"dynamicRegistration": True}
    await client.initialize(
        capabilities={
            "workspace": {"didChangeConfiguration": dynamic, "didChangeWatchedFiles": dynamic}
        }
    )
    await client.until(lambda: bool(client.requests))
    [request] = client.requests
    assert request["method"] == "client/registerCapability"
    assert [each["method"] for each in request["params"]["registrations"]] == [
        "workspace/didChangeConfiguration",
        "workspace/didChangeWatchedFiles",
    ]
