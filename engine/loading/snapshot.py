"""The prepared snapshot: a model already quantized and stacked, ready to be memory-mapped.

Reading and quantizing a published file takes a minute; mapping a snapshot takes a moment.
A snapshot is a folder with

* `weights.safetensors`: the engine's own matrices, in the order they are used;
* `tokenizer.json`: the text tokenizer;
* `manifest.json`: see `prepared`; also the spec, the special tokens, and the quantization
  error of every matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engine.api import LoadProgress
from engine.errors import ModelCorrupt, ModelError
from engine.fim import FimLayout
from engine.loading import tokenizer as tokenizers
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.loading.json_file import read_json
from engine.loading.prepared import (
    MANIFEST,
    cannot_write,
    fingerprint_of,
    is_current,
    snapshot_folder,
    staged,
    write_manifest,
)
from engine.loading.tokenizer import Tokenizer
from engine.models.spec import DecoderSpec
from engine.quantization.linear import quantize_measured

WEIGHTS, TOKENIZER = "weights.safetensors", "tokenizer.json"

Tell = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An opened snapshot.

    Attributes:
        folder: where it lies.
        spec: sizes and constants.
        tokenizer: text to tokens and back.
        layout: how to lay out prompts.
        tensors: by name; memory-mapped, so a tensor takes memory when it is first used.
        manifest: as written.
    """

    folder: Path
    spec: DecoderSpec
    tokenizer: Tokenizer
    layout: FimLayout
    tensors: dict[str, torch.Tensor]
    manifest: dict[str, Any]


def load(source: Path, cache_dir: Path, tell: Tell) -> Snapshot:
    """Open the source's snapshot, preparing it first where there is none that fits.

    Raises:
        ModelError: the source is missing, damaged or unsupported.
    """
    folder = snapshot_folder(source, cache_dir)
    if not is_current(folder, source):
        prepare(source, folder, tell)
    tell(LoadProgress("mapping the prepared model", 0.9))
    try:
        return open_snapshot(folder)
    except ModelCorrupt:  # altered since it was written: what can be made again is made again
        prepare(source, folder, tell)
        return open_snapshot(folder)


def prepare(source: Path, folder: Path, tell: Tell) -> None:
    """Quantize a published model and write its snapshot.

    Raises:
        ModelError: the source is missing, damaged or unsupported, or the disk is full.
    """
    tell(LoadProgress(f"reading {source.name}", 0.0))
    # Taken before the first byte is read: a source replaced meanwhile must not look current.
    fingerprint = fingerprint_of(source)
    with open_checkpoint(source) as checkpoint, staged(folder) as staging:
        tokenizer = checkpoint.tokenizer()
        FimLayout.of(tokenizer)  # refuse before the long work
        tensors, errors = _convert(checkpoint, tell)
        tell(LoadProgress("writing the prepared model", 0.85))
        try:
            save_file(tensors, staging / WEIGHTS)
        except SafetensorError as error:  # what it makes of a full disk
            raise cannot_write(folder, error) from error
        (staging / TOKENIZER).write_text(tokenizer.backend.to_str(), "utf-8")
        record = {
            "quantization": "int8",
            "spec": checkpoint.spec.to_dict(),
            "tokenizer": tokenizer.to_dict(),
            "relative_errors": errors,
        }
        write_manifest(staging, fingerprint, (WEIGHTS, TOKENIZER), record)


def _convert(
    checkpoint: Checkpoint, tell: Tell
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Read, stack and quantize everything; also the relative error of each matrix."""
    spec, names = checkpoint.spec, checkpoint.names
    tensors: dict[str, torch.Tensor] = {}
    errors: dict[str, float] = {}

    def matrix(name: str, sources: tuple[str, ...], *, bias: bool = False) -> None:
        weight = torch.cat([checkpoint.read(source) for source in sources])
        quantized, errors[name] = quantize_measured(weight)
        tensors[f"{name}.codes"], tensors[f"{name}.scales"] = quantized.codes, quantized.scales
        if bias:
            biases = [checkpoint.read(source) for source in names.biases(sources)]
            tensors[f"{name}.bias"] = torch.cat(biases)

    matrix("embed", (names.embedding,))
    for i in range(spec.layers):
        here = f"layers.{i}"
        tensors[f"{here}.attention_norm"] = checkpoint.read(names.attention_norm.format(i))
        matrix(f"{here}.qkv", tuple(n.format(i) for n in names.qkv), bias=spec.qkv_bias)
        matrix(f"{here}.attention_out", (names.attention_out.format(i),))
        tensors[f"{here}.mlp_norm"] = checkpoint.read(names.mlp_norm.format(i))
        matrix(f"{here}.gate_up", tuple(n.format(i) for n in names.gate_up))
        matrix(f"{here}.down", (names.down.format(i),))
        tell(
            LoadProgress(f"quantizing layer {i + 1} of {spec.layers}", 0.8 * (i + 1) / spec.layers)
        )
    tensors["final_norm"] = checkpoint.read(names.final_norm)
    if not spec.tied:
        matrix("head", (names.head,))
    tensors["rotary_frequencies"] = checkpoint.rotary_frequencies()
    return tensors, errors


def open_snapshot(folder: Path) -> Snapshot:
    """Map a snapshot's weights and read the rest.

    Raises:
        ModelCorrupt: a file is missing or unreadable.
    """
    try:
        manifest = read_json(folder / MANIFEST)
        tokenizer = tokenizers.from_snapshot(folder / TOKENIZER, manifest["tokenizer"])
        with safe_open(folder / WEIGHTS, framework="pt") as handle:
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
        return Snapshot(
            folder=folder,
            spec=DecoderSpec.from_dict(manifest["spec"]),
            tokenizer=tokenizer,
            layout=FimLayout.of(tokenizer),
            tensors=tensors,
            manifest=manifest,
        )
    except ModelError:
        raise
    except Exception as error:  # safetensors, tokenizers and json each raise their own kinds
        raise ModelCorrupt(
            f"the prepared model in {folder} cannot be read: {error}", f"delete {folder}"
        ) from error
