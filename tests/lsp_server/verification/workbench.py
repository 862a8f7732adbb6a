"""Small Python projects with a cursor in them, for the tests of this folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import psutil

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.verification.pyright_verifier import PyrightVerifier
from lsp_server.verification.verifier import Verdict, VerdictKind

CURSOR = "<|>"
TIMEOUT_MS = 60_000  # generous: the machine may be busy, and no test measures time


@dataclass(frozen=True, slots=True)
class Hole:
    """A document and the offset of its cursor."""

    document: DocumentSnapshot
    offset: int

    @classmethod
    def at_cursor(cls, path: Path | None, marked: str, *, language_id: str = "python") -> Hole:
        """The document `marked` is without its cursor mark; nothing is written to disk."""
        offset = marked.index(CURSOR)
        uri = path.as_uri() if path is not None else "untitled:Untitled-1"
        text = marked.replace(CURSOR, "")
        return cls(DocumentSnapshot(uri, text, language_id=language_id, path=path), offset)

    async def check(self, verifier: PyrightVerifier, candidate: str) -> Verdict:
        """The verdict on a candidate put at the cursor."""
        return await verifier.check(self.document, self.offset, self.offset, candidate)


@contextlib.asynccontextmanager
async def running(root: Path | None, timeout_ms: int = TIMEOUT_MS) -> AsyncGenerator[Bench]:
    """A verifier that sees the packages of this interpreter, closed at the end."""
    outages: list[str] = []
    verifier = PyrightVerifier(
        root, interpreter=sys.executable, timeout_ms=timeout_ms, on_status=outages.append
    )
    try:
        yield Bench(root or Path.cwd(), verifier, outages)
    finally:
        await verifier.aclose()


@dataclass(frozen=True, slots=True)
class Bench:
    """A running verifier, its workspace, and what it said of outages."""

    root: Path
    verifier: PyrightVerifier
    outages: list[str]

    def hole(self, name: str, marked: str) -> Hole:
        """A hole in a file of the workspace, which need not exist."""
        return Hole.at_cursor(self.root / name, marked)

    async def verdict(self, name: str, marked: str, candidate: str) -> Verdict:
        """The verdict on a candidate in a file of the workspace."""
        return await self.hole(name, marked).check(self.verifier, candidate)


def rules(verdict: Verdict) -> list[str]:
    """The rules of a verdict's new errors, which must be consistent with its kind."""
    assert verdict.kind in (VerdictKind.CLEAN, VerdictKind.NEW_ERRORS), verdict
    assert bool(verdict.new_errors) == (verdict.kind is VerdictKind.NEW_ERRORS)
    return [error.rule for error in verdict.new_errors]


def is_running(pid: int) -> bool:
    """Whether the process still computes; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
