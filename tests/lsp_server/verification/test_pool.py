"""Who shares a checker, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.verification.pool import CheckerKey, VerifierPool
from tests.support.server_stubs import World

KEY = CheckerKey(Path("/project"), "", 1000)


def ignore(status: str) -> None:
    """Nobody listens."""


@pytest.fixture
async def pool(world: World) -> AsyncGenerator[VerifierPool, None]:
    parts = world.parts()
    pool = VerifierPool(parts.make_verifier, pause=parts.pause)
    yield pool
    await pool.aclose()
    assert all(verifier.closed.is_set() for verifier in world.verifiers)


async def test_the_same_workspace_shares_one(pool: VerifierPool, world: World) -> None:
    pool.acquire(KEY, ignore)
    pool.acquire(KEY, ignore)
    pool.acquire(CheckerKey(Path("/other"), "", 1000), ignore)
    pool.acquire(CheckerKey(Path("/project"), "/usr/bin/python", 1000), ignore)
    assert len(world.verifiers) == 3


async def test_it_ends_a_while_after_its_last_session(pool: VerifierPool, world: World) -> None:
    first, second = pool.acquire(KEY, ignore), pool.acquire(KEY, ignore)
    await first.aclose()
    await first.aclose()
    assert world.pauses == []
    await second.aclose()
    await world.paused.wait()
    assert not world.verifiers[0].closed.is_set()
    world.resume.set()
    await world.verifiers[0].closed.wait()
    pool.acquire(KEY, ignore)
    assert len(world.verifiers) == 2


async def test_a_session_that_comes_back_in_time_finds_it_warm(
    pool: VerifierPool, world: World
) -> None:
    await pool.acquire(KEY, ignore).aclose()
    await world.paused.wait()
    pool.acquire(KEY, ignore)
    world.resume.set()
    await asyncio.sleep(0)
    assert len(world.verifiers) == 1
    assert not world.verifiers[0].closed.is_set()


@pytest.mark.parametrize("held", [True, False])
async def test_another_timeout_keeps_the_warm_checker(
    pool: VerifierPool, world: World, held: bool
) -> None:
    first = pool.acquire(KEY, ignore)
    if not held:
        await first.aclose()
    pool.acquire(CheckerKey(KEY.root, KEY.interpreter, 5), ignore)
    [verifier] = world.verifiers
    assert verifier.timeout_ms == 5
    assert not verifier.closed.is_set()


async def test_a_document_is_forgotten_with_its_last_session(
    pool: VerifierPool, world: World
) -> None:
    first, second = pool.acquire(KEY, ignore), pool.acquire(KEY, ignore)
    first.update(DocumentSnapshot("file:///a.py", "first"))
    second.update(DocumentSnapshot("file:///a.py", "second"))
    await second.aclose()
    assert world.verifiers[0].seen == {"file:///a.py": "first"}
    first.forget("file:///a.py")
    assert world.verifiers[0].seen == {}


async def test_every_session_hears_of_an_outage(pool: VerifierPool, world: World) -> None:
    heard: list[str] = []
    pool.acquire(KEY, heard.append)
    pool.acquire(KEY, heard.append)
    world.verifiers[0].on_status("down")
    assert heard == ["down", "down"]
