"""What the cache remembers of one pulled model: a sealed JSON file beside its data.

The manifest is written last, so its presence means the model was once complete. It carries
the sums of every file and a seal over itself, so that a flipped bit in the manifest is not
mistaken for one in the model.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelCorrupt
from engine.loading.files import write_atomically
from engine.loading.integrity import FileSums

MANIFEST_NAME = "model.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One pulled model.

    Attributes:
        name: what the user calls it.
        source: where its bytes came from, for people.
        root: folder its files lie in, for a model registered in place; empty when they lie
            beside the manifest.
        entry: what the engine opens, relative to the folder: a `.gguf` file, or `.`.
        files: sums of every file.
    """

    name: str
    source: str
    root: str
    entry: str
    files: tuple[FileSums, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def folder(self, home: Path) -> Path:
        """Where the files lie, `home` being the folder of the manifest."""
        return Path(self.root) if self.root else home

    def entry_path(self, home: Path) -> Path:
        """What the engine opens."""
        return self.folder(home) / self.entry

    def save(self, home: Path) -> None:
        """Write the manifest into `home`, atomically.

        Raises:
            OSError: it cannot be written.
        """
        body = asdict(self)
        sealed = {"seal": _seal(body), "model": body}
        write_atomically(home / MANIFEST_NAME, json.dumps(sealed, indent=1).encode())


def load_manifest(home: Path, name: str) -> Manifest | None:
    """The manifest in `home`; None when there is none.

    Raises:
        ModelCorrupt: there is one, but it cannot be read or its seal does not fit.
    """
    path = home / MANIFEST_NAME
    try:
        document: Any = json.loads(path.read_bytes())
        body: Any = document["model"]
        if document["seal"] != _seal(body):
            raise ValueError("its seal does not fit")
        sums: list[Any] = body.pop("files")
        files = tuple(FileSums(chunks=tuple(file.pop("chunks")), **file) for file in sums)
        return Manifest(files=files, **body)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelCorrupt(
            f"the record of model {name} is damaged ({path}: {error})",
            f"run: ghostwright model pull {name}",
        ) from error


def _seal(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
