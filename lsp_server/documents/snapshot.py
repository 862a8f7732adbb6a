"""One version of one document, frozen, so that nothing changes under a running request.

Offsets and columns are counted in Unicode code points (Python string indices); the LSP
features convert from the client's position encoding before they come here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from lsp_server.errors import PositionOutside

# LSP line ends: \r\n, \n and \r, and nothing else (str.splitlines knows many more).
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """A document's text at one version.

    Attributes:
        uri: as the client sent it; for `untitled:` documents there is no path.
        text: exactly the client's text, its own line ends included.
        version: the client's version number; 0 outside an editor.
        language_id: LSP language id, `python` for Python.
        path: the file on disk, if there is one.
    """

    uri: str
    text: str
    version: int = 0
    language_id: str = "python"
    path: Path | None = None
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = (0, *(match.end() for match in _LINE_END.finditer(self.text)))
        object.__setattr__(self, "_line_starts", starts)

    @property
    def eol(self) -> str:
        """The document's line end: that of its first line, `\\n` when it has only one."""
        match = _LINE_END.search(self.text)
        return match.group() if match else "\n"

    @property
    def line_count(self) -> int:
        """Number of lines; a text that ends with a line end has an empty last one."""
        return len(self._line_starts)

    def line_at(self, line: int) -> str:
        """The text of 0-based `line` without its line end.

        Raises:
            PositionOutside: there is no such line.
        """
        if not 0 <= line < self.line_count:
            raise PositionOutside(
                f"line {line + 1} does not exist", f"the document has {self.line_count} lines"
            )
        start = self._line_starts[line]
        match = _LINE_END.search(self.text, start)
        return self.text[start : match.start() if match else len(self.text)]

    def offset_at(self, line: int, column: int) -> int:
        """Code-point offset of 0-based `line` and `column`.

        Raises:
            PositionOutside: the line or the column is past the end.
        """
        length = len(self.line_at(line))
        if not 0 <= column <= length:
            raise PositionOutside(
                f"column {column + 1} does not exist in line {line + 1}",
                f"the line has columns 1 to {length + 1}",
            )
        return self._line_starts[line] + column

    def position_at(self, offset: int) -> tuple[int, int]:
        """0-based line and code-point column of `offset`, clamped into the text."""
        from bisect import bisect_right

        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._line_starts, offset) - 1
        return line, offset - self._line_starts[line]


def to_lf(text: str) -> str:
    """The text with every line end as `\\n`, as the model and the checker see it."""
    return _LINE_END.sub("\n", text)
