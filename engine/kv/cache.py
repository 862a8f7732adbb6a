"""The key/value caches of running requests, and attention over them.

A request has one `PromptCache`, filled by its prefill and shared by all its candidates, and
one `TailCache` with what each candidate has decoded since. Attention of a decode step runs
over both without copying the prompt's part.

Memory layout: per layer one tensor for keys and one for values, [kv_heads, tokens, head_dim]
(prompt) or [candidates, kv_heads, tokens, head_dim] (tails), so that the tokens a query
attends to lie together. Rotary embedding is applied before keys are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

_GROW = 256  # tokens; a prompt cache grows by whole steps of this


@dataclass(frozen=True, slots=True)
class KvShape:
    """Sizes shared by all caches of a model: layers, kv_heads, head_dim, and the dtype."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class Segment(Protocol):
    """Some rows of a forward pass that attend to one cache."""

    @property
    def rows(self) -> int:
        """How many rows."""
        ...

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Store k and v, and attend.

        Args:
            layer: which layer's cache.
            q: [rows, heads, head_dim], rotated, in the cache's dtype.
            k: [rows, kv_heads, head_dim], rotated, likewise.
            v: [rows, kv_heads, head_dim].

        Returns:
            [rows, heads * head_dim] in the cache's dtype.
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
            store[:] = [torch.empty(size, dtype=self.shape.dtype) for _ in range(self.shape.layers)]
            for fresh, stale in zip(store, old, strict=False):
                fresh[:, :used] = stale[:, :used]
        self._capacity = capacity

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

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `Segment.attend`."""
        self._cache.write(layer, self._start, k, v)
        keys, values = self._cache.read(layer, self._start + self.rows)
        out = functional.scaled_dot_product_attention(
            q.transpose(0, 1).unsqueeze(0),
            keys.unsqueeze(0),
            values.unsqueeze(0),
            attn_mask=self._mask,
            enable_gqa=True,
        )
        return out.squeeze(0).transpose(0, 1).reshape(self.rows, -1)


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
        self._keys = torch.empty(size, dtype=shape.dtype)
        self._values = torch.empty(size, dtype=shape.dtype)

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

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `Segment.attend`."""
        n, heads, size = q.shape
        kv_heads = k.shape[1]
        group = heads // kv_heads
        at = self._tails.length
        tail_keys, tail_values = self._tails.layer(layer)
        tail_keys[:, :, at] = k
        tail_values[:, :, at] = v
        tail_keys, tail_values = tail_keys[:, :, : at + 1], tail_values[:, :, : at + 1]
        keys, values = self._tails.prompt.read(layer, self._prompt_length)

        q = (q * size**-0.5).view(n, kv_heads, group, size)
        # One product serves all candidates on the shared prompt: [kv_heads, n * group, P].
        stacked = q.transpose(0, 1).reshape(kv_heads, n * group, size)
        over_prompt = (stacked @ keys.transpose(1, 2)).view(kv_heads, n, group, -1).transpose(0, 1)
        over_tail = q @ tail_keys.transpose(2, 3)
        scores = torch.cat((over_prompt, over_tail), dim=-1).float().softmax(dim=-1).to(q.dtype)
        from_prompt = scores[..., : self._prompt_length].transpose(0, 1)
        from_prompt = from_prompt.reshape(kv_heads, n * group, -1) @ values
        out = from_prompt.view(kv_heads, n, group, size).transpose(0, 1)
        out = out + scores[..., self._prompt_length :] @ tail_values
        return out.reshape(n, heads * size)
