"""What all commands print alike: results on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any


def print_json(value: object) -> None:
    """Print `value` as indented JSON, in ASCII so that any terminal or pipe takes it."""
    print(json.dumps(plain(value), indent=2))


def plain(value: Any) -> Any:
    """`value` with dataclasses, enums, paths and tuples turned into what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def note(text: str) -> None:
    """Print a line for people on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_error(what: str, remedy: str = "") -> None:
    """Print what went wrong and what to do about it on stderr, in one line."""
    note(f"error: {what} ({remedy})" if remedy else f"error: {what}")


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in aligned columns; never cut to the terminal's width, for pipes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def megabytes(count: int) -> str:
    """A byte count for people, in decimal megabytes."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count:,} B"
