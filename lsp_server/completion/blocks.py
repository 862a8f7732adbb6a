"""Where a candidate of several lines ends: at a dedent, at a blank line, at a whole statement.

Pure functions on LF text; a candidate's first line continues the line left of the cursor.
"""

from __future__ import annotations

import ast
import textwrap
import warnings

from lsp_server.context.hole import Hole, indent_of
from lsp_server.documents.scanner import scan

# What may have to stand above a statement for it to be whole (`else:` alone is not).
_HEADS = ("", "if 1:\n    pass\n", "try:\n    pass\n", "for _ in ():\n    pass\n")


def block_end(text: str, hole: Hole) -> int | None:
    """The offset in `text` where its block is over, None while it is not.

    It is over at the first line that is indented less than the block's own first line, and
    at the first blank line, both only where a statement can start. The answer does not
    change when more text follows, so a stream can be ended by it.
    """
    lines = text.split("\n")
    statement = (False, *scan(text, hole.open, hole.language_id).statement_lines)
    level: int | None = None
    offset = 0
    for number, line in enumerate(lines):
        whole = hole.left + line if number == 0 else line
        blank = not whole.strip()
        last = number == len(lines) - 1
        if number and statement[number] and level is not None:
            if blank and not last:
                return offset
            if not blank and len(indent_of(whole)) < level:
                return offset
        if level is None and not blank and (number or not hole.left.strip()):
            level = len(indent_of(whole))
        offset += len(line) + 1
    return None


def whole_lines(text: str, hole: Hole) -> str:
    """`text`, cut off by a token limit, back to the last line that completes something.

    Empty when nothing in it is complete: a name cut short looks like a real one. Python
    is cut back to whole statements, inside a bracket (and in other languages) to the last
    line end where no bracket or string of the candidate's own is open.
    """
    lines = text.split("\n")
    for count in range(len(lines) - 1, 0, -1):
        kept = "\n".join(lines[:count])
        if scan(kept + "\n", hole.open, hole.language_id).end != hole.open:
            continue
        if hole.language_id != "python" or hole.in_statement or is_whole(hole.left + kept):
            return kept
    return ""


def is_whole(block: str) -> bool:
    """Whether `block`, at whatever indentation, is a run of complete Python statements."""
    dedented = textwrap.dedent(block)
    cases = "match 1:\n" + textwrap.indent(dedented, "    ")
    return any(_parses(source) for source in (*(head + dedented for head in _HEADS), cases))


def _parses(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            # An invalid escape in a string is a warning to the parser; here it is nothing.
            warnings.simplefilter("ignore")
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
