"""Stop rules: the same cut however the text is split into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.stop import StopRule


def run(pieces: list[str], stop: tuple[str, ...], max_lines: int | None) -> tuple[str, bool]:
    rule = StopRule(stop, max_lines)
    text = "".join(rule.push(piece) for piece in pieces)
    return (text if rule.stopped else text + rule.flush()), rule.stopped


def naive(text: str, stop: tuple[str, ...], max_lines: int | None) -> tuple[str, bool]:
    ends = [at for s in stop if (at := text.find(s)) >= 0]
    if max_lines is not None and text.count("\n") >= max_lines:
        ends.append(len("\n".join(text.split("\n")[:max_lines])))
    return (text[: min(ends)], True) if ends else (text, False)


pieces = st.lists(st.text(alphabet="ab\n", max_size=4), max_size=8)
stops = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=3), max_size=3).map(tuple)


@given(pieces=pieces, stop=stops, max_lines=st.none() | st.integers(1, 3))
def test_streaming_cuts_where_the_whole_text_would_be_cut(
    pieces: list[str], stop: tuple[str, ...], max_lines: int | None
) -> None:
    assert run(pieces, stop, max_lines) == naive("".join(pieces), stop, max_lines)


def test_what_might_become_a_stop_string_is_held_back() -> None:
    rule = StopRule(("\n\n",), None)
    assert rule.push("a\n") == "a"
    assert rule.push("b") == "\nb"
    assert rule.push("\n") == ""
    assert rule.push("\n") == ""
    assert rule.stopped
    assert rule.push("more") == ""


@pytest.mark.parametrize(("max_lines", "expected"), [(1, "a"), (2, "a\nb")])
def test_the_last_line_comes_without_its_end(max_lines: int, expected: str) -> None:
    assert run(["a\nb", "\nc"], (), max_lines) == (expected, True)
