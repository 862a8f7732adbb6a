"""Where Pyright's Python comes from, in order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lsp_server.verification.environment import PythonEnvironment, find_environment


def make_venv(folder: Path) -> str:
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    return str(python)


def find(root: Path | None, interpreter: str = "", **environ: str) -> PythonEnvironment:
    return find_environment(root, interpreter, environ)


def test_the_setting_beats_everything(tmp_path: Path) -> None:
    make_venv(tmp_path / ".venv")
    (tmp_path / "pyrightconfig.json").write_text('{"venv": "x"}')
    chosen = make_venv(tmp_path / "chosen")
    expected = PythonEnvironment(chosen, confirmed=True, source="setting")
    assert find(tmp_path, chosen) == expected
    assert find(tmp_path, "chosen") == expected  # a folder, relative to the root
    assert find(tmp_path, str(Path(chosen).relative_to(tmp_path))) == expected


def test_a_setting_that_is_no_python_is_a_problem_and_confirms_nothing(tmp_path: Path) -> None:
    for wrong in ("nowhere/python", "."):
        found = find(tmp_path, wrong)
        assert found.python_path is None
        assert not found.confirmed
        assert "verification.interpreter" in found.problem


def test_a_venv_in_pyrights_config_is_left_to_pyright(tmp_path: Path) -> None:
    make_venv(tmp_path / ".venv")
    config = tmp_path / "pyrightconfig.json"
    config.write_text('{ // ours\n "venvPath": "//x", /* and */ "venv": "env",\n}\n')
    found = find(tmp_path)
    assert found == PythonEnvironment(None, confirmed=True, source="pyrightconfig.json")


def test_a_venv_in_pyproject_is_left_to_pyright(tmp_path: Path) -> None:
    make_venv(tmp_path / "sub" / ".venv")
    (tmp_path / "pyproject.toml").write_text('[tool.pyright]\nvenv = "env"\n')
    found = find(tmp_path / "sub")
    assert found == PythonEnvironment(None, confirmed=True, source="pyproject.toml")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pyrightconfig.json", '{"strict": ["a"]}'),
        ("pyrightconfig.json", "{ broken"),
        ("pyrightconfig.json", "[1]"),
        ("pyproject.toml", "[tool.pyright]\nstrict = []\n"),
        ("pyproject.toml", "[tool.other]\nvenv = 'x'\n"),
        ("pyproject.toml", "tool = 1\n"),
        ("pyproject.toml", "broken ="),
    ],
)
def test_a_config_without_venv_does_not_hide_the_workspaces(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    python = make_venv(tmp_path / "venv")
    assert find(tmp_path) == PythonEnvironment(python, confirmed=True, source="venv")


def test_the_workspaces_venv_beats_the_shells(tmp_path: Path) -> None:
    active = make_venv(tmp_path / "active")
    root = tmp_path / "root"
    root.mkdir()
    variables = {"VIRTUAL_ENV": str(tmp_path / "active")}
    assert find(root, **variables).python_path == active
    assert find(None, **variables).source == "VIRTUAL_ENV"
    python = make_venv(root / ".venv")
    assert find(root, **variables).python_path == python


@pytest.mark.skipif(sys.platform == "win32", reason="needs an executable bit")
def test_a_python_on_the_path_confirms_nothing(tmp_path: Path) -> None:
    (tmp_path / "python3").touch(mode=0o755)
    found = find(tmp_path, PATH=str(tmp_path), VIRTUAL_ENV=str(tmp_path / "gone"))
    assert found == PythonEnvironment(str(tmp_path / "python3"), confirmed=False, source="PATH")


def test_no_python_at_all_is_not_an_error(tmp_path: Path) -> None:
    found = find(tmp_path, PATH="")
    assert found == PythonEnvironment(None, confirmed=False, source="none found")
