"""Restarts and their pauses, with hand-made children in place of processes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from lsp_server.errors import CheckerUnavailable
from lsp_server.verification.pyright import PyrightProcess
from lsp_server.verification.supervisor import RESTART_DELAYS, PyrightSupervisor


class FakeChild:
    """A child that lives until it is killed."""

    exit_code = -9

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.gone = asyncio.Event()
        self.closed = False

    @property
    def alive(self) -> bool:
        return not self.gone.is_set()

    async def wait_gone(self) -> None:
        await self.gone.wait()

    def kill(self) -> None:
        self.gone.set()

    async def aclose(self) -> None:
        self.gone.set()
        self.closed = True


class Scene:
    """A supervisor, its children so far, its pauses so far, and what it reported."""

    def __init__(self) -> None:
        self.children: list[FakeChild] = []
        self.failures: list[CheckerUnavailable] = []  # of the next launches
        self.pauses: list[float] = []
        self.pausing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.reported: list[str] = []
        self.supervisor = PyrightSupervisor(self.launch, self.reported.append, pause=self.pause)

    async def launch(self) -> PyrightProcess:
        if self.failures:
            raise self.failures.pop(0)
        self.children.append(FakeChild(len(self.children)))
        return cast(PyrightProcess, self.children[-1])

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.pausing.set()
        await self.go_on.wait()


async def test_the_child_is_started_once_and_kept() -> None:
    scene = Scene()
    first, second = await asyncio.gather(scene.supervisor.child(), scene.supervisor.child())
    assert first is second
    assert scene.supervisor.pid == 0
    await scene.supervisor.aclose()
    assert scene.children[0].closed
    assert scene.reported == []


async def test_restarts_are_ever_slower_and_an_outage_is_reported_once() -> None:
    scene = Scene()
    for number in range(10):
        child = await scene.supervisor.child()
        assert child.pid == number
        child.kill()
    await scene.supervisor.child()
    assert scene.pauses == [*RESTART_DELAYS, 30.0, 30.0]
    assert scene.reported == ["Pyright stopped (exit code -9)"]
    assert all(child.closed for child in scene.children[:-1])
    await scene.supervisor.aclose()


async def test_an_answer_ends_the_outage() -> None:
    scene = Scene()
    for _ in range(2):
        (await scene.supervisor.child()).kill()
        await scene.supervisor.child()
        scene.supervisor.answered()
    assert len(scene.reported) == 2
    await scene.supervisor.aclose()


async def test_a_child_waited_for_while_pausing_comes_when_the_pause_ends() -> None:
    scene = Scene()
    scene.go_on.clear()
    (await scene.supervisor.child()).kill()
    asking = asyncio.create_task(scene.supervisor.child())
    await scene.pausing.wait()
    assert not asking.done()
    scene.go_on.set()
    assert (await asking).pid == 1
    await scene.supervisor.aclose()


async def test_a_failed_start_is_said_at_once_until_the_next_attempt() -> None:
    scene = Scene()
    scene.failures.append(CheckerUnavailable("not installed", "install it"))
    scene.go_on.clear()
    for _ in range(2):
        with pytest.raises(CheckerUnavailable, match="not installed"):
            await scene.supervisor.child()
    scene.go_on.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (await scene.supervisor.child()).alive
    assert scene.reported == ["not installed (install it)"]
    await scene.supervisor.aclose()


async def test_a_discarded_child_is_replaced_and_the_reason_reported() -> None:
    scene = Scene()
    child = await scene.supervisor.child()
    scene.supervisor.discard(child, "hung")
    assert (await scene.supervisor.child()).pid == 1
    assert scene.reported == ["hung"]
    await scene.supervisor.aclose()


async def test_closing_releases_whoever_waits() -> None:
    scene = Scene()
    scene.go_on.clear()
    (await scene.supervisor.child()).kill()
    asking = asyncio.create_task(scene.supervisor.child())
    await asyncio.sleep(0)
    await scene.supervisor.aclose()
    with pytest.raises(CheckerUnavailable, match="closed"):
        await asking
    with pytest.raises(CheckerUnavailable, match="closed"):
        await scene.supervisor.child()
    await scene.supervisor.aclose()
