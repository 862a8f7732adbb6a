"""The packed layout of integer codes, made for dot products of sixteen rows at a time.

A block holds `LANES` consecutive rows, interleaved so that one 64-byte vector carries the next
32-bit word of each: four INT8 codes, or eight INT4 codes whose first four are the low nibbles
and whose last four the high ones. An INT8 dot-product instruction (VNNI's `vpdpbusd`, or
`vpmaddubsw` and `vpmaddwd` on AVX2) then adds four columns of sixteen rows into sixteen sums,
and never needs a sum across lanes.

Everything here speaks of *words* (int32, a row's codes in order) and of *blocked* tensors
[blocks, items per row, LANES]; scales lie in blocks too.
"""

from __future__ import annotations

import torch

from engine.quantization.formats import LANES


def int8_words(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, columns] -> int32 [rows, columns / 4]."""
    return codes.contiguous().view(torch.int32)


def int8_codes(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, columns / 4] -> uint8 [rows, columns]."""
    return words.contiguous().view(torch.uint8)


def int4_words(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, columns], each 0..15 -> int32 [rows, columns / 8]."""
    fours = codes.contiguous().view(torch.int32)
    return fours[:, 0::2] | (fours[:, 1::2] << 4)  # a nibble shifted stays within its byte


def int4_codes(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, columns / 8] -> uint8 [rows, columns], each 0..15."""
    packed = words.contiguous().view(torch.uint8).view(*words.shape, 4)
    halves = torch.stack((packed & 15, packed >> 4), dim=2)
    return halves.view(len(words), -1)


def put_rows(blocked: torch.Tensor, start: int, values: torch.Tensor) -> None:
    """Write consecutive rows, from row `start` on, into a blocked tensor.

    Args:
        blocked: [blocks, k, LANES], changed in place.
        start: the first row; need not be the first of its block.
        values: [rows, k], of the same dtype.
    """
    by_row = blocked.transpose(1, 2)
    done = 0
    while done < len(values):
        block, lane = divmod(start + done, LANES)
        whole = (len(values) - done) // LANES
        if lane == 0 and whole:
            piece = values[done : done + whole * LANES]
            by_row[block : block + whole] = piece.view(whole, LANES, -1)
        else:
            piece = values[done : done + LANES - lane]
            by_row[block, lane : lane + len(piece)] = piece
        done += len(piece)


def rows_between(blocked: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Consecutive rows of a blocked tensor [blocks, k, LANES], as [stop - start, k]."""
    first = start // LANES
    blocks = blocked[first : -(-stop // LANES)]
    rows = blocks.transpose(1, 2).reshape(-1, blocked.shape[1])
    return rows[start - first * LANES : stop - first * LANES]


def rows_at(blocked: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Any rows (int64 [n]) of a blocked tensor [blocks, k, LANES], as [n, k]."""
    return blocked[ids // LANES, :, ids % LANES]
