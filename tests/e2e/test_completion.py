"""The main job: the real model, the real Pyright, a real process, over stdio and TCP."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lsp_client import RawClient, inline_params
from tests.support.server_process import ServerProcess, running_server

pytestmark = pytest.mark.model

INLINE = "textDocument/inlineCompletion"
SHAPES = '''"""Shapes."""

from dataclasses import dataclass


@dataclass
class Rectangle:
    """A rectangle."""

    width: float
    height: float

    def area(self) -> float:
        """Width times height."""
        return self.width * self.height
'''
MAIN = '''from shapes import Rectangle


def scaled(rectangle: Rectangle, factor: float) -> Rectangle:
    """The rectangle, `factor` times as wide and as high."""
    return '''
OTHER = '''from shapes import Rectangle


def square(side: float) -> Rectangle:
    """A square as a rectangle."""
    return '''
CAPABILITIES = {
    "window": {"workDoneProgress": True},
    "workspace": {"configuration": True},
    "textDocument": {"inlineCompletion": {}},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project whose modules use each other."""
    for name, text in (("shapes.py", SHAPES), ("main.py", MAIN), ("other.py", OTHER)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(params=["stdio", "tcp"])
async def server(
    request: pytest.FixtureRequest, real_model: Path
) -> AsyncGenerator[ServerProcess, None]:
    """A server over each transport."""
    arguments = ["--stdio"] if request.param == "stdio" else ["--tcp", "127.0.0.1:0"]
    async with running_server(*arguments) as server:
        yield server


@pytest.fixture
async def tcp_server(real_model: Path) -> AsyncGenerator[ServerProcess, None]:
    """A server for several clients."""
    async with running_server("--tcp", "127.0.0.1:0") as server:
        yield server


async def start(client: RawClient, project: Path, **completion: Any) -> None:
    """Shake hands and wait until the model is ready."""
    await shake_hands(client, project, **completion)
    await client.request("ghostwright/ready")


async def shake_hands(client: RawClient, project: Path, **completion: Any) -> None:
    """Initialize, with time limits that a crowded machine does not reach."""
    client.configuration = {
        "ghostwright": {
            "completion": {"timeBudgetMs": 120_000, **completion},
            "verification": {"timeoutMs": 60_000},
        }
    }
    await client.initialize(rootUri=project.as_uri(), capabilities=CAPABILITIES)


def open_file(client: RawClient, path: Path) -> str:
    client.open(path.as_uri(), path.read_text())
    return path.as_uri()


def ask_at_end(client: RawClient, path: Path, kind: int = 1) -> int:
    lines = path.read_text().split("\n")
    params = inline_params(path.as_uri(), len(lines) - 1, len(lines[-1]), kind)
    return client.ask(INLINE, params)


async def texts(client: RawClient, number: int) -> list[str]:
    answer = await client.answer(number)
    return [item["insertText"] for item in answer["result"]["items"]]


async def test_a_completion_is_shown_and_checked(server: ServerProcess, project: Path) -> None:
    async with server.client() as client:
        await start(client, project)
        open_file(client, project / "main.py")
        found = await texts(client, ask_at_end(client, project / "main.py"))
        assert found
        assert all(text.startswith("    return ") for text in found)
        assert any("Rectangle(" in text for text in found)
        line = await server.until_logged(lambda line: f"{INLINE} main.py shown" in line)
        assert "generated" in line
        assert any("pyright" in " ".join(child.cmdline()) for child in server.children())


async def test_a_client_that_disconnects_does_not_disturb_the_other(
    tcp_server: ServerProcess, project: Path
) -> None:
    async with tcp_server.client() as stays, tcp_server.client() as leaves:
        for client, name in ((stays, "main.py"), (leaves, "other.py")):
            await start(client, project, maxTokens=48)
            open_file(client, project / name)
        first = ask_at_end(stays, project / "main.py")
        second = ask_at_end(leaves, project / "other.py")
        assert await texts(leaves, second)
        assert await texts(stays, first)
        ask_at_end(leaves, project / "other.py")
        third = ask_at_end(stays, project / "main.py")
        leaves.abort()
        assert await texts(stays, third)
        [child] = [c for c in tcp_server.children() if "langserver" in " ".join(c.cmdline())]
        assert child.is_running()


async def test_a_cancelled_request_stops_decoding_within_one_step(
    server: ServerProcess, project: Path
) -> None:
    async with server.client() as client:
        await start(client, project, maxTokens=512, invokedCandidates=8)
        path = project / "main.py"
        path.write_text(MAIN + "1\n\n\ndef parse_all(text: str) -> list[str]:\n    ")
        open_file(client, path)
        before = (await client.request("ghostwright/stats"))["engine"]
        number = ask_at_end(client, path)
        while True:  # in the middle: it has decoded something
            engine = (await client.request("ghostwright/stats"))["engine"]
            if engine["decode_steps"] > before["decode_steps"] and engine["running"]:
                break
        client.notify("$/cancelRequest", {"id": number})
        assert (await client.answer(number))["error"]["code"] == -32800
        while (engine := (await client.request("ghostwright/stats"))["engine"])["running"]:
            pass
        assert engine["cancelled"] == before["cancelled"] + 1
        assert engine["steps_after_cancel"] - before["steps_after_cancel"] <= 1
        assert engine["generated_tokens"] - before["generated_tokens"] < 8 * 512


async def test_a_killed_pyright_is_brought_back(server: ServerProcess, project: Path) -> None:
    async with server.client() as client:
        await start(client, project)
        path = project / "main.py"
        open_file(client, path)
        assert await texts(client, ask_at_end(client, path))
        [checker] = [c for c in server.children() if "langserver" in " ".join(c.cmdline())]
        number = ask_at_end(client, path)
        checker.send_signal(signal.SIGKILL)
        assert "result" in await client.answer(number)
        assert await texts(client, ask_at_end(client, path))
        [successor] = [c for c in server.children() if "langserver" in " ".join(c.cmdline())]
        assert successor.pid != checker.pid
        warnings = client.noted("window/showMessage")
        assert len(warnings) <= 1
        assert all("Pyright" in warning["message"] for warning in warnings)


async def test_loading_is_shown_and_requests_meanwhile_are_empty(
    real_model: Path, project: Path
) -> None:
    async with running_server() as server, server.client() as client:
        await shake_hands(client, project)
        open_file(client, project / "main.py")
        assert await texts(client, ask_at_end(client, project / "main.py")) == []
        await client.until(
            lambda: any(p["value"]["kind"] == "end" for p in client.noted("$/progress"))
        )
        kinds = [p["value"]["kind"] for p in client.noted("$/progress")]
        assert kinds[0] == "begin"
        assert kinds[-1] == "end"
        assert await texts(client, ask_at_end(client, project / "main.py"))
        assert client.noted("window/showMessage") == []
