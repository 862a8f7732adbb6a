"""Prompt caches kept after their request, so that the next prompt need not start over."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kv.cache import KvShape, PromptCache


class PromptStore:
    """Finished prompts, least recently used first, under a byte budget.

    Owned by the engine thread. A cache is either in here or with a running request; one that
    is running can still be copied from.

    Args:
        shape: of the caches.
        budget_bytes: most memory the kept caches may take.
    """

    def __init__(self, shape: KvShape, budget_bytes: int) -> None:
        self._shape = shape
        self._budget = budget_bytes
        self._kept: list[PromptCache] = []

    @property
    def nbytes(self) -> int:
        """Memory of the kept caches."""
        return sum(cache.nbytes for cache in self._kept)

    def acquire(self, prompt: Sequence[int], running: Sequence[PromptCache]) -> PromptCache:
        """A cache that holds the longest known prefix of `prompt`, the last token excluded.

        The last token is always computed anew, because its logits are wanted. A kept cache is
        taken out and cut; where a running request's cache shares more, that part is copied.
        """
        limit = len(prompt) - 1
        best, shared = None, 0
        for cache in (*self._kept, *running):
            common = min(common_prefix(cache.tokens, prompt), limit)
            if common > shared:
                best, shared = cache, common
        if best is None:
            return PromptCache(self._shape)
        # A cache that would lose most of what it holds serves better as a source.
        if best in self._kept and shared >= len(best) // 2:
            self._kept.remove(best)
            best.truncate(shared)
            return best
        return best.copy_prefix(shared)

    def release(self, cache: PromptCache) -> None:
        """Keep a cache for later; the least recently used ones give way."""
        if len(cache) == 0:
            return
        # A prompt that another one begins with adds nothing.
        self._kept = [k for k in self._kept if common_prefix(k.tokens, cache.tokens) < len(k)]
        self._kept.append(cache)
        while self._kept and self.nbytes > self._budget:
            self._kept.pop(0)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    length = min(len(a), len(b))
    low, high = 0, length
    # Bisection over slices: comparing lists is one C call, a Python loop is thousands.
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
