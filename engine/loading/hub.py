"""Model files from the Hugging Face hub, through huggingface_hub.

The library is imported only when a download begins. Every failure of it or of the network
becomes DownloadFailed, so that a caller can go on to the next source.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import DownloadFailed, EngineError, ModelNotFound, UnsupportedModel
from engine.loading.progress import OnProgress, PullProgress

TIMEOUT_S = 5.0
_REMEDY = "check the network connection, or give the path of a model you have"
_log = logging.getLogger(__name__)
# What a safetensors model needs beside its weights: configuration and vocabulary.
_FOLDER_FILES = ("*.safetensors", "*.json", "*.model", "merges.txt", "vocab.txt")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository.

    Attributes:
        path: in the repository.
        size: in bytes.
        sha256: of large files (kept in LFS); None for small ones.
        blob_id: Git's SHA-1 of a small file.
    """

    path: str
    size: int
    sha256: str | None
    blob_id: str | None

    def fits(self, path: Path) -> bool:
        """Whether the downloaded file has the bytes that the hub promised."""
        if path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        # Git hashes a header before the content; https://git-scm.com/book/en/v2/Git-Internals.
        data = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
        return self.blob_id in (None, blob.hexdigest())


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repository's files at one commit."""

    name: str
    commit: str
    files: tuple[HubFile, ...]


def open_repo(name: str, endpoint: str | None = None) -> HubRepo:
    """Ask the hub what `name` holds.

    Args:
        name: `owner/repository`.
        endpoint: base URL of the hub; None leaves it to huggingface_hub's configuration.

    Raises:
        ModelNotFound: the hub answers, and has no such repository.
        DownloadFailed: the hub does not answer.
    """
    with _translated(f"the Hugging Face hub, {name}"):
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            info = HfApi(endpoint=endpoint).model_info(name, files_metadata=True, timeout=TIMEOUT_S)
        except RepositoryNotFoundError as error:
            raise ModelNotFound(
                f"the Hugging Face hub has no model {name}, or it is private",
                "check the name; for a private one set HF_TOKEN",
            ) from error
        files = tuple(
            HubFile(
                path=sibling.rfilename,
                size=sibling.size or 0,
                sha256=sibling.lfs.sha256 if sibling.lfs else None,
                blob_id=sibling.blob_id,
            )
            for sibling in info.siblings or ()
        )
        return HubRepo(name, info.sha or "main", files)


def choose_files(repo: HubRepo, wanted: str | None) -> tuple[HubFile, ...]:
    """The files that make up one model: a GGUF file, or a folder with safetensors.

    Args:
        repo: the repository.
        wanted: a file the user named; None leaves the choice to what there is.

    Raises:
        ModelNotFound: no such file, or several to choose from.
        UnsupportedModel: no weights in a format the engine reads.
    """
    top = [file for file in repo.files if "/" not in file.path]
    ggufs = [file for file in top if file.path.endswith(".gguf")]
    names = ", ".join(file.path for file in ggufs)
    if wanted is not None:
        named = tuple(file for file in ggufs if file.path == wanted)
        if not named:
            raise ModelNotFound(
                f"{repo.name} has no file {wanted}", f"it has {names or 'no .gguf files'}"
            )
        return named
    paths = {file.path for file in top}
    weights = any(path.endswith(".safetensors") for path in paths)
    if weights and "config.json" in paths:
        return tuple(f for f in top if any(fnmatch.fnmatch(f.path, p) for p in _FOLDER_FILES))
    if len(ggufs) == 1:
        return tuple(ggufs)
    if ggufs:
        raise ModelNotFound(
            f"{repo.name} has {len(ggufs)} GGUF files: {names}",
            f"name one, for example: ghostwright model pull {repo.name}/{ggufs[0].path}",
        )
    raise UnsupportedModel(
        f"{repo.name} has neither safetensors nor GGUF weights", "choose another repository"
    )


def download(
    repo: HubRepo,
    files: tuple[HubFile, ...],
    folder: Path,
    progress: OnProgress,
    endpoint: str | None = None,
) -> None:
    """Download `files` into `folder`; files half there from an earlier try are continued.

    Raises:
        DownloadFailed: the network failed, or a file is not what the hub promised.
        OSError: the disk failed.
    """
    total = sum(file.size for file in files)
    done = 0
    for file in files:
        before = done

        def report(count: int, before: int = before, name: str = file.path) -> None:
            progress(PullProgress(f"downloading {name}", before + count, total))

        report(0)
        with _translated(f"the Hugging Face hub, {repo.name}/{file.path}"):
            from huggingface_hub import hf_hub_download

            hf_hub_download(
                repo.name,
                file.path,
                revision=repo.commit,
                local_dir=folder,
                etag_timeout=TIMEOUT_S,
                endpoint=endpoint,
                tqdm_class=_bar(report),
            )
        path = folder / file.path
        if not file.fits(path):
            path.unlink()
            raise DownloadFailed(f"{repo.name}/{file.path} is not what the hub says it should be")
        done += file.size


def _bar(report: Any) -> Any:
    """A progress bar class that draws nothing and passes the byte count on."""
    from huggingface_hub.utils import tqdm

    class SilentBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)
            self.count = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.count += int(n or 0)
            report(self.count)

    return SilentBar


@contextmanager
def _translated(what: str) -> Generator[None]:
    """Turn whatever the library or the network raises into DownloadFailed."""
    try:
        yield
    except (EngineError, OSError) as error:
        # A network failure may be an OSError too; a full disk or a forbidden folder is not one.
        if (
            isinstance(error, EngineError)
            or error.filename is not None
            or error.errno == errno.ENOSPC
        ):
            raise
        raise DownloadFailed(f"{what}: {_first_line(error)}", _REMEDY) from error
    except Exception as error:  # httpx, huggingface_hub and hf_xet have no common base
        _log.debug("%s failed", what, exc_info=True)
        raise DownloadFailed(f"{what}: {_first_line(error)}", _REMEDY) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
