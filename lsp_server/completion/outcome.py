"""What a completion request comes to: suggestions, or the reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from lsp_server.verification.verifier import NewError


class Outcome(StrEnum):
    """How a request ended. Every request ends in exactly one of these."""

    SHOWN = "shown"
    NOTHING_GENERATED = "nothing_generated"  # the model had nothing to say here
    REJECTED = "rejected"  # every candidate would have added an error
    UNVERIFIED = "unverified"  # the checker is down and verification is required
    OUT_OF_TIME = "out_of_time"
    SUPERSEDED = "superseded"  # a newer request of the same document came
    CANCELLED = "cancelled"  # the client took it back
    MODEL_LOADING = "model_loading"
    MODEL_UNAVAILABLE = "model_unavailable"  # no model, or it failed to load
    DISABLED = "disabled"
    EXCLUDED = "excluded"  # this document is not completed (binary, too large...)
    FAILED = "failed"  # an error of ours, logged


class Trigger(StrEnum):
    """What made the client ask."""

    INVOKED = "invoked"  # the user asked: several suggestions, no debounce
    AUTOMATIC = "automatic"  # the user paused: one suggestion


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text worth showing.

    Attributes:
        text: what accepting it inserts at the cursor, in the document's own line ends.
        replace_after: characters after the cursor, on its line, that the text replaces.
        verified: the checker found no new error; False only where verification is off,
            preferred and out of time, or not possible for the language.
        score: mean token log-probability, 0 is certain, more negative is less sure.
    """

    text: str
    verified: bool
    score: float
    replace_after: int = 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that was thrown out, and why."""

    text: str
    new_errors: tuple[NewError, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds spent in each stage; `verify` is what was added after generating."""

    context_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    verify_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of the prompt, of those reused from a cache, and generated."""

    prompt: int = 0
    reused: int = 0
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request, and how it came about."""

    outcome: Outcome
    suggestions: tuple[Suggestion, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    timing: Timing = field(default_factory=Timing)
    tokens: TokenCounts = field(default_factory=TokenCounts)
    reason: str = ""  # one line for the log where the outcome alone does not say it
