"""Noticing that the client's process has ended, even where its pipes stay open."""

from __future__ import annotations

import asyncio
import logging
import os

import psutil

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


class ClientProcess:
    """A process that was there when it was looked for. Owned by its connection.

    Looked for at once, when the client names it: one that ends a moment later, before
    anybody waits, has then ended, and is not taken for one of another machine.
    """

    def __init__(self, pid: int, handle: int | None) -> None:
        self._pid = pid
        self._handle = handle

    @classmethod
    def find(cls, pid: int) -> ClientProcess | None:
        """The process, or None for one that is not there.

        The client then lives on another machine or in another container, and only the end
        of its pipe can tell.
        """
        if _runs(pid) is None:
            log.warning("the client's process %d is not on this machine; not watching it", pid)
            return None
        handle = None
        if hasattr(os, "pidfd_open"):
            try:
                handle = os.pidfd_open(pid)
            except OSError as error:  # an old kernel, or it may not be used, or just ended
                log.debug("pidfd_open: %s; polling instead", error)
        return cls(pid, handle)

    async def until_ended(self) -> None:
        """Return once the process is gone, or waits only for its parent to notice."""
        if self._handle is not None:
            await _until_readable(self._handle)
            return
        while _runs(self._pid):  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Let go of the process. Safe to call twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


async def _until_readable(handle: int) -> None:
    """A process's handle becomes readable when it ends (pidfd_open(2))."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)


def _runs(pid: int) -> bool | None:
    """Whether the process runs or has ended; None if there is no such process."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return None
    except psutil.AccessDenied:
        return True
