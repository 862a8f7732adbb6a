"""How fast this machine reads memory: the limit of decoding one stream."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
import torch

from engine.errors import EngineError
from engine.loading.resident import huge_block

BUFFER_BYTES = 2 << 30  # far more than any cache holds
_LEAST_BYTES = 1 << 26
_TRIES = 4


def memory_bandwidth(threads: int, buffer_bytes: int = BUFFER_BYTES) -> float:
    """Read a large buffer once with all threads, several times; the best, in GB/s (1e9 bytes).

    Sums are what PyTorch reads memory with at the highest rate; which kind is fastest depends
    on the chip, so each is tried.

    Args:
        threads: as the model will use.
        buffer_bytes: how much to read; less is read where less memory is free.

    Raises:
        EngineError: too little memory is free to measure anything.
    """
    size = min(buffer_bytes, psutil.virtual_memory().available // 2)
    if size < _LEAST_BYTES:
        raise EngineError(
            f"only {size:,} bytes of memory are free for measuring", "close other programs"
        )
    torch.set_num_threads(threads)
    # Pages as large as those the weights lie in: small ones are slower to read.
    buffer = torch.frombuffer(huge_block(size), dtype=torch.int64)[: size // 8]
    buffer.fill_(1)  # untouched memory may not be there at all
    wide = buffer.view(torch.float32)
    kinds: tuple[Callable[[], object], ...] = (
        lambda: buffer.sum(),
        lambda: wide.sum(),
        lambda: wide.amax(),
    )
    best = min(_seconds(kind) for kind in kinds for _ in range(_TRIES))
    return buffer.nbytes / best / 1e9


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
