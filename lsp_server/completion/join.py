"""Joining a candidate with the text after the cursor, so that nothing stands there twice.

The model often goes on past the hole and writes the closing bracket, the quote or the next
line that the document already has; an editor closes brackets that the model then closes
again. Which of the possible joins is right is decided by what it leaves open and by what
would close twice, not by comparing strings: `f(g(` + `x)` + `)` needs both brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lsp_server.context.hole import Hole
from lsp_server.documents.scanner import scan

# How much of the text below decides whether a bracket has its partner there.
_LOOK_AHEAD_CHARS = 2_000
_CLOSING_RUN = re.compile(r"[)\]}\"'`:;,\s]*")
_CLOSERS = re.compile(r"[)\]}]+")
_SEPARATORS = frozenset(",:;.")


@dataclass(frozen=True, slots=True)
class Joined:
    """How a candidate goes into the hole.

    Attributes:
        text: what is inserted at the cursor.
        replace_after: characters right of the cursor that it replaces: closing brackets,
            quotes and colons that `text` writes itself.
    """

    text: str
    replace_after: int = 0


def join(text: str, hole: Hole, *, may_replace: bool = True) -> Joined:
    """The best way to put `text` into `hole`.

    Args:
        text: the candidate.
        hole: where it goes.
        may_replace: whether closers right of the cursor may be replaced; if not, a candidate
            that goes on behind such a closer ends before it.
    """
    return min(_joins(text, hole, may_replace), key=lambda option: _cost(option, hole)).joined


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to join; `preference` orders ways that are equally sound, lowest first."""

    joined: Joined
    preference: tuple[int, int]


def _joins(text: str, hole: Hole, may_replace: bool) -> Iterator[_Option]:
    yield _Option(Joined(text), (1, 0))
    right = hole.right.rstrip()
    comment = scan(text, hole.open, hole.language_id).comment
    if right and comment is not None and not hole.in_comment:  # it would hide what follows
        yield from _joins(text[:comment].rstrip(), hole, may_replace)
    if not right:
        yield from _joins_with_line_below(text, hole)
        return
    for size in range(1, min(len(text), len(right)) + 1):
        if text.endswith(right[:size]):
            wordy = _is_whole_words(text, right, size)
            yield _Option(Joined(text[:-size]), (0, -size) if wordy else (2, -size))
    run = _CLOSING_RUN.match(right)
    size = len(run.group().rstrip()) if run else 0
    if may_replace:
        for count in range(1, size + 1):
            if _is_subsequence(right[:count], text):
                yield _Option(Joined(text, count), (3, count))
    elif size:
        outside = scan(text, hole.open, hole.language_id).unmatched
        if outside:
            yield _Option(Joined(text[: outside[0]]), (4, 0))


def _joins_with_line_below(text: str, hole: Hole) -> Iterator[_Option]:
    """Leave out closing brackets that the next line has, if that is where they belong."""
    below = hole.lines_after[0].lstrip() if hole.lines_after else ""
    closers = _CLOSERS.match(below)
    for size in range(1, len(closers.group()) + 1 if closers else 0):
        if text.endswith(below[:size]):
            yield _Option(Joined(text[:-size].rstrip()), (2, size))


def _cost(option: _Option, hole: Hole) -> tuple[int, int, tuple[int, int]]:
    """How unsound the joined text is: what closes nothing, then what stays open."""
    text, skipped = option.joined.text, option.joined.replace_after
    rest = hole.after[skipped:]
    found = scan(text + rest[:_LOOK_AHEAD_CHARS], hole.open, hole.language_id)
    doubled = bool(text) and text[-1] in _SEPARATORS and rest[:1] == text[-1]
    left_open = len(found.end.brackets) + bool(found.end.string)
    return found.errors + doubled + _hides_code(text, rest, hole), left_open, option.preference


def _hides_code(text: str, rest: str, hole: Hole) -> bool:
    """Whether what stands right of the cursor ends up in a comment that `text` begins."""
    if not rest.partition("\n")[0].strip() or hole.in_comment:
        return False
    return scan(text, hole.open, hole.language_id).comment is not None


def _is_whole_words(text: str, right: str, size: int) -> bool:
    """Whether the overlap is a run of whole tokens with at least one word among them."""
    overlap = right[:size]
    if not re.search(r"\w", overlap):
        return False
    head = text[-size - 1 : -size]
    cuts_head = bool(re.match(r"\w", overlap)) and bool(re.match(r"\w", head))
    tail = right[size : size + 1]
    cuts_tail = bool(re.search(r"\w$", overlap)) and bool(re.match(r"\w", tail))
    return not cuts_head and not cuts_tail


def _is_subsequence(part: str, text: str) -> bool:
    letters = iter(text)
    return all(char in letters for char in part if not char.isspace())
