"""The prepared snapshot: a model already quantized and stacked, ready to be read.

Reading and quantizing a published file takes half a minute; reading a snapshot takes a moment.
A snapshot is a folder with

* `weights.safetensors`: the engine's own matrices, in the order they are used;
* `tokenizer.json`: the text tokenizer;
* `manifest.json`: see `prepared`; also the spec, the special tokens, the policy, and what
  quantization cost every matrix.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from engine.api import LoadProgress, Tell
from engine.errors import ModelCorrupt, ModelError
from engine.fim import FimLayout
from engine.loading import tokenizer as tokenizers
from engine.loading.checkpoint import open_checkpoint
from engine.loading.conversion import computed_formats, convert
from engine.loading.json_file import read_json
from engine.loading.prepared import (
    MANIFEST,
    cannot_write,
    fingerprint_of,
    snapshot_folder,
    staged,
    unfit,
    write_manifest,
)
from engine.loading.resident import read_tensors
from engine.loading.tokenizer import Tokenizer
from engine.models.spec import DecoderSpec
from engine.quantization.formats import PACKING, Format
from engine.quantization.policy import PrecisionPolicy

WEIGHTS, TOKENIZER = "weights.safetensors", "tokenizer.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An opened snapshot.

    Attributes:
        folder: where it lies.
        spec: sizes and constants.
        tokenizer: text to tokens and back.
        layout: how to lay out prompts.
        tensors: by name.
        formats: of the matrices, by place.
        manifest: as written.
    """

    folder: Path
    spec: DecoderSpec
    tokenizer: Tokenizer
    layout: FimLayout
    tensors: dict[str, torch.Tensor]
    formats: dict[str, Format]
    manifest: dict[str, Any]


def load(
    source: Path,
    cache_dir: Path,
    tell: Tell,
    policy: PrecisionPolicy | None = None,
    *,
    force: bool = False,
) -> Snapshot:
    """Open the source's snapshot of a policy, preparing it first where there is none that fits.

    Args:
        source: the published model.
        cache_dir: where snapshots live.
        tell: told of progress.
        policy: which format each matrix gets; the default one if None.
        force: prepare it again, whatever lies there.

    Raises:
        ModelError: the source is missing, damaged or unsupported.
        ConfigError: the policy does not fit the model.
    """
    policy = policy or PrecisionPolicy()
    folder = snapshot_folder(source, cache_dir, policy.slug)
    why = unfit(folder, source, _made_with(policy))
    if why is not None or force:
        if why:
            log.info("preparing %s: %s", source.name, why)
        prepare(source, folder, policy, tell)
    tell(LoadProgress("reading the prepared model", 0.9))
    try:
        return open_snapshot(folder)
    except ModelCorrupt as error:  # altered since: what can be made again is made again
        log.warning("preparing %s again: %s", source.name, error.what)
        prepare(source, folder, policy, tell)
        return open_snapshot(folder)


def _made_with(policy: PrecisionPolicy) -> dict[str, Any]:
    """What a snapshot depends on besides its source; JSON-ready."""
    return {
        "packing": PACKING,
        "policy": policy.to_dict(),
        "computes": sorted(str(format) for format in computed_formats()),
    }


def prepare(source: Path, folder: Path, policy: PrecisionPolicy, tell: Tell) -> None:
    """Quantize a published model and write its snapshot.

    Raises:
        ModelError: the source is missing, damaged or unsupported, or the disk is full.
        ConfigError: the policy does not fit the model.
    """
    tell(LoadProgress(f"reading {source.name}", 0.0))
    # Taken before the first byte is read: a source replaced meanwhile must not look current.
    fingerprint = fingerprint_of(source)
    with open_checkpoint(source) as checkpoint, staged(folder) as staging:
        tokenizer = checkpoint.tokenizer()
        FimLayout.of(tokenizer)  # refuse before the long work
        with torch.inference_mode():
            converted = convert(checkpoint, policy, tell)
        tell(LoadProgress("writing the prepared model", 0.85))
        try:
            save_file(converted.tensors, staging / WEIGHTS)
        except SafetensorError as error:  # what it makes of a full disk
            raise cannot_write(folder, error) from error
        (staging / TOKENIZER).write_text(tokenizer.backend.to_str(), "utf-8")
        record = {
            **_made_with(policy),
            "spec": checkpoint.spec.to_dict(),
            "tokenizer": tokenizer.to_dict(),
            **converted.record,
        }
        write_manifest(staging, fingerprint, (WEIGHTS, TOKENIZER), record)


def open_snapshot(folder: Path) -> Snapshot:
    """Read a snapshot; an embedding that is not the head too stays in its file.

    Raises:
        ModelCorrupt: a file is missing or unreadable.
    """
    try:
        manifest = read_json(folder / MANIFEST)
        tokenizer = tokenizers.from_snapshot(folder / TOKENIZER, manifest["tokenizer"])
        tensors = read_tensors(folder / WEIGHTS, lambda name: name.startswith("embed."))
        return Snapshot(
            folder=folder,
            spec=DecoderSpec.from_dict(manifest["spec"]),
            tokenizer=tokenizer,
            layout=FimLayout.of(tokenizer),
            tensors=tensors,
            formats={name: Format(m["format"]) for name, m in manifest["matrices"].items()},
            manifest=manifest,
        )
    except ModelError:
        raise
    except Exception as error:  # safetensors, tokenizers and json each raise their own kinds
        raise ModelCorrupt(
            f"the prepared model in {folder} cannot be read: {error}", f"delete {folder}"
        ) from error
