"""llama.cpp as the benchmark uses it; shell scripts stand in for its binaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lsp_server.benchmark.llama_cpp import VARIABLE, LlamaCpp, LlamaCppFailed


def script(path: Path, body: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def bench(folder: Path, body: str) -> LlamaCpp:
    script(folder / "llama-bench", body)
    return LlamaCpp(folder)


def measure(llama: LlamaCpp, model: Path) -> tuple[float, float]:
    speeds = llama.measure(model, prefill=512, decode=64, threads=2)
    return speeds.prefill, speeds.decode


def test_speeds_are_read_from_its_json(tmp_path: Path) -> None:
    tests = [
        {"n_prompt": 0, "n_gen": 64, "avg_ts": 27.5},
        {"n_prompt": 512, "n_gen": 0, "avg_ts": 144.0},
    ]
    llama = bench(tmp_path, f"echo noise >&2; echo '{json.dumps(tests)}'")
    assert measure(llama, tmp_path / "m.gguf") == (144.0, 27.5)


@pytest.mark.parametrize("said", ["", "not json", "[]", "{}", '[{"n_prompt": 512, "n_gen": 0}]'])
def test_what_cannot_be_read_is_an_error(tmp_path: Path, said: str) -> None:
    with pytest.raises(LlamaCppFailed, match="cannot be read"):
        measure(bench(tmp_path, f"echo '{said}'"), tmp_path / "m.gguf")


def test_a_crash_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    llama = bench(tmp_path, "echo first >&2; echo out of luck >&2; exit 3")
    with pytest.raises(LlamaCppFailed, match=r"failed \(3\): out of luck"):
        measure(llama, tmp_path / "m.gguf")


def test_a_trap_names_the_known_cause_and_only_a_trap(tmp_path: Path) -> None:
    with pytest.raises(LlamaCppFailed) as trapped:
        measure(bench(tmp_path, "kill -SEGV $$"), tmp_path / "m.gguf")
    assert "GCC 12" in trapped.value.remedy
    with pytest.raises(LlamaCppFailed) as failed:
        measure(bench(tmp_path, "exit 1"), tmp_path / "m.gguf")
    assert "GCC 12" not in failed.value.remedy


def test_a_binary_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LlamaCppFailed, match="cannot be run"):
        measure(LlamaCpp(tmp_path), tmp_path / "m.gguf")


def test_the_variable_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(tmp_path / "on-path", "echo '[]'")
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"), prepend=":")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert LlamaCpp.find() is not None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(LlamaCppFailed, match="no llama-bench"):
        LlamaCpp.find()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert LlamaCpp.find() is None


def test_formats_are_made_once_and_a_failure_leaves_nothing(tmp_path: Path) -> None:
    shipped, cache = tmp_path / "model.gguf", tmp_path / "cache"
    shipped.write_bytes(b"GGUF")
    llama, quantize = LlamaCpp(tmp_path / "bin"), tmp_path / "bin" / "llama-quantize"
    script(quantize, 'echo half > "$3"; exit 1')
    with pytest.raises(LlamaCppFailed):
        llama.files(shipped, cache)
    assert not list(cache.glob("*.gguf"))
    script(quantize, 'echo "$4" > "$3"')
    made = llama.files(shipped, cache)
    assert list(made) == ["shipped", "Q4_0", "Q8_0"]
    assert made["Q8_0"].read_text().strip() == "Q8_0"
    script(quantize, "exit 1")
    assert llama.files(shipped, cache) == made
