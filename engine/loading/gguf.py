"""Reading GGUF files (version 2 and 3): metadata, tensor table, and tensors as FP32.

The format is ggml's `docs/gguf.md`. Reading is strict: whatever does not add up raises
ModelCorrupt with the file's name and where it stopped making sense. The file is memory-mapped
and a tensor is decoded only when asked for, so the whole model never exists in FP32.

`gguf.GGUFReader` is the reference this module is tested against; it takes some seven times
as long for a 150,000-token vocabulary, which a user waits for.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch

from engine.errors import ModelCorrupt, ModelNotFound, UnsupportedModel
from engine.loading.gguf_blocks import BLOCKS, decode

MetadataValue = int | float | bool | str | list["MetadataValue"]

_SCALARS: dict[int, str] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MAX_COUNT = 1 << 24  # no real file has more tensors, keys or array items than this
_MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One row of the tensor table.

    Attributes:
        name: ggml's name, for example `blk.0.attn_q.weight`.
        shape: as PyTorch orders it (rows first), the reverse of the file's.
        type_id: ggml's number of the block format.
        offset: bytes from the start of the file.
        nbytes: size in the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    nbytes: int


class _Cursor:
    """Reads little-endian values one after another and knows where it is."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self.position = 0

    def corrupt(self, what: str) -> ModelCorrupt:
        return ModelCorrupt(
            f"{self._path.name} is damaged at byte {self.position}: {what}",
            "check it with: ghostwright model verify, or pull it again",
        )

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise self.corrupt(f"it ends {end - len(self._data)} bytes too early")
        piece = self._data[self.position : end]
        self.position = end
        return piece

    def scalar(self, form: str) -> int | float | bool:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, form: str, what: str) -> int:
        value = int(self.scalar(form))
        if value > _MAX_COUNT:
            raise self.corrupt(f"it claims {value} {what}")
        return value

    def string(self) -> str:
        length = int(self.scalar("<Q"))
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.corrupt("a string is not UTF-8") from error

    def value(self, kind: int) -> MetadataValue:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner = int(self.scalar("<I"))
            if inner == _ARRAY:  # no real file nests them, and a deep nest would end the stack
                raise self.corrupt("an array holds arrays")
            count = self.count("<Q", "array items")
            if inner in _SCALARS:
                form = _SCALARS[inner]
                return np.frombuffer(
                    self.take(count * struct.calcsize(form)), np.dtype(form.replace("<?", "?"))
                ).tolist()
            return [self.value(inner) for _ in range(count)]
        if kind not in _SCALARS:
            raise self.corrupt(f"unknown value type {kind}")
        return self.scalar(_SCALARS[kind])


class GgufFile:
    """An open GGUF file. Use as a context manager; owned by the thread that loads.

    Attributes:
        path: the file.
        metadata: all key/value pairs.
        tensors: the tensor table by ggml name.

    Raises:
        ModelNotFound: there is no such file, or it cannot be read.
        ModelCorrupt: it is not GGUF, is truncated, or its table does not add up.
        UnsupportedModel: a GGUF version or block format this engine does not know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ModelNotFound(f"cannot open {path}: {error.strerror}") from error
        try:
            self._data = self._map()
            self.metadata: dict[str, MetadataValue] = {}
            self.tensors: dict[str, GgufTensor] = {}
            self._parse(_Cursor(self._data, path))
        except BaseException:
            self.close()
            raise

    def _map(self) -> mmap.mmap:
        try:
            return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ModelCorrupt(f"{self.path.name} is empty", "pull it again") from error

    def _parse(self, cursor: _Cursor) -> None:
        if len(self._data) < 4 or cursor.take(4) != b"GGUF":
            raise ModelCorrupt(
                f"{self.path.name} is not a GGUF file: it does not start with 'GGUF'",
                "give a .gguf file or a folder with safetensors",
            )
        version = int(cursor.scalar("<I"))
        if version not in (2, 3):
            raise UnsupportedModel(f"{self.path.name} is GGUF version {version}; 2 and 3 are known")
        tensor_count = cursor.count("<Q", "tensors")
        for _ in range(cursor.count("<Q", "metadata keys")):
            key = cursor.string()
            self.metadata[key] = cursor.value(int(cursor.scalar("<I")))
        rows = [self._table_row(cursor) for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise cursor.corrupt(f"alignment is {alignment!r}")
        base = -(-cursor.position // alignment) * alignment
        for name, shape, type_id, relative in rows:
            self._add_tensor(cursor, name, shape, type_id, base + relative)

    @staticmethod
    def _table_row(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
        name = cursor.string()
        if not name.isprintable():
            raise cursor.corrupt(f"a tensor is called {name!r}")
        dims = int(cursor.scalar("<I"))
        if not 1 <= dims <= _MAX_DIMS:
            raise cursor.corrupt(f"tensor {name} has {dims} dimensions")
        shape = tuple(int(cursor.scalar("<Q")) for _ in range(dims))[::-1]
        if 0 in shape:
            raise cursor.corrupt(f"tensor {name} has no items, its shape is {shape}")
        return name, shape, int(cursor.scalar("<I")), int(cursor.scalar("<Q"))

    def _add_tensor(
        self, cursor: _Cursor, name: str, shape: tuple[int, ...], type_id: int, offset: int
    ) -> None:
        block = BLOCKS.get(type_id)
        if block is None:
            raise UnsupportedModel(
                f"{self.path.name}: tensor {name} has ggml type {type_id}",
                "known are " + ", ".join(known.name for known in BLOCKS.values()),
            )
        if shape[-1] % block.items:
            raise cursor.corrupt(f"tensor {name}: rows of {shape[-1]} are not whole blocks")
        items = int(np.prod(shape, dtype=object))
        nbytes = items // block.items * block.nbytes
        if offset + nbytes > len(self._data):
            raise ModelCorrupt(
                f"{self.path.name} is truncated: tensor {name} needs bytes up to "
                f"{offset + nbytes}, the file has {len(self._data)}",
                "pull it again",
            )
        self.tensors[name] = GgufTensor(name, shape, type_id, offset, nbytes)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """The tensor as FP32, in PyTorch's order of dimensions.

        Args:
            name: ggml's.
            start: first row (of the first dimension) to read.
            stop: row to stop before; None for all.

        Raises:
            ModelCorrupt: the file has no such tensor, or it holds NaN or infinity.
        """
        entry = self.tensors.get(name)
        if entry is None:
            raise ModelCorrupt(f"{self.path.name} has no tensor {name}")
        first, *rest = entry.shape
        stop = first if stop is None else min(stop, first)
        per_row = entry.nbytes // first
        # A copy of the packed bytes: torch wants writable memory, and a view of the map would
        # keep it from being closed.
        raw = bytearray(self._data[entry.offset + start * per_row : entry.offset + stop * per_row])
        values = decode(entry.type_id, torch.frombuffer(raw, dtype=torch.uint8))
        values = values.reshape(stop - start, *rest)
        if not bool(torch.isfinite(values).all()):
            raise ModelCorrupt(
                f"{self.path.name}: tensor {name} holds NaN or infinity", "pull it again"
            )
        return values

    def close(self) -> None:
        """Unmap and close the file. Safe to call twice."""
        data = getattr(self, "_data", None)
        if data is not None:
            data.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
