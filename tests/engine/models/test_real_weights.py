"""The real Qwen2.5-Coder 0.5B: our logits against transformers' on real code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine import default_cache_dir
from engine.kv.cache import KvShape, PrefillSegment, PromptCache
from engine.loading import snapshot
from engine.loading.checkpoint import GgufCheckpoint, open_checkpoint
from engine.models import assembly
from engine.models.decoder import Decoder, DecoderWeights
from engine.models.names import GGUF_NAMES, HF_NAMES
from engine.quantization.linear import hardware_dtype
from engine.quantization.policy import PrecisionPolicy

pytestmark = pytest.mark.model

POSITIONS = 512


@pytest.fixture(scope="module")
def source(real_model: Path) -> Iterator[GgufCheckpoint]:
    with open_checkpoint(real_model) as checkpoint:
        assert isinstance(checkpoint, GgufCheckpoint)
        yield checkpoint


@pytest.fixture(scope="module")
def tokens(source: GgufCheckpoint) -> list[int]:
    ids = source.tokenizer().encode(inspect.getsource(inspect))
    return ids[:POSITIONS]


@pytest.fixture(scope="module")
def expected(source: GgufCheckpoint, tokens: list[int]) -> torch.Tensor:
    """Logits of transformers' Qwen2 in FP32, float32 [POSITIONS, vocab]."""
    spec = source.spec
    config = transformers.Qwen2Config(
        vocab_size=spec.vocab,
        hidden_size=spec.hidden,
        intermediate_size=spec.intermediate,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        rms_norm_eps=spec.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
        tie_word_embeddings=spec.tied,
    )
    with torch.device("meta"):
        model: Any = transformers.Qwen2ForCausalLM(config)
    state = {ours: source.read(theirs) for ours, theirs in weight_names(spec.layers)}
    model.to_empty(device="cpu")
    model.load_state_dict(state, strict=True)
    rotary = model.model.rotary_emb  # to_empty emptied its buffers as well
    model.model.rotary_emb = type(rotary)(config)
    with torch.inference_mode():
        return model.float().eval()(torch.tensor([tokens])).logits[0]


def weight_names(layers: int) -> list[tuple[str, str]]:
    """Pairs of Hugging Face's and ggml's name of every tensor."""
    pairs = [
        (HF_NAMES.embedding, GGUF_NAMES.embedding),
        (HF_NAMES.head, GGUF_NAMES.head),
        (HF_NAMES.final_norm, GGUF_NAMES.final_norm),
    ]
    for layer in range(layers):
        for ours, theirs in (
            (HF_NAMES.attention_norm, GGUF_NAMES.attention_norm),
            (HF_NAMES.mlp_norm, GGUF_NAMES.mlp_norm),
            (HF_NAMES.attention_out, GGUF_NAMES.attention_out),
            (HF_NAMES.down, GGUF_NAMES.down),
            *zip(HF_NAMES.qkv, GGUF_NAMES.qkv, strict=True),
            *zip(HF_NAMES.biases(HF_NAMES.qkv), GGUF_NAMES.biases(GGUF_NAMES.qkv), strict=True),
            *zip(HF_NAMES.gate_up, GGUF_NAMES.gate_up, strict=True),
        ):
            pairs.append((ours.format(layer), theirs.format(layer)))
    return pairs


@torch.inference_mode()
def logits(
    source: GgufCheckpoint, weights: DecoderWeights, ids: list[int], dtype: torch.dtype
) -> torch.Tensor:
    spec = source.spec
    decoder = Decoder(spec, weights, positions=POSITIONS)
    cache = PromptCache(KvShape(spec.layers, spec.kv_heads, spec.head_dim, dtype))
    segment = PrefillSegment(cache, len(ids))
    return decoder.logits(decoder.forward(torch.tensor(ids), [segment]))


def test_fp32_logits_equal_transformers(
    source: GgufCheckpoint, tokens: list[int], expected: torch.Tensor
) -> None:
    got = logits(source, assembly.dense(source), tokens, torch.float32)
    difference = (got - expected).abs()
    print(f"\nFP32: max {difference.max():.2e}, mean {difference.mean():.2e} of logits")
    assert float(difference.max()) < 5e-3
    assert torch.equal(got.argmax(-1), expected.argmax(-1))


def test_int8_says_nearly_the_same(
    source: GgufCheckpoint,
    tokens: list[int],
    expected: torch.Tensor,
    real_model: Path,
) -> None:
    policy = PrecisionPolicy("int8-dynamic")
    prepared = snapshot.load(real_model, default_cache_dir(), lambda _: None, policy)
    weights = assembly.from_snapshot(prepared.spec, prepared.tensors, prepared.formats)
    got = logits(source, weights, tokens, hardware_dtype())
    p, q = expected.log_softmax(-1), got.log_softmax(-1)
    divergence = float((p.exp() * (p - q)).sum(-1).mean())
    agreement = float((got.argmax(-1) == expected.argmax(-1)).float().mean())
    difference = (got - expected).abs()
    print(
        f"\nINT8: KL {divergence:.2e}, greedy agreement {agreement:.3f}, "
        f"logits differ by {difference.mean():.3f} (mean), {difference.max():.2f} (max)"
    )
    assert divergence < 0.005
    assert agreement > 0.96


def test_the_tokenizer_equals_transformers(source: GgufCheckpoint, real_model: Path) -> None:
    """transformers' own converter of the same GGUF vocabulary, on code in many scripts."""
    reference: Any = transformers.AutoTokenizer.from_pretrained(
        real_model.parent, gguf_file=real_model.name
    )
    ours = source.tokenizer()
    samples = [
        inspect.getsource(torch.nn.functional),
        "x\u0301 = 'é🎉漢字'\r\n\tif  a!=b :\n\n\n   pass  # 12345 it's we'll\n",
        "naïve ½ ﬁ Ω\u00a0\u2003end\t\t\r\n\r\n",
    ]
    for sample in samples:
        assert ours.encode(sample) == reference(sample, add_special_tokens=False).input_ids
