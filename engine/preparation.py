"""Preparing a model on request, and what quantization cost each of its matrices. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import Tell
from engine.config import EngineConfig
from engine.quantization.policy import Kind, kind_of


@dataclass(frozen=True, slots=True)
class MatrixReport:
    """One matrix of a prepared model.

    Attributes:
        name: its place, such as `layers.3.down`.
        kind: what it is for.
        format: what it is stored in.
        rows, columns: output and input channels.
        nbytes: its size.
        weight_error: mean squared error of the weights over their power.
        output_error: the same of its products on calibration code; None where it is only
            looked up.
        cosine: mean cosine of its products with the exact ones; None as above.
        moved_from: the formats that were left, with the reasons.
    """

    name: str
    kind: Kind
    format: str
    rows: int
    columns: int
    nbytes: int
    weight_error: float
    output_error: float | None
    cosine: float | None
    moved_from: tuple[tuple[str, str], ...]

    @property
    def error(self) -> float:
        """The larger of the two errors: what is held against the limit."""
        return max(self.weight_error, self.output_error or 0.0)


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """A prepared model.

    Attributes:
        folder: where it lies.
        policy: how formats were chosen.
        limit: the error over which a matrix moves up.
        files: the code it was calibrated on.
        tokens: how many of it.
        matrices: in the order of a pass.
    """

    folder: Path
    policy: Mapping[str, Any]
    limit: float
    files: tuple[str, ...]
    tokens: int
    matrices: tuple[MatrixReport, ...]


def prepare_model(config: EngineConfig, tell: Tell, *, force: bool = False) -> PreparationReport:
    """Prepare a model, unless it is prepared already, and report.

    Args:
        config: which model, and the policy.
        tell: told of progress.
        force: prepare it again in any case.

    Raises:
        ModelError: the model is missing, damaged or unsupported.
        ConfigError: the policy does not fit it.
    """
    import torch

    from engine.loading import snapshot
    from engine.loading.store import resolve_model

    torch.set_num_threads(config.threads)
    source = resolve_model(config.model, config.cache_dir)
    made = snapshot.load(source, config.cache_dir, tell, config.policy, force=force)
    calibration = made.manifest["calibration"]
    return PreparationReport(
        folder=made.folder,
        policy=made.manifest["policy"],
        limit=config.policy.limit,
        files=tuple(calibration["files"]),
        tokens=calibration["tokens"],
        matrices=tuple(_matrix(*entry) for entry in made.manifest["matrices"].items()),
    )


def _matrix(name: str, entry: Mapping[str, Any]) -> MatrixReport:
    return MatrixReport(
        name=name,
        kind=kind_of(name),
        format=entry["format"],
        rows=entry["rows"],
        columns=entry["columns"],
        nbytes=entry["bytes"],
        weight_error=entry["weight_error"],
        output_error=entry["output_error"],
        cosine=entry["cosine"],
        moved_from=tuple((move["format"], move["reason"]) for move in entry["moved_from"]),
    )
