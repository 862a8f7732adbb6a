"""What a candidate adds: the diagnostics of two texts compared, as pure functions.

The baseline is the user's own document, which for a pure insertion is the document with an
empty completion. Where the candidate replaces text after the cursor, comparing with the
document as it stands is the stricter choice: taking the replaced bracket out first would
excuse a candidate that forgets it.

An error is a known one if the baseline has an unused error with the same severity, rule and
message, on the same side of the candidate, in the same line (lines after the candidate move
with it; columns are not compared). Every error that starts inside the candidate is new.
Pyright's messages hold no line numbers, so they compare as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.errors import PositionOutside
from lsp_server.verification.verifier import NewError

ERROR = 1
WARNING = 2
SYNTAX = "syntax"
_MISSING_RETURN = "must return value"  # of reportReturnType, at the signature
_MISSING_COLON = 'Expected ":"'
_MISSING_IMPORTS = frozenset({"reportMissingImports", "reportMissingModuleSource"})
# As warnings these lower a rank; as errors they reject like any other.
_DEMOTING = frozenset(
    {
        "reportPossiblyUnboundVariable",
        "reportOptionalMemberAccess",
        "reportOptionalSubscript",
        "reportOptionalIterable",
        "reportOptionalCall",
        "reportOptionalContextManager",
        "reportOptionalOperand",
    }
    | _MISSING_IMPORTS
)


@dataclass(frozen=True, slots=True)
class RawDiagnostic:
    """One diagnostic as Pyright sent it.

    Attributes:
        severity: LSP's: 1 error, 2 warning, 3 information, 4 hint.
        rule: Pyright's rule, or `syntax` where it names none.
        message: Pyright's words, in English.
        line: 0-based line of its start.
        character: UTF-16 code units before its start on that line.
    """

    severity: int
    rule: str
    message: str
    line: int
    character: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One diagnostic, placed in the text it was made for.

    Attributes:
        severity: LSP's: 1 error, 2 warning, 3 information, 4 hint.
        rule: Pyright's rule, or `syntax` where it names none.
        message: Pyright's words.
        line: 0-based line of its start.
        offset: code points before its start.
    """

    severity: int
    rule: str
    message: str
    line: int
    offset: int


def located(raw: RawDiagnostic, document: DocumentSnapshot) -> Diagnostic:
    """Place Pyright's UTF-16 position in a text of code points."""
    line = min(raw.line, document.line_count - 1)
    text = document.line_at(line)
    column = units = 0
    while units < raw.character and column < len(text):
        units += 2 if ord(text[column]) > 0xFFFF else 1
        column += 1
    offset = document.offset_at(line, column)
    return Diagnostic(raw.severity, raw.rule, raw.message, line, offset)


@dataclass(frozen=True, slots=True)
class Edit:
    """A candidate put into a document.

    Attributes:
        before: the document as the user has it.
        start: code-point offset where the replaced text begins.
        end: where it ends; equal to `start` for an insertion.
        inserted: the candidate in the document's own line ends.
        after: the document with the candidate in it.

    Raises:
        PositionOutside: the range does not lie in the document.
    """

    before: DocumentSnapshot
    start: int
    end: int
    inserted: str
    after: DocumentSnapshot = field(init=False)

    def __post_init__(self) -> None:
        text = self.before.text
        if not 0 <= self.start <= self.end <= len(text):
            raise PositionOutside(
                f"characters {self.start} to {self.end} do not exist",
                f"the document has {len(text)} characters",
            )
        after = DocumentSnapshot(
            uri=self.before.uri,
            text=text[: self.start] + self.inserted + text[self.end :],
            version=self.before.version,
            language_id=self.before.language_id,
            path=self.before.path,
        )
        object.__setattr__(self, "after", after)

    @property
    def inserted_end(self) -> int:
        """Offset in `after` of the first character that follows the candidate."""
        return self.start + len(self.inserted)

    @property
    def lines_added(self) -> int:
        """How many lines further down the text after the candidate is."""
        return self.after.line_count - self.before.line_count


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a candidate adds: errors that reject it, and remarks that lower its rank."""

    new_errors: tuple[NewError, ...] = ()
    demoted: tuple[NewError, ...] = ()


class _Side(Enum):
    BEFORE = "before"  # in text that stays, before the candidate
    INSIDE = "inside"  # in the candidate, or in the text it replaces
    BEHIND = "behind"  # in text that stays, after the candidate


_Key = tuple[_Side, int, str, str, int]


def compare(
    before: Iterable[Diagnostic],
    after: Iterable[Diagnostic],
    edit: Edit,
    *,
    environment_confirmed: bool = True,
) -> Comparison:
    """What the document has with the candidate that it did not have without it.

    Args:
        before: all diagnostics of `edit.before`.
        after: all diagnostics of `edit.after`.
        edit: the candidate and where it goes.
        environment_confirmed: whether the interpreter whose packages Pyright saw is the
            project's. If not, an import that cannot be resolved says nothing about the
            candidate and is only demoted: the one exception to "every new error rejects".
    """
    known = Counter(_keys_of_baseline(before, edit))
    new_errors: list[Diagnostic] = []
    demoted: list[Diagnostic] = []
    for diagnostic in sorted(after, key=lambda d: (d.line, d.offset)):
        if diagnostic.severity not in (ERROR, WARNING):
            continue
        side = _side_after(diagnostic, edit)
        key = _key(diagnostic, side, diagnostic.line)
        if side is not _Side.INSIDE and known[key] > 0:
            known[key] -= 1
            if _is_unfinished_function(diagnostic, edit):
                demoted.append(diagnostic)
        elif diagnostic.severity == WARNING:
            if diagnostic.rule in _DEMOTING:
                demoted.append(diagnostic)
        elif diagnostic.rule in _MISSING_IMPORTS and not environment_confirmed:
            demoted.append(diagnostic)
        else:
            new_errors.append(diagnostic)
    kept = _without_fallout(new_errors, edit)
    return Comparison(tuple(map(_new_error, kept)), tuple(map(_new_error, demoted)))


def _keys_of_baseline(before: Iterable[Diagnostic], edit: Edit) -> Iterable[_Key]:
    for diagnostic in before:
        if diagnostic.offset < edit.start:
            yield _key(diagnostic, _Side.BEFORE, diagnostic.line)
        elif diagnostic.offset >= edit.end:
            yield _key(diagnostic, _Side.BEHIND, diagnostic.line + edit.lines_added)
        # What lies in the replaced text goes away with it and excuses nothing.


def _key(diagnostic: Diagnostic, side: _Side, line: int) -> _Key:
    return (side, diagnostic.severity, diagnostic.rule, diagnostic.message, line)


def _side_after(diagnostic: Diagnostic, edit: Edit) -> _Side:
    if diagnostic.offset < edit.start:
        return _Side.BEFORE
    if diagnostic.offset < edit.inserted_end or _is_loose_end(diagnostic, edit):
        return _Side.INSIDE
    return _Side.BEHIND


def _is_loose_end(diagnostic: Diagnostic, edit: Edit) -> bool:
    """Whether it is the parser missing something right where the candidate stops.

    `x = ` and `x = 1 +` have the same error at the end of the line; in the second it is the
    candidate's, not the user's. With code behind the candidate it may well be the user's, and
    a colon still missing at the end of a header was missing before.
    """
    if diagnostic.rule != SYNTAX or diagnostic.message == _MISSING_COLON:
        return False
    if not edit.inserted.strip():
        return False
    line, column = edit.after.position_at(edit.inserted_end)
    rest = edit.after.line_at(line)[column:]
    behind = rest.strip()
    return (not behind or behind.startswith("#")) and (
        diagnostic.offset <= edit.inserted_end + len(rest)
    )


def _is_unfinished_function(diagnostic: Diagnostic, edit: Edit) -> bool:
    """Whether it says that the function around the candidate still lacks its return."""
    if diagnostic.rule != "reportReturnType" or _MISSING_RETURN not in diagnostic.message:
        return False
    last, _ = edit.before.position_at(edit.start)
    if diagnostic.line >= last:
        return False
    signature = _indentation(edit.before.line_at(diagnostic.line))
    between = (edit.before.line_at(line) for line in range(diagnostic.line + 1, last))
    return all(not line.strip() or _indentation(line) > signature for line in between)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_fallout(errors: Sequence[Diagnostic], edit: Edit) -> Sequence[Diagnostic]:
    """Without what a broken parse says of lines the candidate does not touch.

    An unclosed bracket makes Pyright report undefined names hundreds of lines away; the
    syntax error itself is the news, and it stays, so this never empties the list.
    """
    if not any(error.rule == SYNTAX for error in errors):
        return errors
    first, _ = edit.after.position_at(edit.start)
    last, _ = edit.after.position_at(edit.inserted_end)
    return [e for e in errors if e.rule == SYNTAX or first <= e.line <= last]


def _new_error(diagnostic: Diagnostic) -> NewError:
    return NewError(diagnostic.rule, diagnostic.message, diagnostic.line + 1)
