"""Which folder a file belongs to."""

from __future__ import annotations

from pathlib import Path

ROOT_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", "pyrightconfig.json", ".git")


def find_root(path: Path) -> Path:
    """The nearest folder at or above the file's that looks like a project's root.

    Without any of `ROOT_MARKERS` on the way up it is the file's own folder. Folders that
    may not be read count as unmarked.
    """
    folder = path.parent
    for candidate in (folder, *folder.parents):
        if any(_exists(candidate / marker) for marker in ROOT_MARKERS):
            return candidate
    return folder


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
