"""The places of the demo: where a line of the sample is cut off, to be written again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lsp_server.documents.reading import read_document
from lsp_server.documents.snapshot import DocumentSnapshot

SAMPLE = "orders.py"
# Each ends where the cursor stands; the rest of its line is what the sample's author wrote.
_KEPT = (
    "            amount = amount",
    "        cost = self.total().",
    "            there = shelf.",
    "    open_orders.sort(",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A cursor in a document whose line ends there.

    Attributes:
        document: the sample with the rest of the line cut off.
        offset: the cursor.
        author: what was cut off.
    """

    document: DocumentSnapshot
    offset: int
    author: str


def copy_sample(into: Path) -> Path:
    """Copy the sample project into a folder; returns its root."""
    source = Path(__file__).parent / "shop"
    shutil.copytree(source, into / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return into


def places(root: Path) -> list[Place]:
    """The places in the sample under `root`."""
    document = read_document(root / "shop" / SAMPLE)
    return [_cut(document, kept) for kept in _KEPT]


def _cut(document: DocumentSnapshot, kept: str) -> Place:
    """Cut off what follows the first line start `kept`."""
    start = document.text.index("\n" + kept) + 1
    offset = start + len(kept)
    author = document.text[offset:].partition("\n")[0]
    text = document.text[:offset] + document.text[offset + len(author) :]
    cut = DocumentSnapshot(document.uri, text, language_id="python", path=document.path)
    return Place(cut, offset, author)
