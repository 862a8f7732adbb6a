"""`model verify`: is every byte of a model what it should be, and if not, which are wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import ModelError
from engine.loading.catalogue import CATALOGUE, Catalogue
from engine.loading.integrity import FileCheck, FileState, check_file, sum_file
from engine.loading.manifest import Manifest, load_manifest
from engine.loading.prepared import check_snapshot, snapshot_folders
from engine.loading.progress import OnProgress, PullProgress, silent
from engine.loading.store import as_path, inspect_path, mending, model_home, not_found


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result for one model.

    Attributes:
        name: as asked.
        folder: where its files lie.
        checks: one per file.
        note: how far the check could go, for people; empty when it was complete.
        remedy: the command that mends it, when a check failed.
    """

    name: str
    folder: Path
    checks: tuple[FileCheck, ...]
    note: str
    remedy: str

    @property
    def ok(self) -> bool:
        """Whether nothing is known to be wrong."""
        return not any(check.failed for check in self.checks)


def verify_model(
    name: str,
    cache_dir: Path,
    progress: OnProgress = silent,
    catalogue: Catalogue = CATALOGUE,
) -> VerifyReport:
    """Read all of a model's bytes and compare them with the sums taken when it was pulled.

    Its prepared snapshots, if there are any, are checked as well: their bytes are those that run.
    A path that was never pulled has no sums of its own: it is compared with the catalogue,
    and its headers are checked against its length.

    Raises:
        ModelNotFound: there is no such model.
        ModelCorrupt: its record in the cache is damaged.
    """
    path = as_path(name)
    if path is not None:
        entry = inspect_path(path)
        report = _verify_path(name, entry, progress, catalogue)
    else:
        home = model_home(cache_dir, name)
        manifest = load_manifest(home, name)
        if manifest is None:
            raise not_found(name, cache_dir, catalogue)
        entry = manifest.entry_path(home)
        report = _verify_manifest(manifest, home, progress, catalogue)
    return _with_snapshots(report, snapshot_folders(entry, cache_dir), progress)


def _with_snapshots(
    report: VerifyReport, folders: Sequence[Path], progress: OnProgress
) -> VerifyReport:
    """The report with the checks of the model's prepared snapshots added."""
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(PullProgress("checking the prepared model", done))

    for folder in folders:
        checks = check_snapshot(folder, on_bytes)
        remedy = report.remedy
        if not remedy and any(check.failed for check in checks):
            remedy = f"delete {folder}; the next start prepares it again"
        report = replace(report, checks=report.checks + checks, remedy=remedy)
    return report


def _verify_manifest(
    manifest: Manifest, home: Path, progress: OnProgress, catalogue: Catalogue
) -> VerifyReport:
    folder, done = manifest.folder(home), 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(PullProgress("checking", done, manifest.size_bytes))

    checks = tuple(check_file(folder / file.path, file, on_bytes) for file in manifest.files)
    model = catalogue.get(manifest.name)
    if model is not None and [file.sha256 for file in manifest.files] != [model.sha256]:
        detail = "its record is for another file than the catalogue's"
        checks = tuple(replace(c, state=FileState.ALTERED, detail=detail) for c in checks)
    failed = any(check.failed for check in checks)
    remedy = mending(manifest, home) if failed else ""
    return VerifyReport(manifest.name, folder, checks, "", remedy)


def _verify_path(
    name: str, entry: Path, progress: OnProgress, catalogue: Catalogue
) -> VerifyReport:
    folder = entry if entry.is_dir() else entry.parent
    if entry.is_dir():
        files = sorted(entry.glob("*.safetensors"))
        checks = tuple(_check_safetensors(file) for file in files)
        note = "only the headers were checked: the model was not pulled, so no sums are known"
    else:
        checks = (_check_gguf(entry, progress, catalogue),)
        known = checks[0].expected_size is not None
        note = "" if known else "only the structure was checked: no sums of this file are known"
    failed = any(check.failed for check in checks)
    return VerifyReport(name, folder, checks, note, "get the file again" if failed else "")


def _check_gguf(path: Path, progress: OnProgress, catalogue: Catalogue) -> FileCheck:
    """Compare with the catalogue where the size fits one of its files; else read the header."""
    size = path.stat().st_size
    model = next((m for m in catalogue.values() if m.size_bytes == size), None)
    if model is not None:
        done = 0

        def on_bytes(count: int) -> None:
            nonlocal done
            done += count
            progress(PullProgress("checking", done, size))

        right = sum_file(path, path.name, on_bytes).sha256 == model.sha256
        state = FileState.OK if right else FileState.ALTERED
        verdict = "is" if right else "has the size of, but not the SHA-256 of,"
        detail = f"{verdict} the catalogue's {model.name}"
        return FileCheck(path.name, state, size, size, detail=detail)
    from engine.loading.gguf import GgufFile  # its numpy and torch are not needed otherwise

    try:
        GgufFile(path).close()
    except ModelError as error:
        return FileCheck(path.name, FileState.ALTERED, size, detail=error.what)
    return FileCheck(path.name, FileState.UNCHECKED, size, detail="well-formed GGUF")


def _check_safetensors(path: Path) -> FileCheck:
    """Whether the header is JSON and its tensors fill the file exactly.

    Source: the safetensors format: 8 bytes little-endian header length, JSON, data.
    """
    size = path.stat().st_size
    check = FileCheck(path.name, FileState.UNCHECKED, size, detail="well-formed safetensors")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if 0 < length <= size - 8 else b""
    try:
        tensors: dict[str, dict[str, list[int]]] = json.loads(header)
        ends = [t["data_offsets"][1] for key, t in tensors.items() if key != "__metadata__"]
        needed = 8 + length + max(ends, default=0)
    except (ValueError, LookupError, TypeError, AttributeError):
        return replace(check, state=FileState.ALTERED, detail="its header is damaged")
    check = replace(check, expected_size=needed)
    if size < needed:
        detail = f"ends after {size:,} of {needed:,} bytes"
        return replace(check, state=FileState.TRUNCATED, detail=detail)
    if size > needed:
        detail = f"has {size - needed:,} bytes too many"
        return replace(check, state=FileState.GROWN, detail=detail)
    return check
