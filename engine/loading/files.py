"""Small file operations that must survive a crash, and one that keeps two processes apart."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from engine.errors import DownloadFailed

_LOCK_POLL_S = 0.2


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that a crash leaves either the old file or the new one.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        replace_durably(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_durably(source: Path, target: Path) -> None:
    """Rename `source` over `target`, and make the rename itself survive a power cut."""
    os.replace(source, target)
    if sys.platform != "win32":  # folders cannot be opened there
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse early when the disk cannot hold `needed_bytes` more.

    Raises:
        DownloadFailed: it cannot.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise DownloadFailed(
            f"not enough disk space in {folder}: {in_mb(needed_bytes)} needed, {in_mb(free)} free",
            "free some space, or name another folder by GHOSTWRIGHT_CACHE_DIR",
        )


def in_mb(count: int) -> str:
    """A byte count for people, in decimal megabytes."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count:,} bytes"


@contextmanager
def exclusive(path: Path, on_wait: Callable[[str], None]) -> Generator[None]:
    """Hold the lock file `path`; waits while another process holds it.

    The operating system drops the lock when its holder dies, however it dies, so a lock
    file left behind means nothing and is never deleted.

    Args:
        path: the lock file; its folder exists.
        on_wait: called once, with the holder's process id, when there is a wait.
    """
    with path.open("a+") as file:
        waited = False
        while not _try_lock(file):
            if not waited:
                waited = True
                file.seek(0)
                on_wait(file.read().strip() or "unknown")
            time.sleep(_LOCK_POLL_S)  # polled, so that Ctrl-C works on every platform
        try:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt

    # Far behind the process id, which others must be able to read.
    _LOCK_AT = 1 << 20

    def _try_lock(file: IO[str]) -> bool:
        try:
            os.lseek(file.fileno(), _LOCK_AT, os.SEEK_SET)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[str]) -> None:
        os.lseek(file.fileno(), _LOCK_AT, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
