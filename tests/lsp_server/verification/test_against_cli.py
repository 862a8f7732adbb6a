"""Verdicts against an independent run of Pyright's command line on the patched files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from lsp_server.verification.pyright import pyright_command
from lsp_server.verification.verifier import VerdictKind
from tests.lsp_server.verification.workbench import CURSOR, running

HELPER = """
class Shop:
    name: str = ""

    def sell(self, n: int) -> str:
        return ""
"""
SHOP = "from helper import Shop\n\n\ndef f(shop: Shop, c: bool) -> int:\n    "
AWAITING = """
import asyncio

async def f() -> int:
    return <|>

async def g() -> int:
    return 1
"""
# Text with a cursor, then candidates, right and wrong.
CASES: list[tuple[str, list[str]]] = [
    (
        SHOP + "return len(shop.<|>)\n",
        ["name", "nam", "sell(1)", "sell('1')", "sell", "name + 1"],
    ),
    (
        SHOP + "x = 1\n    <|>\n    return x + 1\n",
        ["pass", "x = ''", "x = len(\n        shop.name)"],
    ),
    (
        SHOP + "<|>\n",
        ["return 1", "return ''", "return shop.lost", "x = 1", "if c:\n        return 1"],
    ),
    (
        SHOP + "shop.lost\n    return <|>\n",
        ["1", "shop.name", "len(shop.lost)", "len(shop.name"],
    ),
    (
        SHOP + "for x in shop.<|>\n        print(x)\n    return 1\n",
        ["name:", "name", "lost:"],
    ),
    (AWAITING, ["await g()", "g()", "await asyncio.sleep(1, 1)", "await asyncio.slep(1)"]),
]


async def test_the_command_line_agrees_with_every_verdict(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    verdicts: dict[str, VerdictKind] = {}
    offsets: dict[str, tuple[int, int]] = {}  # first line behind the cursor, lines added
    async with running(tmp_path) as bench:
        for i, (marked, candidates) in enumerate(CASES):
            (tmp_path / f"case{i}_empty.py").write_text(marked.replace(CURSOR, ""))
            for j, candidate in enumerate(candidates):
                name = f"case{i}_{j}.py"
                (tmp_path / name).write_text(marked.replace(CURSOR, candidate))
                verdicts[name] = (await bench.verdict(f"case{i}.py", marked, candidate)).kind
                offsets[name] = (marked[: marked.index(CURSOR)].count("\n"), candidate.count("\n"))
    found = run_command_line(tmp_path)
    for name, kind in verdicts.items():
        empty = found[name.split("_")[0] + "_empty.py"]
        after, added = offsets[name]
        known = Counter((line + added if line > after else line, *rest) for line, *rest in empty)
        new = Counter((line, *rest) for line, *rest in found[name]) - known
        assert (kind is VerdictKind.NEW_ERRORS) == bool(new), (name, kind, new)
    assert set(verdicts.values()) == {VerdictKind.CLEAN, VerdictKind.NEW_ERRORS}


def run_command_line(root: Path) -> dict[str, list[tuple[int, str, str]]]:
    """The errors of every file: 0-based line, rule and message."""
    node, script, *_ = pyright_command()
    command_line = Path(script).with_name("index.js")
    arguments = ["--outputjson", "--pythonpath", sys.executable, "-p", str(root)]
    done = subprocess.run(
        [node, str(command_line), *arguments], capture_output=True, text=True, check=False
    )
    report: dict[str, Any] = json.loads(done.stdout)
    found: dict[str, list[tuple[int, str, str]]] = {path.name: [] for path in root.glob("*.py")}
    for item in report["generalDiagnostics"]:
        if item["severity"] == "error":
            line = item["range"]["start"]["line"]
            entry = (line, item.get("rule", "syntax"), item["message"])
            found[Path(item["file"]).name].append(entry)
    return found
