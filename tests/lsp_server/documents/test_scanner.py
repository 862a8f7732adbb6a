"""What the small lexer sees as open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.scanner import ScanState, scan, state_before

CODE = st.text(alphabet="ab(){}[]'\"#\\\n `/*", max_size=60)


@pytest.mark.parametrize(
    ("text", "brackets", "string"),
    [
        ("f(a[0], {", "({", ""),
        ("f('(', \"[\")", "", ""),
        ("# (\n[", "[", ""),
        ("'''(\n", "", "'''"),
        ('x = "a\\"(', "", '"'),
        ('x = "a\n(', "(", ""),  # a one-line string does not outlive its line
        ("(]", "(", ""),
        ("()", "", ""),
    ],
)
def test_what_is_open(text: str, brackets: str, string: str) -> None:
    assert scan(text, ScanState(), "python").end == ScanState(tuple(brackets), string)


def test_other_languages_have_other_comments() -> None:
    assert scan("// (\n/* [\n */ `{\n", ScanState(), "go").end == ScanState((), "`")
    assert scan("a # (", ScanState(), "c").end.brackets == ("(",)


def test_where_statements_can_start() -> None:
    text = "a = (\n1)\nb = \\\n2\nc = '''\n'''\nd"
    assert scan(text, ScanState(), "python").statement_lines == (
        False,
        True,
        False,
        True,
        False,
        True,
    )


def test_closers_of_what_was_open_before() -> None:
    found = scan("a) + f(b)])", ScanState(("[", "(")), "python")
    assert found.unmatched == (1, 9, 10)
    assert found.errors == 1
    assert scan("x') + 'y", ScanState(("(",), "'"), "python").unmatched == (1, 2)


def test_a_window_that_starts_inside_a_docstring() -> None:
    before = 'isn\'t (so.\n    """\n\n\ndef f(a):\n    g('
    assert state_before(before, "python").brackets == ("(",)


@given(first=CODE, second=CODE)
def test_a_scan_can_be_continued(first: str, second: str) -> None:
    joined = first + "\n" + second  # tokens do not reach over a line end
    if (first + "\n").endswith("\\\n"):
        return
    start = scan(first + "\n", ScanState(), "python")
    rest = scan(second, start.end, "python")
    whole = scan(joined, ScanState(), "python")
    assert whole.end == rest.end
    assert whole.errors == start.errors + rest.errors
    assert whole.statement_lines == start.statement_lines + rest.statement_lines


@given(CODE)
def test_there_is_one_entry_for_every_line(text: str) -> None:
    assert len(scan(text, ScanState(), "python").statement_lines) == text.count("\n")
