"""What all tests share: the versions in the header, and the real model."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from engine import DEFAULT_MODEL, ModelError, default_cache_dir, resolve_model


def pytest_report_header() -> str:
    """The versions a failure may depend on."""
    names = ("torch", "transformers", "pygls", "lsprotocol", "pyright")
    return "versions: " + ", ".join(f"{name} {version(name)}" for name in names)


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The default model's file; its absence fails the test and says how to get it."""
    try:
        return resolve_model(DEFAULT_MODEL, default_cache_dir())
    except ModelError as error:
        pytest.fail(f"the model tier needs the real weights: {error}")
