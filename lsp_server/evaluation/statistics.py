"""Intervals and tests for shares of passed tasks."""

from __future__ import annotations

import math

_Z = 1.959964  # of a 95 % interval


def wilson_interval(passed: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927); sensible also near 0 and 1."""
    if total == 0:
        return 0.0, 1.0
    share = passed / total
    spread = _Z**2 / total
    middle = (share + spread / 2) / (1 + spread)
    reach = _Z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def mcnemar(gained: int, lost: int) -> float:
    """The two-sided exact p-value that gains and losses are equally likely (McNemar, 1947)."""
    changed = gained + lost
    if changed == 0:
        return 1.0
    tail = sum(math.comb(changed, i) for i in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**changed)
