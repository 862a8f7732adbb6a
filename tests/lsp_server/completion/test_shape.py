"""What becomes of a candidate, and what must never happen to the user's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.completion.shape import Shaper
from lsp_server.context.hole import Hole


def shaped(
    around: str,
    raw: str,
    *,
    truncated: bool = False,
    may_replace: bool = True,
    language_id: str = "python",
) -> tuple[str, int] | None:
    """Shape `raw` for the place marked `|`; `‖` marks a place for several lines."""
    multiline = "‖" in around
    before, after = around.split("‖" if multiline else "|")
    hole = Hole(before, after, language_id, multiline)
    joined = Shaper(hole, may_replace).shape(raw, truncated=truncated)
    return None if joined is None else (joined.text, joined.replace_after)


@pytest.mark.parametrize(
    ("around", "raw", "text", "replaced"),
    [
        ("print(|)\n", "x)", "x", 0),
        ("print(|)\n", "x", "x", 0),
        ("f(g(|)\n", "x)", "x)", 0),  # the document's bracket closes the outer call
        ("f(g(|))\n", "x))", "x", 0),
        ("f(g(h(|))\n", "x))", "x)", 0),
        ("a[|]\n", "0]", "0", 0),
        ("a = {|}\n", "'k': [1]}", "'k': [1]", 0),
        ("f(|\n)\n", "x)", "x", 0),  # the partner stands on the next line
        ("f(|)\n", "')')", "')'", 0),  # a bracket in a string closes nothing
        ("def f(|):\n", "self):", "self", 0),
        ("def f(|):\n", "self) -> int:", "self) -> int:", 2),
        ("print(|)\n", "x) or 1", "x) or 1", 1),
        ("print('|')\n", "hello')", "hello", 0),
        ("print('|')\n", "hello', end='')", "hello', end='", 0),
        ("print('|')\n", "hello', end=x)", "hello', end=x)", 2),
        ('"""Say |"""\n', 'hello."""', "hello.", 0),
    ],
)
def test_brackets_and_quotes_are_never_doubled(
    around: str, raw: str, text: str, replaced: int
) -> None:
    assert shaped(around, raw) == (text, replaced)


@pytest.mark.parametrize(
    ("around", "raw", "text"),
    [
        ("def f(|):\n", "self) -> int:", "self"),
        ("print(|)\n", "x) or 1", "x"),
        ("print('|')\n", "hello', end=x)", "hello"),
    ],
)
def test_a_caller_that_can_only_insert_gets_what_fits(around: str, raw: str, text: str) -> None:
    assert shaped(around, raw, may_replace=False) == (text, 0)


@pytest.mark.parametrize("may_replace", [True, False])
@pytest.mark.parametrize(
    ("around", "raw", "text"),
    [
        ("print(|)\n", "f())  # Output: 1", "f()"),
        ("print(|)\n", "f()  # Output: 1", "f()"),
        ("xs = [f(|)]\n", "'#')  # one", "'#'"),
        ("x = f(|) + 1\n", "2) # two", "2"),
        ("# see f(|)\n", "x)  # there", "x)  # there"),  # all of it is one comment
        ("x = |\n", "f()  # Output: 1", "f()  # Output: 1"),
    ],
)
def test_a_comment_never_hides_what_follows_the_cursor(
    around: str, raw: str, text: str, may_replace: bool
) -> None:
    assert shaped(around, raw, may_replace=may_replace) == (text, 0)


@pytest.mark.parametrize(
    ("around", "raw", "text"),
    [
        ("f(|, timeout=5)\n", "url, timeout=5)", "url"),
        ("x = | + 1\n", "a + 1", "a"),
        ("x = a|.b\n", "c.", "c"),
        ("x: |, y\n", "int,", "int"),
        ("f(|b)\n", "a, ", "a, "),  # not an overlap: the blank keeps the words apart
        ("x = |table\n", "my_", "my_"),  # not an overlap: the middle of a name
    ],
)
def test_words_after_the_cursor_are_not_repeated(around: str, raw: str, text: str) -> None:
    assert shaped(around, raw) == (text, 0)


def test_lines_below_are_not_repeated() -> None:
    around = "def f():\n    ‖\n    return a\n\nprint(f())\n"
    assert shaped(around, "a = 1\n    return a") == ("a = 1", 0)
    assert shaped(around, "a = 1\n    return a\n\nprint(f())") == ("a = 1", 0)
    assert shaped(around, "a = 1\n    return b") == ("a = 1\n    return b", 0)


def test_a_repeated_line_cut_short_is_recognised() -> None:
    around = "def f():\n    ‖\n    return alpha + beta\n"
    assert shaped(around, "a = 1\n    return al", truncated=True) == ("a = 1", 0)


@pytest.mark.parametrize(
    ("around", "raw"),
    [
        ("def f():\n    ‖\n    return a\n", "return a"),
        ("def f():\n    a = 1\n    ‖\n", "a = 1"),
        ("x = 1\nx = |\n", "1"),
        ("x = |\n", "   "),
        ("x = |\n", "\n\n"),
        ("x = |\n", ""),
        ("x = |\n", "\0"),
    ],
)
def test_what_shows_nothing_new_is_dropped(around: str, raw: str) -> None:
    assert shaped(around, raw) is None


def test_the_same_line_at_another_depth_is_not_a_repetition() -> None:
    around = "def f(x):\n    if x:\n        ‖\n    return None\n"
    assert shaped(around, "return None") == ("return None", 0)


@pytest.mark.parametrize(
    ("around", "raw", "text"),
    [
        ("def f():\n    ‖\n", "    return 1", "return 1"),
        ("def f():\n  ‖\n", "    return 1", "return 1"),
        ("def f():\n‖\n", "    return 1", "    return 1"),
        ("def f():\n    if x:\n    ‖\n", "        return 1", "    return 1"),
        ("def f():\n    if x:\n        ‖\n", "        return 1", "return 1"),
        ("class A:\n\tx = 1\n\t‖\n", "\ty = 2", "y = 2"),
        ("def f():\n    a = 1\n    ‖\n", "\n    b = 2", "b = 2"),
        ("x = |\n", " 1", "1"),
        ("x =|\n", " 1", " 1"),
        ("f(\n    ‖\n)\n", "    a,\n    b,", "a,\n    b,"),
    ],
)
def test_the_first_line_continues_the_indentation(around: str, raw: str, text: str) -> None:
    assert shaped(around, raw) == (text, 0)


@pytest.mark.parametrize(
    ("around", "raw", "text"),
    [
        ("def f():\n    ‖\n", "a = 1\n    return a\nprint(f())", "a = 1\n    return a"),
        ("def f():\n    ‖\n", "a = 1\n    return a\n\n    b = 2", "a = 1\n    return a"),
        ("def f():‖\n", "\n    return 1\nprint()", "\n    return 1"),
        ("f(\n    ‖\n", "a,\n    b,\n)\nprint()", "a,\n    b,\n)"),
        (
            "def f():\n    ‖\n",
            '"""Doc.\n\nFlush left.\n"""\n    return 1\nx',
            '"""Doc.\n\nFlush left.\n"""\n    return 1',
        ),
        (
            "def f():\n    ‖\n",
            "if x:\n        y()\n    z()\nprint()",
            "if x:\n        y()\n    z()",
        ),
        ("x = |\n", "1\ny = 2", "1"),
    ],
)
def test_a_block_ends_at_a_dedent_or_a_blank_line(around: str, raw: str, text: str) -> None:
    assert shaped(around, raw) == (text, 0)


@pytest.mark.parametrize(
    ("around", "raw", "text"),
    [
        ("def f():\n    ‖\n", "a = 1\n    b = a.unfini", "a = 1"),
        ("def f():\n    ‖\n", "a = g(\n        1,\n        unfini", None),
        ("def f():\n    ‖\n", "if a:\n        b = a.unfini", None),
        ("def f():\n    ‖\n", "if a:\n        b = 1\n        c = unf", "if a:\n        b = 1"),
        ("def f():\n    ‖\n", "try:\n        a()\n    exce", None),
        ("if x:\n    pass\n‖\n", "else:\n    a()\n    b.unf", "else:\n    a()"),
        ("try:\n    x\n‖\n", "except E:\n    a()\n    b.unf", "except E:\n    a()"),
        ("match x:\n    ‖\n", "case 1:\n        a()\n        b.unf", "case 1:\n        a()"),
        ("f(\n    ‖\n)\n", "alpha,\n    bet", "alpha,"),
        ("x = |\n", "alpha.bet", None),
        ("x = |\n", "alpha.beta\n", "alpha.beta"),  # the line was whole before the limit
        ("def f():\n    ‖\n", "s = '\\d'\n    b = a.unf", "s = '\\d'"),
    ],
)
def test_a_name_cut_short_is_never_offered(around: str, raw: str, text: str | None) -> None:
    result = shaped(around, raw, truncated=True)
    assert result == (None if text is None else (text, 0))


def test_special_tokens_end_a_candidate_unless_the_document_is_about_them() -> None:
    assert shaped("x = |\n", "1<|fim_pad|>2") == ("1", 0)
    assert shaped("x = |\n", "1<|file_sep|>b.py") == ("1", 0)
    about_tokens = Hole("PAD = '<|fim_pad|>'\nx = ", "\n", "python")
    joined = Shaper(about_tokens).shape("'<|fim_pad|>'", truncated=False)
    assert joined is not None
    assert joined.text == "'<|fim_pad|>'"


def test_other_languages() -> None:
    around = "function f() {\n  ‖\n}\n"
    assert shaped(around, "return [1];\n}", language_id="javascript") == ("return [1];", 0)
    assert shaped("g(|)\n", "x);", language_id="javascript") == ("x);", 1)
    assert shaped("// don't (|\n", "x)", language_id="javascript") == ("x)", 0)


def test_a_settled_candidate_does_not_change_any_more() -> None:
    hole = Hole("def f():\n    ", "\n", "python", multiline=True)
    shaper = Shaper(hole)
    assert not shaper.is_settled("return 1\n")
    assert not shaper.is_settled("return 1\n    ")
    assert shaper.is_settled("return 1\np")


CODE = st.text(alphabet="ab(){}[]'\",:.=#\\\n \té🦊", max_size=40)


@given(before=CODE, after=CODE, raw=CODE, multiline=st.booleans(), truncated=st.booleans())
def test_the_text_outside_the_hole_is_never_altered(
    before: str, after: str, raw: str, multiline: bool, truncated: bool
) -> None:
    hole = Hole(before, after, "python", multiline)
    joined = Shaper(hole).shape(raw, truncated=truncated)
    if joined is None:
        return
    replaced = after[: joined.replace_after]
    assert "\n" not in replaced
    assert set(replaced) <= set(")]}\"'`:;, \t")
    kept = iter(joined.text)
    assert all(char in kept for char in replaced if not char.isspace()), "nothing is lost"
    assert joined.text.strip()
    assert multiline or "\n" not in joined.text
    assert joined.text.strip("\n") in raw or joined.replace_after == 0
    assert len(joined.text) <= len(raw)


@given(before=CODE, after=CODE, raw=CODE, multiline=st.booleans())
def test_a_caller_that_can_only_insert_never_replaces(
    before: str, after: str, raw: str, multiline: bool
) -> None:
    joined = Shaper(Hole(before, after, "python", multiline), may_replace=False).shape(
        raw, truncated=False
    )
    assert joined is None or joined.replace_after == 0


@given(before=CODE, after=CODE, raw=CODE, more=CODE, multiline=st.booleans())
def test_settled_means_that_more_text_changes_nothing(
    before: str, after: str, raw: str, more: str, multiline: bool
) -> None:
    shaper = Shaper(Hole(before, after, "python", multiline))
    if shaper.is_settled(raw):
        assert shaper.shape(raw, truncated=False) == shaper.shape(raw + more, truncated=False)
