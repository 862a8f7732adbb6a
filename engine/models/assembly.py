"""Putting a decoder together from a snapshot's tensors, or from a checkpoint in FP32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from engine.errors import ModelCorrupt
from engine.loading.checkpoint import Checkpoint
from engine.models.decoder import DecoderWeights, Layer
from engine.models.spec import DecoderSpec
from engine.quantization.linear import DenseLinear, Int8Linear, Int8Weight, Linear


def from_snapshot(spec: DecoderSpec, tensors: Mapping[str, torch.Tensor]) -> DecoderWeights:
    """INT8 weights from a snapshot's tensors, used where they lie.

    Raises:
        ModelCorrupt: a tensor is missing or has the wrong shape.
    """

    def get(name: str, *shape: int) -> torch.Tensor:
        tensor = tensors.get(name)
        if tensor is None or tuple(tensor.shape) != shape:
            found = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
            raise ModelCorrupt(f"the prepared model's tensor {name} is {found}, not {shape}")
        return tensor

    def int8(name: str, rows: int, columns: int) -> Int8Weight:
        return Int8Weight(get(f"{name}.codes", rows, columns), get(f"{name}.scales", rows))

    hidden, heads = spec.hidden, spec.heads * spec.head_dim
    qkv = heads + 2 * spec.kv_heads * spec.head_dim

    def layer(i: int) -> Layer:
        at = f"layers.{i}"
        bias = get(f"{at}.qkv.bias", qkv) if spec.qkv_bias else None
        return Layer(
            attention_norm=get(f"{at}.attention_norm", hidden),
            qkv=Int8Linear(int8(f"{at}.qkv", qkv, hidden), bias),
            attention_out=Int8Linear(int8(f"{at}.attention_out", hidden, heads)),
            mlp_norm=get(f"{at}.mlp_norm", hidden),
            gate_up=Int8Linear(int8(f"{at}.gate_up", 2 * spec.intermediate, hidden)),
            down=Int8Linear(int8(f"{at}.down", hidden, spec.intermediate)),
        )

    embedding = int8("embed", spec.vocab, hidden)
    head = embedding if spec.tied else int8("head", spec.vocab, hidden)
    return DecoderWeights(
        embed=embedding.rows,
        layers=[layer(i) for i in range(spec.layers)],
        final_norm=get("final_norm", hidden),
        head=Int8Linear(head),
        rotary_frequencies=get("rotary_frequencies", spec.head_dim // 2),
        nbytes=sum(tensor.nbytes for tensor in tensors.values()),
    )


def dense(checkpoint: Checkpoint) -> DecoderWeights:
    """FP32 weights from a checkpoint: the reference that INT8 is measured against."""
    spec, names = checkpoint.spec, checkpoint.names

    def linear(sources: tuple[str, ...], *, bias: bool = False) -> Linear:
        weight = torch.cat([checkpoint.read(name) for name in sources])
        if not bias:
            return DenseLinear(weight)
        return DenseLinear(weight, torch.cat([checkpoint.read(n) for n in names.biases(sources)]))

    def layer(i: int) -> Layer:
        return Layer(
            attention_norm=checkpoint.read(names.attention_norm.format(i)),
            qkv=linear(tuple(n.format(i) for n in names.qkv), bias=spec.qkv_bias),
            attention_out=linear((names.attention_out.format(i),)),
            mlp_norm=checkpoint.read(names.mlp_norm.format(i)),
            gate_up=linear(tuple(n.format(i) for n in names.gate_up)),
            down=linear((names.down.format(i),)),
        )

    layers = [layer(i) for i in range(spec.layers)]
    table = checkpoint.read(names.embedding)
    head = DenseLinear(table) if spec.tied else linear((names.head,))
    look_up: Callable[[torch.Tensor], torch.Tensor] = table.__getitem__
    linears = [m for at in layers for m in (at.qkv, at.attention_out, at.gate_up, at.down)]
    norms = (2 * spec.layers + 1) * spec.hidden * 4
    rotary = checkpoint.rotary_frequencies()
    return DecoderWeights(
        embed=look_up,
        layers=layers,
        final_norm=checkpoint.read(names.final_norm),
        head=head,
        rotary_frequencies=rotary,
        nbytes=sum(m.nbytes for m in linears)
        + norms
        + table.nbytes
        + (0 if spec.tied else head.nbytes)
        + rotary.nbytes,
    )
