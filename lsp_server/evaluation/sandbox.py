"""Running code that nobody has read: a process of its own with little to spend.

The program runs in a fresh interpreter in isolated mode, in an empty folder, with an empty
environment and nothing on its standard streams; it has so many seconds, so much memory, may
write no file, and, where Linux lets an ordinary user have namespaces, sees neither the network
nor any process but its own. It has passed only if it reached its last line: then, and not
before, the process says a word that was made up for this run.

This stops accidents and plain mischief. It is no prison for code that knows it is in one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launcher.py")
_GRACE_SECONDS = 1.0  # beyond the CPU limit, for a program that sleeps


class Verdict(StrEnum):
    """How a program ended."""

    PASSED = "passed"
    FAILED = "failed"  # an exception, or an early exit
    SYNTAX = "syntax"  # it does not parse
    TIME = "time"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may spend.

    Attributes:
        seconds: of processor time, and a second more of the clock's.
        memory_bytes: of address space.
        processes: that it may have at once, where it runs as a user of its own.
    """

    seconds: int = 5
    memory_bytes: int = 1 << 30
    processes: int = 32


def run_program(program: str, limits: Limits) -> Verdict:
    """Run a program to its end or its limit. Blocks; kills all it started."""
    try:
        compile(program, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Verdict.SYNTAX
    word = secrets.token_hex(16)
    # SIGKILL to the sandbox's processes can leave files in its folder for a moment.
    with tempfile.TemporaryDirectory(prefix="ghostwright-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [
                sys.executable, "-I", "-S", str(_LAUNCHER),
                str(limits.seconds), str(limits.memory_bytes), str(limits.processes),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            start_new_session=True,
        )  # fmt: skip
        try:
            answer, _ = process.communicate(
                f"{word}\n{program}".encode(), timeout=limits.seconds + _GRACE_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Verdict.TIME
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.communicate()
    said = answer.decode("utf-8", "replace").split()
    if word in said:
        return Verdict.PASSED
    if said[-1:] == ["memory"]:
        return Verdict.MEMORY
    return Verdict.TIME if said[-1:] == ["time"] else Verdict.FAILED
