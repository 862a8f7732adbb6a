"""A prepared snapshot as files: where it lies, whether it fits, and whether a byte is wrong.

A snapshot is built in a temporary folder and moved into place, so it is whole or absent. Its
`manifest.json` holds the format's version, what it was made from, and the sums of its files.
One whose version, source or file sizes do not fit is rebuilt, never used. Nothing here knows
tensors, so `model verify` need not load torch.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine.errors import ModelError, ModelNotFound
from engine.loading.integrity import FileCheck, FileSums, OnBytes, check_file, no_report, sum_file
from engine.loading.json_file import read_json

FORMAT_VERSION = 3
MANIFEST = "manifest.json"

_MADE_WITH = {"computes": "chip", "packing": "layout of weights"}
_STAGING = ".preparing-"
_ABANDONED_SECONDS = 24 * 3600  # no preparation takes as long
_REPLACE_TRIES = 5  # each fails only if a twin moved its own snapshot in at that moment


def snapshot_folder(source: Path, cache_dir: Path, policy: str) -> Path:
    """Where the snapshot of this source by this policy belongs; another has another place."""
    stem, key = _name_of(source)
    return cache_dir / "snapshots" / f"{stem}-{policy}-{key}"


def snapshot_folders(source: Path, cache_dir: Path) -> list[Path]:
    """Where snapshots of this source lie, of whatever policy."""
    stem, key = _name_of(source)
    return sorted((cache_dir / "snapshots").glob(f"{glob.escape(stem)}-*-{key}"))


def _name_of(source: Path) -> tuple[str, str]:
    source = source.resolve()
    return source.stem, hashlib.sha256(str(source).encode()).hexdigest()[:16]


def unfit(folder: Path, source: Path, made_with: Mapping[str, Any]) -> str | None:
    """Why the folder is not a whole snapshot of just this source; None if it is one.

    Args:
        folder: of the snapshot.
        source: what it should have been made from.
        made_with: what else it must have been made with, as its manifest says it.
    """
    if not folder.exists():
        return "it has not been prepared yet"
    try:
        manifest = read_json(folder / MANIFEST)
        if manifest["version"] != FORMAT_VERSION:
            return f"it was prepared by another version (format {manifest['version']})"
        if manifest["source"] != fingerprint_of(source):
            return "the model's file has changed"
        for what, value in made_with.items():
            if manifest[what] != value:
                return f"it was prepared for another {_MADE_WITH.get(what, what)}"
        if any((folder / s.path).stat().st_size != s.size for s in _sums(manifest)):
            return "a prepared file is not of its size"
    except (ModelError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        return f"what was prepared cannot be read ({error})"
    return None


def check_snapshot(folder: Path, on_bytes: OnBytes = no_report) -> tuple[FileCheck, ...]:
    """Read every byte of a snapshot and compare it with the sums taken when it was made.

    The checks name the files by their whole paths. A snapshot without a readable manifest
    has no sums; it is not used either, and gives no checks.
    """
    try:
        sums = _sums(read_json(folder / MANIFEST))
    except (ModelError, LookupError, TypeError):
        return ()
    checks = (check_file(folder / each.path, each, on_bytes) for each in sums)
    return tuple(replace(check, path=str(folder / check.path)) for check in checks)


def write_manifest(
    folder: Path, source: Mapping[str, Any], files: Sequence[str], record: Mapping[str, Any]
) -> None:
    """Write the manifest of the finished `files` in `folder`, with `record` beside it.

    Args:
        folder: of the snapshot.
        source: `fingerprint_of` what it was made from, taken before it was read.
        files: names in the folder.
        record: what else is to be known when it is opened.
    """
    sums = [asdict(sum_file(folder / name, name, no_report)) for name in files]
    manifest = {"version": FORMAT_VERSION, "source": source, **record, "files": sums}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")


def _sums(manifest: Mapping[str, Any]) -> list[FileSums]:
    return [FileSums(**entry | {"chunks": tuple(entry["chunks"])}) for entry in manifest["files"]]


def fingerprint_of(source: Path) -> dict[str, Any]:
    """What tells one version of a source from another, without reading all of it.

    Raises:
        ModelNotFound: a file of it is gone.
    """
    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    if source.is_dir():
        files += [p for p in (source / "config.json", source / "tokenizer.json") if p.exists()]
    try:
        stats = {str(path.resolve()): path.stat() for path in files}
    except OSError as error:
        raise ModelNotFound(f"cannot read {source}: {error.strerror}") from error
    return {path: [stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()}


def cannot_write(folder: Path, error: Exception) -> ModelError:
    """The error of a snapshot that cannot be written."""
    return ModelError(
        f"cannot write the prepared model: {error}", f"free disk space under {folder.parent}"
    )


@contextmanager
def staged(folder: Path) -> Generator[Path]:
    """A temporary folder beside `folder` that takes its place if all goes well.

    Raises:
        ModelError: it cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=folder.parent))
    except OSError as error:
        raise ModelError(f"cannot write into {folder.parent}: {error.strerror}") from error
    try:
        yield staging
        for path in staging.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        _replace(staging, folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove what a preparation left that was killed."""
    for path in parent.glob(f"{_STAGING}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


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
