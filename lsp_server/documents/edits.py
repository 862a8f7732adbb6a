"""What a client's change notifications do to a document. Pure: a snapshot in, one out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lsp_server.documents.positions import PositionEncoding, to_offset
from lsp_server.documents.snapshot import DocumentSnapshot


@dataclass(frozen=True, slots=True)
class Edit:
    """One content change.

    Attributes:
        text: the new text.
        span: start line, start character, end line, end character in the client's
            encoding, or None where `text` replaces the whole document.
    """

    text: str
    span: tuple[int, int, int, int] | None = None


def apply_edits(
    document: DocumentSnapshot, edits: Iterable[Edit], version: int, encoding: PositionEncoding
) -> DocumentSnapshot:
    """The document after `edits`, each of which refers to the state the last one left.

    Spans outside the document are clamped into it, reversed ones turned round.
    """
    for edit in edits:
        if edit.span is None:
            text = edit.text
        else:
            start_line, start_character, end_line, end_character = edit.span
            start, end = sorted(
                (
                    to_offset(document, start_line, start_character, encoding),
                    to_offset(document, end_line, end_character, encoding),
                )
            )
            text = document.text[:start] + edit.text + document.text[end:]
        document = replace(document, text=text)
    return replace(document, version=version)
