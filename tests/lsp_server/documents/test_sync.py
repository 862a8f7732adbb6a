"""Positions in every encoding, and edits that keep the client's text exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.edits import Edit, apply_edits
from lsp_server.documents.positions import (
    PositionEncoding,
    column_of,
    to_offset,
    to_position,
    units_of,
)
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.documents.store import DocumentStore, path_of

# Line ends of LSP, characters only Python takes for line ends, and all widths of UTF-8.
texts = st.text(st.sampled_from("ab\n\r\f\v\x1c\x85\u2028\u00e9\u4e2d\U0001f600"), max_size=30)
encodings = st.sampled_from(list(PositionEncoding))
CODECS = {
    PositionEncoding.UTF8: ("utf-8", 1),
    PositionEncoding.UTF16: ("utf-16-le", 2),
    PositionEncoding.UTF32: ("utf-32-le", 4),
}


def snapshot(text: str) -> DocumentSnapshot:
    return DocumentSnapshot("untitled:a", text)


@given(texts, encodings)
def test_units_are_those_of_the_codec(text: str, encoding: PositionEncoding) -> None:
    codec, width = CODECS[encoding]
    assert units_of(text, encoding) == len(text.encode(codec)) // width


@given(texts, encodings, st.data())
def test_positions_and_offsets_are_inverse(
    text: str, encoding: PositionEncoding, data: st.DataObject
) -> None:
    document = snapshot(text)
    offset = data.draw(st.integers(0, len(text)))
    if text[max(0, offset - 1) : offset + 1] == "\r\n":
        return  # between the halves of a line end there is no position
    assert to_offset(document, *to_position(document, offset, encoding), encoding) == offset


@given(texts, encodings, st.integers(-5, 2**31), st.integers(-5, 2**31))
def test_every_position_lies_in_the_text(
    text: str, encoding: PositionEncoding, line: int, character: int
) -> None:
    assert 0 <= to_offset(snapshot(text), line, character, encoding) <= len(text)


def test_the_inside_of_a_character_is_its_start() -> None:
    assert column_of("a\U0001f600b", 2, PositionEncoding.UTF16) == 1
    assert column_of("a\U0001f600b", 3, PositionEncoding.UTF8) == 1
    assert column_of("a\U0001f600b", 3, PositionEncoding.UTF16) == 2


@given(texts, texts, encodings, st.data())
def test_an_incremental_edit_is_a_splice(
    text: str, new: str, encoding: PositionEncoding, data: st.DataObject
) -> None:
    document = snapshot(text)
    ends = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    positions = [to_position(document, offset, encoding) for offset in ends]
    start, end = (to_offset(document, *position, encoding) for position in positions)
    edit = Edit(new, (*positions[0], *positions[1]))
    assert apply_edits(document, [edit], 2, encoding).text == text[:start] + new + text[end:]


def test_edits_refer_to_the_state_the_last_one_left() -> None:
    edits = [
        Edit("\n", (0, 0, 0, 0)),
        Edit("x", (1, 0, 1, 1)),
        Edit("all"),
        Edit("!", (9, 9, 9, 9)),
    ]
    document = apply_edits(snapshot("ab"), edits, 7, PositionEncoding.UTF16)
    assert (document.text, document.version) == ("all!", 7)


def test_a_reversed_range_is_turned_round() -> None:
    document = apply_edits(snapshot("abc"), [Edit("", (0, 2, 0, 1))], 2, PositionEncoding.UTF16)
    assert document.text == "ac"


def test_documents_are_found_however_their_uri_is_encoded() -> None:
    store = DocumentStore()
    store.open("file:///c%3A/a%20b.py", "x", 1, "python")
    document = store.get("file:///c:/a b.py")
    assert document is not None
    assert document.uri == "file:///c%3A/a%20b.py"
    assert store.close("file:///c:/a%20b.py") is document
    assert store.get("file:///c:/a b.py") is None


def test_changes_of_unknown_documents_are_refused() -> None:
    store = DocumentStore()
    assert store.change("file:///a.py", [Edit("x")], 1) is None
    assert store.close("file:///a.py") is None


@given(st.text(st.characters(categories=["Cs"]) | st.sampled_from("a\n"), max_size=8))
def test_what_others_see_can_always_be_encoded(text: str) -> None:
    document = DocumentStore().open("untitled:a", text, 1, "python")
    document.text.encode()
    assert (
        units_of(document.text, PositionEncoding.UTF16)
        == len(text.encode("utf-16-le", "surrogatepass")) // 2
    )


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c.py", "/a/b c.py"),
        ("file://localhost/a.py", "/a.py"),
        ("untitled:Untitled-1", None),
        ("vscode-notebook-cell:/a.ipynb#1", None),
        ("file://[broken", None),
        ("file:///a%00b", None),
        ("", None),
    ],
)
def test_paths_of_uris(uri: str, path: str | None) -> None:
    found = path_of(uri)
    assert (str(found) if found is not None else None) == path
