"""What calibration code says of a layer: its inputs, and what quantizing costs its outputs."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.quantization.compensation import MOST_COLUMNS
from engine.quantization.error import ErrorMeter
from engine.quantization.linear import make_linear
from engine.quantization.weights import Weight

# Modules of the standard library, of different authors and styles: real code that every
# installation has, whatever its version.
FILES = (
    "argparse.py", "dataclasses.py", "json/decoder.py", "asyncio/queues.py", "shutil.py",
    "difflib.py", "urllib/parse.py", "statistics.py",
)  # fmt: skip
TOKENS_PER_FILE = 512
_SKIP_CHARS = 1500  # of a file: licence and docstring
_TAKE_CHARS = 4000
_PROBES = 64  # input rows on which outputs are compared
_FEW = 16  # rows multiplied at a time: as a decode step does it
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)


def calibration_texts() -> dict[str, str]:
    """Pieces of the files that this Python has, by name."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts: dict[str, str] = {}
    for name in FILES:
        try:
            text = (folder / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        texts[name] = text[_SKIP_CHARS : _SKIP_CHARS + _TAKE_CHARS]
    return texts


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What a linear layer saw on calibration code.

    Attributes:
        importance: float32 [columns], the mean square of each input channel.
        probes: float32 [rows, columns], some of the inputs.
        scale: the one activation scale that loses least, for INT8_STATIC.
        moment: float32 [columns, columns], the mean of x x^T; None where there are too many
            columns to make use of it.
    """

    importance: torch.Tensor
    probes: torch.Tensor
    scale: float
    moment: torch.Tensor | None

    @classmethod
    def of(cls, inputs: torch.Tensor) -> LayerInputs:
        """From float32 [rows, columns], all the layer's inputs."""
        step = max(1, len(inputs) // _PROBES)
        probes = inputs[::step][:_PROBES].contiguous()
        narrow = inputs.shape[1] <= MOST_COLUMNS
        moment = inputs.T @ inputs / len(inputs) if narrow else None
        return cls(inputs.square().mean(dim=0), probes, activation_scale(inputs), moment)


def activation_scale(inputs: torch.Tensor) -> float:
    """The scale of symmetric INT8 that rounds float32 inputs with the least squared error.

    A scale that reaches the largest value of all wastes most codes on what hardly occurs;
    clipping it may lose less than rounding everything else more coarsely.
    """
    peak = float(inputs.abs().max())
    if peak == 0.0:
        return 1.0
    errors: dict[float, float] = {}
    for clip in _CLIPS:
        scale = peak * clip / 127.0
        rounded = (inputs / scale).round_().clamp_(-127, 127).mul_(scale)
        errors[scale] = float((rounded - inputs).square().sum())
    return min(errors, key=errors.__getitem__)


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far a quantized layer's outputs are from the exact ones.

    Attributes:
        error: mean squared error over signal power.
        cosine: mean cosine of a row of outputs with the exact row.
    """

    error: float
    cosine: float


class OutputMeter:
    """Compares outputs on the probes, some output channels at a time."""

    def __init__(self, inputs: LayerInputs) -> None:
        self._probes = inputs.probes
        self._error = ErrorMeter()
        rows = len(inputs.probes)
        self._product, self._ours, self._exact = torch.zeros(3, rows, dtype=torch.float64)

    def add(self, quantized: Weight, exact: torch.Tensor) -> None:
        """Take in some output channels: as stored, and float32 [channels, columns]."""
        expected = self._probes @ exact.T
        linear = make_linear(quantized)
        got = torch.cat([linear(rows.contiguous()) for rows in self._probes.split(_FEW)])
        self._error.add(got, expected)
        self._product += (got * expected).sum(dim=1).double()
        self._ours += got.square().sum(dim=1).double()
        self._exact += expected.square().sum(dim=1).double()

    def result(self) -> OutputError:
        """Over everything taken in."""
        length = (self._ours * self._exact).sqrt()
        cosine = torch.where(length > 0, self._product / length.clamp(min=1e-300), 1.0)
        return OutputError(self._error.relative, float(cosine.mean()))
