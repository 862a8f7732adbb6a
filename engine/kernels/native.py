"""The compiled kernels from Python: finding the library, and calling into it.

`load` gives None where there is no library, or none of its kernels run on this chip; callers
then take PyTorch's operators. `GHOSTWRIGHT_KERNELS` chooses by name (amx, avx512, avxvnni,
avx2), or `torch` for none. A call releases the interpreter lock.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from engine.errors import ConfigError
from engine.kernels.build import LIBRARY
from engine.quantization.weights import Int4Weight, Int8Weight

VARIABLE = "GHOSTWRIGHT_KERNELS"
NAMES = ("amx", "avx512", "avxvnni", "avx2")
STEP_ROWS = 23  # most rows of a step: for more, AMX has another way to multiply
HEAD_SIZES = (16, 32, 64, 128)  # that attention is compiled for

_ABI = 4  # of api.cpp
_INT8, _INT4, _INT4_ZERO = 0, 1, 2

_pointer, _long, _int, _float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("codes", _pointer), ("scales", _pointer), ("zeros", _pointer), ("bias", _pointer),
        ("rows", _long), ("cols", _long), ("format", _int),
    )  # fmt: skip


class _Input(ctypes.Structure):
    _fields_ = (
        ("x", _pointer), ("stride", _long), ("norm", _pointer), ("eps", _float),
        ("swiglu", _int),
    )  # fmt: skip


class _Decode(ctypes.Structure):
    _fields_ = (
        ("qkv", _pointer), ("out", _pointer), ("cos", _pointer), ("sin", _pointer),
        ("keys", _pointer), ("values", _pointer),
        ("tail_keys", _pointer), ("tail_values", _pointer),
        ("n", _long), ("heads", _long), ("kv_heads", _long), ("size", _long),
        ("prompt_stride", _long), ("prompt", _long), ("tail_stride", _long), ("tail", _long),
    )  # fmt: skip


class _Block(ctypes.Structure):
    _fields_ = (
        ("attention_norm", _pointer), ("mlp_norm", _pointer),
        ("qkv", _pointer), ("out", _pointer), ("gate_up", _pointer), ("down", _pointer),
    )  # fmt: skip


class _Request(ctypes.Structure):
    _fields_ = (
        ("keys", _pointer), ("values", _pointer),
        ("tail_keys", _pointer), ("tail_values", _pointer),
        ("n", _long), ("prompt_stride", _long), ("prompt", _long),
        ("tail_stride", _long), ("tail", _long),
    )  # fmt: skip


class _Step(ctypes.Structure):
    _fields_ = (
        ("blocks", _pointer), ("first", _long), ("last", _long),
        ("requests", _pointer), ("count", _long),
        ("x", _pointer), ("rows", _long),
        ("heads", _long), ("kv_heads", _long), ("size", _long),
        ("cos", _pointer), ("sin", _pointer), ("eps", _float),
    )  # fmt: skip


class _Top(ctypes.Structure):
    _fields_ = (
        ("logits", _pointer), ("rows", _long), ("vocab", _long), ("k", _long),
        ("banned", _pointer), ("banned_count", _long),
        ("projection", _pointer), ("table", _pointer), ("exact", _pointer), ("input", _Input),
        ("ids", _pointer), ("values", _pointer), ("log_total", _pointer),
    )  # fmt: skip


class _Rotate(ctypes.Structure):
    _fields_ = (
        ("qkv", _pointer), ("cos", _pointer), ("sin", _pointer),
        ("keys", _pointer), ("values", _pointer), ("q_out", _pointer),
        ("m", _long), ("heads", _long), ("kv_heads", _long), ("size", _long),
        ("stride", _long), ("start", _long), ("bf16", _int),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """A norm to apply to the rows of an input: float32 [columns] and the epsilon."""

    weight: torch.Tensor
    eps: float


class NativeMatrix:
    """A quantized weight as the library sees it; keeps its tensors alive."""

    def __init__(self, weight: Int8Weight | Int4Weight, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        zeros = weight.zeros if isinstance(weight, Int4Weight) else None
        format = _INT8 if isinstance(weight, Int8Weight) else _INT4 if zeros is None else _INT4_ZERO
        self._struct = _Matrix(
            weight.packed.data_ptr(),
            weight.scales.data_ptr(),
            None if zeros is None else zeros.data_ptr(),
            None if bias is None else bias.data_ptr(),
            weight.rows,
            weight.columns,
            format,
        )
        self.pointer = ctypes.addressof(self._struct)


@dataclass(frozen=True, slots=True)
class NativeBlock:
    """A decoder block whose matrices are all quantized: the norms are float32 [hidden]."""

    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    qkv: NativeMatrix
    attention_out: NativeMatrix
    gate_up: NativeMatrix
    down: NativeMatrix


class NativeBlocks:
    """Consecutive blocks as the library sees them; keeps them alive."""

    def __init__(self, blocks: Sequence[NativeBlock]) -> None:
        self._blocks = blocks
        rows = [
            _Block(
                b.attention_norm.data_ptr(), b.mlp_norm.data_ptr(), b.qkv.pointer,
                b.attention_out.pointer, b.gate_up.pointer, b.down.pointer,
            )
            for b in blocks
        ]  # fmt: skip
        self._array = (_Block * len(rows))(*rows)
        self.pointer = ctypes.addressof(self._array)

    def __len__(self) -> int:
        return len(self._blocks)


def pointer_table(tensors: Sequence[torch.Tensor]) -> ctypes.Array[Any]:
    """The addresses of tensors, as the library reads them; the tensors must outlive it."""
    return (_pointer * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """A request's part of a decode step: one new token of each of its n candidates.

    Attributes:
        prompt: `pointer_table` of the keys and of the values of every block, each
            [kv_heads, prompt_capacity, size].
        prompt_capacity: tokens they have room for.
        prompt_length: tokens in them.
        tails: keys and values, [blocks, n, kv_heads, capacity, size].
        tail_length: tokens in them before this one, which is stored behind.
    """

    prompt: tuple[ctypes.Array[Any], ctypes.Array[Any]]
    prompt_capacity: int
    prompt_length: int
    tails: tuple[torch.Tensor, torch.Tensor]
    tail_length: int


@dataclass(frozen=True, slots=True)
class Sketched:
    """A head with a sketch of it, and what they multiply.

    Attributes:
        projection: INT8 [directions, hidden].
        table: INT4 [vocab, directions].
        head: INT8 [vocab, hidden], without a bias.
        hidden: [rows, hidden].
        norm: applied to `hidden` first.
    """

    projection: NativeMatrix
    table: NativeMatrix
    head: NativeMatrix
    hidden: torch.Tensor
    norm: RmsNorm


class Kernels:
    """The library's functions for this chip. All tensors are float32 and contiguous.

    Attributes:
        name: of the instruction set, one of `NAMES`.
        seconds: spent inside the library since it was loaded; the rest is Python's.
    """

    def __init__(self, library: Any, handle: int) -> None:
        self._handle = handle
        self._library = library
        self.name: str = library.gw_name(handle).decode()
        self.seconds = 0.0

    def _call(self, function: Any, *arguments: Any) -> None:
        start = time.perf_counter()
        function(self._handle, *arguments)
        self.seconds += time.perf_counter() - start

    def linear(
        self,
        matrix: NativeMatrix,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        norm: RmsNorm | None,
        swiglu: bool,
        add: bool,
    ) -> None:
        """y [m, rows] = (or += where `add`) the product of `matrix` and x [m, columns].

        Activations are rounded to INT8 by row and group of 32 columns, or to BF16 where there
        are many rows and the chip has AMX.
        """
        given = _input(x, norm, swiglu)
        self._call(self._library.gw_linear, matrix.pointer, ctypes.addressof(given), x.shape[0],
            y.data_ptr(), y.stride(0), add, torch.get_num_threads(),
        )  # fmt: skip

    def mlp(
        self,
        gate_up: NativeMatrix,
        down: NativeMatrix,
        x: torch.Tensor,
        y: torch.Tensor,
        norm: RmsNorm,
    ) -> None:
        """y [m, hidden] += down(silu(gate) * up), [gate | up] = gate_up(norm(x))."""
        given = _input(x, norm, False)
        self._call(
            self._library.gw_mlp, gate_up.pointer, down.pointer, ctypes.addressof(given),
            x.shape[0], y.data_ptr(), y.stride(0), torch.get_num_threads(),
        )  # fmt: skip

    def step(
        self,
        blocks: NativeBlocks,
        x: torch.Tensor,
        requests: Sequence[DecodeRequest],
        rotary: tuple[torch.Tensor, torch.Tensor],
        heads: int,
        eps: float,
    ) -> None:
        """Take x [rows, hidden] through all blocks in place, as one decode step.

        Args:
            blocks: which ones.
            x: the embedded tokens, request by request, and within one by candidate.
            requests: their caches.
            rotary: cosine and sine, [positions, size / 2].
            heads: of queries.
            eps: of the norms.
        """
        rows = [
            _Request(
                ctypes.addressof(r.prompt[0]), ctypes.addressof(r.prompt[1]),
                r.tails[0].data_ptr(), r.tails[1].data_ptr(), r.tails[0].shape[1],
                r.prompt_capacity, r.prompt_length, r.tails[0].shape[3], r.tail_length,
            )
            for r in requests
        ]  # fmt: skip
        array = (_Request * len(rows))(*rows)
        _, _, kv_heads, _, size = requests[0].tails[0].shape
        given = _Step(
            blocks.pointer, 0, len(blocks), ctypes.addressof(array), len(rows),
            x.data_ptr(), x.shape[0], heads, kv_heads, size,
            rotary[0].data_ptr(), rotary[1].data_ptr(), eps,
        )  # fmt: skip
        self._call(self._library.gw_step, ctypes.addressof(given), torch.get_num_threads())

    def top(
        self, logits: torch.Tensor, k: int, banned: torch.Tensor, sketched: Sketched | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The best tokens of each row.

        Args:
            logits: [rows, vocab]; changed: banned ones are -inf, and where there is a sketch
                all are made by it, and the best of them exactly.
            k: how many, at most the vocabulary.
            banned: int64 [n], tokens never to be picked.
            sketched: a sketch of the head to make the logits with.

        Returns:
            int64 [rows, k] tokens, best first; their logits [rows, k]; and log(sum(exp))
            of all logits [rows].
        """
        rows, vocab = logits.shape
        ids = torch.empty(rows, k, dtype=torch.int64)
        values, total = torch.empty(rows, k), torch.empty(rows)
        projection, table, exact, given = None, None, None, _Input()
        if sketched is not None:
            projection, table = sketched.projection.pointer, sketched.table.pointer
            exact, given = sketched.head.pointer, _input(sketched.hidden, sketched.norm, False)
        top = _Top(
            logits.data_ptr(), rows, vocab, k, banned.data_ptr(), len(banned),
            projection, table, exact, given,
            ids.data_ptr(), values.data_ptr(), total.data_ptr(),
        )  # fmt: skip
        self._call(self._library.gw_top, ctypes.addressof(top), torch.get_num_threads())
        return ids, values, total

    def decode_attention(
        self,
        qkv: torch.Tensor,
        out: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        prompt: tuple[torch.Tensor, torch.Tensor],
        prompt_length: int,
        tails: tuple[torch.Tensor, torch.Tensor],
        tail_length: int,
    ) -> None:
        """Rotate, store and attend one new token of each of n candidates.

        Args:
            qkv: [n, (heads + 2 kv_heads) * size], not yet rotated.
            out: [n, heads * size].
            rotary: cosine and sine, [positions, size / 2].
            prompt: keys and values, [kv_heads, capacity, size].
            prompt_length: tokens in them.
            tails: keys and values, [n, kv_heads, capacity, size].
            tail_length: tokens in them before this one, which is stored behind.
        """
        kv_heads, capacity, size = prompt[0].shape
        given = _Decode(
            qkv.data_ptr(), out.data_ptr(), rotary[0].data_ptr(), rotary[1].data_ptr(),
            prompt[0].data_ptr(), prompt[1].data_ptr(),
            tails[0].data_ptr(), tails[1].data_ptr(),
            qkv.shape[0], out.shape[1] // size, kv_heads, size,
            capacity, prompt_length, tails[0].shape[2], tail_length,
        )  # fmt: skip
        self._call(self._library.gw_decode, ctypes.addressof(given), torch.get_num_threads())

    def rotate(
        self,
        qkv: torch.Tensor,
        q: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        cache: tuple[torch.Tensor, torch.Tensor],
        start: int,
    ) -> None:
        """Rotate a prefill's queries and keys, and store its keys and values.

        Args:
            qkv: [m, (heads + 2 kv_heads) * size].
            q: float32 or bfloat16 [heads, m, size], filled.
            rotary: cosine and sine, [positions, size / 2].
            cache: keys and values, [kv_heads, capacity, size]; filled from `start` on.
            start: position of the first row.
        """
        kv_heads, capacity, size = cache[0].shape
        given = _Rotate(
            qkv.data_ptr(), rotary[0].data_ptr(), rotary[1].data_ptr(),
            cache[0].data_ptr(), cache[1].data_ptr(), q.data_ptr(),
            qkv.shape[0], q.shape[0], kv_heads, size, capacity, start,
            q.dtype is torch.bfloat16,
        )  # fmt: skip
        self._call(self._library.gw_rotate, ctypes.addressof(given), torch.get_num_threads())


def _input(x: torch.Tensor, norm: RmsNorm | None, swiglu: bool) -> _Input:
    if norm is None:
        return _Input(x.data_ptr(), x.stride(0), None, 0.0, swiglu)
    return _Input(x.data_ptr(), x.stride(0), norm.weight.data_ptr(), norm.eps, swiglu)


def load() -> Kernels | None:
    """The kernels of this chip, or those `GHOSTWRIGHT_KERNELS` names; None for PyTorch's own.

    Raises:
        ConfigError: the named ones are unknown, or cannot run here.
    """
    return _load(os.environ.get(VARIABLE, ""))


@cache
def _load(name: str) -> Kernels | None:
    if name == "torch":
        return None
    if name and name not in NAMES:
        raise ConfigError(f"{VARIABLE} is {name!r}", f"use one of {', '.join(NAMES)}, or torch")
    library = _open()
    handle = library.gw_kernels(name.encode()) if library is not None else None
    if handle:
        return Kernels(library, handle)
    if name:
        why = "this chip cannot run them" if library is not None else "they were not compiled"
        raise ConfigError(f"{VARIABLE} is {name!r}, but {why}", "unset it")
    return None


def _open() -> Any:
    """The library, or None where it is missing, for another chip, or of another version."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        if library.gw_abi() != _ABI:
            return None
    except (OSError, AttributeError):
        return None
    library.gw_kernels.argtypes, library.gw_kernels.restype = (ctypes.c_char_p,), _pointer
    library.gw_name.argtypes, library.gw_name.restype = (_pointer,), ctypes.c_char_p
    for function, arguments in (
        ("gw_linear", (_pointer, _pointer, _pointer, _long, _pointer, _long, _int, _int)),
        ("gw_mlp", (_pointer, _pointer, _pointer, _pointer, _long, _pointer, _long, _int)),
        ("gw_decode", (_pointer, _pointer, _int)),
        ("gw_step", (_pointer, _pointer, _int)),
        ("gw_top", (_pointer, _pointer, _int)),
        ("gw_rotate", (_pointer, _pointer, _int)),
    ):
        getattr(library, function).argtypes = arguments
        getattr(library, function).restype = None
    return library
