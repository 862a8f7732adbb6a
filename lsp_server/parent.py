"""Noticing that the client's process has ended, even where its pipes stay open."""

from __future__ import annotations

import asyncio
import logging
import os

import psutil

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


async def until_process_ends(pid: int) -> None:
    """Return once the process is gone.

    Never returns for a process that is not there to begin with: the client then lives on
    another machine or in another container, and only the end of its pipe can tell.
    """
    if not _runs(pid):
        log.warning("the client's process %d is not on this machine; not watching it", pid)
        await asyncio.get_running_loop().create_future()
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:  # it ended just now
            return
        except OSError as error:  # an old kernel, or a sandbox that forbids it
            log.debug("pidfd_open: %s; polling instead", error)
        else:
            await _until_readable(handle)
            return
    while _runs(pid):  # noqa: ASYNC110  (there is no event to wait for)
        await asyncio.sleep(_POLL_SECONDS)


async def _until_readable(handle: int) -> None:
    """A process's handle becomes readable when it ends (pidfd_open(2))."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True
