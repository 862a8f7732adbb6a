"""The one-shot commands as a user runs them: the real model, the real Pyright."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.model

SOURCE = '''from dataclasses import dataclass


@dataclass
class Reading:
    celsius: float
    taken_at: int


def warmest(readings: list[Reading]) -> float:
    """The highest temperature of all readings."""
    return max(reading.
'''


def ghostwright(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lsp_server", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def errors_in(text: str, folder: Path) -> set[tuple[str, str]]:
    """Rule and message of every error an independent run of Pyright finds."""
    path = folder / "checked.py"
    path.write_text(text, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    diagnostics: list[dict[str, Any]] = json.loads(found.stdout)["generalDiagnostics"]
    return {
        (each.get("rule", ""), each["message"])
        for each in diagnostics
        if each["severity"] == "error"
    }


def test_complete_returns_only_what_pyright_passes(tmp_path: Path, real_model: Path) -> None:
    path = tmp_path / "readings.py"
    path.write_text(SOURCE, encoding="utf-8")
    offset = len(SOURCE) - 1
    line = SOURCE.count("\n")
    column = len(SOURCE.splitlines()[-1]) + 1
    done = ghostwright(
        "complete", f"{path}:{line}:{column}", "-n", "2", "--model", str(real_model), "--json"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["candidates"]
    before = errors_in(SOURCE, tmp_path)
    for candidate in answer["candidates"]:
        assert candidate["verified"]
        with_it = SOURCE[:offset] + candidate["text"] + SOURCE[offset:]
        assert errors_in(with_it, tmp_path) <= before
    assert answer["tokens"]["generated"] > 0


def test_demo_shows_suggestions_and_what_was_thrown_out(real_model: Path) -> None:
    done = ghostwright("demo", "--model", str(real_model), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["shown"] >= 1
    assert answer["rejected"] >= 1
    for place in answer["places"]:
        assert all(candidate["verified"] for candidate in place["candidates"])
        for rejected in place["rejected"]:
            assert all(error["rule"] and error["message"] for error in rejected["new_errors"])
