"""The JSON that scripts depend on, and the text for people."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from lsp_server.completion.outcome import (
    Completion,
    Outcome,
    Rejection,
    Suggestion,
    Timing,
    TokenCounts,
)
from lsp_server.completion.rendering import as_json, nothing_line, print_completion, printable
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.verification.verifier import NewError

COMPLETION = Completion(
    Outcome.SHOWN,
    (Suggestion("a.b", True, -0.25),),
    (Rejection("a.c", (NewError("reportAttributeAccessIssue", "no\xa0\xa0c", 3),)),),
    Timing(1.0, 2.0, 3.0, 4.0, 10.04),
    TokenCounts(5, 4, 3),
)


def test_the_json_is_exactly_the_documented_one() -> None:
    assert json.loads(json.dumps(as_json(COMPLETION))) == {
        "candidates": [{"text": "a.b", "verified": True, "score": -0.25, "new_errors": []}],
        "rejected": [
            {
                "text": "a.c",
                "new_errors": [
                    {"rule": "reportAttributeAccessIssue", "message": "no\xa0\xa0c", "line": 3}
                ],
            }
        ],
        "timing": {
            "context_ms": 1.0,
            "prefill_ms": 2.0,
            "decode_ms": 3.0,
            "verify_ms": 4.0,
            "total_ms": 10.0,
        },
        "tokens": {"prompt": 5, "reused": 4, "generated": 3},
    }


def shown(completion: Completion, text: str, offset: int) -> str:
    stream = io.StringIO()
    document = DocumentSnapshot("file:///a.py", text)
    print_completion(Console(file=stream, width=40), document, offset, completion)
    return stream.getvalue()


def test_texts_stand_where_they_would_be_inserted() -> None:
    lines = shown(COMPLETION, "one\r\nx = [markup]\r\n", 9).splitlines()
    assert "1 passed Pyright  score -0.25" in lines
    assert "     2 x = a.b[markup]" in lines
    assert "     2 x = a.c[markup]" in lines
    assert "       reportAttributeAccessIssue in line 3: no c" in lines


def test_replaced_characters_and_further_lines_are_shown_as_they_would_be() -> None:
    completion = Completion(Outcome.SHOWN, (Suggestion("a)\r\nb", False, -1.0, 1),))
    lines = shown(completion, "f()", 2).splitlines()
    assert lines[:3] == ["1 not checked  score -1.00", "     1 f(a)", "     2 b"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31m\x07\xa0b\tc\nd") == "a\\x1b[31m\\x07 b\tc\nd"
    completion = Completion(Outcome.SHOWN, (Suggestion("\x1b]0;x\x07", True, -1.0),))
    assert "\x1b" not in shown(completion, "", 0)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_can_be_put_in_a_line(outcome: Outcome) -> None:
    line = nothing_line(Completion(outcome, reason="why"))
    assert line.startswith("no suggestion: ")
    assert line.endswith("(why)")
