"""The decoder's mathematics against transformers, on tiny random models of each family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.kv.cache import DecodeSegment, KvShape, PrefillSegment, PromptCache, TailCache
from engine.loading.checkpoint import open_checkpoint
from engine.models import assembly
from engine.models.decoder import Decoder
from tests.support.tiny_models import reference_model, write_folder, write_gguf

TOKENS = [(7 * i * i + 3) % 256 for i in range(60)]


def dense_decoder(path: Path) -> tuple[Decoder, KvShape]:
    with open_checkpoint(path) as checkpoint:
        spec, weights = checkpoint.spec, assembly.dense(checkpoint)
    shape = KvShape(spec.layers, spec.kv_heads, spec.head_dim, torch.float32)
    return Decoder(spec, weights, positions=256), shape


@torch.inference_mode()
def all_logits(decoder: Decoder, shape: KvShape, tokens: Sequence[int], chunk: int) -> torch.Tensor:
    """Logits of every position, prefilled `chunk` tokens at a time."""
    cache = PromptCache(shape)
    rows: list[torch.Tensor] = []
    for start in range(0, len(tokens), chunk):
        piece = list(tokens[start : start + chunk])
        segment = PrefillSegment(cache, len(piece))
        rows.append(decoder.logits(decoder.forward(torch.tensor(piece), [segment])))
        cache.tokens.extend(piece)
    return torch.cat(rows)


def reference_logits(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("llama", {}),
    ("llama", {"num_key_value_heads": 4}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5}}),
    (
        "llama",
        {
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
                "rope_theta": 10000.0,
            },
        },
    ),
]


@pytest.mark.parametrize(("family", "overrides"), VARIANTS)
def test_logits_equal_transformers(tmp_path: Path, family: str, overrides: dict[str, Any]) -> None:
    model = reference_model(family, **overrides)
    decoder, shape = dense_decoder(write_folder(tmp_path, model))
    expected = reference_logits(model, TOKENS)
    torch.testing.assert_close(
        all_logits(decoder, shape, TOKENS, 16), expected, atol=2e-4, rtol=2e-4
    )


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_gguf_and_safetensors_of_one_model_agree(tmp_path: Path, family: str) -> None:
    model = reference_model(family)
    decoder, shape = dense_decoder(write_gguf(tmp_path / "tiny.gguf", model))
    expected = reference_logits(model, TOKENS)
    torch.testing.assert_close(
        all_logits(decoder, shape, TOKENS, 60), expected, atol=2e-4, rtol=2e-4
    )


def test_chunk_size_does_not_matter(tmp_path: Path) -> None:
    decoder, shape = dense_decoder(write_folder(tmp_path, reference_model("qwen2")))
    whole = all_logits(decoder, shape, TOKENS, 60)
    for chunk in (1, 7, 59):
        torch.testing.assert_close(
            all_logits(decoder, shape, TOKENS, chunk), whole, atol=1e-4, rtol=1e-4
        )


@torch.inference_mode()
def test_candidates_that_share_a_prompt_decode_like_separate_sequences(tmp_path: Path) -> None:
    decoder, shape = dense_decoder(write_folder(tmp_path, reference_model("llama")))
    prompt = TOKENS[:20]
    cache = PromptCache(shape)
    decoder.forward(torch.tensor(prompt), [PrefillSegment(cache, 20)])
    cache.tokens.extend(prompt)
    tails = TailCache(cache, 3, 8)
    texts = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    going = [0, 1, 2]
    for step in range(4):
        tokens = torch.tensor([texts[c][step] for c in going])
        hidden = decoder.forward(tokens, [DecodeSegment(tails)])
        tails.length += 1
        got = decoder.logits(hidden)
        for row, candidate in enumerate(going):
            expected = all_logits(decoder, shape, prompt + texts[candidate][: step + 1], 64)[-1]
            torch.testing.assert_close(got[row], expected, atol=1e-4, rtol=1e-4)
        if step == 1:  # the middle one ends
            tails.keep([0, 2])
            going = [0, 2]


@torch.inference_mode()
def test_requests_in_one_step_do_not_touch_each_other(tmp_path: Path) -> None:
    decoder, shape = dense_decoder(write_folder(tmp_path, reference_model("qwen2")))
    tails: list[TailCache] = []
    for length in (5, 33):
        cache = PromptCache(shape)
        prompt = TOKENS[:length]
        decoder.forward(torch.tensor(prompt), [PrefillSegment(cache, length)])
        cache.tokens.extend(prompt)
        tails.append(TailCache(cache, 1, 4))
    hidden = decoder.forward(torch.tensor([100, 200]), [DecodeSegment(tail) for tail in tails])
    together = decoder.logits(hidden)
    for row, (length, token) in enumerate(((5, 100), (33, 200))):
        alone = all_logits(decoder, shape, [*TOKENS[:length], token], 64)[-1]
        torch.testing.assert_close(together[row], alone, atol=1e-4, rtol=1e-4)
