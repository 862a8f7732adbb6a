"""Tensors in memory of their own are those of the file; damage is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import ModelCorrupt, ModelError
from engine.loading.resident import read_tensors


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "a.packed": torch.randint(0, 255, (3, 5, 64), dtype=torch.uint8),
        "a.scales": torch.rand(3, 7).half(),
        "embed.values": torch.rand(10, 4),
        "norm": torch.rand(5),
        "one": torch.tensor(2.5),
        "wide": torch.rand(6, 2).bfloat16(),
    }


@pytest.fixture
def path(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    save_file(tensors, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_tensors_come_back_as_they_were(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    got = read_tensors(path, lambda name: name.startswith("embed."))
    assert got.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert got[name].dtype == tensor.dtype
        assert torch.equal(got[name], tensor)
        if not name.startswith("embed."):
            assert got[name].data_ptr() % 64 == 0


def test_what_was_read_survives_the_file(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    got = read_tensors(path, lambda _: False)
    path.write_bytes(b"")  # would kill a process that has it mapped
    for name, tensor in tensors.items():
        assert torch.equal(got[name], tensor)


@pytest.mark.parametrize("cut", [0, 4, 30, -1])
def test_a_cut_file_is_refused(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelCorrupt, match="weights"):
        read_tensors(path, lambda _: False)


def test_a_header_that_lies_is_refused(path: Path) -> None:
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    data[8 : 8 + length] = data[8 : 8 + length].replace(b"[3,5,64]", b"[9,5,64]")
    path.write_bytes(data)
    with pytest.raises(ModelCorrupt, match="packed"):
        read_tensors(path, lambda _: False)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        read_tensors(tmp_path / "nowhere", lambda _: False)
