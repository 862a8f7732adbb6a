"""From a place in a document to what the model is given, and how long it may go on.

Costs no more on a long file than on a short one: only the window around the cursor is
looked at, besides one search for a NUL.
"""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.context.hole import Hole, opens_block
from lsp_server.documents.snapshot import DocumentSnapshot, to_lf
from lsp_server.settings import Settings

MAX_DOCUMENT_CHARS = 8_000_000
MAX_LINE_CHARS = 2_000
# Code has 3 to 4 characters a token. The engine counts tokens and cuts exactly; this only
# keeps it from tokenizing text that cannot fit.
CHARS_PER_TOKEN = 4
PREFIX_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Context:
    """What one request tells the engine.

    Attributes:
        hole: the text around the cursor; `hole.before` and `hole.after` are the prompt.
        max_lines: as in `engine.GenerationRequest`. Where several lines are wanted, the
            end of the block ends them, which `shape` decides.
    """

    hole: Hole
    max_lines: int | None


@dataclass(frozen=True, slots=True)
class Excluded:
    """The place is not completed; `reason` is one line for the log."""

    reason: str


def build(document: DocumentSnapshot, offset: int, settings: Settings) -> Context | Excluded:
    """The context at code-point `offset` of `document`."""
    reason = exclusion(document, offset)
    if reason:
        return Excluded(reason)
    before, after = window(document.text, offset, settings.model.context_tokens * CHARS_PER_TOKEN)
    hole = Hole(to_lf(before), to_lf(after), document.language_id)
    if settings.completion.multiline == "auto" and wants_lines(hole):
        return Context(Hole(hole.before, hole.after, hole.language_id, multiline=True), None)
    return Context(hole, max_lines=1)


def exclusion(document: DocumentSnapshot, offset: int) -> str:
    """Why nothing is completed here, in one line; empty where it is."""
    if len(document.text) > MAX_DOCUMENT_CHARS:
        return f"the document has more than {MAX_DOCUMENT_CHARS:,} characters"
    if "\0" in document.text:
        return "the document is binary: it holds a NUL character"
    line, _ = document.position_at(offset)
    for near in range(max(0, line - 1), min(document.line_count, line + 2)):
        if len(document.line_at(near)) > MAX_LINE_CHARS:
            return f"line {near + 1} has more than {MAX_LINE_CHARS:,} characters"
    return ""


def window(text: str, offset: int, budget: int) -> tuple[str, str]:
    """The text before and after `offset`, together at most `budget` characters.

    Both are cut between lines where they can be; what one side does not need, the other
    gets.
    """
    for_after = min(len(text) - offset, max(budget - offset, int(budget * (1 - PREFIX_SHARE))))
    start = max(0, offset - (budget - for_after))
    end = offset + for_after
    if start > 0:
        # The first line start at or behind `start`, if the cursor does not come first.
        found = _first_line_end(text, start - 1, offset)
        start = found if found is not None else start
    if end < len(text):
        last = max(text.rfind("\n", offset, end), text.rfind("\r", offset, end))
        end = last if last >= 0 else end
    return text[start:offset], text[offset:end]


def wants_lines(hole: Hole) -> bool:
    """Whether several lines are wanted: on a blank line, or right behind a block's head."""
    if hole.right.strip():
        return False
    if not hole.left.strip():
        return True
    return not hole.in_statement and opens_block(hole.left, hole.language_id)


def _first_line_end(text: str, start: int, end: int) -> int | None:
    """The offset behind the first line end in `text[start:end]`."""
    feed = text.find("\n", start, end)
    if feed >= 0:
        return feed + 1
    bare = text.find("\r", start, end)
    return bare + 1 if bare >= 0 else None
