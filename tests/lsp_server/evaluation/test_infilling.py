"""Reading tasks, running them, and the figures that come out."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from engine import Chunk, FinishReason, GenerationRequest, Usage
from lsp_server.cli import main
from lsp_server.evaluation.dataset import BadDataset, Task, joined, read_tasks
from lsp_server.evaluation.infilling import run_infilling
from lsp_server.evaluation.sandbox import Limits, Verdict
from lsp_server.evaluation.statistics import mcnemar, wilson_interval
from tests.support.tiny_models import reference_model, write_folder

TASK = {
    "task_id": "double",
    "entry_point": "double",
    "prompt": "def double(x):\n",
    "suffix": "    return y\n",
    "canonical_solution": "    y = 2 * x",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n",
}


def write(path: Path, *entries: dict[str, str]) -> Path:
    text = "\n".join(json.dumps(entry) for entry in entries)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.jsonl.gz"])
def test_tasks_are_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, TASK, TASK | {"task_id": "again"})
    assert [task.task_id for task in read_tasks(path)] == ["double", "again"]
    assert len(read_tasks(path, limit=1)) == 1


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl.gz", b"not gzipped", "not gzipped"),
        ("a.jsonl.gz", gzip.compress(b"{}")[:-4], "damaged"),
        ("a.jsonl", b"\xff\xfe", "damaged"),
        ("a.jsonl", b"", "no tasks"),
        ("a.jsonl", b"[1]", "line 1 is not a JSON object"),
        ("a.jsonl", b"\n{", "line 2 is not JSON"),
        ("a.jsonl", b'{"task_id": "x"}', "lacks 'entry_point'"),
        ("a.jsonl", json.dumps(TASK | {"test": 3}).encode(), "lacks 'test'"),
    ],
)
def test_bad_data_is_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadDataset, match=message):
        read_tasks(tmp_path / name)


def test_a_missing_file_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(tmp_path / "nowhere.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_line_is_joined_to_the_text_behind_it() -> None:
    assert joined("a", "b\n") == "a\nb\n"
    assert joined("a\n", "b\n") == "a\nb\n"
    assert joined("a", "\nb\n") == "a\nb\n"
    assert joined("a", "") == "a"


class Scripted:
    """An engine that fills every hole with the next of some lines."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        usage = Usage(1, 0, 1, 0.0, 0.0, 0.0)
        for index in range(len(request.sampling)):
            text = self.lines[index % len(self.lines)]
            yield Chunk(index, text, -1.0, 1, FinishReason.STOP_TEXT, usage)


async def test_figures_of_a_run() -> None:
    task = Task(**TASK)
    report = await run_infilling(
        Scripted("    y = x + x"),  # pyright: ignore[reportArgumentType]
        [task, task],
        candidates=1,
        limits=Limits(seconds=5),
        on_result=lambda _: None,
    )
    assert report.summary()["pass_rate"] == 1.0
    assert report.summary()["exact_match"] == 0.0
    report = await run_infilling(
        Scripted("    y = 2 *", "    y = 2 * x"),  # pyright: ignore[reportArgumentType]
        [task],
        candidates=2,
        limits=Limits(seconds=5),
        on_result=lambda _: None,
    )
    assert report.results[0].verdicts == (Verdict.SYNTAX, Verdict.PASSED)
    assert report.summary()["pass_rate"] == 0.0
    assert report.summary()["pass_any"] == 1.0


def test_the_command_runs_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GHOSTWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    model = str(write_folder(tmp_path / "tiny", reference_model("qwen2")))
    data = write(tmp_path / "tasks.jsonl.gz", TASK, TASK)
    arguments = ["eval", str(data), "--model", model, "--limit", "1", "--compare", "fp32"]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tasks"] == result["compared"]["tasks"] == 1
    assert result["interval"][0] <= result["pass_rate"] <= result["interval"][1]
    assert {"gained", "lost", "p_value", "retained"} <= result["compared"].keys()
    assert main(arguments) == 0
    assert "fp32" in capsys.readouterr().out


def test_logits_of_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GHOSTWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    model = str(write_folder(tmp_path / "tiny", reference_model("qwen2")))
    arguments = ["eval", "logits", "--model", model, "--positions", "256"]
    assert main([*arguments, "--formats", "fp32,int8,int4", "--json"]) == 0
    exact, int8, int4 = json.loads(capsys.readouterr().out)["formats"]
    assert exact["largest"] < 1e-2
    assert exact["agreement"] > 0.99
    assert exact["mean"] < int8["mean"] < int4["mean"]
    assert int8["divergence"] < int4["divergence"]
    assert exact["weight_bytes"] > int8["weight_bytes"] > int4["weight_bytes"]
    assert main([*arguments, "--formats", "int3"]) == 2
    assert "int3" in capsys.readouterr().err


def test_intervals_and_tests_of_shares() -> None:
    low, high = wilson_interval(50, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == pytest.approx(1.0)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(0, 10) == pytest.approx(2 / 1024)
