"""Noticing the end of another process, with and without a handle to it."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from lsp_server.parent import until_process_ends


@pytest.mark.parametrize("has_handles", [True, False])
async def test_the_end_of_a_process_is_noticed(
    monkeypatch: pytest.MonkeyPatch, has_handles: bool
) -> None:
    if not has_handles:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.setattr("lsp_server.parent._POLL_SECONDS", 0.01)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
    )
    watching = asyncio.create_task(until_process_ends(process.pid))
    assert process.stdin is not None
    process.stdin.write(b"\n")
    await watching
    await process.wait()
    process.stdin.close()


@pytest.mark.parametrize("pid", [2**30, 2**70, -1])
async def test_a_process_that_is_not_here_is_not_waited_out(pid: int) -> None:
    watching = asyncio.create_task(until_process_ends(pid))
    await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()
