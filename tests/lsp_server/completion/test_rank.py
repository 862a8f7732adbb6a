"""The order of suggestions."""

from __future__ import annotations

from itertools import permutations

from lsp_server.completion.outcome import Suggestion
from lsp_server.completion.rank import Ranked, rank


def test_verified_then_least_demoted_then_surest_then_first() -> None:
    found = [
        Ranked(Suggestion("sure", True, -0.1), 3),
        Ranked(Suggestion("equal", True, -0.5), 1),
        Ranked(Suggestion("equal too", True, -0.5), 2),
        Ranked(Suggestion("shaky", True, 0.0), 0, demoted=1),
        Ranked(Suggestion("unverified", False, 0.0), 4),
    ]
    wanted = ["sure", "equal", "equal too", "shaky", "unverified"]
    for order in permutations(found):
        assert [suggestion.text for suggestion in rank(order)] == wanted


def test_each_text_once() -> None:
    found = [
        Ranked(Suggestion("a", True, -1.0), 0),
        Ranked(Suggestion("a", False, -0.1), 1),
        Ranked(Suggestion("a", True, -2.0, replace_after=1), 2),
    ]
    assert [(each.verified, each.replace_after) for each in rank(found)] == [(True, 0), (True, 1)]
