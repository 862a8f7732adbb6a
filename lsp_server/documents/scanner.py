"""A small lexer for brackets, strings and comments: enough to see what is still open.

It does not parse. It answers where the text stands after a stretch of code: which brackets
are open, which string, and how many closers had nothing to close. Comparing two ways to
join a candidate with the text around it needs no more than that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPENER_OF = {")": "(", "]": "[", "}": "{"}
_OPENERS = frozenset(_OPENER_OF.values())
_PYTHON_CODE = re.compile(r"\\\n|#[^\n]*|\"\"\"|'''|[\"'()\[\]{}\n]")
_OTHER_CODE = re.compile(r"\\\n|//[^\n]*|/\*|[\"'`()\[\]{}\n]")
# How each kind of string ends; line ends and escapes are tokens as well. Go and JavaScript
# write long strings between backticks; a block comment behaves like a string.
_IN_STRING = {
    quote: re.compile(rf"\\.|{re.escape(end)}|\n", re.DOTALL)
    for quote, end in (
        ('"', '"'),
        ("'", "'"),
        ('"""', '"""'),
        ("'''", "'''"),
        ("`", "`"),
        ("/*", "*/"),
    )
}
_LINE_COMMENTS = ("#", "//")  # as the two patterns of code match them, whole
_ONE_LINE = frozenset("\"'")
_DEFINITION = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]|class[ \t]+\w+[ \t]*[:(\[])", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class ScanState:
    """What is open at a place.

    Attributes:
        brackets: the open brackets, outermost first.
        string: the quote of the open string (or `/*`), empty in code.
    """

    brackets: tuple[str, ...] = ()
    string: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a stretch of text did.

    Attributes:
        end: what is open behind it.
        errors: closers without an opener, and one-line strings cut by a line end.
        statement_lines: for every line after the first, whether it can start a statement:
            no bracket or string is open there and no backslash joins it to the last one.
        unmatched: offsets of the closers that close nothing opened in this stretch.
        comment: offset of the comment it ends in; None when it ends in code or a string.
    """

    end: ScanState
    errors: int
    statement_lines: tuple[bool, ...]
    unmatched: tuple[int, ...]
    comment: int | None


def scan(text: str, start: ScanState, language_id: str) -> Scan:
    """Run over `text` (LF line ends) from the state `start`."""
    run = _Run(list(start.brackets), start.string, len(start.brackets), bool(start.string))
    code = _PYTHON_CODE if language_id == "python" else _OTHER_CODE
    position = 0
    comment: int | None = None
    while match := (_IN_STRING[run.string] if run.string else code).search(text, position):
        in_code = not run.string
        comment = match.start() if in_code and match.group().startswith(_LINE_COMMENTS) else None
        run.take(match.group(), match.start())
        position = match.end()
    return Scan(
        ScanState(tuple(run.brackets), run.string),
        run.errors,
        tuple(run.statement_lines),
        tuple(run.unmatched),
        comment if position == len(text) else None,
    )


def state_before(before: str, language_id: str) -> ScanState:
    """What is open at the end of `before`, a window that starts at some line.

    A window may start inside a docstring, where every quote would be read the wrong way
    round; the last line that defines a function or class is code for certain.
    """
    start = 0
    if language_id == "python":
        for match in _DEFINITION.finditer(before):
            start = match.start()
    return scan(before[start:], ScanState(), language_id).end


@dataclass(slots=True)
class _Run:
    """The moving part of one call of `scan`."""

    brackets: list[str]
    string: str
    outer_depth: int  # brackets still open from before the stretch
    outer_string: bool  # whether the open string began before the stretch
    errors: int = 0
    statement_lines: list[bool] = field(default_factory=list[bool])
    unmatched: list[int] = field(default_factory=list[int])

    def take(self, token: str, offset: int) -> None:
        """Account for one token that stands at `offset`."""
        if token.endswith("\n"):
            self._end_line(joined=token != "\n")
        elif self.string:
            if token[0] != "\\":
                self._close_string(offset)
        elif token in _OPENER_OF:
            self._close_bracket(token, offset)
        elif token in _OPENERS:
            self.brackets.append(token)
        elif token in _IN_STRING:
            self.string = token

    def _end_line(self, *, joined: bool) -> None:
        if self.string in _ONE_LINE and not joined:
            self.errors += 1
            self.string = ""
            self.outer_string = False
        self.statement_lines.append(not (self.brackets or self.string or joined))

    def _close_string(self, offset: int) -> None:
        self.string = ""
        if self.outer_string:
            self.outer_string = False
            self.unmatched.append(offset)

    def _close_bracket(self, token: str, offset: int) -> None:
        if self.brackets and self.brackets[-1] == _OPENER_OF[token]:
            self.brackets.pop()
            if len(self.brackets) < self.outer_depth:
                self.outer_depth = len(self.brackets)
                self.unmatched.append(offset)
        else:
            self.errors += 1
            self.unmatched.append(offset)
