"""`ghostwright model prepare` on a tiny random model."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lsp_server import cli
from tests.support.tiny_models import reference_model, write_folder


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny model outside an empty cache."""
    monkeypatch.setenv("GHOSTWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return str(write_folder(tmp_path / "tiny", reference_model("qwen2")))


def test_the_report_has_a_row_and_a_bar_for_every_matrix(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["model", "prepare", model, "--report"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [f"layers.{i}.{m}" for i in range(2) for m in ("qkv", "gate_up", "down")]
    for name in names:
        assert sum(line.split()[:1] == [name] for line in lines) == 2


def test_json_and_plot(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.svg"
    arguments = ["model", "prepare", model, "--pin", "head", "--json", "--plot", str(plot)]
    assert cli.main(arguments) == 0
    matrices = {m["name"]: m for m in json.loads(capsys.readouterr().out)["matrices"]}
    assert matrices["head"]["format"] == "fp32"
    assert matrices["head"]["weight_error"] == 0
    assert matrices["layers.0.qkv"]["format"] == "int8-dynamic"
    assert 0 < matrices["layers.0.down"]["output_error"] <= 0.05
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--precision", "int3"], "int3"),
        (["--precision", "int4", "--weight-budget", "1"], "budget"),
        (["--pin", "haed"], "haed"),
    ],
)
def test_what_cannot_be_exits_2_and_says_why(
    model: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["model", "prepare", model, *options]) == 2
    assert said in capsys.readouterr().err
