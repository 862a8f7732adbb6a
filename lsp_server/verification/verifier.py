"""The seam between the pipeline and a type checker: what is asked, and what is answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lsp_server.documents.snapshot import DocumentSnapshot


class VerdictKind(StrEnum):
    """What a checker says of one candidate."""

    CLEAN = "clean"  # checked; the document has no error it did not have before
    NEW_ERRORS = "new_errors"  # checked; accepting it would add these errors
    UNAVAILABLE = "unavailable"  # the checker is down, starting, or out of time
    NOT_APPLICABLE = "not_applicable"  # no type checker for this language


@dataclass(frozen=True, slots=True)
class NewError:
    """One error that the document would have only with the candidate in it.

    Attributes:
        rule: Pyright's rule, for example `reportAttributeAccessIssue`; `syntax` when the
            parser found it.
        message: the checker's words.
        line: 1-based line in the document as it would be with the candidate.
    """

    rule: str
    message: str
    line: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A checker's answer about one candidate.

    Attributes:
        kind: see VerdictKind.
        new_errors: for NEW_ERRORS what is new, in line order.
        demoted: errors that lower a suggestion's rank but do not reject it.
        reason: for UNAVAILABLE why, in one line a user can read.
    """

    kind: VerdictKind
    new_errors: tuple[NewError, ...] = ()
    demoted: tuple[NewError, ...] = ()
    reason: str = ""


class Verifier(Protocol):
    """Checks candidates against the document they would go into."""

    def update(self, document: DocumentSnapshot) -> None:
        """Tell the checker what the editor shows of `document`, saved or not.

        Cheap and never blocks: other documents are judged against this text, not the disk.
        """
        ...

    def forget(self, uri: str) -> None:
        """The editor closed the document: its file on disk counts again."""
        ...

    async def prepare(self, document: DocumentSnapshot, start: int, end: int) -> None:
        """Compute the baseline for candidates that would replace `document.text[start:end]`.

        Worth calling while the model generates; `check` does it itself otherwise.
        Never raises: an unavailable checker shows in the verdicts.
        """
        ...

    async def check(self, document: DocumentSnapshot, start: int, end: int, text: str) -> Verdict:
        """Judge the document with `text` in place of `document.text[start:end]`.

        `text` has LF line ends. Cancelling the call drops a check still queued. Never
        raises for a checker that is down; the verdict says UNAVAILABLE.
        """
        ...

    async def aclose(self) -> None:
        """Stop the checker's processes and wait until they are gone. Safe to call twice."""
        ...
