"""How a pull tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PullProgress:
    """One step of a pull.

    Attributes:
        stage: what is happening, for people; it changes a handful of times.
        done_bytes: of this stage.
        total_bytes: of this stage; 0 when the stage has no length.
    """

    stage: str
    done_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[PullProgress], None]


def silent(progress: PullProgress) -> None:
    """An `OnProgress` for callers who show nothing."""
