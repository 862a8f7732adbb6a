"""Knowing where a candidate's text ends, while it is still streaming."""

from __future__ import annotations


class StopRule:
    """Cuts one candidate's text at a stop string or after a number of lines.

    Text that might be the beginning of a stop string is held back until it is clear, so what
    was handed out never has to be taken back.

    Args:
        stop: the strings; text before the earliest one is kept.
        max_lines: complete lines after which the text ends; None is no limit.
    """

    def __init__(self, stop: tuple[str, ...], max_lines: int | None) -> None:
        self._stop = stop
        self._lines_left = max_lines
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """New text in, text that is safe to show out; sets `stopped` at the end."""
        if self.stopped:
            return ""
        self._held += text
        end = self._end_of_text()
        if end is not None:
            out, self._held, self.stopped = self._held[:end], "", True
            return out
        keep = self._possible_start()
        out = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        if self._lines_left is not None:
            self._lines_left -= out.count("\n")
        return out

    def flush(self) -> str:
        """What is still held back, once no more text will come."""
        out, self._held = self._held, ""
        return out

    def _end_of_text(self) -> int | None:
        found = [at for s in self._stop if (at := self._held.find(s)) >= 0]
        if self._lines_left is not None:
            at = -1
            for _ in range(self._lines_left):
                at = self._held.find("\n", at + 1)
                if at < 0:
                    break
            else:
                found.append(at)
        return min(found, default=None)

    def _possible_start(self) -> int:
        """Length of the longest tail that could grow into a stop string."""
        return max(
            (
                size
                for s in self._stop
                for size in range(1, min(len(s), len(self._held) + 1))
                if self._held.endswith(s[:size])
            ),
            default=0,
        )
