"""Noticing the end of another process, with and without a handle to it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator

import pytest

from lsp_server.parent import ClientProcess


@pytest.fixture
async def process() -> AsyncGenerator[Process, None]:
    """A process that ends when something is written to it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
    )
    yield process
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()


@pytest.fixture(params=["with handles", "without handles"], autouse=True)
def handles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without handles":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.setattr("lsp_server.parent._POLL_SECONDS", 0.01)


async def test_the_end_of_a_process_is_noticed(process: Process) -> None:
    found = ClientProcess.find(process.pid)
    assert found is not None
    watching = asyncio.create_task(found.until_ended())
    assert process.stdin is not None
    process.stdin.write(b"\n")
    await watching
    found.close()
    found.close()


async def test_a_process_that_ends_before_anybody_waits_has_ended(process: Process) -> None:
    found = ClientProcess.find(process.pid)
    assert found is not None
    process.kill()
    await process.wait()
    await found.until_ended()
    found.close()


@pytest.mark.parametrize("pid", [2**30, 2**70, -1])
async def test_a_process_that_is_not_here_is_not_found(pid: int) -> None:
    assert ClientProcess.find(pid) is None
