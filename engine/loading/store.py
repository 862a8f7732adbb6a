"""From a model's name to its files: what is in the cache, and what a path holds.

Reads folders and small headers only; never touches the network. `model pull` fills the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.errors import ModelCorrupt, ModelError, ModelNotFound, UnsupportedModel
from engine.loading.catalogue import CATALOGUE, Catalogue, closest
from engine.loading.manifest import MANIFEST_NAME, Manifest, load_manifest

PARTIAL_FOLDER = "partial"
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(/[\w.+-]+){0,2}", re.ASCII)
_NAME_LENGTH = 200  # a folder is named after it, and file systems end at 255
_GGUF_MAGIC = b"GGUF"


class ModelState(StrEnum):
    """How far a model is on this machine."""

    AVAILABLE = "available"  # in the catalogue, not pulled
    PARTIAL = "partial"  # a pull was interrupted; pulling again continues it
    READY = "ready"
    DAMAGED = "damaged"  # a file is missing or has the wrong size


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One line of `model list`.

    Attributes:
        name: what to type.
        summary: what it is, or where it came from.
        state: how far it is here.
        size_bytes: of all its files, complete.
        path: what the engine opens; None unless it was pulled.
    """

    name: str
    summary: str
    state: ModelState
    size_bytes: int
    path: Path | None


def is_name(name: str) -> bool:
    """Whether `name` can be a model's name: a word, or `owner/repo`, or `owner/repo/file`."""
    fits = len(name) <= _NAME_LENGTH and _NAME.fullmatch(name) is not None
    return fits and ".." not in name.split("/")


def model_home(cache_dir: Path, name: str) -> Path:
    """The folder of a pulled model; `name` has passed `is_name`, so no two names share one."""
    return cache_dir / "models" / name.replace("/", "@")


def as_path(name: str) -> Path | None:
    """`name` as a path, if it can only be meant as one or something exists there.

    A bare word is a name, whatever the current folder holds: `./word` is the folder.
    """
    path = Path(name).expanduser()
    looks_like_path = name.startswith(("~", ".", "/")) or path.is_absolute() or "\\" in name
    if looks_like_path or not is_name(name):
        return path
    if ("/" in name or name.endswith(".gguf")) and path.exists():
        return path
    return None


def resolve_model(name: str, cache_dir: Path, catalogue: Catalogue = CATALOGUE) -> Path:
    """What the engine opens for `name`: a `.gguf` file, or a folder with safetensors.

    Args:
        name: a catalogue name, the name of another pulled model, or a path.
        cache_dir: where pulled models live.
        catalogue: the models known by name.

    Raises:
        ModelNotFound: nothing is there; the remedy names the command that mends it.
        ModelCorrupt: it was pulled, but its files are no longer all there.
        UnsupportedModel: there are weights, in a format the engine does not read.
    """
    path = as_path(name)
    if path is not None:
        return inspect_path(path)
    home = model_home(cache_dir, name)
    manifest = load_manifest(home, name)
    if manifest is None:
        raise not_found(name, cache_dir, catalogue)
    _require_sizes(manifest, home)
    return manifest.entry_path(home)


def not_found(name: str, cache_dir: Path, catalogue: Catalogue) -> ModelNotFound:
    """The error for a name nothing stands behind, with the command that mends it."""
    if name in catalogue:
        return ModelNotFound(
            f"model {name} is not on this machine", f"run: ghostwright model pull {name}"
        )
    if name.endswith(".gguf") and name.count("/") < 2:
        return ModelNotFound(f"there is no file {name}", "check the path")
    if "/" in name:
        return ModelNotFound(
            f"{name} is neither a path nor a pulled model",
            f"to get it from the Hugging Face hub, run: ghostwright model pull {name}",
        )
    pulled = {entry.name for entry in list_models(cache_dir, catalogue) if entry.path is not None}
    guess = closest(name, {*catalogue, *pulled})
    if guess is None:
        return ModelNotFound(f"there is no model {name}", "run: ghostwright model list")
    command = "" if guess in pulled else f" Then run: ghostwright model pull {guess}"
    return ModelNotFound(f"there is no model {name}", f"did you mean {guess}?{command}")


def inspect_path(path: Path) -> Path:
    """Check, from names and the first bytes, that `path` is a model the engine can try.

    Raises:
        ModelNotFound: missing, unreadable, or no model.
        ModelCorrupt: a `.gguf` file that is not GGUF.
        UnsupportedModel: weights in a format the engine does not read.
    """
    try:
        if path.is_dir():
            return _inspect_folder(path)
        if not path.exists():
            raise ModelNotFound(f"there is no file or folder {path}", "check the path")
        if not path.is_file():  # opening a pipe would wait forever
            raise ModelNotFound(f"{path} is not a regular file", "give a .gguf file or a folder")
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ModelNotFound(
            f"cannot read {path}: {error.strerror}", "check its permissions"
        ) from error
    if magic == _GGUF_MAGIC:
        return path
    if path.suffix == ".gguf":
        what = "is empty" if not magic else "is not GGUF: it does not begin with 'GGUF'"
        raise ModelCorrupt(f"{path} {what}", "get the file again")
    raise UnsupportedModel(
        f"{path} is not a model file the engine reads",
        "give a .gguf file, or the folder with config.json and *.safetensors",
    )


def _inspect_folder(folder: Path) -> Path:
    names = sorted(child.name for child in folder.iterdir())
    weights = [name for name in names if name.endswith(".safetensors")]
    ggufs = [name for name in names if name.endswith(".gguf")]
    if weights and "config.json" in names:
        return folder
    if weights:
        raise ModelNotFound(
            f"folder {folder} has weights but no config.json", "add the model's config.json"
        )
    if len(ggufs) == 1:
        return inspect_path(folder / ggufs[0])
    if ggufs:
        raise ModelNotFound(
            f"folder {folder} has {len(ggufs)} .gguf files: {', '.join(ggufs)}", "name one of them"
        )
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        raise UnsupportedModel(
            f"folder {folder} has only pickled weights, which could run code when read",
            "use a safetensors or GGUF version of the model",
        )
    raise ModelNotFound(
        f"folder {folder} holds no model weights",
        "give a .gguf file, or a folder with config.json and *.safetensors",
    )


def list_models(cache_dir: Path, catalogue: Catalogue = CATALOGUE) -> tuple[ModelEntry, ...]:
    """The catalogue first, then whatever else was pulled. Sizes are checked, sums are not."""
    entries = [_catalogue_entry(cache_dir, name, catalogue) for name in catalogue]
    known = {model_home(cache_dir, name).name for name in catalogue}
    entries += (
        _pulled_entry(home, manifest)
        for home, manifest in _manifests(cache_dir)
        if home.name not in known
    )
    return tuple(entries)


def _manifests(cache_dir: Path) -> Iterator[tuple[Path, Manifest]]:
    folder = cache_dir / "models"
    try:
        homes = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise ModelNotFound(
            f"cannot read {folder}: {error.strerror}", "check its permissions"
        ) from error
    for home in homes:
        try:
            manifest = load_manifest(home, home.name)
        except ModelCorrupt:
            manifest = Manifest(home.name, f"its {MANIFEST_NAME} is damaged", "", "?", ())
        if manifest is not None:
            yield home, manifest


def _catalogue_entry(cache_dir: Path, name: str, catalogue: Catalogue) -> ModelEntry:
    model, home = catalogue[name], model_home(cache_dir, name)
    try:
        manifest = load_manifest(home, name)
    except ModelCorrupt:
        return ModelEntry(name, model.summary, ModelState.DAMAGED, model.size_bytes, None)
    if manifest is not None:
        entry = _pulled_entry(home, manifest)
        return ModelEntry(name, model.summary, entry.state, model.size_bytes, entry.path)
    begun = any(p.is_file() and p.stat().st_size for p in (home / PARTIAL_FOLDER).rglob("*"))
    state = ModelState.PARTIAL if begun else ModelState.AVAILABLE
    return ModelEntry(name, model.summary, state, model.size_bytes, None)


def _pulled_entry(home: Path, manifest: Manifest) -> ModelEntry:
    state = ModelState.READY
    try:
        _require_sizes(manifest, home)
    except ModelError:
        state = ModelState.DAMAGED
    path = manifest.entry_path(home)
    return ModelEntry(manifest.name, f"from {manifest.source}", state, manifest.size_bytes, path)


def mending(manifest: Manifest, home: Path) -> str:
    """The command that makes a damaged model whole again."""
    if manifest.root and manifest.name not in CATALOGUE:
        return f"put it back, then run: ghostwright model pull {manifest.entry_path(home)}"
    return f"run: ghostwright model pull {manifest.name}"


def _require_sizes(manifest: Manifest, home: Path) -> None:
    """Refuse a model whose files are not all there in full; sums are `model verify`'s work."""
    remedy = mending(manifest, home)
    if not manifest.files:
        raise ModelCorrupt(f"model {manifest.name} has no files", remedy)
    for file in manifest.files:
        path = manifest.folder(home) / file.path
        try:
            size = path.stat().st_size
        except OSError as error:
            raise ModelNotFound(
                f"model {manifest.name} was pulled, but {path} is gone: {error.strerror}", remedy
            ) from error
        if size != file.size:
            raise ModelCorrupt(
                f"{path} has {size:,} bytes instead of {file.size:,}: it was cut off or changed",
                remedy,
            )
