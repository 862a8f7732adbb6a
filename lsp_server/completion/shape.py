"""From what the model wrote to what can be inserted: pure functions on LF strings.

Nothing here knows types; the checker has the last word on everything that is returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lsp_server.completion.blocks import block_end, whole_lines
from lsp_server.completion.join import Joined, join
from lsp_server.context.hole import Hole, indent_of, opens_block
from lsp_server.documents.snapshot import to_lf

# The engine stops at the ids of these tokens; here they are looked for as text, in case a
# model spells one out of ordinary tokens.
_SPECIAL = re.compile(
    r"<\|(?:fim_\w+|endoftext|end_of_text|file_sep|file_separator|repo_name|im_start|im_end)\|>"
    r"|</?(?:fim_\w+|file_sep|filename|reponame|PRE|SUF|MID|EOT)>|<\uff5c[^<>\n]{1,24}\uff5c>"
)


@dataclass(frozen=True, slots=True)
class Shaper:
    """Shapes the candidates of one hole.

    Attributes:
        hole: where they go.
        may_replace: whether a candidate may replace closing brackets, quotes and colons
            right of the cursor.
    """

    hole: Hole
    may_replace: bool = True

    def is_settled(self, raw: str) -> bool:
        """Whether more text would not change what `shape` makes of `raw`."""
        text = _fit_start(_without_special(to_lf(raw), self.hole), self.hole)
        return _scope_end(text, self.hole) is not None

    def shape(self, raw: str, *, truncated: bool) -> Joined | None:
        """What to insert for `raw`, or None when nothing worth showing is left.

        Args:
            raw: the candidate as the model wrote it.
            truncated: it ended at a token limit, so its end may be half a name.
        """
        text = _fit_start(_without_special(to_lf(raw), self.hole), self.hole)
        end = _scope_end(text, self.hole)
        if end is not None:
            text, truncated = text[:end], False
        kept = _without_lines_below(text, self.hole, truncated)
        if kept != text:
            text, truncated = kept, False
        if truncated:
            text = whole_lines(text, self.hole)
        joined = join(_fit_end(text, self.hole), self.hole, may_replace=self.may_replace)
        return joined if _is_worth_showing(joined, self.hole) else None


def _scope_end(text: str, hole: Hole) -> int | None:
    """Where the wanted scope of `text` ends: its first line, or its block."""
    if hole.multiline:
        return block_end(text, hole)
    end = text.find("\n")
    return end if end >= 0 else None


def _without_special(text: str, hole: Hole) -> str:
    """`text` up to the first special token, unless the document itself spells that token."""
    match = _SPECIAL.search(text)
    if match is None or match.group() in hole.before or match.group() in hole.after:
        return text
    return text[: match.start()]


def _fit_start(text: str, hole: Hole) -> str:
    """`text` with a first line that continues what is already left of the cursor."""
    if hole.left.strip():
        return text.lstrip(" \t") if hole.left[-1] in " \t" else text
    if hole.multiline:
        text = text.lstrip("\n")
    own = indent_of(text)
    return own[: _missing_indent(own, hole)] + text[len(own) :]


def _missing_indent(own: str, hole: Hole) -> int:
    """How many of the candidate's leading blanks `own` the cursor's line still lacks."""
    left = len(hole.left)
    if hole.in_statement:
        return 0 if left else len(own)  # continuation lines may be aligned anyhow
    allowed = len(indent_of(hole.previous_line))
    if opens_block(hole.previous_line, hole.language_id):
        # A cursor already deeper than the head stands where the block is to be.
        allowed = left if left > allowed else allowed + hole.indent_unit
    return max(0, min(len(own), allowed - left))


def _fit_end(text: str, hole: Hole) -> str:
    """`text` without trailing blank space, save a blank that keeps two words apart."""
    right = hole.right.strip()
    if right and not hole.right[0].isspace() and re.match(r"[\w\"'(\[{]", right):
        return text.rstrip("\n")
    return text.rstrip()


def _without_lines_below(text: str, hole: Hole, truncated: bool) -> str:
    """`text` up to the first line from where on it only repeats the lines below."""
    lines = (hole.left + text).split("\n")
    solid = [(number, line.rstrip()) for number, line in enumerate(lines) if line.strip()]
    for start, (number, _) in enumerate(solid):
        repeated = [line for _, line in solid[start:]]
        if _repeats(repeated, hole.lines_after, truncated):
            kept = "\n".join(lines[:number])
            return kept[len(hole.left) :] if number else ""
    return text


def _repeats(lines: list[str], below: list[str], truncated: bool) -> bool:
    if len(lines) > len(below) or not _has_word("".join(lines)):
        return False
    if truncated and lines:
        return lines[:-1] == below[: len(lines) - 1] and below[len(lines) - 1].startswith(lines[-1])
    return lines == below[: len(lines)]


def _is_worth_showing(joined: Joined, hole: Hole) -> bool:
    """Whether it shows anything, and anything but the neighbouring lines again."""
    if not joined.text.strip() or "\0" in joined.text:
        return False
    whole = hole.left + joined.text + hole.right[joined.replace_after :]
    lines = [line.rstrip() for line in whole.split("\n") if line.strip()]
    if not _has_word("".join(lines)):
        return True
    repeats_above = lines == hole.lines_before[-len(lines) :]
    return not repeats_above and lines != hole.lines_after[: len(lines)]


def _has_word(text: str) -> bool:
    return re.search(r"\w", text) is not None
