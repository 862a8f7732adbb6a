"""Bytes that decoding one token must read: every weight once, and the keys and values."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.kernels import native
from engine.loading.gguf import GgufFile
from engine.loading.snapshot import Snapshot
from engine.models.head import BEST
from engine.models.spec import DecoderSpec
from engine.quantization.formats import LANES

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"  # ggml's names


def snapshot_bytes(opened: Snapshot) -> int:
    """Weight bytes of one decode step of one stream.

    The embedding table does not count where it is not the head as well: a step looks up one
    row. Of a head that has a sketch, a step reads the sketch and the rows it finds; in tiles
    of 16 rows, a row's codes lie in lines of 64 bytes with those of the others.
    """
    sketched = any(name.startswith("sketch.") for name in opened.tensors)
    total = 0
    for name, tensor in opened.tensors.items():
        matrix = name.split(".")[0]
        if matrix == "embed" or (matrix == "head" and sketched and native.load() is not None):
            continue
        if matrix != "sketch" or native.load() is not None:
            total += tensor.nbytes
    if sketched and native.load() is not None:
        total += BEST * LANES * opened.spec.hidden
    return total


def gguf_bytes_per_token(path: Path, spec: DecoderSpec, context: int) -> int:
    """The same for llama.cpp on a GGUF file: its tensors, and keys and values in FP16.

    Args:
        path: the file.
        spec: of the model in it.
        context: tokens attended to.

    Raises:
        ModelError: the file is missing or damaged.
    """
    with GgufFile(path) as file:
        weights = sum(tensor.nbytes for tensor in file.tensors.values())
        if _HEAD in file.tensors:
            weights -= file.tensors[_EMBEDDING].nbytes
    halves = 2 * spec.layers * spec.kv_heads * spec.head_dim
    return weights + halves * torch.float16.itemsize * context
