"""Which Ghostwright this is."""

from __future__ import annotations

from importlib import metadata


def installed_version() -> str:
    """Ghostwright's version, as its installation says."""
    try:
        return metadata.version("ghostwright")
    except metadata.PackageNotFoundError:
        return "(not installed, running from a source tree)"
