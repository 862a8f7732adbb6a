"""A quantized decoder: the compiled decode step, the observed pass, and layers replaced."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ConfigError
from engine.kernels import native
from engine.kv.cache import DecodeSegment, KvShape, PrefillSegment, PromptCache, TailCache
from engine.loading.checkpoint import open_checkpoint
from engine.models import assembly
from engine.models.decoder import Decoder, DecoderWeights
from engine.models.spec import DecoderSpec
from engine.quantization.error import relative_error
from engine.quantization.formats import Format
from engine.quantization.linear import make_linear
from engine.quantization.quantize import quantize
from engine.quantization.weights import DenseWeight
from tests.support.tiny_models import reference_model, write_folder

MIXED = {"qkv": Format.INT8_DYNAMIC, "attention_out": Format.INT4_ZP, "gate_up": Format.INT4}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[DecoderSpec, DecoderWeights]:
    path = write_folder(tmp_path_factory.mktemp("tiny"), reference_model("qwen2"))
    with open_checkpoint(path) as checkpoint:
        return checkpoint.spec, assembly.dense(checkpoint)


def quantized(spec: DecoderSpec, dense: DecoderWeights) -> Decoder:
    """The decoder with its layers in mixed formats."""
    decoder = Decoder(spec, dense, positions=256)
    for number in range(spec.layers):
        for field in ("qkv", "attention_out", "gate_up", "down"):
            name = f"layers.{number}.{field}"
            old = decoder.linear(name)
            weight = quantize(old.weight.dequantize(), MIXED.get(field, Format.INT4))
            decoder.replace(name, make_linear(weight, old.bias))
    return decoder


def ignore(name: str, x: torch.Tensor, y: torch.Tensor) -> None:
    """Observe nothing: an observed pass takes every layer by itself."""


@torch.inference_mode()
def decoded(decoder: Decoder, spec: DecoderSpec, *, observed: bool) -> torch.Tensor:
    """Hidden states of four steps of two requests with three and one candidates."""
    shape = KvShape(spec.layers, spec.kv_heads, spec.head_dim, torch.float32)
    tails: list[TailCache] = []
    for length, candidates in ((40, 3), (7, 1)):
        cache = PromptCache(shape)
        prompt = [(5 * i + length) % 256 for i in range(length)]
        decoder.forward(torch.tensor(prompt), [PrefillSegment(cache, length)])
        cache.tokens.extend(prompt)
        tails.append(TailCache(cache, candidates, 8))
    steps: list[torch.Tensor] = []
    for step in range(4):
        tokens = torch.tensor([11, 50 + step, 90, 200])
        segments = [DecodeSegment(tail) for tail in tails]
        steps.append(decoder.forward(tokens, segments, ignore if observed else None))
        for tail in tails:
            tail.length += 1
    return torch.stack(steps)


@pytest.mark.parametrize("name", native.NAMES)
def test_a_whole_step_equals_its_parts(
    dense: tuple[DecoderSpec, DecoderWeights], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.VARIABLE, name)
    try:
        native.load()
    except ConfigError as error:
        pytest.skip(error.what)
    spec, weights = dense
    decoder = quantized(spec, weights)
    whole = decoded(decoder, spec, observed=False)
    parts = decoded(decoder, spec, observed=True)
    assert relative_error(whole, parts) < 1e-6


def test_compiled_and_pytorchs_operators_agree(
    dense: tuple[DecoderSpec, DecoderWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, weights = dense
    ours = decoded(quantized(spec, weights), spec, observed=False)
    monkeypatch.setenv(native.VARIABLE, "torch")
    theirs = decoded(quantized(spec, weights), spec, observed=False)
    assert relative_error(ours, theirs) < 2e-3  # activations in INT8 there, in BF16 here


@torch.inference_mode()
def test_an_observer_sees_every_layer_and_changes_nothing(
    dense: tuple[DecoderSpec, DecoderWeights],
) -> None:
    spec, weights = dense
    decoder = Decoder(spec, weights, positions=64)
    shape = KvShape(spec.layers, spec.kv_heads, spec.head_dim, torch.float32)
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def observer(name: str, x: torch.Tensor, y: torch.Tensor) -> None:
        seen[name] = x.clone(), y.clone()

    tokens = torch.tensor([1, 2, 3])
    plain = decoder.logits(decoder.forward(tokens, [PrefillSegment(PromptCache(shape), 3)]))
    hidden = decoder.forward(tokens, [PrefillSegment(PromptCache(shape), 3)], observer)
    assert torch.equal(decoder.logits(hidden, observer), plain)
    fields = ("qkv", "attention_out", "gate_up", "down")
    names = [f"layers.{i}.{field}" for i in range(spec.layers) for field in fields]
    assert list(seen) == [*names, "head"]
    for name, (x, y) in seen.items():
        torch.testing.assert_close(decoder.linear(name)(x), y)


def test_a_replaced_layer_is_used_at_once(dense: tuple[DecoderSpec, DecoderWeights]) -> None:
    spec, weights = dense
    decoder = quantized(spec, weights)
    before = decoded(decoder, spec, observed=False)
    old = decoder.linear("layers.1.down")
    decoder.replace("layers.1.down", make_linear(DenseWeight(old.weight.dequantize() * 2)))
    after = decoded(decoder, spec, observed=False)
    assert relative_error(after, before) > 1e-2
    decoder.replace("layers.1.down", old)
    assert torch.equal(decoded(decoder, spec, observed=False), before)
    with pytest.raises(KeyError):
        decoder.replace("layers.9.down", old)
    with pytest.raises(KeyError):
        decoder.linear("layers.0.gate")
