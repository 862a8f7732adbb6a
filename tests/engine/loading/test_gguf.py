"""GGUF files: every block format against the reference, and every kind of damage named."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.errors import ModelCorrupt, ModelError, ModelNotFound, UnsupportedModel
from engine.loading.gguf import GgufFile
from engine.loading.gguf_blocks import BLOCKS, decode
from tests.support.tiny_models import reference_model, write_gguf


def random_blocks(type_id: int, blocks: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random bytes whose FP16 scales are finite."""
    raw = np.random.default_rng(type_id).integers(0, 256, (blocks, BLOCKS[type_id].nbytes))
    return (raw & 0xBB).astype(np.uint8)  # clears a bit of every exponent: never infinite


@pytest.mark.parametrize("type_id", sorted(BLOCKS), ids=lambda i: BLOCKS[i].name)
def test_every_block_format_decodes_as_the_reference(type_id: int) -> None:
    packed = random_blocks(type_id, 200)
    expected = gguf.dequantize(packed, gguf.GGMLQuantizationType(type_id)).reshape(-1)
    got = decode(type_id, torch.from_numpy(packed.reshape(-1).copy()))
    np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_tensors_read_as_the_reference_reads_them(tmp_path: Path, kind: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference_model("qwen2"), kind)
    with GgufFile(path) as file:
        for tensor in gguf.GGUFReader(path).tensors:
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            got = file.read(tensor.name)
            assert got.dtype == torch.float32
            np.testing.assert_array_equal(got.numpy(), expected.reshape(got.shape))


def test_metadata_reads_as_the_reference_reads_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference_model("llama"))
    reference = gguf.GGUFReader(path)
    with GgufFile(path) as file:
        for key, value in file.metadata.items():
            assert reference.fields[key].contents() == value


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    return write_gguf(tmp_path / "whole.gguf", reference_model("qwen2")).read_bytes()


def opened(path: Path, data: bytes) -> GgufFile:
    path.write_bytes(data)
    return GgufFile(path)


def test_a_file_cut_anywhere_is_named_truncated_or_damaged(tmp_path: Path, whole: bytes) -> None:
    for size in [0, 1, 3, 4, 7, 8, 20, *range(24, len(whole), len(whole) // 60)]:
        with pytest.raises(ModelCorrupt, match=r"cut\.gguf"):
            opened(tmp_path / "cut.gguf", whole[:size])


def test_random_damage_never_escapes_the_error_tree(tmp_path: Path, whole: bytes) -> None:
    random = np.random.default_rng(0)
    for _ in range(150):
        data = bytearray(whole)
        for at in random.integers(0, 6000, 3):  # the header, where structure is
            data[at] = int(random.integers(0, 256))
        message = ""
        try:
            with opened(tmp_path / "odd.gguf", bytes(data)) as file:
                for name in file.tensors:
                    file.read(name)
        except ModelError as error:
            message = str(error)
        assert "\n" not in message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 not a model at all", "does not start with 'GGUF'"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(32), "version 1"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        opened(tmp_path / "other.gguf", data)


def test_missing_file_and_folder() -> None:
    with pytest.raises(ModelNotFound, match="No such file"):
        GgufFile(Path("no-such.gguf"))
    with pytest.raises(ModelNotFound, match="directory"):
        GgufFile(Path(__file__).parent)


def test_not_a_number_is_found_and_named(tmp_path: Path) -> None:
    model = reference_model("qwen2")
    model.state_dict()["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    with GgufFile(write_gguf(tmp_path / "nan.gguf", model)) as file:
        file.read("blk.0.ffn_up.weight")
        with pytest.raises(ModelCorrupt, match=r"blk\.1\.ffn_up\.weight holds NaN"):
            file.read("blk.1.ffn_up.weight")


def test_unknown_block_format_is_refused(tmp_path: Path, whole: bytes) -> None:
    name = b"blk.0.ffn_up.weight"
    at = whole.index(name) + len(name) + 4 + 16  # behind the two dimensions
    data = whole[:at] + struct.pack("<I", 23) + whole[at + 4 :]
    with pytest.raises(UnsupportedModel, match=r"ffn_up.weight has ggml type 23"):
        opened(tmp_path / "new.gguf", data)
