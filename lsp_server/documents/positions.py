"""Between a client's positions and code-point offsets, in every LSP position encoding.

Positions outside the document are clamped into it: editors send them while a document is
changing under them, and a request must not die of that. A position inside a character
(between the halves of a UTF-16 surrogate pair) means the character's start.
"""

from __future__ import annotations

from enum import StrEnum

from lsp_server.documents.snapshot import DocumentSnapshot


class PositionEncoding(StrEnum):
    """What a position's `character` counts; the values are LSP's."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


def units_of(text: str, encoding: PositionEncoding) -> int:
    """Length of `text` in code units of `encoding`."""
    if encoding is PositionEncoding.UTF32 or text.isascii():
        return len(text)
    if encoding is PositionEncoding.UTF8:
        return sum(map(_utf8_units, text))
    return len(text) + sum(character > "\uffff" for character in text)


def column_of(line: str, units: int, encoding: PositionEncoding) -> int:
    """Code-point column that lies `units` code units into `line`, clamped into the line."""
    if units <= 0:
        return 0
    if encoding is PositionEncoding.UTF32 or line.isascii():
        return min(units, len(line))
    width = _utf8_units if encoding is PositionEncoding.UTF8 else _utf16_units
    for column, character in enumerate(line):
        units -= width(character)
        if units < 0:
            return column
    return len(line)


def to_offset(
    document: DocumentSnapshot, line: int, character: int, encoding: PositionEncoding
) -> int:
    """Code-point offset of a client's position, clamped into the document."""
    if line < 0:
        return 0
    if line >= document.line_count:
        return len(document.text)
    column = column_of(document.line_at(line), character, encoding)
    return document.offset_at(line, column)


def to_position(
    document: DocumentSnapshot, offset: int, encoding: PositionEncoding
) -> tuple[int, int]:
    """The client's line and character of a code-point offset."""
    line, column = document.position_at(offset)
    return line, units_of(document.line_at(line)[:column], encoding)


def _utf8_units(character: str) -> int:
    code = ord(character)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4


def _utf16_units(character: str) -> int:
    return 2 if character > "\uffff" else 1
