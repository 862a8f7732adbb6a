"""A completion for people and for programs: coloured text, and the stable JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from lsp_server.completion.outcome import Completion, Outcome, Rejection, Suggestion
from lsp_server.documents.snapshot import DocumentSnapshot, to_lf
from lsp_server.verification.verifier import NewError

_NOTHING = {
    Outcome.NOTHING_GENERATED: "the model had nothing to add here",
    Outcome.REJECTED: "every candidate would have added an error",
    Outcome.UNVERIFIED: "no candidate could be checked",
    Outcome.OUT_OF_TIME: "the time was up",
    Outcome.EXCLUDED: "this place is not completed",
    Outcome.FAILED: "the request failed",
    Outcome.DISABLED: "completion is switched off by the settings",
}


def as_json(completion: Completion) -> dict[str, Any]:
    """The completion in the form scripts depend on."""
    return {
        "candidates": [
            {
                "text": suggestion.text,
                "verified": suggestion.verified,
                "score": round(suggestion.score, 4),
                "new_errors": [],
            }
            for suggestion in completion.suggestions
        ],
        "rejected": [
            {
                "text": rejection.text,
                "new_errors": [asdict(error) for error in rejection.new_errors],
            }
            for rejection in completion.rejected
        ],
        "timing": {name: round(value, 1) for name, value in asdict(completion.timing).items()},
        "tokens": asdict(completion.tokens),
    }


def nothing_line(completion: Completion) -> str:
    """Why there is no suggestion, in one line."""
    known = _NOTHING.get(completion.outcome, completion.outcome.value)
    return f"no suggestion: {known}" + (f" ({completion.reason})" if completion.reason else "")


def print_completion(
    console: Console, document: DocumentSnapshot, offset: int, completion: Completion
) -> None:
    """Show suggestions and rejections where they would stand, and what they took."""
    for number, suggestion in enumerate(completion.suggestions, start=1):
        mark = "passed Pyright" if suggestion.verified else "not checked"
        console.print(
            Text.assemble(
                (f"{number} ", "bold"),
                (mark, "green" if suggestion.verified else "yellow"),
                (f"  score {suggestion.score:.2f}", "dim"),
            )
        )
        _print_in_place(console, document, offset, suggestion, "bold green")
    for rejection in completion.rejected:
        console.print(Text("thrown out by Pyright", "red"))
        _print_in_place(console, document, offset, rejection, "red strike")
        for error in rejection.new_errors:
            console.print(_error_line(error), soft_wrap=True)
    if not completion.suggestions:
        console.print(Text(nothing_line(completion), "yellow"), soft_wrap=True)
    console.print(Text(_cost_line(completion), "dim"), soft_wrap=True)


def _print_in_place(
    console: Console,
    document: DocumentSnapshot,
    offset: int,
    shown: Suggestion | Rejection,
    style: str,
) -> None:
    """The lines that would hold the text, the user's own parts of them dimmed."""
    line, column = document.position_at(offset)
    here = document.line_at(line)
    replaced = shown.replace_after if isinstance(shown, Suggestion) else 0
    parts = Text.assemble(
        (printable(here[:column]), "dim"),
        (printable(to_lf(shown.text)), style),
        (printable(here[column + replaced :]), "dim"),
    )
    for number, text in enumerate(parts.split("\n", allow_blank=True), start=line + 1):
        console.print(Text.assemble((f"{number:>6} ", "dim"), text), soft_wrap=True)


def _error_line(error: NewError) -> Text:
    message = " ".join(printable(error.message).split())
    return Text.assemble(
        ("       ", ""), (error.rule, "red bold"), (f" in line {error.line}: ", "dim"), message
    )


def _cost_line(completion: Completion) -> str:
    timing, tokens = completion.timing, completion.tokens
    return (
        f"{timing.total_ms:.0f} ms: prefill {timing.prefill_ms:.0f}, decode "
        f"{timing.decode_ms:.0f}, checks after it {timing.verify_ms:.0f}; "
        f"{tokens.prompt} prompt tokens, {tokens.reused} of them reused, "
        f"{tokens.generated} generated"
    )


def printable(text: str) -> str:
    """`text` without what could steer a terminal.

    Blanks of all kinds become plain ones, other control characters escapes.
    """
    return "".join(map(_printable, text))


def _printable(char: str) -> str:
    if char.isprintable() or char in "\n\t":
        return char
    return " " if char.isspace() else ascii(char)[1:-1]
