"""Which Python's packages Pyright should see; by itself it only knows the one on PATH."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

# A string, or a comment to drop, or a comma before a closing bracket: JSON as Pyright reads it.
_JSONC = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """The interpreter whose packages Pyright sees.

    Attributes:
        python_path: what to tell Pyright; None leaves the choice to it.
        confirmed: whether somebody chose it for this project. If not, an import that cannot
            be resolved may only mean that we look at the wrong packages.
        source: where it comes from, for logs and the status.
        problem: what is wrong with the user's setting, in one line; empty if nothing is.
    """

    python_path: str | None
    confirmed: bool
    source: str
    problem: str = ""


def find_environment(
    root: Path | None, interpreter: str = "", environ: Mapping[str, str] | None = None
) -> PythonEnvironment:
    """Find the project's interpreter: the setting, Pyright's own config, .venv, then the shell.

    Args:
        root: workspace root.
        interpreter: the user's setting; an interpreter, or an environment's folder.
        environ: environment variables; the process's own if not given.
    """
    variables = os.environ if environ is None else environ
    if interpreter:
        return _from_setting(root, interpreter)
    if root is not None:
        config = _config_with_venv(root)
        if config is not None:
            return PythonEnvironment(None, confirmed=True, source=config.name)
        for name in (".venv", "venv"):
            python = _python_of(root / name)
            if python is not None:
                return PythonEnvironment(str(python), confirmed=True, source=name)
    active = variables.get("VIRTUAL_ENV", "")
    python = _python_of(Path(active)) if active else None
    if python is not None:
        return PythonEnvironment(str(python), confirmed=True, source="VIRTUAL_ENV")
    for name in ("python3", "python"):
        found = shutil.which(name, path=variables.get("PATH", ""))
        if found is not None:
            return PythonEnvironment(found, confirmed=False, source="PATH")
    return PythonEnvironment(None, confirmed=False, source="none found")


def _from_setting(root: Path | None, interpreter: str) -> PythonEnvironment:
    path = Path(os.path.expandvars(interpreter)).expanduser()
    if not path.is_absolute():
        on_path = shutil.which(interpreter) if path.name == interpreter else None
        path = Path(on_path) if on_path else (root or Path.cwd()) / path
    python = _python_of(path) if path.is_dir() else path
    if python is None or not python.is_file():
        # Telling Pyright of it anyway would make it fall back silently to another one.
        problem = f"verification.interpreter: there is no Python at {path}"
        return PythonEnvironment(None, confirmed=False, source="setting", problem=problem)
    return PythonEnvironment(str(python), confirmed=True, source="setting")


def _python_of(folder: Path) -> Path | None:
    """The interpreter of a virtual environment's folder."""
    relative = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    python = folder / relative
    return python if python.is_file() else None


def _config_with_venv(root: Path) -> Path | None:
    """The configuration file Pyright would read, if it names a venv (which beats ours)."""
    for folder in (root, *root.absolute().parents):
        config = folder / "pyrightconfig.json"
        if config.is_file():
            return config if "venv" in _read_jsonc(config) else None
        project = folder / "pyproject.toml"
        if project.is_file():
            table = _tool_pyright(project)
            if table is not None:
                return project if "venv" in table else None
    return None


def _read_jsonc(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")
        value = json.loads(_JSONC.sub(lambda match: match.group(1) or "", text))
    except (OSError, ValueError):
        return {}  # Pyright reports and ignores it
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _tool_pyright(path: Path) -> dict[str, Any] | None:
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("pyright")
    except (OSError, ValueError, AttributeError):
        return None
    return cast(dict[str, Any], table) if isinstance(table, dict) else None
