"""What one request has come to so far, and the answer that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lsp_server.completion.join import Joined
from lsp_server.completion.outcome import (
    Completion,
    Outcome,
    Rejection,
    Suggestion,
    Timing,
    TokenCounts,
)
from lsp_server.completion.rank import Ranked, rank
from lsp_server.verification.verifier import Verdict, VerdictKind

GREEDY_INDEX = 0


@dataclass(frozen=True, slots=True)
class Shaped:
    """A candidate in the form it would be inserted in.

    Attributes:
        index: the candidate's number; 0 is the greedy one.
        joined: LF line ends.
        score: mean token log-probability.
    """

    index: int
    joined: Joined
    score: float


@dataclass(slots=True)
class Findings:
    """The candidates of one request and their verdicts.

    Owned by the task that runs the request.

    Attributes:
        eol: the document's line end, which every text is returned in.
        accepts_unverified: what the checker could not judge is shown all the same.
        out_of_time: the request's time budget ended.
        failure: what went wrong, in one line; empty when nothing did.
    """

    eol: str
    accepts_unverified: bool
    out_of_time: bool = False
    failure: str = ""
    _good: list[Ranked] = field(default_factory=list[Ranked])
    _pending: dict[int, Shaped] = field(default_factory=dict[int, Shaped])
    _rejected: dict[int, Rejection] = field(default_factory=dict[int, Rejection])
    _seen: set[Joined] = field(default_factory=set[Joined])
    _unavailable: str = ""

    @property
    def has_good(self) -> bool:
        """Whether there is something to show already."""
        return bool(self._good)

    def is_pending(self, index: int) -> bool:
        """Whether that candidate still waits for its verdict."""
        return index in self._pending

    def add(self, shaped: Shaped) -> bool:
        """Take in a candidate that is to be judged; False for one that is there already."""
        if shaped.joined in self._seen:
            return False
        self._seen.add(shaped.joined)
        self._pending[shaped.index] = shaped
        return True

    def judge(self, index: int, verdict: Verdict | None) -> None:
        """Record what the checker says of a pending candidate; None where it is not asked."""
        shaped = self._pending.pop(index)
        kind = verdict.kind if verdict is not None else VerdictKind.NOT_APPLICABLE
        if verdict is not None and kind is VerdictKind.NEW_ERRORS:
            self._rejected[index] = Rejection(self._text(shaped), verdict.new_errors)
        elif kind is VerdictKind.UNAVAILABLE and not self.accepts_unverified:
            self._unavailable = (verdict.reason if verdict else "") or "the checker is down"
        else:
            demoted = len(verdict.demoted) if verdict is not None else 0
            self._good.append(self._ranked(shaped, kind is VerdictKind.CLEAN, demoted))

    def completion(self, timing: Timing, tokens: TokenCounts, *, only_one: bool) -> Completion:
        """The answer: all suggestions, best first, or `only_one`.

        That one is the greedy candidate where it is good, whatever else arrived meanwhile:
        what is shown must not depend on which check was quicker.
        """
        good = list(self._good)
        if self.accepts_unverified:
            good.extend(self._ranked(shaped, False, 0) for shaped in self._pending.values())
        if only_one:
            good = [each for each in good if each.index == GREEDY_INDEX] or good
        suggestions = rank(good)[: 1 if only_one else None]
        return Completion(
            self._outcome(suggestions),
            suggestions,
            tuple(self._rejected[index] for index in sorted(self._rejected)),
            timing,
            tokens,
            self.failure or ("" if suggestions else self._unavailable),
        )

    def _outcome(self, suggestions: tuple[Suggestion, ...]) -> Outcome:
        if suggestions:
            return Outcome.SHOWN
        if self.failure:
            return Outcome.FAILED
        if self.out_of_time:
            return Outcome.OUT_OF_TIME
        if self._unavailable:
            return Outcome.UNVERIFIED
        return Outcome.REJECTED if self._rejected else Outcome.NOTHING_GENERATED

    def _ranked(self, shaped: Shaped, verified: bool, demoted: int) -> Ranked:
        suggestion = Suggestion(
            self._text(shaped), verified, shaped.score, shaped.joined.replace_after
        )
        return Ranked(suggestion, shaped.index, demoted)

    def _text(self, shaped: Shaped) -> str:
        return shaped.joined.text.replace("\n", self.eol)
