"""The decoder's mathematics: one forward pass of a Qwen2 or Llama model.

Pre-norm blocks with RMSNorm (Zhang and Sennrich, 2019), rotary embedding (Su et al., 2021),
grouped-query attention (Ainslie et al., 2023) and SwiGLU (Shazeer, 2020), as in the
`transformers` implementations, against whose logits it is tested. Everything between the
layers is FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from engine.kernels import native
from engine.kernels.native import STEP_ROWS, NativeBlock, NativeBlocks, RmsNorm
from engine.kv.cache import DecodeSegment, Segment
from engine.models.head import Best, Head
from engine.models.rotary import Rotary
from engine.models.spec import DecoderSpec
from engine.quantization.linear import Linear, NativeLinear, layer_input
from engine.quantization.sketch import Sketch

Observer = Callable[[str, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `qkv` and `gate_up` are the stacked matrices of the names."""

    attention_norm: torch.Tensor
    qkv: Linear
    attention_out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Everything a decoder computes with.

    Attributes:
        embed: int64 [n] token ids -> float32 [n, hidden].
        layers: the blocks in order.
        final_norm: float32 [hidden].
        head: hidden -> vocabulary.
        sketch: of the head, or None.
        rotary_frequencies: float32 [head_dim / 2], radians per position.
        nbytes: bytes of it all, shared memory counted once.
    """

    embed: Callable[[torch.Tensor], torch.Tensor]
    layers: Sequence[Layer]
    final_norm: torch.Tensor
    head: Linear
    sketch: Sketch | None
    rotary_frequencies: torch.Tensor
    nbytes: int


class Decoder:
    """A decoder ready to run; owned by the engine thread.

    Args:
        spec: sizes and constants.
        weights: what it computes with.
        positions: longest sequence it will see; the rotary tables are made for it.
    """

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, *, positions: int) -> None:
        self.spec = spec
        self.weights = weights
        self._layers = list(weights.layers)
        self._norm = RmsNorm(weights.final_norm, spec.norm_eps)
        self._kernels = native.load()
        self._rotary = Rotary.of(weights.rotary_frequencies, positions, self._kernels)
        self._blocks = self._native_blocks()
        self._head = self._make_head(weights.head)

    def forward(
        self,
        tokens: torch.Tensor,
        segments: Sequence[Segment],
        observer: Observer | None = None,
    ) -> torch.Tensor:
        """Run the blocks.

        Args:
            tokens: int64 [rows], the rows of all segments one after another.
            segments: which rows attend to which cache; their rows add up to `rows`.
            observer: told of every linear layer of the blocks: its name, such as
                `layers.3.gate_up`, its input [rows, in] after norm or SwiGLU, and its output
                [rows, out] without the residual sum. An observed pass fuses nothing.

        Returns:
            float32 [rows, hidden], before the final norm.
        """
        x = self.weights.embed(tokens)
        if observer is None and self._whole_step(x, segments):
            return x
        for number, layer in enumerate(self._layers):
            at = f"layers.{number}"
            norm = RmsNorm(layer.attention_norm, self.spec.norm_eps)
            qkv = _apply(layer.qkv, x, f"{at}.qkv", observer, norm=norm)
            attended = self._attend(number, qkv, segments)
            x = _apply(layer.attention_out, attended, f"{at}.attention_out", observer, add_to=x)
            norm = RmsNorm(layer.mlp_norm, self.spec.norm_eps)
            up, down = layer.gate_up, layer.down
            if observer is None and isinstance(up, NativeLinear) and isinstance(down, NativeLinear):
                up.kernels.mlp(up.matrix, down.matrix, x, x, norm)
                continue
            hidden = _apply(up, x, f"{at}.gate_up", observer, norm=norm)
            x = _apply(down, hidden, f"{at}.down", observer, swiglu=True, add_to=x)
        return x

    def _whole_step(self, x: torch.Tensor, segments: Sequence[Segment]) -> bool:
        """Take x through all blocks in one call, if that can be done."""
        requests = [each.request() for each in segments if isinstance(each, DecodeSegment)]
        whole = len(requests) == len(segments)
        if (
            self._blocks is None
            or not whole
            or x.shape[0] > STEP_ROWS
            or self._rotary.kernels is None
        ):
            return False
        tables = self._rotary.cos, self._rotary.sin
        self._rotary.kernels.step(
            self._blocks, x, requests, tables, self.spec.heads, self.spec.norm_eps
        )
        return True

    def _native_blocks(self) -> NativeBlocks | None:
        """All blocks for the compiled kernels, if all their matrices are theirs."""
        blocks: list[NativeBlock] = []
        for layer in self._layers:
            matrices = [
                each.matrix
                for each in (layer.qkv, layer.attention_out, layer.gate_up, layer.down)
                if isinstance(each, NativeLinear)
            ]
            if len(matrices) < 4:
                return None
            blocks.append(NativeBlock(layer.attention_norm, layer.mlp_norm, *matrices))
        return NativeBlocks(blocks)

    def _attend(self, layer: int, qkv: torch.Tensor, segments: Sequence[Segment]) -> torch.Tensor:
        if len(segments) == 1:
            return segments[0].attend(layer, qkv, self._rotary)
        pieces = qkv.split([segment.rows for segment in segments])
        return torch.cat(
            [
                segment.attend(layer, piece, self._rotary)
                for segment, piece in zip(segments, pieces, strict=True)
            ]
        )

    def logits(self, hidden: torch.Tensor, observer: Observer | None = None) -> torch.Tensor:
        """float32 [rows, hidden], before the final norm -> float32 [rows, vocab]."""
        return _apply(self._head.linear, hidden, "head", observer, norm=self._norm)

    def best(self, hidden: torch.Tensor, banned: torch.Tensor) -> Best:
        """The best tokens of float32 [rows, hidden], before the final norm; see `Head.best`."""
        return self._head.best(hidden, banned)

    def replace(self, name: str, linear: Linear) -> None:
        """Put another linear layer in the place called `name`, between two passes.

        Raises:
            KeyError: there is no such place.
        """
        if name == "head":
            self._head = self._make_head(linear)
            return
        number, field = self._place(name)
        self._layers[number] = replace(self._layers[number], **{field: linear})
        self._blocks = self._native_blocks()

    def linear(self, name: str) -> Linear:
        """The linear layer in the place called `name`. Raises KeyError where there is none."""
        if name == "head":
            return self._head.linear
        number, field = self._place(name)
        return getattr(self._layers[number], field)

    def _make_head(self, linear: Linear) -> Head:
        return Head(linear, self._norm, self.weights.sketch, self._kernels)

    def _place(self, name: str) -> tuple[int, str]:
        for number in range(len(self._layers)):
            for field in ("qkv", "attention_out", "gate_up", "down"):
                if name == f"layers.{number}.{field}":
                    return number, field
        raise KeyError(name)


def _apply(
    linear: Linear,
    x: torch.Tensor,
    name: str,
    observer: Observer | None,
    *,
    norm: RmsNorm | None = None,
    swiglu: bool = False,
    add_to: torch.Tensor | None = None,
) -> torch.Tensor:
    if observer is None:
        return linear(x, norm=norm, swiglu=swiglu, add_to=add_to)
    x = layer_input(x, norm=norm, swiglu=swiglu)
    y = linear(x)
    observer(name, x, y)
    return y if add_to is None else add_to.add_(y)
