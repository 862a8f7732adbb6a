"""Registering a local model: in place, under a name of its own or the catalogue's."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import (
    ConfigError,
    ModelNotFound,
    ModelState,
    PullOptions,
    list_models,
    pull_model,
    resolve_model,
    verify_model,
)
from tests.support.wheel_index import WheelIndex

NO_SOURCES = PullOptions(use_hub=False, use_wheels=False)


def register(path: Path, cache: Path, index: WheelIndex) -> str:
    return pull_model(str(path), cache, options=NO_SOURCES, catalogue=index.catalogue).name


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A file that begins like GGUF and is no catalogue model."""
    path = tmp_path / "My Model (v2).gguf"
    path.write_bytes(b"GGUF" + bytes(1000))
    return path


def test_a_file_is_registered_where_it_lies(gguf: Path, cache: Path, index: WheelIndex) -> None:
    name = register(gguf, cache, index)
    assert name == "my-model-v2"
    assert resolve_model(name, cache, index.catalogue) == gguf
    assert verify_model(name, cache, catalogue=index.catalogue).ok
    assert not list(cache.rglob("*.gguf")), "it was copied"


def test_bytes_of_a_catalogue_model_get_its_name(
    gguf: Path, cache: Path, index: WheelIndex
) -> None:
    gguf.write_bytes(index.data)
    assert register(gguf, cache, index) == "tiny"
    assert resolve_model("tiny", cache, index.catalogue) == gguf
    assert pull_model("tiny", cache, options=NO_SOURCES, catalogue=index.catalogue).already


def test_a_catalogue_name_is_not_given_to_other_bytes(
    tmp_path: Path, cache: Path, index: WheelIndex
) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF other")
    with pytest.raises(ConfigError, match="not the catalogue's tiny"):
        register(path, cache, index)


def test_a_folder_is_registered_with_all_its_files(
    tmp_path: Path, cache: Path, index: WheelIndex
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    name = register(folder, cache, index)
    assert resolve_model(name, cache, index.catalogue) == folder
    (folder / "model.safetensors").write_bytes(b"weighty")
    report = verify_model(name, cache, catalogue=index.catalogue)
    assert [check.path for check in report.checks if check.failed] == ["model.safetensors"]
    assert str(folder) in report.remedy


def test_a_registered_file_that_went_away_is_reported(
    gguf: Path, cache: Path, index: WheelIndex
) -> None:
    name = register(gguf, cache, index)
    gguf.unlink()
    with pytest.raises(ModelNotFound, match="is gone") as caught:
        resolve_model(name, cache, index.catalogue)
    assert str(gguf) in caught.value.remedy
    states = {entry.name: entry.state for entry in list_models(cache, index.catalogue)}
    assert states[name] == ModelState.DAMAGED


def test_any_file_name_makes_a_usable_name(tmp_path: Path, cache: Path, index: WheelIndex) -> None:
    for stem in ("模型", "-._", "x" * 240, "a b@c"):
        path = tmp_path / f"{stem}.gguf"
        path.write_bytes(b"GGUF")
        assert resolve_model(register(path, cache, index), cache, index.catalogue) == path
