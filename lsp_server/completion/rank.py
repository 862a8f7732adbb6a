"""Which suggestion comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lsp_server.completion.outcome import Suggestion


@dataclass(frozen=True, slots=True)
class Ranked:
    """A suggestion and what else decides its place.

    Attributes:
        suggestion: what would be shown.
        index: the candidate's number; 0 is the greedy one.
        demoted: how many errors that do not reject it the checker found.
    """

    suggestion: Suggestion
    index: int
    demoted: int = 0


def rank(found: Iterable[Ranked]) -> tuple[Suggestion, ...]:
    """Best first, each text once: verified, then least demoted, then the surest.

    Equal ones keep the order of their candidates, whatever order they arrived in.
    """
    ordered = sorted(
        found,
        key=lambda each: (
            not each.suggestion.verified,
            each.demoted,
            -each.suggestion.score,
            each.index,
        ),
    )
    unique: dict[tuple[str, int], Suggestion] = {}
    for each in ordered:
        key = (each.suggestion.text, each.suggestion.replace_after)
        unique.setdefault(key, each.suggestion)
    return tuple(unique.values())
