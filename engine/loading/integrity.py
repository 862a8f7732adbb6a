"""Checksums of model files, whole and chunk by chunk, so that a wrong byte can be placed.

Pure functions over one file: what should be there is known to the caller. Nothing here
knows of models, caches or networks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

CHUNK_BYTES = 256 * 1024
_READ_BYTES = 4 * 1024 * 1024

OnBytes = Callable[[int], None]


def no_report(count: int) -> None:
    """An `OnBytes` for callers who show no progress."""


@dataclass(frozen=True, slots=True)
class FileSums:
    """What a file's bytes should be.

    Attributes:
        path: relative to the model's folder, with `/`.
        size: in bytes.
        sha256: of the whole file, in hexadecimal.
        chunk_bytes: length of every chunk but the last.
        chunks: SHA-256 of each chunk, in hexadecimal.
    """

    path: str
    size: int
    sha256: str
    chunk_bytes: int
    chunks: tuple[str, ...]


class FileState(StrEnum):
    """What a check found."""

    OK = "ok"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    GROWN = "grown"
    ALTERED = "altered"
    UNCHECKED = "unchecked"  # nothing is known to compare with


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The result for one file.

    Attributes:
        path: as in FileSums.
        state: what was found.
        size: bytes there are.
        expected_size: bytes there should be; None when nothing is known.
        bad_ranges: first and last byte (0-based, both included) of each damaged stretch.
        detail: one line for people.
    """

    path: str
    state: FileState
    size: int
    expected_size: int | None = None
    bad_ranges: tuple[tuple[int, int], ...] = ()
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the file is known to be wrong."""
        return self.state not in (FileState.OK, FileState.UNCHECKED)


def sum_file(path: Path, relative: str, on_bytes: OnBytes = no_report) -> FileSums:
    """Read `path` once and compute its sums.

    Raises:
        OSError: the file cannot be read.
    """
    whole = hashlib.sha256()
    chunks: list[str] = []
    size = 0
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):  # a multiple of CHUNK_BYTES but for the last
            whole.update(block)
            view = memoryview(block)
            chunks += (
                hashlib.sha256(view[at : at + CHUNK_BYTES]).hexdigest()
                for at in range(0, len(block), CHUNK_BYTES)
            )
            size += len(block)
            on_bytes(len(block))
    return FileSums(relative, size, whole.hexdigest(), CHUNK_BYTES, tuple(chunks))


def check_file(path: Path, expected: FileSums, on_bytes: OnBytes = no_report) -> FileCheck:
    """Compare `path` with what it should be; never raises for a bad file."""
    check = FileCheck(expected.path, FileState.OK, 0, expected.size)
    try:
        if not path.exists():
            return replace(check, state=FileState.MISSING, detail="the file is gone")
        actual = _sum_as(path, expected, on_bytes)
    except OSError as error:
        detail = f"cannot be read: {error.strerror}"
        return replace(check, state=FileState.UNREADABLE, detail=detail)
    ranges = _bad_ranges(actual, expected)
    check = replace(check, size=actual.size, bad_ranges=ranges)
    damage = f", and its contents differ at bytes {_in_words(ranges)}" if ranges else ""
    if actual.size < expected.size:
        detail = f"ends after {actual.size:,} of {expected.size:,} bytes{damage}"
        return replace(check, state=FileState.TRUNCATED, detail=detail)
    if actual.size > expected.size:
        detail = f"has {actual.size - expected.size:,} bytes too many{damage}"
        return replace(check, state=FileState.GROWN, detail=detail)
    if ranges or actual.sha256 != expected.sha256:
        detail = f"contents differ at bytes {_in_words(ranges)}" if ranges else "contents differ"
        return replace(check, state=FileState.ALTERED, detail=detail)
    return check


def _sum_as(path: Path, expected: FileSums, on_bytes: OnBytes) -> FileSums:
    """Sums of the file, in the chunks that `expected` has."""
    if expected.chunk_bytes == CHUNK_BYTES:
        return sum_file(path, expected.path, on_bytes)
    # Written by another version: only the whole can be compared.
    return replace(sum_file(path, expected.path, on_bytes), chunks=expected.chunks)


def _bad_ranges(actual: FileSums, expected: FileSums) -> tuple[tuple[int, int], ...]:
    """Stretches of chunks that differ within the bytes both files have."""
    length = expected.chunk_bytes
    common = min(actual.size, expected.size)
    ranges: list[tuple[int, int]] = []
    for index, (have, want) in enumerate(zip(actual.chunks, expected.chunks, strict=False)):
        start, end = index * length, min((index + 1) * length, expected.size)
        # A chunk cut short by truncation, or made longer by growth, is not "wrong bytes".
        if have == want or end > common or (end < (index + 1) * length and actual.size > end):
            continue
        if ranges and ranges[-1][1] + 1 == start:
            ranges[-1] = (ranges[-1][0], end - 1)
        else:
            ranges.append((start, end - 1))
    return tuple(ranges)


def _in_words(ranges: tuple[tuple[int, int], ...]) -> str:
    """The damaged stretches, the first three of them."""
    shown = ", ".join(f"{start:,} to {end:,}" for start, end in ranges[:3])
    more = len(ranges) - 3
    return f"{shown} and {more} more places" if more > 0 else shown
