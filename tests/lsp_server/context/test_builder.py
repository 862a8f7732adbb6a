"""What the model is given: the window, the exclusions, and how many lines are wanted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.builder import (
    MAX_DOCUMENT_CHARS,
    MAX_LINE_CHARS,
    Context,
    Excluded,
    build,
    window,
)
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.settings import Settings


def context_at(around: str, *, language_id: str = "python", multiline: str = "auto") -> Context:
    """The context at the place marked `|`."""
    before, after = around.split("|")
    document = DocumentSnapshot("file:///a", before + after, language_id=language_id)
    settings = Settings.model_validate({"completion": {"multiline": multiline}})
    found = build(document, len(before), settings)
    assert isinstance(found, Context)
    assert found.hole.multiline is (found.max_lines is None)
    return found


@pytest.mark.parametrize(
    "around",
    [
        "def f():\n    |\n",
        "def f():\n|",
        "x = 1\n|\ny = 2\n",
        "def f():|\n",
        "async def f() -> None:|\n",
        "class A:  # why\n    |\n",
        "if x:  |\n",
        "f(\n    |\n)\n",
        '"""Doc.\n|\n"""\n',
    ],
)
def test_several_lines_are_wanted(around: str) -> None:
    assert context_at(around).max_lines is None
    assert context_at(around, multiline="never").max_lines == 1


@pytest.mark.parametrize(
    "around",
    [
        "x = |\n",
        "    return |\n",
        "f(|)\n",
        "def f(a:|\n",
        "x:|\n",
        "d = {'if':|\n",
        "    |return x\n",
        "if x:| # why\n",
        "# |\n",
    ],
)
def test_one_line_is_wanted(around: str) -> None:
    assert context_at(around).max_lines == 1


def test_other_languages_open_blocks_in_their_own_way() -> None:
    assert context_at("fn f() {|\n}\n", language_id="rust").hole.multiline is False
    assert context_at("fn f() {\n    |\n}\n", language_id="rust").hole.multiline is True


def test_the_model_sees_lf_only() -> None:
    document = DocumentSnapshot("file:///a", "a\r\nb = \r\nc\rd\n")
    found = build(document, 7, Settings())
    assert isinstance(found, Context)
    assert (found.hole.before, found.hole.after) == ("a\nb = ", "\nc\nd\n")


def test_a_long_document_gives_a_small_window() -> None:
    text = "value = 1  # a line like many others\n" * 100_000
    found = build(DocumentSnapshot("file:///a", text), len(text) // 2, Settings())
    assert isinstance(found, Context)
    assert len(found.hole.before) + len(found.hole.after) < 6_000
    assert found.hole.before.startswith("value")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\0b", "NUL"),
        ("x" * (MAX_LINE_CHARS + 1), "line 1"),
        ("x = 1\n" + "y" * (MAX_LINE_CHARS + 1), "line 2"),
        ("x" * (MAX_DOCUMENT_CHARS + 1), f"{MAX_DOCUMENT_CHARS:,} characters"),
    ],
)
def test_exclusions_say_why(text: str, reason: str) -> None:
    found = build(DocumentSnapshot("file:///a", text), 0, Settings())
    assert isinstance(found, Excluded)
    assert reason in found.reason
    assert "\n" not in found.reason


def test_a_long_line_far_from_the_cursor_excludes_nothing() -> None:
    text = "a\nb\nc\n" + "x" * (MAX_LINE_CHARS + 1)
    assert isinstance(build(DocumentSnapshot("file:///a", text), 0, Settings()), Context)


@given(text=st.text(alphabet="ab \n\r", max_size=200), data=st.data(), budget=st.integers(10, 80))
def test_a_window_is_a_piece_of_the_text_around_the_cursor(
    text: str, data: st.DataObject, budget: int
) -> None:
    offset = data.draw(st.integers(0, len(text)))
    before, after = window(text, offset, budget)
    assert text[:offset].endswith(before)
    assert text[offset:].startswith(after)
    assert len(before) + len(after) <= budget


def test_what_one_side_does_not_need_the_other_gets() -> None:
    lines = "abcdefghi\n" * 100
    before, after = window(lines, 20, 200)
    assert len(before) == 20
    assert len(after) > 150
    before, after = window(lines, len(lines), 200)
    assert (len(before), after) == (200, "")
