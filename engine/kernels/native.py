"""The compiled kernels from Python: finding the library, and calling into it.

`load` gives None where there is no library, or none of its kernels run on this chip; callers
then take PyTorch's operators. `GHOSTWRIGHT_KERNELS` chooses by name (amx, avx512, avxvnni,
avx2), or `torch` for none. A call releases the interpreter lock.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from engine.errors import ConfigError
from engine.kernels.build import LIBRARY
from engine.quantization.weights import Int4Weight, Int8Weight

VARIABLE = "GHOSTWRIGHT_KERNELS"
NAMES = ("amx", "avx512", "avxvnni", "avx2")
HEAD_SIZES = (16, 32, 64, 128)  # that attention is compiled for

_ABI = 1  # of api.cpp
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


class Kernels:
    """The library's functions for this chip. All tensors are float32 and contiguous.

    Attributes:
        name: of the instruction set, one of `NAMES`.
    """

    def __init__(self, library: Any, handle: int) -> None:
        self._handle = handle
        self._library = library
        self.name: str = library.gw_name(handle).decode()

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
        self._library.gw_linear(
            self._handle, matrix.pointer, ctypes.addressof(given), x.shape[0],
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
        self._library.gw_mlp(
            self._handle, gate_up.pointer, down.pointer, ctypes.addressof(given), x.shape[0],
            y.data_ptr(), y.stride(0), torch.get_num_threads(),
        )  # fmt: skip

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
        self._library.gw_decode(self._handle, ctypes.addressof(given), torch.get_num_threads())

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
        self._library.gw_rotate(self._handle, ctypes.addressof(given), torch.get_num_threads())


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
        ("gw_rotate", (_pointer, _pointer, _int)),
    ):
        getattr(library, function).argtypes = arguments
        getattr(library, function).restype = None
    return library
