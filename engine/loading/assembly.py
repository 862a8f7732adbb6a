"""A model file put together from parts, so that an interrupted pull can go on.

The parts are appended to one file in order, and a journal beside it names the ones that are
complete. A part enters the journal only after its bytes are on the disk, so a crash at any
moment loses at most the part being written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from engine.loading.files import write_atomically

_log = logging.getLogger(__name__)
_JOURNAL_NAME = "journal.json"
_READ_BYTES = 4 * 1024 * 1024


class Assembly:
    """The growing file. Owned by the one process that holds the model's lock.

    Args:
        folder: where the file and its journal lie; made when missing.
        target: identifies what is being built (its SHA-256); a journal of anything else is
            discarded.
    """

    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "joined"
        self._journal = folder / _JOURNAL_NAME
        self._target = target
        self._parts: list[tuple[int, str]] = []  # size and SHA-256 of each
        self._restore()

    @property
    def count(self) -> int:
        """How many parts are complete."""
        return len(self._parts)

    @property
    def size(self) -> int:
        """Bytes of the complete parts."""
        return sum(size for size, _ in self._parts)

    def append(self, blocks: Iterable[bytes], sha256: str) -> bool:
        """Write the next part; keeps nothing and returns False when its sum differs.

        Raises:
            OSError: the disk is full, for example; the part counts as not written.
        """
        digest = hashlib.sha256()
        start = self.size
        with self.path.open("r+b") as file:
            file.seek(start)
            for block in blocks:
                digest.update(block)
                file.write(block)
            end = file.tell()
            if digest.hexdigest() != sha256:
                file.truncate(start)
                return False
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
        self._parts.append((end - start, sha256))
        self._write_journal()
        return True

    def _restore(self) -> None:
        """Take over what an earlier pull left, up to the first part that is not as it was."""
        recorded = self._read_journal()
        self.path.touch()
        with self.path.open("rb") as file:
            for size, sha256 in recorded:
                if _digest(file, size) != sha256:
                    _log.debug("part %d is damaged, fetching it again", len(self._parts) + 1)
                    break
                self._parts.append((size, sha256))
        if len(self._parts) != len(recorded):
            self._write_journal()

    def _read_journal(self) -> list[tuple[int, str]]:
        try:
            document: Any = json.loads(self._journal.read_bytes())
            if document["target"] != self._target:
                return []
            return [(int(size), str(sha256)) for size, sha256 in document["parts"]]
        except FileNotFoundError:
            return []
        except (ValueError, LookupError, TypeError) as error:
            _log.debug("unreadable journal, starting over: %s", error)
            return []

    def _write_journal(self) -> None:
        document = {"target": self._target, "parts": self._parts}
        write_atomically(self._journal, json.dumps(document).encode())


def _digest(file: BinaryIO, size: int) -> str:
    """SHA-256 of the next `size` bytes; of fewer when the file ends before."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, _READ_BYTES))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
