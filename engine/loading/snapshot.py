"""The prepared snapshot: a model already quantized and stacked, ready to be memory-mapped.

Reading and quantizing a published file takes a minute; mapping a snapshot takes a moment.
A snapshot is a folder with

* `weights.safetensors`: the engine's own matrices, in the order they are used;
* `tokenizer.json`: the text tokenizer;
* `manifest.json`: format version, where it came from, sizes, the spec, special tokens, each
  file's size and SHA-256, and the quantization error of every matrix.

It is built in a temporary folder and moved into place, so it is whole or absent. One whose
version, source or file sizes do not fit is rebuilt, never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engine.api import LoadProgress
from engine.errors import ModelCorrupt, ModelError, ModelNotFound
from engine.fim import FimLayout
from engine.loading import tokenizer as tokenizers
from engine.loading.checkpoint import Checkpoint, open_checkpoint, read_json
from engine.loading.tokenizer import Tokenizer
from engine.models.spec import DecoderSpec
from engine.quantization.linear import quantize_measured

FORMAT_VERSION = 1
WEIGHTS, TOKENIZER, MANIFEST = "weights.safetensors", "tokenizer.json", "manifest.json"

_REPLACE_TRIES = 5  # each fails only if a twin moved its own snapshot in at that moment

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


def snapshot_folder(source: Path, cache_dir: Path) -> Path:
    """Where the snapshot of this source belongs; another source has another place."""
    source = source.resolve()
    key = hashlib.sha256(str(source).encode()).hexdigest()[:16]
    return cache_dir / "snapshots" / f"{source.stem}-int8-{key}"


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


def is_current(folder: Path, source: Path) -> bool:
    """Whether the folder holds a whole snapshot of just this source, in this format."""
    try:
        manifest = read_json(folder / MANIFEST)
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
        return (
            manifest["version"] == FORMAT_VERSION
            and manifest["source"] == _fingerprint(source)
            and all(sizes[name] == entry["bytes"] for name, entry in manifest["files"].items())
        )
    except (ModelError, OSError, LookupError, TypeError, ValueError, AttributeError):
        return False


def prepare(source: Path, folder: Path, tell: Tell) -> None:
    """Quantize a published model and write its snapshot.

    Raises:
        ModelError: the source is missing, damaged or unsupported, or the disk is full.
    """
    tell(LoadProgress(f"reading {source.name}", 0.0))
    # Taken before the first byte is read: a source replaced meanwhile must not look current.
    fingerprint = _fingerprint(source)
    with open_checkpoint(source) as checkpoint, _staged(folder) as staging:
        tokenizer = checkpoint.tokenizer()
        FimLayout.of(tokenizer)  # refuse before the long work
        tensors, errors = _convert(checkpoint, tell)
        tell(LoadProgress("writing the prepared model", 0.85))
        save_file(tensors, staging / WEIGHTS)
        (staging / TOKENIZER).write_text(tokenizer.backend.to_str(), "utf-8")
        files = {
            name: {"bytes": (staging / name).stat().st_size, "sha256": sha256(staging / name)}
            for name in (WEIGHTS, TOKENIZER)
        }
        manifest = {
            "version": FORMAT_VERSION,
            "source": fingerprint,
            "quantization": "int8",
            "files": files,
            "spec": checkpoint.spec.to_dict(),
            "tokenizer": tokenizer.to_dict(),
            "relative_errors": errors,
        }
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")


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


def verify_snapshot(folder: Path) -> list[str]:
    """Check every byte against the manifest; returns what is wrong, one line each."""
    manifest = read_json(folder / MANIFEST)
    problems: list[str] = []
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.exists():
            problems.append(f"{path} is missing")
        elif path.stat().st_size != entry["bytes"]:
            problems.append(f"{path} has {path.stat().st_size} bytes instead of {entry['bytes']}")
        elif sha256(path) != entry["sha256"]:
            problems.append(f"{path} has been altered: its SHA-256 is not the manifest's")
    return problems


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fingerprint(source: Path) -> dict[str, Any]:
    """What tells one version of a source from another, without reading all of it."""
    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    if source.is_dir():
        files += [p for p in (source / "config.json", source / "tokenizer.json") if p.exists()]
    try:
        stats = {str(path.resolve()): path.stat() for path in files}
    except OSError as error:
        raise ModelNotFound(f"cannot read {source}: {error.strerror}") from error
    return {path: [stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()}


@contextmanager
def _staged(folder: Path) -> Generator[Path]:
    """A temporary folder beside `folder` that takes its place if all goes well."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".preparing-", dir=folder.parent))
    except OSError as error:
        raise ModelError(f"cannot write into {folder.parent}: {error.strerror}") from error
    try:
        yield staging
        for path in staging.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        _replace(staging, folder)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"cannot write the prepared model: {error}", f"free disk space under {folder.parent}"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(staging: Path, folder: Path) -> None:
    """Move `staging` to `folder`, over what may lie there, a running twin included."""
    for _ in range(_REPLACE_TRIES - 1):
        try:
            staging.rename(folder)
        except OSError:  # something lies there: set it aside, unless the twin does so first
            with (
                tempfile.TemporaryDirectory(prefix=".old-", dir=folder.parent) as aside,
                suppress(FileNotFoundError),
            ):
                folder.rename(Path(aside) / "snapshot")
        else:
            return
    staging.rename(folder)
