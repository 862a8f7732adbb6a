"""Start the measuring process; see `child`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Answer requests on stdin until it ends."""
    # Before torch is imported, and as the engine itself does it: what is measured must be
    # what users get, and between two measurements no thread may spin.
    from engine.local import _yield_while_waiting  # pyright: ignore[reportPrivateUsage]

    _yield_while_waiting()
    # Answers go where stdout was; whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    from engine.benchmark.child import serve

    try:
        serve(sys.stdin, answers)
    except (KeyboardInterrupt, BrokenPipeError):  # the caller is gone, or is being told itself
        os._exit(130)


if __name__ == "__main__":
    main()
