"""A model as its author published it, behind one face: GGUF file or safetensors folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, Self, cast

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelCorrupt, ModelNotFound, UnsupportedModel
from engine.loading import tokenizer as tokenizers
from engine.loading.gguf import GgufFile
from engine.loading.json_file import read_json
from engine.loading.tokenizer import Tokenizer
from engine.models.names import GGUF_NAMES, HF_NAMES, WeightNames
from engine.models.rotary import rotary_frequencies
from engine.models.spec import DecoderSpec


class Checkpoint(Protocol):
    """Weights one at a time as FP32, and what is needed to make sense of them."""

    @property
    def spec(self) -> DecoderSpec:
        """Sizes and constants."""
        ...

    @property
    def names(self) -> WeightNames:
        """How this checkpoint names its weights."""
        ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """Rows [start, stop) of one tensor, by default all, as float32.

        Raises:
            ModelCorrupt: it is missing or not finite.
        """
        ...

    def rotary_frequencies(self) -> torch.Tensor:
        """float32 [head_dim / 2]."""
        ...

    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a `.gguf` file or a folder with config.json and safetensors.

    Raises:
        ModelNotFound, ModelCorrupt, UnsupportedModel: see the error's text.
    """
    if path.is_dir():
        return SafetensorsCheckpoint(path)
    if path.is_file():
        return GgufCheckpoint(path)
    raise ModelNotFound(f"there is no model at {path}", "see: ghostwright model list")


_ROPE_FACTORS = "rope_freqs.weight"


def _check_shapes(
    path: Path,
    needed: Iterable[tuple[str, tuple[int, ...]]],
    shape_of: Callable[[str], tuple[int, ...] | None],
) -> None:
    """Refuse a model whose tensors are not those its configuration promises."""
    for name, shape in needed:
        found = shape_of(name)
        if found is None:
            raise ModelCorrupt(f"{path.name} has no tensor {name}")
        if found != shape:
            raise ModelCorrupt(f"{path.name}: tensor {name} has shape {found} instead of {shape}")


class GgufCheckpoint:
    """A GGUF file of the Qwen2 or Llama family."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)
        try:
            self.names = GGUF_NAMES
            shapes = {name: tensor.shape for name, tensor in self._file.tensors.items()}
            self.spec = DecoderSpec.from_gguf(
                self._file.metadata,
                vocab=shapes.get(self.names.embedding, (1,))[0],
                tied=self.names.head not in shapes,
            )
            _check_shapes(path, self.names.shapes(self.spec), shapes.get)
            factors = shapes.get(_ROPE_FACTORS)
            if factors not in (None, (self.spec.head_dim // 2,)):
                raise ModelCorrupt(f"{path.name}: tensor {_ROPE_FACTORS} has shape {factors}")
        except BaseException:
            self._file.close()
            raise

    def read(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """See `Checkpoint.read`."""
        if self.spec.family == "llama" and (".attn_q." in name or ".attn_k." in name):
            heads = self.spec.heads if ".attn_q." in name else self.spec.kv_heads
            return _unpermute(self._file.read(name), heads)[start:stop]
        return self._file.read(name, start, stop)

    def rotary_frequencies(self) -> torch.Tensor:
        """See `Checkpoint.rotary_frequencies`; a file may bring its own stretching factors."""
        base = rotary_frequencies(self.spec)
        if _ROPE_FACTORS not in self._file.tensors:
            return base
        stretched = base / self._file.read(_ROPE_FACTORS)
        if not bool(torch.isfinite(stretched).all()):
            raise ModelCorrupt(f"{self._file.path.name}: tensor {_ROPE_FACTORS} holds a zero")
        return stretched

    def tokenizer(self) -> Tokenizer:
        """See `Checkpoint.tokenizer`."""
        return tokenizers.from_gguf(self._file.metadata, vocab=self.spec.vocab)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's re-ordering of Llama's query and key rows, which suits its rotary."""
    shape = weight.shape
    return weight.view(heads, shape[0] // heads // 2, 2, *shape[1:]).transpose(1, 2).reshape(shape)


_FLOATS = ("F64", "F32", "F16", "BF16")


class SafetensorsCheckpoint:
    """A folder with config.json, tokenizer.json and one or more safetensors files."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.names = HF_NAMES
        config = read_json(folder / "config.json")
        if "quantization_config" in config:
            raise UnsupportedModel(
                f"{folder.name} is already quantized in a format of its own",
                "use the unquantized model or a GGUF file",
            )
        self._config = config
        self._files = self._locate()
        # Published configurations leave it out where the head is in the file, and where not.
        untold = {"tie_word_embeddings": self.names.head not in self._files}
        self.spec = DecoderSpec.from_hf(untold | config)
        _check_shapes(folder, self.names.shapes(self.spec), self._shape)

    def _locate(self) -> dict[str, Any]:
        """Open every file; tensor name -> the open file that has it."""
        paths = sorted(self.path.glob("*.safetensors"))
        if not paths:
            raise ModelNotFound(
                f"{self.path} holds no .safetensors file", "give a folder with weights"
            )
        located: dict[str, Any] = {}
        for path in paths:
            handle = _translated(path, lambda path=path: safe_open(path, framework="pt"))
            located.update(dict.fromkeys(handle.keys(), handle))
        return located

    def _shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor, None where there is none; it must hold floats."""
        if name not in self._files:
            return None
        piece = _translated(self.path, lambda: self._files[name].get_slice(name))
        kind = str(piece.get_dtype())
        if kind not in _FLOATS:
            raise UnsupportedModel(f"{self.path.name}: tensor {name} holds {kind}, not floats")
        return tuple(int(size) for size in piece.get_shape())

    def read(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """See `Checkpoint.read`."""
        if name not in self._files:
            raise ModelCorrupt(f"{self.path.name} has no tensor {name}")
        handle = self._files[name]

        def rows() -> torch.Tensor:
            return handle.get_slice(name)[start:stop].float()

        values = cast(torch.Tensor, _translated(self.path, rows))
        if not bool(torch.isfinite(values).all()):
            raise ModelCorrupt(f"{self.path.name}: tensor {name} holds NaN or infinity")
        return values

    def rotary_frequencies(self) -> torch.Tensor:
        """See `Checkpoint.rotary_frequencies`."""
        return rotary_frequencies(self.spec)

    def tokenizer(self) -> Tokenizer:
        """See `Checkpoint.tokenizer`."""
        return tokenizers.from_folder(self.path, self._config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()


def _translated(path: Path, action: Callable[[], Any]) -> Any:
    """Run `action`; what safetensors raises becomes ModelCorrupt."""
    try:
        return action()
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelCorrupt(f"{path.name} cannot be read: {error}") from error
