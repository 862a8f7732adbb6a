"""Files and places named on the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lsp_server.documents.reading import MAX_FILE_BYTES, parse_location, read_document
from lsp_server.documents.workspace import find_root
from lsp_server.errors import BadLocation, FileUnreadable, PositionOutside


def test_a_place(tmp_path: Path) -> None:
    location = parse_location(f"{tmp_path}/a.py:3:14")
    assert (location.path, location.line, location.column) == (tmp_path / "a.py", 3, 14)


def test_a_relative_file_is_found_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_location("a.py:1:1").path == tmp_path.resolve() / "a.py"


def test_a_file_with_colons_in_its_name(tmp_path: Path) -> None:
    assert parse_location(f"{tmp_path}/a:1:2.py:3:4").path.name == "a:1:2.py"


def test_dots_after_a_link_mean_the_links_target(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "inner")
    path = parse_location(f"{tmp_path}/link/../a.py:1:1").path
    assert path == (tmp_path / "real").resolve() / "a.py"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.py",
        "a.py:3",
        ":1:1",
        "a.py:x:1",
        "a.py:1:x",
        "a.py:0:1",
        "a.py:1:0",
        "a.py:-1:1",
        "a.py:1_0:1",
        "a.py:+1:1",
        "a.py:\uff11:1",
        "a.py:1.5:1",
        "a.py: 1:1",
        "a.py::",
        "a.py:1:" + "9" * 5000,
        "a\0.py:1:1",
        "a\n.py",
    ],
)
def test_what_is_not_a_place(text: str) -> None:
    with pytest.raises(BadLocation) as caught:
        parse_location(text)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes("x = 'é🦊'\r\ny = 2\r\n".encode())
    document = read_document(path)
    assert document.text == "x = 'é🦊'\r\ny = 2\r\n"
    assert (document.language_id, document.path, document.uri) == ("python", path, path.as_uri())
    assert parse_location(f"{path}:2:5").offset_in(document) == document.text.index("2")
    assert parse_location(f"{path}:1:8").offset_in(document) == 7, "an emoji is one character"


def test_a_byte_order_mark_is_not_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read_document(path).text == "x = 1\n"


@pytest.mark.parametrize(("name", "language"), [("a.PY", "python"), ("a.txt", "plaintext")])
def test_the_language_comes_from_the_name(tmp_path: Path, name: str, language: str) -> None:
    (tmp_path / name).write_text("x")
    assert read_document(tmp_path / name).language_id == language


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"a\0b", "NUL"), (b"x = '\xff'", "byte 6"), ("x".encode("utf-16"), "NUL")],
)
def test_bytes_that_are_not_text(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.py").write_bytes(content)
    with pytest.raises(FileUnreadable, match=reason):
        read_document(tmp_path / "a.py")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("x")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    with (tmp_path / "large.py").open("wb") as large:
        large.truncate(MAX_FILE_BYTES + 1)
    for path, reason in (
        (tmp_path / "missing.py", "does not exist"),
        (tmp_path, "is a directory"),
        (tmp_path / "pipe.py", "not a regular file"),
        (tmp_path / "file.py" / "a.py", "cannot be read"),
        (tmp_path / "loop.py", "cannot be read"),
        (tmp_path / ("n" * 300), "cannot be read"),
        (tmp_path / "large.py", "larger than"),
    ):
        with pytest.raises(FileUnreadable, match=reason) as caught:
            read_document(path)
        assert "\n" not in str(caught.value)


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "a.py"
    path.write_text("x")
    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read everything
    with pytest.raises(FileUnreadable, match="may not be read"):
        read_document(path)


@pytest.mark.parametrize("place", ["3:1", "1:4", "9:9"])
def test_a_place_past_the_end(tmp_path: Path, place: str) -> None:
    path = tmp_path / "a.py"
    path.write_text("ab\n")
    with pytest.raises(PositionOutside):
        parse_location(f"{path}:{place}").offset_in(read_document(path))


@pytest.mark.parametrize("marker", ["pyproject.toml", "setup.cfg", "pyrightconfig.json", ".git"])
def test_the_nearest_marked_folder_is_the_root(tmp_path: Path, marker: str) -> None:
    inner = tmp_path / "project" / "package"
    inner.mkdir(parents=True)
    (tmp_path / "setup.py").touch()
    (tmp_path / "project" / marker).touch()
    assert find_root(inner / "a.py") == tmp_path / "project"


def test_a_lone_files_root_is_its_folder(tmp_path: Path) -> None:
    if find_root(tmp_path / "x" / "a.py") != tmp_path / "x":
        pytest.skip("a folder above the temporary one is a project")
    assert find_root(tmp_path / "a.py") == tmp_path
