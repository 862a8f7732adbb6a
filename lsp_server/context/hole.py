"""The hole a completion fills: the text around the cursor, and what is open there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from lsp_server.documents.scanner import ScanState, scan, state_before

_PYTHON_BLOCK = re.compile(
    r"\s*(?:async\s+)?"
    r"(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b.*:\s*(?:#.*)?$"
)
_OTHER_BLOCK = re.compile(r".*(?:[{(\[:]|=>)\s*$")
_DEFAULT_UNIT = 4


def indent_of(line: str) -> str:
    """The blanks and tabs a line starts with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def opens_block(line: str, language_id: str) -> bool:
    """Whether the next line belongs to a block that this line opens."""
    pattern = _PYTHON_BLOCK if language_id == "python" else _OTHER_BLOCK
    return pattern.match(line) is not None


@dataclass(frozen=True)
class Hole:
    """A window of the document around the cursor, LF line ends.

    Attributes:
        before: ends at the cursor; starts at a line start where the budget allows.
        after: starts at the cursor.
        language_id: LSP language id.
        multiline: whether a candidate may have several lines.
    """

    before: str
    after: str
    language_id: str
    multiline: bool = False

    @cached_property
    def open(self) -> ScanState:
        """The brackets and the string that are open at the cursor."""
        return state_before(self.before, self.language_id)

    @cached_property
    def in_comment(self) -> bool:
        """Whether the cursor stands in a comment that reaches to the end of its line."""
        line_start = len(self.before) - len(self.left)
        state = state_before(self.before[:line_start], self.language_id)
        return scan(self.left, state, self.language_id).comment is not None

    @cached_property
    def left(self) -> str:
        """The cursor's line up to the cursor."""
        return self.before.rpartition("\n")[2]

    @cached_property
    def right(self) -> str:
        """The cursor's line from the cursor on."""
        return self.after.partition("\n")[0]

    @cached_property
    def lines_before(self) -> list[str]:
        """The lines above the cursor's that are not blank, trailing blanks removed."""
        return _solid_lines(self.before.rpartition("\n")[0])

    @cached_property
    def lines_after(self) -> list[str]:
        """The lines below the cursor's that are not blank, trailing blanks removed."""
        return _solid_lines(self.after.partition("\n")[2])

    @property
    def previous_line(self) -> str:
        """The nearest line above that is not blank; empty at the top."""
        return self.lines_before[-1] if self.lines_before else ""

    @property
    def in_statement(self) -> bool:
        """Whether the line continues a bracket or string opened above it or on it."""
        return bool(self.open.brackets or self.open.string)

    @cached_property
    def indent_unit(self) -> int:
        """Characters of one indentation step: the smallest one in sight."""
        widths = {len(indent_of(line)) for line in self.lines_before} - {0}
        return min(widths, default=_DEFAULT_UNIT)


def _solid_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]
