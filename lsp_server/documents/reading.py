"""Documents from disk, for commands that run without an editor."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.errors import BadLocation, FileUnreadable

# A file past this is refused before it is read; the pipeline's own limit is lower.
MAX_FILE_BYTES = 64 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]{1,9}")
_LANGUAGES = {
    ".py": "python",
    ".pyi": "python",
    ".pyw": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".ts": "typescript",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
}
_OTHER_LANGUAGE = "plaintext"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file; `line` and `column` count from 1, columns in characters."""

    path: Path
    line: int
    column: int

    def offset_in(self, document: DocumentSnapshot) -> int:
        """The place as an offset into the document's text.

        Raises:
            PositionOutside: the line or the column is past the end.
        """
        return document.offset_at(self.line - 1, self.column - 1)


def parse_location(text: str) -> Location:
    """Read FILE:LINE:COLUMN; FILE may hold colons itself.

    Raises:
        BadLocation: it is not of that form, or a number is not 1 or more.
    """
    remedy = "write FILE:LINE:COLUMN, both numbers counted from 1"
    file, *numbers = text.rsplit(":", 2)
    if len(numbers) < 2 or not file or "\0" in file:
        raise BadLocation(f"{_shown(text)} is not a place in a file", remedy)
    for name, number in zip(("LINE", "COLUMN"), numbers, strict=True):
        if not _NUMBER.fullmatch(number):
            raise BadLocation(f"{name} is {_shown(number)}, which is not a number", remedy)
        if int(number) < 1:
            raise BadLocation(f"{name} is {number}", remedy)
    return Location(_absolute(file), int(numbers[0]), int(numbers[1]))


def read_document(path: Path) -> DocumentSnapshot:
    """Read a source file; a byte order mark at its start is not part of the text.

    Raises:
        FileUnreadable: missing, not a regular file, not permitted, too large, binary, or
            not UTF-8.
    """
    name = _shown(str(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise FileUnreadable(f"{name} is {what}", "name a source file")
        if status.st_size > MAX_FILE_BYTES:
            megabytes = MAX_FILE_BYTES // (1024 * 1024)
            raise FileUnreadable(f"{name} is larger than {megabytes} MB", "name a smaller file")
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileUnreadable(f"{name} does not exist", "check the path") from None
    except PermissionError:
        raise FileUnreadable(f"{name} may not be read", "check its permissions") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileUnreadable(f"{name} cannot be read: {reason}") from error
    return DocumentSnapshot(
        uri=path.as_uri(),
        text=_decoded(data, name),
        language_id=_LANGUAGES.get(path.suffix.lower(), _OTHER_LANGUAGE),
        path=path,
    )


def _absolute(file: str) -> Path:
    """The file under its own name in its real folder, as the shell would find it."""
    folder, name = os.path.split(file)
    return Path(os.path.realpath(folder or os.curdir)) / name


def _decoded(data: bytes, name: str) -> str:
    if b"\0" in data:
        raise FileUnreadable(f"{name} is binary: it holds a NUL byte", "name a source file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileUnreadable(
            f"{name} is not UTF-8: byte {error.start + 1} cannot be read", "convert it to UTF-8"
        ) from None


def _shown(text: str) -> str:
    """`text` in one line of a message, whatever characters it holds."""
    return text if text.isprintable() and text else ascii(text)
