"""One type checker per workspace, shared by every session that works there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.verification.verifier import Verdict, Verifier

log = logging.getLogger(__name__)

OnStatus = Callable[[str], None]
Pause = Callable[[float], Awaitable[None]]

GRACE_SECONDS = 30.0


class SharedVerifier(Verifier, Protocol):
    """What the pool shares: a verifier that can be warmed up and told of other files."""

    async def start(self) -> None:
        """Start the checker and let it warm up; never raises."""
        ...

    def set_timeout(self, timeout_ms: int) -> None:
        """Wait at most this long for an answer from the next question on."""
        ...

    def files_changed(self, changes: Mapping[str, bool]) -> None:
        """Files on disk changed: URI to whether the file is new or was deleted."""
        ...


@dataclass(frozen=True, slots=True)
class CheckerKey:
    """What decides which checker a session needs.

    Attributes:
        root: workspace root, None for lone files.
        interpreter: the user's Python, empty to look for one.
        timeout_ms: longest wait for one answer; another one needs no other checker.
    """

    root: Path | None
    interpreter: str
    timeout_ms: int


MakeVerifier = Callable[[CheckerKey, OnStatus], SharedVerifier]


class VerifierPool:
    """Starts checkers when they are first needed, and ends those nobody needs any more.

    Owned by the app, on its event loop. Sessions share one by root and interpreter; the
    timeout that was asked for last counts, so a changed setting applies to a warm checker.

    Args:
        make: builds a checker, not yet started.
        grace_s: how long a checker outlives its last session: an editor that is restarted
            finds it warm.
        pause: sleeps that many seconds; tests hand in their own.
    """

    def __init__(
        self,
        make: MakeVerifier,
        *,
        grace_s: float = GRACE_SECONDS,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._make = make
        self._grace_s = grace_s
        self._pause = pause
        self._shared: dict[tuple[Path | None, str], _Shared] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def acquire(self, key: CheckerKey, on_status: OnStatus) -> VerifierLease:
        """Take part in the workspace's checker; release it with the lease's `aclose`.

        Args:
            key: which one.
            on_status: told in one line when the checker fails, once per outage.
        """
        place = (key.root, key.interpreter)
        shared = self._shared.get(place)
        if shared is None:
            shared = self._shared[place] = _Shared(key, self._make)
        else:
            shared.verifier.set_timeout(key.timeout_ms)
        if shared.grace is not None:
            shared.grace.cancel()
            shared.grace = None
        lease = VerifierLease(shared, on_status, self._release)
        shared.leases.append(lease)
        return lease

    async def aclose(self) -> None:
        """End all checkers and wait until they are gone."""
        for task in tuple(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        ending = [shared.aclose() for shared in self._shared.values()]
        self._shared.clear()
        await asyncio.gather(*ending, return_exceptions=True)

    def _release(self, shared: _Shared) -> None:
        place = (shared.key.root, shared.key.interpreter)
        if not shared.leases and self._shared.get(place) is shared:
            self._retire(place, shared)

    def _retire(self, place: tuple[Path | None, str], shared: _Shared) -> None:
        async def wait_and_close() -> None:
            await self._pause(self._grace_s)
            if self._shared.get(place) is shared:
                del self._shared[place]
            # Closing must not be cut short by a session that comes just now: it gets a new one.
            shared.grace = None
            await shared.aclose()
            log.info("the type checker of %s has ended", shared.name)

        task = asyncio.create_task(wait_and_close(), name="retire type checker")
        shared.grace = task
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Shared:
    """A checker and the sessions that use it. Owned by the pool."""

    def __init__(self, key: CheckerKey, make: MakeVerifier) -> None:
        self.key = key
        self.leases: list[VerifierLease] = []
        self.grace: asyncio.Task[None] | None = None
        self.verifier = make(key, self._tell)
        self._warming: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The workspace's folder name, for logs."""
        return self.key.root.name if self.key.root is not None else "lone files"

    def warm(self) -> None:
        """Start the checker, the first time only."""
        if self._warming is None:
            self._warming = asyncio.create_task(self.verifier.start(), name="warm type checker")

    async def aclose(self) -> None:
        """End the checker."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        await self.verifier.aclose()

    def _tell(self, status: str) -> None:
        for lease in tuple(self.leases):
            lease.on_status(status)


class VerifierLease:
    """A session's share of a checker; satisfies `Verifier`. Owned by the session.

    Two editors may have the same document open with different text: the checker sees the
    text updated last, and what the other editor shows again when the first closes it.
    """

    def __init__(
        self, shared: _Shared, on_status: OnStatus, release: Callable[[_Shared], None]
    ) -> None:
        self._shared = shared
        self._release = release
        self._open: dict[str, DocumentSnapshot] = {}
        self.on_status = on_status

    def update(self, document: DocumentSnapshot) -> None:
        """Tell the checker what this session's editor shows; starts the checker."""
        self._shared.warm()
        self._open[document.uri] = document
        self._shared.verifier.update(document)

    def forget(self, uri: str) -> None:
        """This session's editor closed the document."""
        if self._open.pop(uri, None) is None:
            return
        for lease in self._shared.leases:
            if uri in lease._open:
                self._shared.verifier.update(lease._open[uri])
                return
        self._shared.verifier.forget(uri)

    def files_changed(self, changes: Mapping[str, bool]) -> None:
        """Files on disk changed; see SharedVerifier."""
        self._shared.verifier.files_changed(changes)

    async def prepare(self, document: DocumentSnapshot, start: int, end: int) -> None:
        """As the shared checker does it."""
        await self._shared.verifier.prepare(document, start, end)

    async def check(self, document: DocumentSnapshot, start: int, end: int, text: str) -> Verdict:
        """As the shared checker does it."""
        return await self._shared.verifier.check(document, start, end, text)

    async def aclose(self) -> None:
        """Give the share back. Safe to call twice."""
        if self not in self._shared.leases:
            return
        self._shared.leases.remove(self)
        for uri in tuple(self._open):
            self.forget(uri)
        self._release(self._shared)
