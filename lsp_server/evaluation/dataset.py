"""Reading HumanEval-Infilling tasks (Bavarian et al., 2022), gzipped or plain JSON lines."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, fields
from pathlib import Path

from lsp_server.errors import ServerError


class BadDataset(ServerError):
    """The file holds no tasks that can be run."""


@dataclass(frozen=True, slots=True)
class Task:
    """One hole to fill.

    Attributes:
        task_id: its name.
        entry_point: the function that `test`'s `check` is called with.
        prompt: text before the hole.
        suffix: text after the hole.
        canonical_solution: what stood in the hole.
        test: code that defines `check`.
    """

    task_id: str
    entry_point: str
    prompt: str
    suffix: str
    canonical_solution: str
    test: str

    def program(self, completion: str) -> str:
        """The whole file with `completion` in the hole, which runs the test."""
        filled = joined(completion, self.suffix)
        return f"{self.prompt}{filled}\n{self.test}\ncheck({self.entry_point})\n"

    def is_exact(self, completion: str) -> bool:
        """Whether it is what stood there, but for blanks at its end."""
        return completion.rstrip() == self.canonical_solution.rstrip()


def joined(completion: str, suffix: str) -> str:
    """A one-line completion and the text after it, which may lack the line's end."""
    apart = suffix.startswith("\n") or not suffix or completion.endswith("\n")
    return f"{completion}{suffix}" if apart else f"{completion}\n{suffix}"


def read_tasks(path: Path, limit: int | None = None) -> list[Task]:
    """All tasks of a file, or the first `limit`.

    Raises:
        BadDataset: the file is missing, damaged or holds no tasks.
    """
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8")
    except OSError as error:
        reason = error.strerror or "it is not gzipped"
        raise BadDataset(f"cannot read {path}: {reason}", "give a .jsonl or .jsonl.gz") from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadDataset(f"{path} is damaged: {error}", "give a .jsonl or .jsonl.gz") from error
    tasks: list[Task] = []
    for number, line in enumerate(text.splitlines(), 1):
        if len(tasks) == limit:
            break
        if line.strip():
            tasks.append(_task(line, f"{path.name} line {number}"))
    if not tasks:
        raise BadDataset(f"{path} holds no tasks", "give a file with a JSON object per line")
    return tasks


def _task(line: str, where: str) -> Task:
    try:
        entry: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadDataset(f"{where} is not JSON: {error.msg}") from error
    if not isinstance(entry, dict):
        raise BadDataset(f"{where} is not a JSON object")
    values: dict[str, str] = {}
    for field in fields(Task):
        value: object = entry.get(field.name)  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(value, str):
            raise BadDataset(f"{where} lacks {field.name!r}, or it is not a string")
        values[field.name] = value
    return Task(**values)
