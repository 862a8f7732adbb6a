"""Rotary position embedding (Su et al., 2021), half-split layout, with stretched variants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engine.kernels.native import HEAD_SIZES, Kernels
from engine.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Rotary:
    """The tables of a decoder, and who rotates and attends with them.

    Attributes:
        cos: float32 [positions, head_dim / 2].
        sin: as `cos`.
        kernels: compiled ones that know this head size, or None for PyTorch's operators.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    kernels: Kernels | None

    @classmethod
    def of(cls, frequencies: torch.Tensor, positions: int, kernels: Kernels | None) -> Rotary:
        """Tables for `positions` positions of float32 [head_dim / 2] radians per position."""
        angles = torch.outer(torch.arange(positions).float(), frequencies)
        fits = 2 * len(frequencies) in HEAD_SIZES
        return cls(angles.cos(), angles.sin(), kernels if fits else None)

    def split(
        self, qkv: torch.Tensor, kv_heads: int, start: int, step: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries, rotated keys and values, each [rows, heads, head_dim].

        Args:
            qkv: float32 [rows, (heads + 2 kv_heads) * head_dim].
            kv_heads: of keys, and of values.
            start: position of the first row.
            step: 1 where rows follow one another, 0 where all stand at `start`.
        """
        rows = qkv.shape[0]
        heads = qkv.view(rows, -1, 2 * self.cos.shape[1])
        stop = start + (rows - 1) * step + 1
        cos, sin = self.cos[start:stop].unsqueeze(1), self.sin[start:stop].unsqueeze(1)
        rotated = rotate(heads[:, :-kv_heads], cos, sin)
        return rotated[:, :-kv_heads], rotated[:, -kv_heads:], heads[:, -kv_heads:]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [rows, heads, d] by cos and sin [rows or 1, 1, d / 2]."""
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
