"""The decoder's mathematics: one forward pass of a Qwen2 or Llama model.

Pre-norm blocks with RMSNorm (Zhang and Sennrich, 2019), rotary embedding (Su et al., 2021),
grouped-query attention (Ainslie et al., 2023) and SwiGLU (Shazeer, 2020), as in the
`transformers` implementations, against whose logits it is tested. Everything between the
layers is FP32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.kv.cache import Segment
from engine.models.spec import DecoderSpec
from engine.quantization.linear import Linear


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `qkv` and `gate_up` are the stacked matrices of the names."""

    attention_norm: torch.Tensor
    qkv: Linear
    attention_out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Everything a decoder computes with.

    Attributes:
        embed: int64 [n] token ids -> float32 [n, hidden].
        layers: the blocks in order.
        final_norm: float32 [hidden].
        head: hidden -> vocabulary.
        rotary_frequencies: float32 [head_dim / 2], radians per position.
        nbytes: bytes of it all, shared memory counted once.
    """

    embed: Callable[[torch.Tensor], torch.Tensor]
    layers: Sequence[Layer]
    final_norm: torch.Tensor
    head: Linear
    rotary_frequencies: torch.Tensor
    nbytes: int


class Decoder:
    """A decoder ready to run; owned by the engine thread.

    Args:
        spec: sizes and constants.
        weights: what it computes with.
        positions: longest sequence it will see; the rotary tables are made for it.
    """

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, *, positions: int) -> None:
        self.spec = spec
        self.weights = weights
        angles = torch.outer(torch.arange(positions).float(), weights.rotary_frequencies)
        self._cos = angles.cos().unsqueeze(1)  # [positions, 1, head_dim / 2]
        self._sin = angles.sin().unsqueeze(1)

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, segments: Sequence[Segment]
    ) -> torch.Tensor:
        """Run the blocks.

        Args:
            tokens: int64 [rows], the rows of all segments one after another.
            positions: int64 [rows], each row's place in its sequence.
            segments: which rows attend to which cache; their rows add up to `rows`.

        Returns:
            float32 [rows, hidden], after the final norm.
        """
        spec = self.spec
        cos, sin = self._cos[positions], self._sin[positions]
        bounds = [0]
        for segment in segments:
            bounds.append(bounds[-1] + segment.rows)
        x = self.weights.embed(tokens)
        for number, layer in enumerate(self.weights.layers):
            h = functional.rms_norm(x, (spec.hidden,), layer.attention_norm, spec.norm_eps)
            h = layer.qkv(h).view(len(tokens), -1, spec.head_dim)
            split = spec.heads + spec.kv_heads
            rotated = rotate(h[:, :split], cos, sin)
            q, k, v = rotated[:, : spec.heads], rotated[:, spec.heads :], h[:, split:]
            attended = [
                segment.attend(number, q[a:b], k[a:b], v[a:b])
                for segment, a, b in zip(segments, bounds, bounds[1:], strict=False)
            ]
            joined = attended[0] if len(attended) == 1 else torch.cat(attended)
            x = x + layer.attention_out(joined)
            h = functional.rms_norm(x, (spec.hidden,), layer.mlp_norm, spec.norm_eps)
            gate, up = layer.gate_up(h).chunk(2, dim=1)
            x = x + layer.down(functional.silu(gate).mul_(up))
        return functional.rms_norm(x, (spec.hidden,), self.weights.final_norm, spec.norm_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [rows, hidden] -> float32 [rows, vocab]."""
        return self.weights.head(hidden)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in the half-split layout: x [rows, heads, d], cos and sin [rows, 1, d/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotary_frequencies(spec: DecoderSpec) -> torch.Tensor:
    """float32 [head_dim / 2]: radians per position of each pair of dimensions."""
    exponents = torch.arange(0, spec.head_dim, 2).float() / spec.head_dim
    base = 1.0 / (spec.rope_theta**exponents)
    scaling = spec.rope_scaling
    if scaling is None:
        return base
    if scaling.kind == "linear":
        return base / scaling.factor
    # llama3: long wavelengths are stretched, short ones kept, those between blended.
    turns = scaling.original_context * base / (2 * math.pi)  # within the trained context
    spread = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / spread).clamp(0, 1)
    return base / scaling.factor * (1 - keep) + base * keep
