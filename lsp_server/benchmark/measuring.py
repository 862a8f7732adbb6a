"""The measuring process of the engine, from the side of whoever asks it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from engine import LoadProgress
from lsp_server.errors import ServerError


class MeasuringFailed(ServerError):
    """A measurement could not be made."""


class MeasuringProcess:
    """`python -m engine.benchmark`: one question at a time; it rests between two.

    Args:
        tell: told of progress while a model loads.
    """

    def __init__(self, tell: Callable[[LoadProgress], None]) -> None:
        self._tell = tell
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.benchmark"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have it do something, and wait.

        Raises:
            MeasuringFailed: it could not, or it died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                answer = json.loads(line)
                if "progress" in answer:
                    self._tell(LoadProgress(**answer["progress"]))
                elif "error" in answer:
                    raise MeasuringFailed(answer["error"]["what"], answer["error"]["remedy"])
                else:
                    return answer["result"]
        except (OSError, ValueError) as error:
            raise MeasuringFailed(f"the measuring process is broken: {error}") from error
        raise MeasuringFailed(f"the measuring process ended ({self._process.wait()})")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
