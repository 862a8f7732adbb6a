"""What a decoder looks like, read from a GGUF's metadata or a Hugging Face config.json.

One decoder serves both families (Qwen2, and Llama with its many descendants): they differ
only in the values below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from engine.errors import ModelCorrupt, UnsupportedModel

FAMILIES = ("qwen2", "llama")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context.

    Attributes:
        kind: `linear` (Chen et al., 2023) or `llama3` (Llama 3.1's by-wavelength scheme).
        factor: how far.
        low_freq_factor, high_freq_factor, original_context: of `llama3` only.
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_context"):
            _require_positive(name, getattr(self, name))
        if self.high_freq_factor <= self.low_freq_factor:
            raise ModelCorrupt("the model's rotary scaling ends before it begins")


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Sizes and constants of a pre-norm decoder with rotary, grouped-query attention and SwiGLU.

    Attributes:
        family: `qwen2` or `llama`.
        name: the model's own name for itself, may be empty.
        vocab: rows of the embedding.
        hidden: width of the residual stream.
        layers, heads, kv_heads, head_dim, intermediate: as usual.
        context: longest sequence the model was trained for.
        rope_theta: base of the rotary frequencies.
        rope_scaling: None where they are used as they are.
        norm_eps: of RMSNorm.
        qkv_bias: whether the query, key and value projections have a bias.
        tied: whether the head is the embedding.
    """

    family: str
    name: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    context: int
    rope_theta: float
    norm_eps: float
    qkv_bias: bool
    tied: bool
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        sizes = ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate")
        for name in (*sizes, "context"):
            if getattr(self, name) < 1:
                raise ModelCorrupt(
                    f"the model's configuration says {name} is {getattr(self, name)}"
                )
        if self.heads % self.kv_heads:
            raise ModelCorrupt(
                f"{self.heads} attention heads cannot share {self.kv_heads} key/value heads"
            )
        if self.head_dim % 2:
            raise ModelCorrupt(f"rotary embedding needs an even head size, not {self.head_dim}")
        _require_positive("rope_theta", self.rope_theta)
        _require_positive("norm_eps", self.norm_eps)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DecoderSpec:
        """The inverse of `to_dict`."""
        rest = dict(values)
        scaling: dict[str, Any] | None = rest.pop("rope_scaling", None)
        return cls(**rest, rope_scaling=RopeScaling(**scaling) if scaling else None)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], *, vocab: int, tied: bool) -> DecoderSpec:
        """Read a GGUF's metadata.

        Raises:
            UnsupportedModel: another architecture.
            ModelCorrupt: a needed key is missing.
        """
        family = _known_family(str(metadata.get("general.architecture", "none")))

        def number(key: str, default: float | None = None) -> float:
            full = f"{family}.{key}"
            value: Any = metadata.get(full, default)
            if value is None:
                raise ModelCorrupt(f"the GGUF file lacks the key {full}")
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ModelCorrupt(f"the GGUF file's key {full} is not a number")
            return value

        heads, hidden = int(number("attention.head_count")), int(number("embedding_length"))
        factor = number("rope.scaling.factor", 1.0)
        kind = str(metadata.get(f"{family}.rope.scaling.type", "none"))
        return cls(
            family=family,
            name=str(metadata.get("general.name", "")),
            vocab=vocab,
            hidden=hidden,
            layers=int(number("block_count")),
            heads=heads,
            kv_heads=int(number("attention.head_count_kv", heads)),
            head_dim=int(number("attention.key_length", hidden // max(heads, 1))),
            intermediate=int(number("feed_forward_length")),
            context=int(number("context_length")),
            rope_theta=number("rope.freq_base", 10000.0),
            norm_eps=number("attention.layer_norm_rms_epsilon"),
            qkv_bias=family == "qwen2",
            tied=tied,
            rope_scaling=_rope_scaling({"rope_type": kind, "factor": factor}),
        )

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> DecoderSpec:
        """Read a Hugging Face config.json.

        Raises:
            UnsupportedModel: another architecture, or a variant the decoder lacks.
            ModelCorrupt: a needed key is missing.
        """
        family = _known_family(str(config.get("model_type", "none")))
        if config.get("use_sliding_window"):
            raise UnsupportedModel(
                "the model uses sliding-window attention, which is not supported"
            )
        if config.get("hidden_act", "silu") != "silu":
            raise UnsupportedModel(f"the activation {config['hidden_act']} is not supported")
        if config.get("mlp_bias") or (family == "llama" and config.get("attention_bias")):
            raise UnsupportedModel("biases outside Qwen2's query, key and value are not supported")
        # transformers 5 keeps theta and scaling together, 4 kept them apart.
        rope: Any = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise ModelCorrupt("config.json describes the rotary embedding by no object")
        rope = cast(dict[str, Any], rope)
        theta = config.get("rope_theta") or rope.get("rope_theta") or 10000.0
        try:
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            return cls(
                family=family,
                name=str(config.get("_name_or_path", "")),
                vocab=int(config["vocab_size"]),
                hidden=hidden,
                layers=int(config["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(config.get("num_key_value_heads") or heads),
                head_dim=int(config.get("head_dim") or hidden // max(heads, 1)),
                intermediate=int(config["intermediate_size"]),
                context=int(config.get("max_position_embeddings", 4096)),
                rope_theta=float(theta),
                norm_eps=float(config.get("rms_norm_eps", 1e-6)),
                qkv_bias=family == "qwen2",
                tied=bool(config.get("tie_word_embeddings", family == "qwen2")),
                rope_scaling=_rope_scaling(rope),
            )
        except KeyError as error:
            raise ModelCorrupt(f"config.json lacks the key {error.args[0]}") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelCorrupt(f"config.json has a value of the wrong kind: {error}") from error


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ModelCorrupt(f"the model's configuration says {name} is {value}")


def _known_family(family: str) -> str:
    if family not in FAMILIES:
        raise UnsupportedModel(
            f"the architecture {family[:40]!r} is not supported",
            "supported are " + ", ".join(FAMILIES),
        )
    return family


_SCALING_KEYS = {
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}


def _rope_scaling(values: Mapping[str, Any]) -> RopeScaling | None:
    kind = str(values.get("rope_type") or values.get("type") or "default")
    if kind in ("default", "none"):
        return None
    if kind not in ("linear", "llama3"):
        raise UnsupportedModel(f"rotary scaling of kind {kind[:40]!r} is not supported")
    missing = [key for key in _SCALING_KEYS[kind] if key not in values]
    if missing:
        raise ModelCorrupt(f"the model's rotary scaling lacks the key {missing[0]}")
    if kind == "linear":
        return RopeScaling("linear", float(values["factor"]))
    return RopeScaling(
        "llama3",
        float(values["factor"]),
        float(values["low_freq_factor"]),
        float(values["high_freq_factor"]),
        int(values["original_max_position_embeddings"]),
    )
