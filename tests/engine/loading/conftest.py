"""What the tests of pulling share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.wheel_index import WheelIndex, make_index, use_index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelIndex:
    """A two-part model on an index that pip sees, fully published."""
    made = make_index(tmp_path / "index")
    made.publish_all()
    use_index(monkeypatch, made.folder)
    return made


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache."""
    return tmp_path / "cache"
