"""The prepared snapshot: whole or absent, rebuilt when it does not fit, never used silently."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.api import LoadProgress
from engine.errors import ConfigError, ModelCorrupt, ModelError, NoFimTokens
from engine.loading import prepared, snapshot
from engine.loading.conversion import computed_formats
from engine.loading.integrity import FileState
from engine.loading.verify import verify_model
from engine.quantization.formats import Format
from engine.quantization.policy import PrecisionPolicy
from tests.support.tiny_models import reference_model, write_folder


class Progress:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.steps: list[LoadProgress] = []

    def __call__(self, step: LoadProgress) -> None:
        self.steps.append(step)

    @property
    def prepared(self) -> bool:
        return any(step.stage.startswith("quantizing") for step in self.steps)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", reference_model("qwen2"))


def load(source: Path, cache: Path) -> tuple[snapshot.Snapshot, bool]:
    progress = Progress()
    loaded = snapshot.load(source, cache, progress)
    return loaded, progress.prepared


def test_the_second_load_prepares_nothing_and_is_the_same(source: Path, tmp_path: Path) -> None:
    first, prepared = load(source, tmp_path)
    assert prepared
    second, prepared = load(source, tmp_path)
    assert not prepared
    assert first.spec == second.spec
    assert first.layout == second.layout
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name])


def test_the_manifest_says_what_every_matrix_costs(source: Path, tmp_path: Path) -> None:
    loaded = load(source, tmp_path)[0]
    matrices = loaded.manifest["matrices"]
    assert len(matrices) == 2 + 4 * 2
    assert loaded.manifest["calibration"]["tokens"] >= 512
    for name, entry in matrices.items():
        assert 0 < entry["weight_error"] < (0.02 if "int4" in entry["format"] else 0.001)
        if name == "embed":
            assert entry["output_error"] is None
        else:
            assert 0 < entry["output_error"] < 0.02
            assert 0.98 < entry["cosine"] <= 1
        own = [t for n, t in loaded.tensors.items() if n.startswith(f"{name}.") and "bias" not in n]
        assert entry["bytes"] == sum(tensor.nbytes for tensor in own)


def test_every_precision_can_be_asked_for(source: Path, tmp_path: Path) -> None:
    for format in Format:
        policy = PrecisionPolicy(str(format))
        loaded = snapshot.load(source, tmp_path, lambda _: None, policy)
        got = set(loaded.formats.values())
        if format in computed_formats():
            # The embedding is only looked up: it has no activations to be rounded.
            assert got - {Format.INT8} == {format} - {Format.INT8}
        else:
            assert got == {Format.FP32}
            entry = loaded.manifest["matrices"]["head"]
            assert entry["moved_from"][0]["reason"] == "this chip does not compute in it"


def test_snapshots_of_two_policies_live_side_by_side(source: Path, tmp_path: Path) -> None:
    first = snapshot.load(source, tmp_path, lambda _: None, PrecisionPolicy())
    second = snapshot.load(source, tmp_path, lambda _: None, PrecisionPolicy(pinned=("head",)))
    assert first.folder != second.folder
    assert second.formats["head"] is Format.FP32
    progress = Progress()
    snapshot.load(source, tmp_path, progress, PrecisionPolicy())
    assert not progress.prepared


def test_a_budget_is_spent_and_never_exceeded(source: Path, tmp_path: Path) -> None:
    def spent(budget: int) -> tuple[int, float]:
        policy = PrecisionPolicy(budget_bytes=budget)
        entries = snapshot.load(source, tmp_path, lambda _: None, policy).manifest["matrices"]
        total = sum(entry["bytes"] for entry in entries.values())
        return total, sum(entry["output_error"] or 0.0 for entry in entries.values())

    with pytest.raises(ConfigError, match="too small") as caught:
        spent(1000)
    least = int(caught.value.remedy.split()[3].replace(",", ""))
    results = [spent(int(least * factor)) for factor in (1, 1.3, 2, 3)]
    for (total, _), factor in zip(results, (1, 1.3, 2, 3), strict=True):
        assert total <= least * factor
    totals, errors = zip(*results, strict=True)
    assert list(totals) == sorted(totals)
    assert list(errors) == sorted(errors, reverse=True)


def test_a_damaged_layer_moves_up_by_itself(tmp_path: Path) -> None:
    model = reference_model("qwen2")
    state = model.state_dict()
    with torch.no_grad():  # one value in every group puts the others between two codes
        weight = state["model.layers.1.mlp.down_proj.weight"]
        weight.copy_(weight.sign() * 0.3)
        weight[:, ::32] = 4.8
    source = write_folder(tmp_path / "damaged", model)
    loaded = snapshot.load(source, tmp_path, lambda _: None, PrecisionPolicy("int4"))
    entry = loaded.manifest["matrices"]["layers.1.down"]
    first = entry["moved_from"][0]
    assert first["format"] == "int4"
    assert "over 5%" in first["reason"]
    assert loaded.formats["layers.1.down"] is not Format.INT4
    assert loaded.formats["layers.0.down"] is Format.INT4
    assert max(entry["weight_error"], entry["output_error"]) <= 0.05


def test_a_snapshot_of_another_chip_is_rebuilt_and_says_so(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = load(source, tmp_path)[0].folder
    manifest = json.loads((folder / prepared.MANIFEST).read_text())
    manifest["computes"] = ["fp32", "int4"]
    (folder / prepared.MANIFEST).write_text(json.dumps(manifest))
    with caplog.at_level("INFO"):
        assert load(source, tmp_path)[1]
    assert "another chip" in caplog.text


def test_progress_only_rises(source: Path, tmp_path: Path) -> None:
    progress = Progress()
    snapshot.load(source, tmp_path, progress)
    shares = [step.share for step in progress.steps]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1


def test_a_changed_source_is_prepared_again(source: Path, tmp_path: Path) -> None:
    load(source, tmp_path)
    weights = source / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    assert load(source, tmp_path)[1]


DAMAGES: dict[str, tuple[str, bytes | None]] = {
    "no weights": (snapshot.WEIGHTS, None),
    "short weights": (snapshot.WEIGHTS, b"short"),
    "no tokenizer": (snapshot.TOKENIZER, None),
    "no manifest": (prepared.MANIFEST, None),
    "half a manifest": (prepared.MANIFEST, b"{"),
    "another manifest": (prepared.MANIFEST, b"[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_snapshot_that_does_not_fit_is_rebuilt(damage: str, source: Path, tmp_path: Path) -> None:
    folder = load(source, tmp_path)[0].folder
    name, data = DAMAGES[damage]
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)
    loaded, prepared = load(source, tmp_path)
    assert prepared
    assert loaded.tokenizer.encode("x")


def test_a_snapshot_of_another_version_is_rebuilt(source: Path, tmp_path: Path) -> None:
    manifest = load(source, tmp_path)[0].folder / prepared.MANIFEST
    manifest.write_text(manifest.read_text().replace('"version": 3', '"version": 1'))
    assert load(source, tmp_path)[1]


def test_altered_bytes_that_cannot_be_read_are_rebuilt(source: Path, tmp_path: Path) -> None:
    path = load(source, tmp_path)[0].folder / snapshot.TOKENIZER
    path.write_bytes(b"?" * path.stat().st_size)
    assert load(source, tmp_path)[0].tokenizer.encode("x")


def test_one_altered_byte_is_found_and_placed(source: Path, tmp_path: Path) -> None:
    folder = load(source, tmp_path)[0].folder
    assert all(check.state is FileState.OK for check in prepared.check_snapshot(folder))
    path = folder / snapshot.WEIGHTS
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    [check] = [check for check in prepared.check_snapshot(folder) if check.failed]
    assert check.path == str(path)
    assert check.bad_ranges
    assert check.bad_ranges[-1][1] == len(data) - 1


def test_verifying_a_model_checks_its_snapshot_too(source: Path, tmp_path: Path) -> None:
    folder = load(source, tmp_path)[0].folder
    assert verify_model(str(source), tmp_path).ok
    (folder / snapshot.TOKENIZER).write_text("{}")
    report = verify_model(str(source), tmp_path)
    assert not report.ok
    assert str(folder) in report.remedy


def test_what_a_killed_preparation_left_is_removed_in_time(source: Path, tmp_path: Path) -> None:
    old, fresh = (tmp_path / "snapshots" / f".preparing-{age}" for age in ("old", "fresh"))
    for folder in (old, fresh):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    load(source, tmp_path)
    assert not old.exists()
    assert fresh.exists()


def test_a_failed_preparation_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    weights = source / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"][3] = float("nan")  # found after everything else is quantized
    save_file(tensors, weights)
    with pytest.raises(ModelCorrupt, match=r"model\.norm\.weight holds NaN"):
        load(source, tmp_path)
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_a_model_without_fim_tokens_is_refused_before_the_work(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "chat", reference_model("qwen2"), fim=False)
    progress = Progress()
    with pytest.raises(NoFimTokens, match="no fill-in-the-middle tokens"):
        snapshot.load(source, tmp_path, progress)
    assert not progress.prepared


def test_an_unwritable_cache_is_a_clear_error(source: Path, tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("a file where a folder should be")
    with pytest.raises(ModelError, match="cannot write"):
        load(source, tmp_path)


def test_a_source_replaced_while_it_is_read_is_prepared_again(source: Path, tmp_path: Path) -> None:
    def replace(step: LoadProgress) -> None:
        if step.stage.startswith("writing"):
            os.utime(source / "model.safetensors", ns=(1, 1))

    snapshot.load(source, tmp_path, replace)
    assert load(source, tmp_path)[1]
    assert not load(source, tmp_path)[1]


@pytest.mark.parametrize("step", ["before", "between"])
def test_a_twin_that_finishes_at_the_same_moment_hurts_nobody(
    step: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = load(source, tmp_path)[0].folder
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    os.utime(source / "model.safetensors", ns=(1, 1))
    rename, calls = Path.rename, iter(range(100))

    def raced(self: Path, target: Path) -> Path:
        # The first call moves ours in and finds the old one, the second sets that aside.
        if next(calls) == 1:
            if step == "before":  # the twin has set it aside already
                rename(folder, tmp_path / "by-the-twin")
            else:  # the twin moves its own in right after
                moved = rename(self, target)
                rename(twin, folder)
                return moved
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", raced)
    assert load(source, tmp_path)[1]
    monkeypatch.undo()
    assert not load(source, tmp_path)[1]


def test_a_full_disk_is_a_clear_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ModelError, match="No space left on device"):
        load(source, tmp_path)
    assert list((tmp_path / "snapshots").iterdir()) == []
