"""Which format each matrix gets: by its kind, by the error it would cost, by a byte budget.

Torch-free, so that `EngineConfig` can hold a policy and a server can refuse a bad one early.
The policy only decides; `loading.conversion` reads, quantizes and measures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from engine.errors import ConfigError
from engine.quantization.formats import GROUP, INT8_FORMATS, Format, one_up, storage_bytes

AUTO = "auto"
PRECISIONS = (AUTO, *(str(format) for format in Format))
LIMIT = 0.05  # of the signal's power
LOWEST = Format.INT4  # where a budget starts from

_GROUPED = (Format.INT4, Format.INT4_ZP, Format.INT8_DYNAMIC)


class Kind(StrEnum):
    """What a matrix is for."""

    ATTENTION = "attention"
    MLP = "mlp"
    HEAD = "head"
    EMBED = "embed"


# What "auto" means. Attention and the head decide which token is looked at and which is said;
# the MLPs hold two thirds of the bytes that a decoded token reads.
AUTO_FORMATS: Mapping[Kind, Format] = {
    Kind.ATTENTION: Format.INT8_DYNAMIC,
    Kind.MLP: Format.INT4_ZP,
    Kind.HEAD: Format.INT8_DYNAMIC,
    Kind.EMBED: Format.INT8,
}

_KINDS = {
    "qkv": Kind.ATTENTION,
    "attention_out": Kind.ATTENTION,
    "gate_up": Kind.MLP,
    "down": Kind.MLP,
    "head": Kind.HEAD,
    "embed": Kind.EMBED,
}


def kind_of(name: str) -> Kind:
    """The kind of a matrix, by the last part of its name (`layers.3.down`)."""
    return _KINDS[name.rsplit(".", 1)[-1]]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as the policy sees it: [rows, columns], rows being output channels."""

    name: str
    rows: int
    columns: int

    def bytes_in(self, format: Format) -> int:
        """Its size in a format, padding included."""
        return storage_bytes(format, self.rows, self.columns)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a format costs a matrix.

    Attributes:
        format: the format.
        nbytes: bytes of the matrix in it.
        weight_error: mean squared error of the weights over their power.
        output_error: the same of the products on calibration code; None where the matrix is
            only looked up.
        cosine: mean cosine of the products with the exact ones; None as above.
    """

    format: Format
    nbytes: int
    weight_error: float
    output_error: float | None = None
    cosine: float | None = None

    @property
    def error(self) -> float:
        """What is held against the limit: the larger of the two errors."""
        return max(self.weight_error, self.output_error or 0.0)

    @property
    def felt(self) -> float:
        """What a budget is spent on: the error of what comes out."""
        return self.weight_error if self.output_error is None else self.output_error


@dataclass(frozen=True, slots=True)
class Move:
    """One step up, and why. `format` is what was left."""

    format: Format
    reason: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The format of one matrix, and the steps that led to it."""

    format: Format
    moved_from: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class PrecisionPolicy:
    """How formats are chosen.

    Attributes:
        precision: `auto`, or the name of the format all matrices start from.
        budget_bytes: most bytes of all weights together; None is no limit. Only with `auto`.
        pinned: patterns (as of file names) of matrices kept in FP32.
        limit: a matrix whose relative error is over this moves up, until it is not.

    Raises:
        ConfigError: a value that cannot be.
    """

    precision: str = AUTO
    budget_bytes: int | None = None
    pinned: tuple[str, ...] = ()
    limit: float = field(default=LIMIT)

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"precision is {self.precision!r}", f"use one of {', '.join(PRECISIONS)}"
            )
        if self.budget_bytes is not None:
            if self.budget_bytes < 1:
                raise ConfigError(
                    f"the weight budget is {self.budget_bytes} bytes", "give more, or none"
                )
            if self.precision != AUTO:
                raise ConfigError(
                    f"precision {self.precision} leaves a weight budget nothing to choose",
                    f"use precision {AUTO}, or no budget",
                )
        if any(not pattern.strip() for pattern in self.pinned):
            raise ConfigError("a pinned pattern is empty", "leave it out, or write one: head")
        if not self.limit > 0:
            raise ConfigError(f"the error limit is {self.limit}", "use more than 0")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; equal policies give equal values."""
        return {
            "precision": self.precision,
            "budget_bytes": self.budget_bytes,
            "pinned": sorted(set(self.pinned)),
            "limit": self.limit,
            "table": {str(kind): str(f) for kind, f in AUTO_FORMATS.items()}
            if self.precision == AUTO
            else {},
        }

    @property
    def slug(self) -> str:
        """A short name for folders; another policy has another one."""
        if self == PrecisionPolicy(self.precision):
            return self.precision
        text = json.dumps(self.to_dict(), sort_keys=True)
        return f"{self.precision}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def plan(self, matrices: Sequence[Matrix], native: Collection[Format]) -> dict[str, Choice]:
        """The format each matrix starts from, before anything is measured.

        Args:
            matrices: all of the model's.
            native: formats this chip computes with; another one gives way to the next.

        Raises:
            ConfigError: a pinned pattern matches nothing.
        """
        pinned = self._pinned_names(matrices)
        plan: dict[str, Choice] = {}
        for matrix in matrices:
            if matrix.name in pinned:
                plan[matrix.name] = Choice(Format.FP32)
                continue
            if self.budget_bytes is not None:
                wanted = LOWEST
            elif self.precision == AUTO:
                wanted = AUTO_FORMATS[kind_of(matrix.name)]
            else:
                wanted = Format(self.precision)
            if kind_of(matrix.name) is Kind.EMBED and wanted in INT8_FORMATS:
                wanted = Format.INT8  # it is only looked up: there is nothing else to round
            plan[matrix.name] = _possible(matrix, Choice(wanted), native)
        return plan

    def reconsider(
        self, matrix: Matrix, choice: Choice, measured: Measured, native: Collection[Format]
    ) -> Choice:
        """The choice again if the error allows it, else one format up."""
        if measured.error <= self.limit or choice.format is Format.FP32:
            return choice
        which = "weights" if measured.error == measured.weight_error else "output"
        reason = f"{which} error {measured.error:.1%} is over {self.limit:.0%}"
        return self.move_up(matrix, choice, reason, native)

    def move_up(
        self, matrix: Matrix, choice: Choice, reason: str, native: Collection[Format]
    ) -> Choice:
        """The next format up, for a reason that is kept."""
        moved = (*choice.moved_from, Move(choice.format, reason))
        return _possible(matrix, Choice(one_up(choice.format), moved), native)

    def spend(self, measured: Mapping[str, Sequence[Measured]]) -> dict[str, Choice]:
        """Spend the budget where it lowers the error of what comes out most per byte.

        Every matrix starts at the lowest format whose error is within the limit; then the
        step up with the largest fall of error for its bytes is taken, again and again, until
        none fits the budget any more.

        Args:
            measured: of every matrix, the formats it may have, from the lowest up.

        Raises:
            ConfigError: the lowest formats are already over the budget.
        """
        assert self.budget_bytes is not None
        place: dict[str, int] = {}
        for name, rungs in measured.items():
            fits = (i for i, rung in enumerate(rungs) if rung.error <= self.limit)
            place[name] = next(fits, len(rungs) - 1)
        spent = sum(measured[name][at].nbytes for name, at in place.items())
        if spent > self.budget_bytes:
            raise ConfigError(
                f"a weight budget of {self.budget_bytes:,} bytes is too small for this model",
                f"give at least {spent:,} bytes",
            )
        while True:
            steps = [
                (gain, name, at)
                for name, rungs in measured.items()
                for at in range(place[name] + 1, len(rungs))
                if (cost := rungs[at].nbytes - rungs[place[name]].nbytes) + spent
                <= self.budget_bytes
                and (gain := (rungs[place[name]].felt - rungs[at].felt) / max(cost, 1)) > 0
            ]
            if not steps:
                break
            _, name, at = max(steps)
            spent += measured[name][at].nbytes - measured[name][place[name]].nbytes
            place[name] = at
        return {name: _risen(measured[name], at) for name, at in place.items()}

    def ladder(self, matrix: Matrix, native: Collection[Format]) -> list[Format]:
        """What a budget may choose from for a matrix, from the lowest up."""
        rungs = [_possible(matrix, Choice(LOWEST), native).format]
        while rungs[-1] is not Format.FP32:
            rungs.append(_possible(matrix, Choice(one_up(rungs[-1])), native).format)
        return rungs

    def _pinned_names(self, matrices: Sequence[Matrix]) -> set[str]:
        names: set[str] = set()
        for pattern in self.pinned:
            matched = {m.name for m in matrices if fnmatchcase(m.name, pattern.strip())}
            if not matched:
                examples = ", ".join(m.name for m in (*matrices[:2], *matrices[-2:]))
                raise ConfigError(
                    f"the pinned pattern {pattern!r} matches no matrix",
                    f"they are called, for example, {examples}; layers.0.* is a whole layer",
                )
            names |= matched
        return names


def _risen(rungs: Sequence[Measured], at: int) -> Choice:
    moves = tuple(Move(rung.format, "the budget allows more") for rung in rungs[:at])
    return Choice(rungs[at].format, moves)


def _possible(matrix: Matrix, choice: Choice, native: Collection[Format]) -> Choice:
    """The choice, or the next one up that the matrix's shape and the chip allow."""
    while choice.format is not Format.FP32:
        if choice.format not in native:
            reason = "this chip does not compute in it"
        elif choice.format in _GROUPED and matrix.columns % GROUP:
            reason = f"{matrix.columns} columns are not whole groups of {GROUP}"
        else:
            break
        moved = (*choice.moved_from, Move(choice.format, reason))
        choice = Choice(one_up(choice.format), moved)
    return choice
