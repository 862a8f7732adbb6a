"""The key/value caches of running requests, and attention over them.

A request has one `PromptCache`, filled by its prefill and shared by all its candidates, and
one `TailCache` with what each candidate has decoded since. Attention of a decode step runs
over both without copying the prompt's part.

Memory layout: per layer one tensor for keys and one for values, [kv_heads, tokens, head_dim]
(prompt) or [candidates, kv_heads, tokens, head_dim] (tails), so that the tokens a query
attends to lie together. Rotary embedding is applied before keys are stored.

Everything is stored in FP32: the few small products of a decode step are several times as
fast in it as in BF16, whose kernels are made for large ones. A prefill, whose products are
large, computes in BF16 where the hardware does. Where kernels are compiled for this chip they
rotate, store and, in decode, attend in one call; PyTorch's operators do the same elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional

from engine.kernels.native import DecodeRequest, pointer_table
from engine.models.rotary import Rotary

_GROW = 256  # tokens; a prompt cache grows by whole steps of this


@dataclass(frozen=True, slots=True)
class KvShape:
    """Sizes shared by all caches of a model.

    Attributes:
        layers, kv_heads, head_dim: as in the decoder's spec.
        prefill_dtype: what the attention of a prefill is computed in.
    """

    layers: int
    kv_heads: int
    head_dim: int
    prefill_dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * torch.float32.itemsize


class Segment(Protocol):
    """Some rows of a forward pass that attend to one cache."""

    @property
    def rows(self) -> int:
        """How many rows."""
        ...

    def attend(self, layer: int, qkv: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """Rotate queries and keys, store keys and values, and attend.

        Args:
            layer: which layer's cache.
            qkv: float32 [rows, (heads + 2 kv_heads) * head_dim], contiguous, not yet rotated.
            rotary: the decoder's tables.

        Returns:
            float32 [rows, heads * head_dim].
        """
        ...


class PromptCache:
    """Keys and values of a prompt; owned by the engine thread.

    Attributes:
        tokens: the token ids whose keys and values are stored, in order.
    """

    def __init__(self, shape: KvShape) -> None:
        self.shape = shape
        self.tokens: list[int] = []
        self._capacity = 0
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._pointers = pointer_table(()), pointer_table(())

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes held, used or not."""
        return self._capacity * self.shape.bytes_per_token

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` tokens in all; what is stored stays."""
        if tokens <= self._capacity:
            return
        capacity = -(-tokens // _GROW) * _GROW
        size = (self.shape.kv_heads, capacity, self.shape.head_dim)
        used = len(self.tokens)
        for store in (self._keys, self._values):
            old = list(store)
            store[:] = [torch.empty(size) for _ in range(self.shape.layers)]
            for fresh, stale in zip(store, old, strict=False):
                fresh[:, :used] = stale[:, :used]
        self._pointers = pointer_table(self._keys), pointer_table(self._values)
        self._capacity = capacity

    @property
    def pointers(self) -> tuple[ctypes.Array[Any], ctypes.Array[Any]]:
        """Where keys and values of every layer lie, for the compiled kernels."""
        return self._pointers

    @property
    def capacity(self) -> int:
        """Tokens there is room for."""
        return self._capacity

    def truncate(self, tokens: int) -> None:
        """Forget everything after the first `tokens` tokens."""
        del self.tokens[tokens:]

    def copy_prefix(self, tokens: int) -> PromptCache:
        """A new cache with a copy of the first `tokens` tokens."""
        fresh = PromptCache(self.shape)
        fresh.reserve(tokens)
        for mine, theirs in ((fresh._keys, self._keys), (fresh._values, self._values)):
            for target, source in zip(mine, theirs, strict=True):
                target[:, :tokens] = source[:, :tokens]
        fresh.tokens = self.tokens[:tokens]
        return fresh

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store keys and values [rows, kv_heads, head_dim] from token `start` on."""
        end = start + k.shape[0]
        self._keys[layer][:, start:end] = k.transpose(0, 1)
        self._values[layer][:, start:end] = v.transpose(0, 1)

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Whole keys and values of a layer, [kv_heads, capacity, head_dim]."""
        return self._keys[layer], self._values[layer]

    def read(self, layer: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the first `tokens` keys and values, [kv_heads, tokens, head_dim]."""
        return self._keys[layer][:, :tokens], self._values[layer][:, :tokens]


class PrefillSegment:
    """The next `rows` tokens of a prompt, attending causally to all before them.

    Args:
        cache: where they go; `cache.tokens` is extended by the caller once the pass is done,
            so that a pass that fails leaves the cache as it was.
        rows: how many.
    """

    def __init__(self, cache: PromptCache, rows: int) -> None:
        self.rows = rows
        self._cache = cache
        self._start = len(cache)
        cache.reserve(self._start + rows)
        total = self._start + rows
        # Row i sees tokens 0 .. start + i. One row sees all, and needs no mask.
        self._mask = (
            torch.ones(rows, total, dtype=torch.bool).tril_(self._start) if rows > 1 else None
        )

    def attend(self, layer: int, qkv: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """See `Segment.attend`."""
        shape, start = self._cache.shape, self._start
        if rotary.kernels is not None:
            heads = qkv.shape[1] // shape.head_dim - 2 * shape.kv_heads
            q = torch.empty(heads, self.rows, shape.head_dim, dtype=shape.prefill_dtype)
            tables, cache = (rotary.cos, rotary.sin), self._cache.layer(layer)
            rotary.kernels.rotate(qkv, q, tables, cache, start)
        else:
            q, k, v = rotary.split(qkv, shape.kv_heads, start, 1)
            self._cache.write(layer, start, k, v)
            q = q.transpose(0, 1).to(shape.prefill_dtype)
        keys, values = self._cache.read(layer, start + self.rows)
        out = functional.scaled_dot_product_attention(
            q.unsqueeze(0),
            keys.unsqueeze(0).to(shape.prefill_dtype),
            values.unsqueeze(0).to(shape.prefill_dtype),
            attn_mask=self._mask,
            enable_gqa=True,
        )
        return out.squeeze(0).transpose(0, 1).reshape(self.rows, -1).float()


class TailCache:
    """What each candidate of one request decoded after the shared prompt.

    All candidates decode in lock step, so all tails have the same length; a candidate that
    ends is dropped.

    Args:
        prompt: the shared prompt, complete.
        candidates: how many.
        capacity: most tokens a candidate may decode.
    """

    def __init__(self, prompt: PromptCache, candidates: int, capacity: int) -> None:
        shape = prompt.shape
        size = (shape.layers, candidates, shape.kv_heads, capacity, shape.head_dim)
        self.prompt = prompt
        self.length = 0
        self._keys = torch.empty(size)
        self._values = torch.empty(size)

    @property
    def candidates(self) -> int:
        """Candidates still decoding."""
        return self._keys.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the tails alone."""
        return self._keys.nbytes + self._values.nbytes

    def keep(self, candidates: list[int]) -> None:
        """Keep only these candidates, by their present number, in this order."""
        index = torch.tensor(candidates)
        self._keys = self._keys.index_select(1, index)
        self._values = self._values.index_select(1, index)

    def whole(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of all layers, [layers, candidates, kv_heads, capacity, head_dim]."""
        return self._keys, self._values

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Whole tails of a layer, [candidates, kv_heads, capacity, head_dim]."""
        return self._keys[layer], self._values[layer]


class DecodeSegment:
    """One new token of every candidate of a request.

    Args:
        tails: `tails.length` is advanced by the caller once the pass is done.
    """

    def __init__(self, tails: TailCache) -> None:
        self.rows = tails.candidates
        self._tails = tails
        self._prompt_length = len(tails.prompt)

    def request(self) -> DecodeRequest:
        """This segment's part of a decode step that the compiled kernels take whole."""
        prompt = self._tails.prompt
        return DecodeRequest(
            prompt.pointers,
            prompt.capacity,
            self._prompt_length,
            self._tails.whole(),
            self._tails.length,
        )

    def attend(self, layer: int, qkv: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """See `Segment.attend`."""
        tails, prompt_length, at = self._tails, self._prompt_length, self._tails.length
        keys, values = tails.layer(layer)
        shape = tails.prompt.shape
        if rotary.kernels is not None:
            out = torch.empty(self.rows, qkv.shape[1] - 2 * shape.kv_heads * shape.head_dim)
            tables, prompt = (rotary.cos, rotary.sin), tails.prompt.layer(layer)
            rotary.kernels.decode_attention(
                qkv, out, tables, prompt, prompt_length, (keys, values), at
            )
            return out
        q, k, v = rotary.split(qkv, shape.kv_heads, prompt_length + at, 0)
        keys[:, :, at] = k
        values[:, :, at] = v
        with _threads_for(q.numel() * (prompt_length + at + 1)):
            return self._attention(
                q,
                tails.prompt.read(layer, prompt_length),
                (keys[:, :, : at + 1], values[:, :, : at + 1]),
            )

    def _attention(
        self,
        q: torch.Tensor,
        prompt: tuple[torch.Tensor, torch.Tensor],
        tail: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Softmax attention over both parts; keys and values as their caches lay them out."""
        n, heads, size = q.shape
        kv_heads = prompt[0].shape[0]
        group = heads // kv_heads
        q = (q * size**-0.5).view(n, kv_heads, group, size)
        # One product serves all candidates on the shared prompt: [kv_heads, n * group, P].
        stacked = q.transpose(0, 1).reshape(kv_heads, n * group, size)
        over_prompt = (stacked @ prompt[0].transpose(1, 2)).view(kv_heads, n, group, -1)
        over_tail = q @ tail[0].transpose(2, 3)
        scores = torch.cat((over_prompt.transpose(0, 1), over_tail), dim=-1).softmax(dim=-1)
        from_prompt = scores[..., : self._prompt_length].transpose(0, 1)
        from_prompt = from_prompt.reshape(kv_heads, n * group, -1) @ prompt[1]
        out = from_prompt.view(kv_heads, n, group, size).transpose(0, 1)
        return (out + scores[..., self._prompt_length :] @ tail[1]).reshape(n, heads * size)


_SMALL = 1 << 24  # multiplications that one thread does sooner than several can be woken


@contextmanager
def _threads_for(work: int) -> Generator[None]:
    """Compute with one thread where `work` multiplications are too few to share."""
    threads = torch.get_num_threads()
    if work > _SMALL or threads == 1:
        yield
        return
    torch.set_num_threads(1)  # a tenth of a microsecond, and of this thread only
    try:
        yield
    finally:
        torch.set_num_threads(threads)
