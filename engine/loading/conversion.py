"""From a published model to the tensors of a snapshot: read, calibrate, quantize, measure.

One layer at a time: its exact weights are read, calibration code runs through them, and each
matrix is stored in the format the policy gives it, a few rows at a time where it is large. The
whole model never exists in floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from engine.api import LoadProgress, Tell
from engine.errors import ModelError, QuantizationError
from engine.fim import FimLayout
from engine.loading.checkpoint import Checkpoint
from engine.models.assembly import MatrixPlace, matrix_places
from engine.models.rotary import Rotary
from engine.quantization.calibration import (
    TOKENS_PER_FILE,
    LayerInputs,
    OutputMeter,
    calibration_texts,
)
from engine.quantization.compensation import quantize_compensated
from engine.quantization.error import ErrorMeter
from engine.quantization.formats import INT4_FORMATS, LANES, Format
from engine.quantization.linear import hardware_dtype, layer_input
from engine.quantization.policy import Choice, Matrix, Measured, PrecisionPolicy
from engine.quantization.quantize import quantize
from engine.quantization.sketch import build_sketch, worth_sketching
from engine.quantization.weights import Weight, concatenate

_SLAB_ITEMS = 1 << 24  # values of one matrix in FP32 at a time, where it has one source

# Reads a matrix, float32 [rows, columns] a slab at a time, all but the last of whole blocks.
Slabs = Callable[[], Iterable[torch.Tensor]]


def computed_formats() -> frozenset[Format]:
    """The formats this chip computes with; BF16 and FP16 only where it multiplies them."""
    if hardware_dtype() is torch.bfloat16:
        return frozenset(Format) - {Format.FP16}
    return frozenset(Format) - {Format.BF16, Format.FP16}


@dataclass(slots=True)
class Converted:
    """A snapshot's contents.

    Attributes:
        tensors: what to store, by name.
        record: what the manifest keeps of it; JSON-ready.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    record: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class _Job:
    """A matrix to be stored: its exact values, and what it sees on calibration code."""

    place: MatrixPlace
    slabs: Slabs
    inputs: LayerInputs | None

    @property
    def matrix(self) -> Matrix:
        return Matrix(self.place.name, self.place.rows, self.place.columns)


class _Walk:
    """Takes calibration code through the exact model and meets every matrix on the way.

    Attributes:
        files: what the code was.
        tokens: how many of it.
        moment: float32 [hidden, hidden], of what the head multiplies; set at the end.
    """

    def __init__(self, checkpoint: Checkpoint, tell: Tell) -> None:
        self._checkpoint = checkpoint
        self._spec = checkpoint.spec
        self._tell = tell
        tokenizer = checkpoint.tokenizer()
        layout = FimLayout.of(tokenizer)
        ids = {
            name: _with_a_hole(tokenizer.encode(text), layout)
            for name, text in calibration_texts().items()
        }
        self._length = min([TOKENS_PER_FILE, self._spec.context, *map(len, ids.values())])
        self._ids = [tokens[: self._length] for tokens in ids.values()]
        self.files = list(ids)
        self.tokens = self._length * len(ids)
        self.moment = torch.eye(self._spec.hidden)
        self._rotary = Rotary.of(checkpoint.rotary_frequencies(), self._length, None)
        self._places = {place.name: place for place in matrix_places(self._spec)}

    def job(self, name: str, inputs: LayerInputs | None) -> _Job:
        """A matrix by name, to be read when it is stored."""
        return _Job(self._places[name], partial(self._read, self._places[name]), inputs)

    def jobs(self) -> Iterator[_Job]:
        """Every matrix, in the order of a pass."""
        spec, read = self._spec, self._checkpoint.read
        names = self._checkpoint.names
        if not spec.tied:
            yield self.job("embed", None)
        x = torch.cat([read(names.embedding, i, i + 1) for ids in self._ids for i in ids])
        for i in range(spec.layers):
            at = f"layers.{i}"
            h = self._norm(x, names.attention_norm.format(i))
            exact, job = self._loaded(f"{at}.qkv", h)
            yield job
            y = _product(h, exact)
            if spec.qkv_bias:
                biases = names.biases(names.sources(f"{at}.qkv", tied=spec.tied))
                y += torch.cat([read(bias) for bias in biases])
            h = self._attend(y)
            exact, job = self._loaded(f"{at}.attention_out", h)
            yield job
            x = x + _product(h, exact)
            h = self._norm(x, names.mlp_norm.format(i))
            exact, job = self._loaded(f"{at}.gate_up", h)
            yield job
            h = layer_input(_product(h, exact), swiglu=True)
            exact, job = self._loaded(f"{at}.down", h)
            yield job
            x = x + _product(h, exact)
            share = 0.8 * (i + 1) / spec.layers
            self._tell(LoadProgress(f"quantizing layer {i + 1} of {spec.layers}", share))
        h = self._norm(x, names.final_norm)
        self.moment = h.T @ h / len(h)
        yield self.job("head", LayerInputs.of(h))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self._checkpoint.read(name)
        return functional.rms_norm(x, weight.shape, weight, self._spec.norm_eps)

    def _attend(self, qkv: torch.Tensor) -> torch.Tensor:
        """Causal attention of every file by itself: [rows, width] -> [rows, heads * head_dim]."""
        outputs: list[torch.Tensor] = []
        for rows in qkv.split(self._length):
            q, k, v = self._rotary.split(rows, self._spec.kv_heads, 0, 1)
            out = functional.scaled_dot_product_attention(
                q.transpose(0, 1)[None],
                k.transpose(0, 1)[None],
                v.transpose(0, 1)[None],
                is_causal=True,
                enable_gqa=True,
            )
            outputs.append(out[0].transpose(0, 1).reshape(self._length, -1))
        return torch.cat(outputs)

    def _loaded(self, name: str, inputs: torch.Tensor) -> tuple[torch.Tensor, _Job]:
        """A layer's matrix read once, for the pass and for storing it."""
        place = self._places[name]
        exact = torch.cat(list(self._read(place)))
        return exact, _Job(place, lambda: [exact], LayerInputs.of(inputs))

    def _read(self, place: MatrixPlace) -> Iterator[torch.Tensor]:
        source, *others = self._checkpoint.names.sources(place.name, tied=self._spec.tied)
        if others:  # where one ends need not be the end of a block
            yield torch.cat([self._checkpoint.read(name) for name in (source, *others)])
            return
        step = max(1, _SLAB_ITEMS // place.columns // LANES) * LANES
        for start in range(0, place.rows, step):
            yield self._checkpoint.read(source, start, start + step)


def _with_a_hole(tokens: list[int], layout: FimLayout) -> list[int]:
    """Code as the model will see it: what comes before a hole, behind it, and then the hole's."""
    tokens = tokens[: TOKENS_PER_FILE - layout.overhead]
    hole = slice(len(tokens) * 5 // 8, len(tokens) * 6 // 8)
    before, behind = tokens[: hole.start], tokens[hole.stop :]
    return layout.prompt(before, behind, TOKENS_PER_FILE) + tokens[hole]


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = hardware_dtype()
    return functional.linear(x.to(wide), weight.to(wide)).float()


def convert(checkpoint: Checkpoint, policy: PrecisionPolicy, tell: Tell) -> Converted:
    """Store a model by a policy.

    Raises:
        ConfigError: the policy does not fit the model.
        ModelCorrupt: a weight is missing, NaN or infinite.
        QuantizationError: a matrix fits no format.
    """
    walk = _Walk(checkpoint, tell)
    if not walk.tokens:
        raise ModelError(
            "there is no code to calibrate on: this Python lacks its standard library's sources",
            "install them",
        )
    spec, computed = checkpoint.spec, computed_formats()
    places = list(matrix_places(spec))
    matrices = [Matrix(place.name, place.rows, place.columns) for place in places]
    plan = policy.plan(matrices, computed)
    jobs = walk.jobs()
    if policy.budget_bytes is not None:
        jobs = _budgeted(walk, jobs, policy, plan)
    done = Converted()
    stored: dict[str, Any] = {}
    head: Weight | None = None
    for job in jobs:
        choice, weight, measured = _store(job, policy, plan[job.place.name])
        for suffix, tensor in weight.tensors().items():
            done.tensors[f"{job.place.name}.{suffix}"] = tensor
        stored[job.place.name] = _entry(job, choice, measured)
        if job.place.name == "head":
            head = weight
    _vectors(checkpoint, done.tensors)
    done.record = {
        "calibration": {"files": walk.files, "tokens": walk.tokens},
        "matrices": {place.name: stored[place.name] for place in places},
    }
    sketchable = worth_sketching(spec.vocab, spec.hidden)
    if head is not None and head.format is Format.INT8_DYNAMIC and sketchable:
        tell(LoadProgress("sketching the head", 0.82))
        sketch = build_sketch(head, walk.moment)
        for name, weight in (("projection", sketch.projection), ("table", sketch.table)):
            for suffix, tensor in weight.tensors().items():
                done.tensors[f"sketch.{name}.{suffix}"] = tensor
        done.record["sketch"] = {"bytes": sketch.nbytes, "directions": sketch.table.columns}
    return done


def _budgeted(
    walk: _Walk, jobs: Iterable[_Job], policy: PrecisionPolicy, plan: dict[str, Choice]
) -> Iterator[_Job]:
    """Measure every format of every matrix first; then the jobs again, the plan filled in."""
    inputs: dict[str, LayerInputs | None] = {}
    measured: dict[str, list[Measured]] = {}
    for job in jobs:
        name = job.place.name
        inputs[name] = job.inputs
        pinned = plan[name].format is Format.FP32
        rungs = [Format.FP32] if pinned else policy.ladder(job.matrix, computed_formats())
        measured[name] = [result for each in rungs if (result := _try(job, each)) is not None]
    plan.update(policy.spend(measured))
    return (walk.job(name, inputs[name]) for name in measured)


def _try(job: _Job, format: Format) -> Measured | None:
    """What a format costs, None where it cannot hold the matrix."""
    try:
        return _quantized(job, format)[1]
    except QuantizationError:
        if format is Format.FP32:
            raise
        return None


def _store(job: _Job, policy: PrecisionPolicy, choice: Choice) -> tuple[Choice, Weight, Measured]:
    """Store one matrix, moving up while its error is over the limit."""
    while True:
        try:
            weight, measured = _quantized(job, choice.format)
        except QuantizationError as error:
            if choice.format is Format.FP32:
                raise
            better = policy.move_up(job.matrix, choice, error.what, computed_formats())
        else:
            better = choice
            if policy.budget_bytes is None:
                better = policy.reconsider(job.matrix, choice, measured, computed_formats())
            if better == choice:
                return choice, weight, measured
        choice = better


def _quantized(job: _Job, format: Format) -> tuple[Weight, Measured]:
    """One matrix in one format, and what that costs."""
    error = ErrorMeter()
    meter = OutputMeter(job.inputs) if job.inputs is not None else None
    parts: list[Weight] = []
    inputs = job.inputs
    for exact in job.slabs():
        if inputs is None:
            part = quantize(exact, format)
        elif inputs.moment is not None and format in INT4_FORMATS:
            part = quantize_compensated(exact, format, inputs.moment)
        else:
            importance, scale = inputs.importance, inputs.scale
            part = quantize(exact, format, importance=importance, activation_scale=scale)
        error.add(part.dequantize(), exact)
        if meter is not None:
            meter.add(part, exact)
        parts.append(part)
    weight = concatenate(parts)
    if meter is None:
        return weight, Measured(format, weight.nbytes, error.relative)
    output = meter.result()
    return weight, Measured(format, weight.nbytes, error.relative, output.error, output.cosine)


def _entry(job: _Job, choice: Choice, measured: Measured) -> dict[str, Any]:
    return {
        "format": str(choice.format),
        "rows": job.place.rows,
        "columns": job.place.columns,
        "bytes": measured.nbytes,
        "weight_error": measured.weight_error,
        "output_error": measured.output_error,
        "cosine": measured.cosine,
        "moved_from": [asdict(move) | {"format": str(move.format)} for move in choice.moved_from],
    }


def _vectors(checkpoint: Checkpoint, tensors: dict[str, torch.Tensor]) -> None:
    """Norms, biases and rotary frequencies, which stay in FP32."""
    spec, names = checkpoint.spec, checkpoint.names
    for i in range(spec.layers):
        for norm in (f"layers.{i}.attention_norm", f"layers.{i}.mlp_norm"):
            tensors[norm] = checkpoint.read(names.vector(norm))
        if spec.qkv_bias:
            biases = names.biases(names.sources(f"layers.{i}.qkv", tied=spec.tied))
            tensors[f"layers.{i}.qkv.bias"] = torch.cat([checkpoint.read(b) for b in biases])
    tensors["final_norm"] = checkpoint.read(names.final_norm)
    tensors["rotary_frequencies"] = checkpoint.rotary_frequencies()
