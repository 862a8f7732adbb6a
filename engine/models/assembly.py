"""Putting a decoder together from a snapshot's tensors, or from a checkpoint in FP32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from engine.errors import ModelCorrupt
from engine.loading.checkpoint import Checkpoint
from engine.models.decoder import DecoderWeights, Layer
from engine.models.spec import DecoderSpec
from engine.quantization.formats import Format
from engine.quantization.linear import Linear, make_linear
from engine.quantization.sketch import DIRECTIONS, Sketch
from engine.quantization.weights import DenseWeight, Int4Weight, Int8Weight, Weight, weight_from


@dataclass(frozen=True, slots=True)
class MatrixPlace:
    """One matrix of a decoder: the name of its place, and its shape."""

    name: str
    rows: int
    columns: int


def matrix_places(spec: DecoderSpec) -> Iterator[MatrixPlace]:
    """All matrices in the order a pass uses them; a tied head is the embedding too."""
    hidden, heads = spec.hidden, spec.heads * spec.head_dim
    if not spec.tied:
        yield MatrixPlace("embed", spec.vocab, hidden)
    for i in range(spec.layers):
        at = f"layers.{i}"
        qkv = heads + 2 * spec.kv_heads * spec.head_dim
        yield MatrixPlace(f"{at}.qkv", qkv, hidden)
        yield MatrixPlace(f"{at}.attention_out", hidden, heads)
        yield MatrixPlace(f"{at}.gate_up", 2 * spec.intermediate, hidden)
        yield MatrixPlace(f"{at}.down", hidden, spec.intermediate)
    yield MatrixPlace("head", spec.vocab, hidden)


def from_snapshot(
    spec: DecoderSpec, tensors: Mapping[str, torch.Tensor], formats: Mapping[str, Format]
) -> DecoderWeights:
    """A snapshot's tensors, used where they lie.

    Args:
        spec: sizes and constants.
        tensors: `{place}.{suffix}` of each matrix, and the norms.
        formats: what each matrix is stored in, by place.

    Raises:
        ModelCorrupt: a tensor is missing or has the wrong shape.
    """

    def vector(name: str, size: int) -> torch.Tensor:
        tensor = tensors.get(name)
        if tensor is None or tuple(tensor.shape) != (size,):
            found = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
            raise ModelCorrupt(f"the prepared model's tensor {name} is {found}, not {(size,)}")
        return tensor

    def weight(place: MatrixPlace) -> Weight:
        format = formats.get(place.name)
        if format is None:
            raise ModelCorrupt(f"the prepared model does not say how {place.name} is stored")
        return weight_from(format, _own(tensors, place.name), place.rows, place.columns)

    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    return _assemble(spec, weight, vector, nbytes, _sketch(spec, tensors))


def _sketch(spec: DecoderSpec, tensors: Mapping[str, torch.Tensor]) -> Sketch | None:
    """The sketch of the head, where the snapshot has one."""
    projection, table = _own(tensors, "sketch.projection"), _own(tensors, "sketch.table")
    if not table:
        return None
    into = weight_from(Format.INT8_DYNAMIC, projection, DIRECTIONS, spec.hidden)
    out = weight_from(Format.INT4, table, spec.vocab, DIRECTIONS)
    assert isinstance(into, Int8Weight)
    assert isinstance(out, Int4Weight)
    return Sketch(into, out)


def _own(tensors: Mapping[str, torch.Tensor], place: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(f"{place}."): tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{place}.")
    }


def dense(checkpoint: Checkpoint) -> DecoderWeights:
    """FP32 weights from a checkpoint: the reference that everything is measured against."""
    spec, names = checkpoint.spec, checkpoint.names
    rotary = checkpoint.rotary_frequencies()

    def weight(place: MatrixPlace) -> Weight:
        sources = names.sources(place.name, tied=spec.tied)
        return DenseWeight(torch.cat([checkpoint.read(name) for name in sources]))

    def vector(name: str, size: int) -> torch.Tensor:
        if name == "rotary_frequencies":
            return rotary
        if name.endswith(".bias"):
            biases = names.biases(names.sources(name.removesuffix(".bias"), tied=spec.tied))
            return torch.cat([checkpoint.read(bias) for bias in biases])
        return checkpoint.read(names.vector(name))

    items = sum(math.prod(shape) for _, shape in names.shapes(spec)) + len(rotary)
    return _assemble(spec, weight, vector, items * torch.float32.itemsize)


def _assemble(
    spec: DecoderSpec,
    weight: Callable[[MatrixPlace], Weight],
    vector: Callable[[str, int], torch.Tensor],
    nbytes: int,
    sketch: Sketch | None = None,
) -> DecoderWeights:
    weights = {place.name: weight(place) for place in matrix_places(spec)}

    def linear(name: str) -> Linear:
        biased = name.endswith(".qkv") and spec.qkv_bias
        bias = vector(f"{name}.bias", weights[name].rows) if biased else None
        return make_linear(weights[name], bias)

    return DecoderWeights(
        embed=weights["head" if spec.tied else "embed"].take,
        layers=[
            Layer(
                attention_norm=vector(f"layers.{i}.attention_norm", spec.hidden),
                qkv=linear(f"layers.{i}.qkv"),
                attention_out=linear(f"layers.{i}.attention_out"),
                mlp_norm=vector(f"layers.{i}.mlp_norm", spec.hidden),
                gate_up=linear(f"layers.{i}.gate_up"),
                down=linear(f"layers.{i}.down"),
            )
            for i in range(spec.layers)
        ],
        final_norm=vector("final_norm", spec.hidden),
        head=linear("head"),
        sketch=sketch,
        rotary_frequencies=vector("rotary_frequencies", spec.head_dim // 2),
        nbytes=nbytes,
    )
