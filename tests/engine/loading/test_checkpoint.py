"""Published models that cannot be run are refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import EngineError, ModelCorrupt, ModelNotFound, UnsupportedModel
from engine.loading.checkpoint import open_checkpoint
from tests.support.tiny_models import edit_json, reference_model, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path, reference_model("qwen2"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model_type": "mamba"}, UnsupportedModel, "'mamba' is not supported"),
        ({"model_type": None}, UnsupportedModel, "'none' is not supported"),
        ({"hidden_size": "wide"}, ModelCorrupt, "value of the wrong kind"),
        ({"hidden_size": None}, ModelCorrupt, "lacks the key hidden_size"),
        ({"num_attention_heads": 0}, ModelCorrupt, "heads is 0"),
        ({"num_key_value_heads": 3}, ModelCorrupt, "4 attention heads cannot share 3"),
        ({"use_sliding_window": True}, UnsupportedModel, "sliding-window"),
        ({"hidden_act": "gelu"}, UnsupportedModel, "gelu"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2}}, UnsupportedModel, "yarn"),
        ({"quantization_config": {"bits": 4}}, UnsupportedModel, "already quantized"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused(
    folder: Path, change: dict[str, Any], error: type[EngineError], message: str
) -> None:
    edit_json(folder / "config.json", **change)
    with pytest.raises(error, match=message), open_checkpoint(folder):
        pass


def test_a_folder_without_its_parts(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no model"):
        open_checkpoint(tmp_path / "nothing")
    (folder / "tokenizer.json").unlink()
    with (
        open_checkpoint(folder) as checkpoint,
        pytest.raises(ModelCorrupt, match=r"tokenizer\.json"),
    ):
        checkpoint.tokenizer()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"no \.safetensors"):
        open_checkpoint(folder)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(ModelCorrupt, match="not a JSON object"):
        open_checkpoint(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelCorrupt, match="not JSON"):
        open_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        open_checkpoint(folder)


def test_truncated_weights_are_damaged(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelCorrupt, match=r"model\.safetensors cannot be read"):
        open_checkpoint(folder)


def test_weights_in_several_files(tmp_path: Path, folder: Path) -> None:
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    for part, some in enumerate((names[::2], names[1::2])):
        save_file({n: tensors[n] for n in some}, folder / f"model-{part}.safetensors")
    with open_checkpoint(folder) as checkpoint:
        for name in names:
            assert torch.equal(checkpoint.read(name), tensors[name].float())
        with pytest.raises(ModelCorrupt, match="no tensor nonsense"):
            checkpoint.read("nonsense")
