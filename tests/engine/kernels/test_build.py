"""Compiling the kernels, with a compiler and without."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from engine.kernels import build


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="the kernels are for Linux")
def test_it_builds_where_it_is_told_to(tmp_path: Path) -> None:
    target = build.build(tmp_path / "kernels.so")
    assert target.stat().st_size > 10_000
    assert list(tmp_path.iterdir()) == [target]  # and leaves nothing beside it


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.CannotBuild, match="no C\\+\\+ compiler"):
        build.build(tmp_path / "kernels.so")


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken-c++"
    broken.write_text("#!/bin/sh\necho 'disk quota exceeded' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(build.CannotBuild, match="disk quota exceeded"):
        build.build(tmp_path / "kernels.so")
    assert not (tmp_path / "kernels.so").exists()


def test_another_chip_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(build.CannotBuild, match="riscv64"):
        build.build(tmp_path / "kernels.so")
