"""Every limit of the sandbox, each by a program that would do harm without it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lsp_server.evaluation.sandbox import Limits, Verdict, run_program

LIMITS = Limits(seconds=2, memory_bytes=512 << 20, processes=16)


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("x = 1\nassert x == 1\n", Verdict.PASSED),
        ("import json, math, collections, typing, re\n", Verdict.PASSED),
        ("print('noise')\nimport sys; print('more', file=sys.stderr)\n", Verdict.PASSED),
        ("while True: print('x' * 10000)\n", Verdict.TIME),
        ("assert False\n", Verdict.FAILED),
        ("raise SystemExit(0)\n", Verdict.FAILED),
        ("import sys; sys.exit(0)\n", Verdict.FAILED),
        ("import os; os._exit(0)\n", Verdict.FAILED),
        ("raise KeyboardInterrupt\n", Verdict.FAILED),
        ("def f(:\n", Verdict.SYNTAX),
        ("x = '\\0'\n\0", Verdict.SYNTAX),
        ("while True: pass\n", Verdict.TIME),
        ("import time; time.sleep(100)\n", Verdict.TIME),
        ("x = bytearray(1 << 40)\n", Verdict.MEMORY),
        ("x = []\nwhile True: x.append(bytearray(1 << 24))\n", Verdict.MEMORY),
        ("assert input() == 'y'\n", Verdict.FAILED),
        ("class A:\n    def __del__(self): 1 / 0\na = A()\n", Verdict.PASSED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n", Verdict.FAILED),
        ("import atexit, os; atexit.register(os._exit, 3)\n", Verdict.PASSED),
    ],
)
def test_how_a_program_ends(program: str, verdict: Verdict) -> None:
    assert run_program(program, LIMITS) is verdict


def test_it_writes_no_file(tmp_path: Path) -> None:
    target = tmp_path / "written"
    assert run_program(f"open({str(target)!r}, 'w').write('x' * 9999)\n", LIMITS) is Verdict.FAILED
    assert not target.exists() or target.stat().st_size == 0


def test_it_sees_no_secrets() -> None:
    os.environ["GHOSTWRIGHT_TEST_SECRET"] = "s"
    try:
        program = "import os\nassert 'GHOSTWRIGHT_TEST_SECRET' not in os.environ\n"
        assert run_program(program, LIMITS) is Verdict.PASSED
    finally:
        del os.environ["GHOSTWRIGHT_TEST_SECRET"]


def test_it_cannot_kill_who_started_it() -> None:
    program = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"
    run_program(program, LIMITS)  # this process is still here to say so


def test_what_it_starts_ends_with_it(tmp_path: Path) -> None:
    """A fork bomb, bounded so that a broken sandbox fails the test and not the machine."""
    program = (
        "import os, time\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
    )
    before = set(_sleepers())
    assert run_program(program, LIMITS) is Verdict.PASSED
    deadline = time.monotonic() + 10
    while (left := set(_sleepers()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _sleepers() -> list[int]:
    """Processes that run the sandbox's launcher."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"launcher.py" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_it_has_no_network() -> None:
    program = (
        "import socket\n"
        "s = socket.socket()\n"
        "s.settimeout(1)\n"
        "try:\n"
        "    s.connect(('127.0.0.1', PORT))\n"
        "except OSError:\n"
        "    pass\n"
        "else:\n"
        "    raise SystemExit('connected')\n"
    )
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run_program(program.replace("PORT", str(port)), LIMITS) is Verdict.PASSED
