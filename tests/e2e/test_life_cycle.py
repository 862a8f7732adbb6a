"""Real processes: how a server starts and, above all, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from tests.support.lsp_client import RawClient, inline_params
from tests.support.server_process import (
    COMMAND,
    REPOSITORY,
    ServerProcess,
    running_server,
    until_gone,
)

URI = "file:///project/a.py"
INLINE = "textDocument/inlineCompletion"
NO_MODEL = {"completion": {"debounceMs": 0}, "model": {"name": "no-such-model"}}


@pytest.fixture
async def server() -> AsyncGenerator[ServerProcess, None]:
    """A server on stdio."""
    async with running_server("--stdio") as server:
        yield server


@pytest.fixture
async def tcp_server() -> AsyncGenerator[ServerProcess, None]:
    """A server on TCP whose model does not exist: it starts quickly."""
    async with running_server("--tcp", "127.0.0.1:0", "--model", "no-such-model") as server:
        yield server


async def shake_hands(client: RawClient, process_id: int | None = None) -> None:
    await client.initialize(processId=process_id, initializationOptions=NO_MODEL)


async def with_pyright(client: RawClient, server: ServerProcess) -> list[psutil.Process]:
    """Open a Python document and wait until Pyright runs; returns the children."""
    client.open(URI, "x\n")
    while not server.children():
        await client.request("ghostwright/stats")
    return server.children()


async def test_a_missing_model_is_told_once_and_requests_are_empty(server: ServerProcess) -> None:
    async with server.client() as client:
        await shake_hands(client)
        message = (await client.note("window/showMessage"))["params"]
        assert message["type"] == 1
        assert "no-such-model" in message["message"]
        client.open(URI, "x\n", "plaintext")
        for _ in range(2):
            answer = await client.request(INLINE, inline_params(URI, 0, 0))
            assert answer["items"] == []
        assert len(client.noted("window/showMessage")) == 1
        stats = await client.request("ghostwright/stats")
        assert stats["outcomes"] == {"model_unavailable": 2}


async def test_shutdown_and_exit_end_it_with_zero(server: ServerProcess) -> None:
    async with server.client() as client:
        await shake_hands(client)
        children = await with_pyright(client, server)
        await client.request("shutdown")
        client.notify("exit")
        assert await server.process.wait() == 0
        await until_gone(*children)


async def test_exit_without_shutdown_ends_it_with_one(server: ServerProcess) -> None:
    async with server.client() as client:
        await shake_hands(client)
        client.notify("exit")
        assert await server.process.wait() == 1


async def test_the_end_of_stdin_ends_it_and_pyright(server: ServerProcess) -> None:
    async with server.client() as client:
        await shake_hands(client)
        children = await with_pyright(client, server)
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert await server.process.wait() == 0
        await until_gone(*children)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_pyright(server: ServerProcess, number: int) -> None:
    async with server.client() as client:
        await shake_hands(client)
        children = await with_pyright(client, server)
        server.process.send_signal(number)
        assert await server.process.wait() == 0
        await until_gone(*children)


async def test_a_signal_before_any_message_ends_it(server: ServerProcess) -> None:
    async with server.client() as client:
        number = client.ask("nothing")
        await client.answer(number)
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0


async def test_the_death_of_the_clients_process_ends_it(server: ServerProcess) -> None:
    """The pipes stay open: only the process id can tell."""
    editor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
    )
    assert editor.stdin is not None
    async with server.client() as client:
        await shake_hands(client, editor.pid)
        children = await with_pyright(client, server)
        editor.kill()
        await server.process.wait()
        await until_gone(*children)
    await editor.wait()
    editor.stdin.close()


async def test_the_death_of_a_parent_that_shares_its_pipes_ends_it() -> None:
    """An editor is killed while another process still holds the server's pipes."""
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({list(COMMAND)!r})\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        "child.wait()\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stderr is not None
    child = psutil.Process(int(await parent.stderr.readline()))
    client = RawClient(parent.stdout, parent.stdin)
    await shake_hands(client, parent.pid)
    parent.kill()
    await until_gone(child)
    await client.until_end()
    await parent.stderr.read()
    parent.stdin.close()
    await parent.wait()


async def test_a_process_id_of_another_machine_is_ignored(server: ServerProcess) -> None:
    async with server.client() as client:
        await shake_hands(client, 2**30)
        await server.until_logged(lambda line: "is not on this machine" in line)
        assert (await client.request("ghostwright/stats"))["phase"]


async def test_a_model_being_loaded_does_not_hold_up_the_end(server: ServerProcess) -> None:
    async with server.client() as client:
        await client.initialize()
        await client.request("ghostwright/stats")
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0


async def test_tcp_serves_several_and_outlives_their_disconnects(
    tcp_server: ServerProcess,
) -> None:
    async with tcp_server.client() as stays:
        await shake_hands(stays)
        async with tcp_server.client() as leaves:
            await shake_hands(leaves)
            leaves.abort()
        async with tcp_server.client() as exits:
            await shake_hands(exits)
            exits.notify("exit")
            await exits.until_end()
        async with tcp_server.client() as babbles:
            babbles.send_bytes(b"Content-Length: 99999999999999999\r\n\r\n")
            assert (await babbles.answer(None))["error"]["code"] == -32700
        stays.open(URI, "x\n", "plaintext")
        assert await stays.request(INLINE, inline_params(URI, 0, 0)) == {"items": []}
        tcp_server.process.send_signal(signal.SIGTERM)
        await stays.until_end()
    assert await tcp_server.process.wait() == 0


async def test_garbage_on_stdin_is_answered_and_survived(server: ServerProcess) -> None:
    garbage = (
        b"Content-Length: 5\r\n\r\n{nope",
        b"Content-Length: 99999999999999999\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"\x00\xff" * 100_000,
    )
    async with server.client() as client:
        await shake_hands(client)
        for number, data in enumerate(garbage, 1):
            client.send_bytes(data)
            assert await client.request("ghostwright/stats")
            assert len([each for each in client.answers if each["id"] is None]) == number
        client.send({"jsonrpc": "2.0", "id": 99, "method": "no/such"})
        assert (await client.answer(99))["error"]["code"] == -32601


async def test_no_text_is_logged() -> None:
    async with running_server("--log-level", "debug") as server, server.client() as client:
        await shake_hands(client)
        await client.note("window/showMessage")
        client.open(URI, "secret_text = 1\n", "plaintext")
        await client.request(INLINE, inline_params(URI, 0, 0))
        client.notify("textDocument/didChange", {"textDocument": "secret_text"})
        client.send({"jsonrpc": "2.0", "id": 9, "method": INLINE, "params": ["secret_text"]})
        await client.answer(9)
        await client.request("shutdown")
        client.notify("exit")
        await server.process.wait()
        line = await server.until_logged(lambda line: "model_unavailable" in line)
        assert "textDocument/inlineCompletion a.py model_unavailable" in line
        assert not [line for line in server.log if "secret_text" in line]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run("--tcp", f"127.0.0.1:{port}")
    assert ended.returncode == 2
    assert f"another program listens at 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    "address", ["nonsense", "1.2.3.4", ":80", "a:b", "::1:80", "127.0.0.1:65536", "", "h:-1"]
)
def test_a_bad_address_is_one_clear_error(address: str) -> None:
    ended = run("--tcp", address)
    assert ended.returncode == 2
    assert "error: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_stdin_from_a_file_works(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(
        b'Content-Length: 40\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"nope"}'
    )
    with (tmp_path / "in").open("rb") as source:
        ended = subprocess.run(
            COMMAND, cwd=REPOSITORY, stdin=source, capture_output=True, check=False
        )
    assert ended.returncode == 0
    assert b"-32002" in ended.stdout


def test_it_listens_only_where_it_was_told() -> None:
    """Checked in this process: the listener's own sockets say where it is bound."""
    code = (
        "import asyncio, os, signal\n"
        "from lsp_server.address import Address\n"
        "from lsp_server.transport import serve_tcp\n"
        "import psutil\n"
        "def tell(bound):\n"
        "    found = psutil.Process().net_connections('tcp')\n"
        "    print([c.laddr.ip for c in found if c.status == 'LISTEN'], bound.port > 0)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "asyncio.run(serve_tcp(None, Address('localhost', 0), tell))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() in ("['127.0.0.1'] True", "['::1'] True"), ended.stderr
    assert os.name == "posix" or ended.returncode == 0
