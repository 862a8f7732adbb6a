"""The comparison of two lists of diagnostics, by example and by property."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.errors import PositionOutside
from lsp_server.verification.baseline import (
    Comparison,
    Diagnostic,
    Edit,
    RawDiagnostic,
    compare,
    located,
)
from tests.lsp_server.verification.workbench import CURSOR

MISSING_RETURN = 'Function with declared return type "int" must return value on all code paths'


def edit_of(marked: str, inserted: str, replaced: int = 0) -> Edit:
    start = marked.index(CURSOR)
    document = DocumentSnapshot("file:///a.py", marked.replace(CURSOR, ""))
    return Edit(document, start, start + replaced, inserted)


def at(
    document: DocumentSnapshot,
    offset: int,
    message: str = "wrong",
    rule: str = "reportWrong",
    severity: int = 1,
) -> Diagnostic:
    return Diagnostic(severity, rule, message, document.position_at(offset)[0], offset)


def lines_of(comparison: Comparison) -> list[int]:
    return [error.line for error in comparison.new_errors]


def test_an_error_in_the_candidate_is_new_even_if_the_line_had_an_equal_one() -> None:
    edit = edit_of("x = bad(<|>)\n", "bad")
    before = [at(edit.before, 4)]
    after = [at(edit.after, 4), at(edit.after, 8)]
    assert lines_of(compare(before, after, edit)) == [1]


def test_errors_behind_the_candidate_move_with_their_lines() -> None:
    edit = edit_of("a\n<|>\nbad\n", "b\nc")
    assert lines_of(compare([at(edit.before, 3)], [at(edit.after, 6)], edit)) == []


def test_an_error_that_vanishes_does_not_excuse_an_equal_one_in_another_line() -> None:
    edit = edit_of("bad\n<|>\nbad\n", "b")
    assert lines_of(compare([at(edit.before, 0)], [at(edit.after, 6)], edit)) == [3]


def test_an_error_counts_as_often_as_it_is_reported() -> None:
    edit = edit_of("bad\n<|>\n", "b")
    before = [at(edit.before, 0)]
    assert lines_of(compare(before, [at(edit.after, 0)] * 2, edit)) == [1]


def test_an_error_may_move_its_column_in_text_that_stays() -> None:
    edit = edit_of("bad bad\n<|>\n", "b")
    assert lines_of(compare([at(edit.before, 0)], [at(edit.after, 4)], edit)) == []


def test_on_the_cursor_line_both_sides_are_kept_apart() -> None:
    edit = edit_of("bad(<|>, bad)\n", "ok")
    assert lines_of(compare([at(edit.before, 0)], [at(edit.after, 8)], edit)) == [1]


def test_an_error_of_the_suffix_right_behind_the_cursor_stays_known() -> None:
    edit = edit_of("f(<|>bad)\n", "x, ")
    assert lines_of(compare([at(edit.before, 2)], [at(edit.after, 5)], edit)) == []


def test_errors_of_the_replaced_text_excuse_nothing() -> None:
    edit = edit_of("f(<|>bad)\n", "bad", replaced=3)
    assert lines_of(compare([at(edit.before, 2)], [at(edit.after, 2)], edit)) == [1]


def test_only_errors_reject() -> None:
    edit = edit_of("<|>\n", "x")
    after = [at(edit.after, 0, severity=severity) for severity in (2, 3, 4)]
    assert compare([], after, edit) == Comparison()


@pytest.mark.parametrize("rule", ["reportPossiblyUnboundVariable", "reportOptionalMemberAccess"])
def test_a_demoting_rule_rejects_where_the_project_made_it_an_error(rule: str) -> None:
    edit = edit_of("<|>\n", "x")
    as_warning = compare([], [at(edit.after, 0, rule=rule, severity=2)], edit)
    as_error = compare([], [at(edit.after, 0, rule=rule, severity=1)], edit)
    assert [error.rule for error in as_warning.demoted] == [rule]
    assert as_warning.new_errors == ()
    assert [error.rule for error in as_error.new_errors] == [rule]


def test_a_missing_import_rejects_only_in_a_confirmed_environment() -> None:
    edit = edit_of("<|>\n", "import x")
    after = [at(edit.after, 7, rule="reportMissingImports")]
    assert lines_of(compare([], after, edit, environment_confirmed=True)) == [1]
    unsure = compare([], after, edit, environment_confirmed=False)
    assert unsure.new_errors == ()
    assert [error.rule for error in unsure.demoted] == ["reportMissingImports"]


def test_a_broken_parse_is_reported_without_its_fallout() -> None:
    edit = edit_of("far\n<|>\n", "f(")
    after = [
        at(edit.after, 0, '"far" is not defined', "reportUndefinedVariable"),
        at(edit.after, 5, '"(" was not closed', "syntax"),
        at(edit.after, 4, '"f" is not defined', "reportUndefinedVariable"),
    ]
    new = compare([], after, edit).new_errors
    assert [(error.line, error.rule) for error in new] == [
        (2, "reportUndefinedVariable"),
        (2, "syntax"),
    ]


def test_a_syntax_error_elsewhere_is_never_dropped() -> None:
    edit = edit_of("a\n<|>\nz\n", "f(")
    after = [at(edit.after, 5, "far", "syntax"), at(edit.after, 2, "near", "syntax")]
    assert lines_of(compare([], after, edit)) == [2, 3]


@pytest.mark.parametrize("behind", ["", "  ", "  # why"])
def test_a_candidate_that_stops_short_is_not_excused_by_the_half_typed_line(behind: str) -> None:
    edit = edit_of(f"x = <|>{behind}\n", "1 +")
    before = [at(edit.before, 4 + len(behind), "Expected expression", "syntax")]
    after = [at(edit.after, 7 + len(behind), "Expected expression", "syntax")]
    assert lines_of(compare(before, after, edit)) == [1]
    assert compare(before, before, edit_of(f"x = <|>{behind}\n", "")) == Comparison()


def test_a_syntax_error_of_code_behind_the_candidate_is_the_users() -> None:
    edit = edit_of("x = <|>)\n", "1")
    before = [at(edit.before, 4, "Expected expression", "syntax")]
    after = [at(edit.after, 5, "Expected expression", "syntax")]
    assert lines_of(compare(before, after, edit)) == []


def test_a_header_may_leave_its_colon_to_the_user() -> None:
    edit = edit_of("for x in a.<|>\n", "b")
    before = [
        at(edit.before, 11, "Expected member name", "syntax"),
        at(edit.before, 11, 'Expected ":"', "syntax"),
    ]
    assert compare(before, [at(edit.after, 12, 'Expected ":"', "syntax")], edit) == Comparison()


@pytest.mark.parametrize(
    ("marked", "demoted"),
    [
        ("def f() -> int:\n    <|>\n", True),
        ("def f() -> int:\n    a\n\n    if b:\n        <|>\n", True),
        ("def f() -> int:\n    a\nb\n<|>\n", False),
    ],
)
def test_a_function_that_still_lacks_its_return_lowers_the_rank(marked: str, demoted: bool) -> None:
    edit = edit_of(marked, "x = 1")
    missing = at(edit.before, 11, MISSING_RETURN, "reportReturnType")
    comparison = compare([missing], [missing], edit)
    assert comparison.new_errors == ()
    assert bool(comparison.demoted) is demoted


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (0, 4), (2, 1)])
def test_a_range_outside_the_document_is_refused(start: int, end: int) -> None:
    with pytest.raises(PositionOutside, match="characters"):
        Edit(DocumentSnapshot("file:///a.py", "abc"), start, end, "x")


texts = st.text("a \n\ré🎉(", max_size=40)


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    document = DocumentSnapshot("file:///a.py", draw(texts))
    start = draw(st.integers(0, len(document.text)))
    end = draw(st.integers(start, len(document.text)))
    return Edit(document, start, end, draw(texts))


@st.composite
def judged(draw: st.DrawFn) -> tuple[Edit, list[Diagnostic]]:
    """An edit, and errors of its baseline in the text that stays."""
    edit = draw(edits())
    length = len(edit.before.text)
    offsets = draw(st.lists(st.integers(0, length), max_size=6))
    messages = st.sampled_from(["one", "two"])
    return edit, [
        at(edit.before, offset, draw(messages))
        for offset in offsets
        if offset < edit.start or offset >= edit.end
    ]


def moved(diagnostic: Diagnostic, edit: Edit) -> Diagnostic:
    """Where the same error is with the candidate in place."""
    if diagnostic.offset < edit.start:
        offset = diagnostic.offset
    else:
        offset = diagnostic.offset - (edit.end - edit.start) + len(edit.inserted)
    return at(edit.after, offset, diagnostic.message)


@given(judged())
def test_errors_that_only_move_are_never_new(case: tuple[Edit, list[Diagnostic]]) -> None:
    edit, before = case
    assert compare(before, [moved(one, edit) for one in before], edit) == Comparison()


@given(judged(), st.data())
def test_exactly_the_added_error_is_new(
    case: tuple[Edit, list[Diagnostic]], data: st.DataObject
) -> None:
    edit, before = case
    offset = data.draw(st.integers(0, len(edit.after.text)))
    added = at(edit.after, offset, data.draw(st.sampled_from(["one", "three"])))
    after = [moved(one, edit) for one in before]
    order = data.draw(st.permutations([*after, added]))
    new = compare(before, order, edit).new_errors
    assert [(error.line, error.message) for error in new] == [(added.line + 1, added.message)]


@given(judged(), st.data())
def test_a_vanished_error_excuses_no_other_line(
    case: tuple[Edit, list[Diagnostic]], data: st.DataObject
) -> None:
    edit, before = case
    assume(before)
    gone = data.draw(st.sampled_from(before))
    other = at(edit.after, data.draw(st.integers(0, len(edit.after.text))), gone.message)
    assume(other.line != moved(gone, edit).line)
    rest = list(before)
    rest.remove(gone)
    after = [*(moved(one, edit) for one in rest), other]
    assert lines_of(compare(before, after, edit)) == [other.line + 1]


@given(judged())
def test_an_error_less_is_never_a_new_error(case: tuple[Edit, list[Diagnostic]]) -> None:
    edit, before = case
    for index in range(len(before)):
        after = [moved(one, edit) for one in before[:index] + before[index + 1 :]]
        assert compare(before, after, edit) == Comparison()


@given(judged())
def test_another_severity_is_another_diagnostic(case: tuple[Edit, list[Diagnostic]]) -> None:
    edit, before = case
    warnings = [replace(one, severity=2) for one in before]
    after = [moved(one, edit) for one in before]
    assert len(compare(warnings, after, edit).new_errors) == len(before)


@given(texts, st.data())
def test_utf16_positions_find_their_code_point(text: str, data: st.DataObject) -> None:
    document = DocumentSnapshot("file:///a.py", text)
    line = data.draw(st.integers(0, document.line_count - 1))
    content = document.line_at(line)
    column = data.draw(st.integers(0, len(content)))
    units = len(content[:column].encode("utf-16-le")) // 2
    raw = RawDiagnostic(1, "reportWrong", "wrong", line, units)
    assert located(raw, document).offset == document.offset_at(line, column)


def test_a_position_past_the_end_is_clamped() -> None:
    document = DocumentSnapshot("file:///a.py", "ab\ncd")
    assert located(RawDiagnostic(1, "r", "m", 9, 9), document).offset == 5
