"""The real server as a child process, for tests of its life cycle."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.lsp_client import RawClient

REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "lsp_server", "serve")


@dataclass
class ServerProcess:
    """A running server. Owned by a test.

    Attributes:
        process: the child.
        log: lines it wrote to stderr so far.
        port: where it listens, in TCP mode.
    """

    process: asyncio.subprocess.Process
    log: list[str] = field(default_factory=list[str])
    port: int = 0
    _log_ended: bool = False
    _logged: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_logged(self, holds: Callable[[str], bool]) -> str:
        """The first line of stderr for which `holds`, once it is there."""
        while True:
            for line in self.log:
                if holds(line):
                    return line
            if self._log_ended:
                raise AssertionError("the server ended:\n" + "\n".join(self.log))
            self._logged.clear()
            await self._logged.wait()

    def children(self) -> list[psutil.Process]:
        """Its child processes, Pyright among them."""
        return psutil.Process(self.process.pid).children(recursive=True)

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[RawClient, None]:
        """A client over the server's stdio, or a new one over TCP."""
        if self.port:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        else:
            assert self.process.stdout is not None
            assert self.process.stdin is not None
            reader, writer = self.process.stdout, self.process.stdin
        client = RawClient(reader, writer)
        try:
            yield client
        finally:
            await client.aclose()
            if self.port:
                writer.close()

    async def read_log(self) -> None:
        """Collect stderr until its end."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.log.append(line.decode(errors="replace").rstrip())
            self._logged.set()
        self._log_ended = True
        self._logged.set()


@asynccontextmanager
async def running_server(
    *arguments: str, environment: dict[str, str] | None = None
) -> AsyncGenerator[ServerProcess, None]:
    """Start `ghostwright serve` with `arguments`; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
        env=os.environ | (environment or {}),
        limit=2**24,
    )
    server = ServerProcess(process)
    logging = asyncio.create_task(server.read_log())
    try:
        if "--tcp" in arguments:
            line = await server.until_logged(lambda line: line.startswith("listening on "))
            server.port = int(line.rpartition(":")[2])
        yield server
    finally:
        family = server.children() if process.returncode is None else []
        if process.returncode is None:
            process.kill()
        await process.wait()
        for child in family:
            if child.is_running():
                child.kill()
        await logging
        for stream in (process.stdout, process.stdin):  # or asyncio finds them unclosed
            if isinstance(stream, asyncio.StreamReader):
                await stream.read()
            elif stream is not None:
                stream.close()


async def until_gone(*processes: psutil.Process) -> None:
    """Wait until the processes have ended; whose child they are does not matter."""
    await asyncio.to_thread(_wait_all, processes)


def _wait_all(processes: tuple[psutil.Process, ...]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive, f"still running: {alive}"
