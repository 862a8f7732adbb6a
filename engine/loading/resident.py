"""Reading a safetensors file into memory that is quick to compute from.

A decode step reads every weight once. From pages of 4 KiB that is up to a fifth slower than
from pages of 2 MiB, which Linux gives to anonymous memory that asks for them, not to mapped
files; and a file that is cut short while it is mapped kills the process. So what a step reads
is copied into one block of such memory, and only what is looked up by rows stays mapped.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from engine.errors import ModelCorrupt, ModelError

_ALIGN = 64  # bytes: a cache line, and the widest vector register
_HUGE = 2 << 20
_DTYPES = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "U8": torch.uint8, "I8": torch.int8, "I32": torch.int32, "I64": torch.int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the file: where its bytes are, and where they go."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    place: int


def read_tensors(path: Path, mapped: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file.

    Args:
        path: the file.
        mapped: which tensors, by name, stay in the file and take memory where they are read.

    Raises:
        ModelCorrupt: the file is damaged.
        ModelError: it cannot be read, or there is not enough memory.
    """
    try:
        with path.open("rb") as file:
            entries, total = _entries(file.fileno(), path, mapped)
            block = huge_block(total)
            for entry in entries:
                _fill(file.fileno(), path, block, entry)
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror}", "free some memory, or check the disk"
        ) from error
    flat = torch.frombuffer(block, dtype=torch.uint8)
    tensors = {
        e.name: flat[e.place : e.place + e.nbytes].view(e.dtype).view(e.shape) for e in entries
    }
    with safe_open(path, framework="pt") as handle:
        for name in handle.keys():  # noqa: SIM118
            if name not in tensors:
                tensors[name] = handle.get_tensor(name)
    return tensors


def _entries(
    descriptor: int, path: Path, mapped: Callable[[str], bool]
) -> tuple[list[_Entry], int]:
    """What to read, and how many bytes it takes."""
    try:
        length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
        header: dict[str, Any] = json.loads(os.pread(descriptor, min(length, 1 << 26), 8))
        header.pop("__metadata__", None)
        entries: list[_Entry] = []
        place = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            if mapped(name):
                continue
            start, stop = entry["data_offsets"]
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            if stop - start != dtype.itemsize * torch.Size(shape).numel():
                raise ValueError(f"tensor {name} is not of its size")
            entries.append(_Entry(name, dtype, shape, 8 + length + start, stop - start, place))
            place += -(-(stop - start) // _ALIGN) * _ALIGN
    except (ValueError, LookupError, TypeError) as error:
        raise ModelCorrupt(f"{path.name} is damaged: {error}") from error
    return entries, place


def huge_block(size: int) -> mmap.mmap:
    """At least `size` bytes of memory of its own, in large pages where the system has them."""
    block = mmap.mmap(-1, max(size, 1) + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _fill(descriptor: int, path: Path, block: mmap.mmap, entry: _Entry) -> None:
    view = memoryview(block)[entry.place : entry.place + entry.nbytes]
    at = entry.offset
    while len(view):
        count = os.preadv(descriptor, [view], at)
        if count == 0:
            raise ModelCorrupt(f"{path.name} ends inside tensor {entry.name}")
        view, at = view[count:], at + count
