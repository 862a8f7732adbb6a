"""Where each weight of the decoder lies in a file: ggml's names and Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class WeightNames:
    """One naming scheme. `{}` stands for the layer's number.

    The tuples list tensors that the engine stacks by rows into one matrix, so that one
    product serves all of them.
    """

    embedding: str
    head: str
    final_norm: str
    attention_norm: str
    mlp_norm: str
    qkv: tuple[str, str, str]
    attention_out: str
    gate_up: tuple[str, str]
    down: str

    def biases(self, weights: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the biases that belong to these weights."""
        return tuple(name.removesuffix(".weight") + ".bias" for name in weights)

    def sources(self, place: str, *, tied: bool) -> tuple[str, ...]:
        """The tensors stacked into the decoder's matrix of this name, such as `layers.3.qkv`.

        A tied head is stored as the embedding.
        """
        if place in ("embed", "head"):
            return (self.embedding if place == "embed" or tied else self.head,)
        _, layer, field = place.split(".")
        names = {
            "qkv": self.qkv,
            "attention_out": (self.attention_out,),
            "gate_up": self.gate_up,
            "down": (self.down,),
        }[field]
        return tuple(name.format(layer) for name in names)

    def vector(self, place: str) -> str:
        """The tensor of a norm, such as `layers.3.mlp_norm` or `final_norm`."""
        if place == "final_norm":
            return self.final_norm
        _, layer, field = place.split(".")
        names = {"attention_norm": self.attention_norm, "mlp_norm": self.mlp_norm}
        return names[field].format(layer)

    def shapes(self, spec: DecoderSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor a model of this spec needs, and the shape it must have."""
        hidden, heads = spec.hidden, spec.heads * spec.head_dim
        kv = spec.kv_heads * spec.head_dim
        yield self.embedding, (spec.vocab, hidden)
        yield self.final_norm, (hidden,)
        if not spec.tied:
            yield self.head, (spec.vocab, hidden)
        for layer in range(spec.layers):
            yield self.attention_norm.format(layer), (hidden,)
            yield self.mlp_norm.format(layer), (hidden,)
            yield self.attention_out.format(layer), (hidden, heads)
            yield self.down.format(layer), (hidden, spec.intermediate)
            for name in self.gate_up:
                yield name.format(layer), (spec.intermediate, hidden)
            biases = self.biases(self.qkv)
            for name, bias, rows in zip(self.qkv, biases, (heads, kv, kv), strict=True):
                yield name.format(layer), (rows, hidden)
                if spec.qkv_bias:
                    yield bias.format(layer), (rows,)


GGUF_NAMES = WeightNames(
    embedding="token_embd.weight",
    head="output.weight",
    final_norm="output_norm.weight",
    attention_norm="blk.{}.attn_norm.weight",
    mlp_norm="blk.{}.ffn_norm.weight",
    qkv=("blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight"),
    attention_out="blk.{}.attn_output.weight",
    gate_up=("blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight"),
    down="blk.{}.ffn_down.weight",
)

HF_NAMES = WeightNames(
    embedding="model.embed_tokens.weight",
    head="lm_head.weight",
    final_norm="model.norm.weight",
    attention_norm="model.layers.{}.input_layernorm.weight",
    mlp_norm="model.layers.{}.post_attention_layernorm.weight",
    qkv=(
        "model.layers.{}.self_attn.q_proj.weight",
        "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight",
    ),
    attention_out="model.layers.{}.self_attn.o_proj.weight",
    gate_up=("model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.up_proj.weight"),
    down="model.layers.{}.mlp.down_proj.weight",
)
