"""ggml's block formats, decoded to FP32 with vectorised torch operations.

Each format packs `items` consecutive weights of a row into `nbytes` bytes: integer codes plus
one or two scales. The layouts are ggml's (`ggml-common.h`, `ggml-quants.c`); every decoder is
tested against the reference decoder of the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Decoder = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A block format.

    Attributes:
        name: ggml's name.
        items: weights per block.
        nbytes: bytes per block.
        decode: uint8 [blocks, nbytes] -> float32 [blocks, items].
    """

    name: str
    items: int
    nbytes: int
    decode: Decoder


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The FP16 value at byte `start` of each block, as float32 [blocks, 1]."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Low nibbles of all bytes, then high ones: uint8 [..., b] -> [..., 2 b]."""
    return torch.cat((packed & 0x0F, packed >> 4), dim=-1)


def _fifth_bits(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The 32 fifth bits stored as a little-endian word, as uint8 [blocks, 32] of 0 or 16."""
    shifts = torch.arange(8, dtype=torch.uint8)
    bits = (blocks[:, start : start + 4].unsqueeze(-1) >> shifts) & 1
    return bits.reshape(-1, 32) << 4


def _f32(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.contiguous().view(torch.float32)


def _f16(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.contiguous().view(torch.float16).float()


def _bf16(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.contiguous().view(torch.bfloat16).float()


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return (_nibbles(blocks[:, 2:18]).float() - 8) * _half(blocks, 0)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks[:, 4:20]).float() * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    codes = _nibbles(blocks[:, 6:22]) | _fifth_bits(blocks, 2)
    return (codes.float() - 16) * _half(blocks, 0)


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    codes = _nibbles(blocks[:, 8:24]) | _fifth_bits(blocks, 4)
    return codes.float() * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:34].contiguous().view(torch.int8).float() * _half(blocks, 0)


def _k_scales(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight 6-bit scales and eight 6-bit minima from 12 bytes: float32 [blocks, 8] each."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat((low & 63, (high & 15) | ((low >> 6) << 4)), dim=1)
    minima = torch.cat((middle & 63, (high >> 4) | ((middle >> 6) << 4)), dim=1)
    return scales.float(), minima.float()


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, minima = _k_scales(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 16:144].reshape(-1, 4, 32)).reshape(-1, 8, 32).float()
    scales, minima = scales * _half(blocks, 0), minima * _half(blocks, 2)
    return (codes * scales.unsqueeze(-1) - minima.unsqueeze(-1)).reshape(-1, 256)


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, minima = _k_scales(blocks[:, 4:16])
    low = _nibbles(blocks[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    shifts = torch.arange(8, dtype=torch.uint8).view(1, 8, 1)
    high = ((blocks[:, 16:48].unsqueeze(1) >> shifts) & 1) << 4
    scales, minima = scales * _half(blocks, 0), minima * _half(blocks, 2)
    codes = (low | high).float()
    return (codes * scales.unsqueeze(-1) - minima.unsqueeze(-1)).reshape(-1, 256)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, 0:128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3) << 4
    codes = (low | high).reshape(-1, 16, 16).float() - 32
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float() * _half(blocks, 208)
    return (codes * scales.unsqueeze(-1)).reshape(-1, 256)


BLOCKS: dict[int, BlockFormat] = {
    0: BlockFormat("F32", 1, 4, _f32),
    1: BlockFormat("F16", 1, 2, _f16),
    2: BlockFormat("Q4_0", 32, 18, _q4_0),
    3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0),
    7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0),
    12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k),
    14: BlockFormat("Q6_K", 256, 210, _q6_k),
    30: BlockFormat("BF16", 1, 2, _bf16),
}


_CHUNK_BLOCKS = 16384  # keeps the intermediates of a decoder inside the CPU's caches


def decode(type_id: int, packed: torch.Tensor) -> torch.Tensor:
    """Decode whole blocks: uint8 [blocks * nbytes] -> float32 [blocks * items]."""
    block = BLOCKS[type_id]
    blocks = packed.view(-1, block.nbytes)
    if block.items == 1:  # plain numbers: one reinterpretation
        return block.decode(blocks).reshape(-1)
    values = torch.empty(len(blocks), block.items)
    for start in range(0, len(blocks), _CHUNK_BLOCKS):
        piece = slice(start, start + _CHUNK_BLOCKS)
        values[piece] = block.decode(blocks[piece])
    return values.view(-1)
