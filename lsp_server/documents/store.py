"""The documents one client has open.

pygls keeps documents too, but splits them with `str.splitlines`, which takes form feeds,
U+2028 and others for line ends; LSP knows only three, so an edit below such a character
would land on the wrong line. This store counts as LSP does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from lsp_server.documents.edits import Edit, apply_edits
from lsp_server.documents.positions import PositionEncoding
from lsp_server.documents.snapshot import DocumentSnapshot

_SURROGATE = re.compile("[\ud800-\udfff]")


class DocumentStore:
    """Open documents by URI. Owned by one session, on the event loop.

    Clients percent-encode a URI differently in different messages; documents are found by
    the decoded form and keep the form they were opened with.
    """

    def __init__(self) -> None:
        self.encoding = PositionEncoding.UTF16
        self._documents: dict[str, DocumentSnapshot] = {}
        self._raw: dict[str, DocumentSnapshot] = {}  # only of documents with half characters

    def __iter__(self) -> Iterator[DocumentSnapshot]:
        return iter(tuple(self._documents.values()))

    def get(self, uri: str) -> DocumentSnapshot | None:
        """The newest version of an open document, None when it is not open."""
        return self._documents.get(unquote(uri))

    def open(self, uri: str, text: str, version: int, language_id: str) -> DocumentSnapshot:
        """Take over a document; opening it again replaces it."""
        return self._keep(DocumentSnapshot(uri, text, version, language_id, path_of(uri)))

    def change(self, uri: str, edits: Iterable[Edit], version: int) -> DocumentSnapshot | None:
        """Apply a change; None when the document is not open, so its text is unknown."""
        document = self._raw.get(unquote(uri)) or self.get(uri)
        if document is None:
            return None
        return self._keep(apply_edits(document, edits, version, self.encoding))

    def close(self, uri: str) -> DocumentSnapshot | None:
        """Forget a document; None when it was not open."""
        self._raw.pop(unquote(uri), None)
        return self._documents.pop(unquote(uri), None)

    def _keep(self, document: DocumentSnapshot) -> DocumentSnapshot:
        """Store a version; what others see of it can be encoded as UTF-8.

        A client may send half of a surrogate pair, and the other half in its next edit, so
        the halves are kept here and show as U+FFFD outside until they are whole.
        """
        key = unquote(document.uri)
        self._raw.pop(key, None)
        if _SURROGATE.search(document.text):
            units = document.text.encode("utf-16-le", "surrogatepass")
            document = replace(document, text=units.decode("utf-16-le", "surrogatepass"))
            self._raw[key] = document
            document = replace(document, text=_SURROGATE.sub("\ufffd", document.text))
        self._documents[key] = document
        return document


def path_of(uri: str) -> Path | None:
    """The file a `file:` URI names, None for every other scheme."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # for example an unclosed "[" in the host
        return None
    if parts.scheme != "file" or not parts.path or "\0" in unquote(parts.path):
        return None
    host = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
    return Path(url2pathname(host + parts.path))
