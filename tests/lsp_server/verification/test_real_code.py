"""Right candidates, cut from a library's own files, are never rejected."""

from __future__ import annotations

import ast
import random
import shutil
from pathlib import Path

import pytest
import rich

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.verification.verifier import Verdict, VerdictKind
from tests.lsp_server.verification.workbench import Bench, running

# console.py has errors of its own, far from most statements; the others have none.
FILES = ("console.py", "panel.py", "align.py")
HOLES_PER_FILE = 10


@pytest.mark.parametrize("name", FILES)
async def test_the_original_statement_is_never_rejected(tmp_path: Path, name: str) -> None:
    package = tmp_path / "rich"
    shutil.copytree(Path(rich.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    path = package / name
    original = DocumentSnapshot(path.as_uri(), path.read_text("utf-8"), path=path)
    statements = simple_statements(original.text)
    rng = random.Random(name)
    async with running(tmp_path) as bench:
        for statement in rng.sample(statements, HOLES_PER_FILE):
            verdict = await judge(bench, original, statement)
            assert verdict.kind is VerdictKind.CLEAN, (statement.lineno, verdict)


def simple_statements(text: str) -> list[ast.stmt]:
    """Statements that stand alone, docstrings excepted."""
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt)
        and not hasattr(node, "body")
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


async def judge(bench: Bench, original: DocumentSnapshot, statement: ast.stmt) -> Verdict:
    """Cut the statement out and offer it as the candidate."""
    assert statement.end_lineno is not None
    assert statement.end_col_offset is not None
    start = offset_of(original, statement.lineno, statement.col_offset)
    end = offset_of(original, statement.end_lineno, statement.end_col_offset)
    text = original.text
    cut = DocumentSnapshot(original.uri, text[:start] + text[end:], path=original.path)
    return await bench.verifier.check(cut, start, start, text[start:end])


def offset_of(document: DocumentSnapshot, line: int, utf8_bytes: int) -> int:
    """`ast` counts lines from 1, and columns in bytes."""
    column = len(document.line_at(line - 1).encode()[:utf8_bytes].decode())
    return document.offset_at(line - 1, column)
