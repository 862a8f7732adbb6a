"""The seams of the design: who may import whom, by text and in a running interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LSP_LIBRARIES = {"pygls", "lsprotocol"}


def imports(path: Path) -> Iterator[str]:
    """Every module name a file imports, anywhere in it; relative imports are not used here."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full"
            assert node.module is not None
            yield node.module


def files(package: str) -> list[Path]:
    """A package's own modules; the demo's sample project is data."""
    return sorted(p for p in (ROOT / package).rglob("*.py") if "demo/shop" not in p.as_posix())


@pytest.mark.parametrize("path", files("engine"), ids=str)
def test_the_engine_knows_nothing_of_lsp(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & (LSP_LIBRARIES | {"lsp_server"})


@pytest.mark.parametrize("path", files("lsp_server"), ids=str)
def test_the_server_sees_the_engine_by_its_public_api_only(path: Path) -> None:
    for name in imports(path):
        assert name.split(".")[0] != "torch", "the server leaves tensors to the engine"
        assert not name.startswith("engine."), f"import {name} from `engine` itself"


@pytest.mark.parametrize(
    "module", ["engine", "lsp_server.server", "lsp_server.cli", "lsp_server.app"]
)
def test_importing_does_not_load_torch(module: str) -> None:
    heavy = "{'torch', 'transformers', 'huggingface_hub'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.strip() == "[]"


def test_public_names_are_exported_and_documented() -> None:
    import engine

    assert sorted(engine.__all__) == engine.__all__ or sorted(
        engine.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n)
    ) == list(engine.__all__)
    for name in engine.__all__:
        value = getattr(engine, name)
        if not name.isupper():
            assert value.__doc__, f"{name} has no docstring"
