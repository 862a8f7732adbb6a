"""Model files that lie: every lie ends in a ModelError of one line that names it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import ModelCorrupt, ModelError
from engine.loading import snapshot
from engine.loading.checkpoint import open_checkpoint
from engine.loading.gguf import GgufFile
from engine.loading.tokenizer import from_gguf
from engine.models.spec import DecoderSpec
from engine.runner import Runner
from tests.support.tiny_models import edit_json, reference_model, write_folder, write_gguf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", reference_model("qwen2"))


def refused(source: Path, cache: Path) -> str:
    """Load a model that must be refused; the error's text."""
    with pytest.raises(ModelError) as caught:
        Runner(EngineConfig(), snapshot.load(source, cache, lambda _: None))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of a folder's safetensors file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.norm.weight", (3,)),
        ("model.layers.1.input_layernorm.weight", (64, 1)),
        ("model.layers.0.self_attn.k_proj.bias", (7,)),
        ("model.layers.0.self_attn.v_proj.weight", (32, 63)),
        ("model.layers.1.mlp.down_proj.weight", (64, 0)),
        ("model.embed_tokens.weight", (100, 64)),
        ("lm_head.weight", (64,)),
    ],
)
def test_a_tensor_of_another_shape_is_named(
    folder: Path, tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    edit_weights(folder, lambda tensors: tensors.update({name: torch.zeros(shape)}))
    message = refused(folder, tmp_path)
    assert name in message
    assert str(shape) in message


def test_a_missing_bias_is_named(folder: Path, tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.q_proj.bias"
    edit_weights(folder, lambda tensors: tensors.__delitem__(name))
    assert name in refused(folder, tmp_path)


def test_weights_that_are_not_floats_are_refused(folder: Path, tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    codes = torch.zeros(96, 64, dtype=torch.int8)
    edit_weights(folder, lambda tensors: tensors.update({name: codes}))
    assert name in refused(folder, tmp_path)


def test_a_head_decides_where_the_configuration_is_silent(folder: Path) -> None:
    edit_json(folder / "config.json", tie_word_embeddings=None)
    with open_checkpoint(folder) as checkpoint:
        assert not checkpoint.spec.tied
    edit_weights(folder, lambda tensors: tensors.__delitem__("lm_head.weight"))
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.spec.tied


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": [1]},
        {"rope_parameters": {"rope_type": "llama3", "factor": 2}},
        {"rope_parameters": {"rope_type": "linear", "factor": 0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": -1.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": "far"}},
        {"hidden_size": float("inf")},
        {"rms_norm_eps": float("nan")},
        {"max_position_embeddings": [1]},
        {"eos_token_id": "end"},
        {"eos_token_id": 9999},
        {"eos_token_id": [[1]]},
        {"vocab_size": 200},
    ],
)
def test_a_configuration_with_odd_values(
    folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    edit_json(folder / "config.json", **change)
    refused(folder, tmp_path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("data", [b"[" * 200_000, b"\xff\xfe", b"[]", b'"x"', b"{", b"null"])
def test_json_of_any_kind(folder: Path, tmp_path: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    refused(folder, tmp_path)


@pytest.mark.parametrize("tokens", [5, [1], [{"id": 1}], [{"content": "a", "id": "x"}], None])
def test_added_tokens_of_any_kind(folder: Path, tmp_path: Path, tokens: object) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"added_tokens": tokens}))
    refused(folder, tmp_path)


def test_special_tokens_beyond_the_embedding_are_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    described["added_tokens"][1]["id"] = 5000
    path.write_text(json.dumps(described))
    assert "5000" in refused(folder, tmp_path)


def test_nested_arrays_do_not_exhaust_the_stack(tmp_path: Path) -> None:
    key = struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9)
    nest = struct.pack("<IQ", 9, 1) * 100_000
    path = tmp_path / "deep.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + nest)
    with pytest.raises(ModelCorrupt, match=r"deep\.gguf is damaged"):
        GgufFile(path)


SPEC: dict[str, Any] = {
    "general.architecture": "qwen2",
    "qwen2.attention.head_count": 4,
    "qwen2.embedding_length": 64,
    "qwen2.block_count": 2,
    "qwen2.feed_forward_length": 96,
    "qwen2.context_length": 512,
    "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in SPEC
        for value in (float("nan"), float("inf"), "x", [1], -1, -1e300, [])
    ]
    + [
        ("qwen2.rope.scaling.type", "llama3"),
        ("qwen2.rope.freq_base", 0.0),
        ("qwen2.rope.freq_base", float("nan")),
    ],
)
def test_gguf_metadata_of_any_kind(key: str, value: object) -> None:
    with pytest.raises(ModelError) as caught:
        DecoderSpec.from_gguf(SPEC | {key: value}, vocab=272, tied=True)
    assert "\n" not in str(caught.value)


VOCABULARY: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.token_type": [1, 1, 1],
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


@pytest.mark.parametrize("value", [float("nan"), [1], ["x"], [[1]], -1, "x", 99])
@pytest.mark.parametrize("key", [k for k in VOCABULARY if "add_bos" not in k])
def test_gguf_vocabulary_of_any_kind(key: str, value: object) -> None:
    with pytest.raises(ModelError) as caught:
        from_gguf(VOCABULARY | {key: value}, vocab=3)
    assert "\n" not in str(caught.value)


def test_rows_without_a_token_are_never_sampled() -> None:
    assert from_gguf(VOCABULARY, vocab=6).unused == {3, 4, 5}


def test_a_token_outside_the_byte_alphabet_is_its_own_text() -> None:
    tokens = {"tokenizer.ggml.tokens": ["a", "b", "日 x"], "tokenizer.ggml.merges": []}
    assert from_gguf(VOCABULARY | tokens, vocab=3).token_bytes(2) == "日 x".encode()


def test_a_gguf_with_a_tensor_of_another_shape(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference_model("qwen2"))
    data = path.read_bytes()
    for name in ("output_norm.weight", "blk.1.attn_k.bias", "output.weight"):
        at = data.index(name.encode()) + len(name) + 4
        for rows in (0, 8):
            changed = data[:at] + struct.pack("<Q", rows) + data[at + 8 :]
            path.write_bytes(changed)
            assert name in refused(path, tmp_path)


def test_a_gguf_without_an_embedding(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference_model("qwen2"))
    path.write_bytes(path.read_bytes().replace(b"token_embd.weight", b"token_Embd.weight"))
    assert "no tensor token_embd.weight" in refused(path, tmp_path)
