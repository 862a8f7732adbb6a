"""Tiny random models in the published formats, for tests that need a model but no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

FIM_TOKENS = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")
VOCAB = 272  # 256 bytes, the special tokens, and some unused padding


def byte_alphabet() -> list[str]:
    """One printable character per byte, in the order of a byte-level vocabulary."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def reference_model(
    family: str, *, seed: int = 0, **overrides: Any
) -> transformers.PreTrainedModel:
    """A random transformers model: the reference for the decoder's mathematics."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 256,
        "pad_token_id": None,
    } | overrides
    kinds: dict[str, tuple[Any, Any]] = {
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    }
    config, model = kinds[family]
    built = model(config(**settings)).eval().float()
    with torch.no_grad():
        for parameter in built.parameters():  # larger than the usual init: logits must differ
            parameter.normal_(std=0.3)
    return built


def write_folder(folder: Path, model: transformers.PreTrainedModel, *, fim: bool = True) -> Path:
    """Write a model as config.json, model.safetensors and tokenizer.json."""
    model.save_pretrained(folder)
    vocab = {char: i for i, char in enumerate(byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(FIM_TOKENS if fim else FIM_TOKENS[:1]))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_gguf(path: Path, model: transformers.PreTrainedModel, kind: str = "F32") -> Path:
    """Write a model as a GGUF file, its matrices in the block format `kind`."""
    config: Any = model.config
    family = config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_vocabulary(writer)
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if family == "llama" and (".q_proj." in name or ".k_proj." in name):
            query = ".q_proj." in name
            values = _permute(
                values, config.num_attention_heads if query else config.num_key_value_heads
            )
        kind_here = gguf.GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        packed = gguf.quantize(values, kind_here)
        writer.add_tensor(_gguf_name(name), packed, raw_dtype=kind_here)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _permute(values: Any, heads: int) -> Any:
    """llama.cpp's re-ordering of Llama's query and key rows, as its converter does it."""
    shape = values.shape
    split = values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(shape))


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens = [*byte_alphabet(), *FIM_TOKENS, "ab"]
    types = [*[gguf.TokenType.NORMAL] * 256, *[gguf.TokenType.CONTROL] * 5, gguf.TokenType.NORMAL]
    padding = VOCAB - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(padding)])
    writer.add_token_types(types + [gguf.TokenType.UNUSED] * padding)
    writer.add_token_merges(["a b"])  # the writer wants at least one; `ab` is a token below
    writer.add_eos_token_id(256)


_GGUF_PARTS = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    """Hugging Face's tensor name as ggml's."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        number, part = stem.removeprefix("model.layers.").split(".", 1)
        return f"blk.{number}.{_GGUF_PARTS[part]}.{kind}"
    return f"{_GGUF_PARTS[stem]}.{kind}"


def edit_json(path: Path, **changes: Any) -> None:
    """Change top-level keys of a JSON file; None removes one."""
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    path.write_text(json.dumps(values), "utf-8")
