"""From a plan to tokens: the model, its tokenizer, and the passes over them.

The runner knows tensors and nothing of requests, queues or threads; the worker is its only
caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from engine.api import GenerationRequest, ModelInfo
from engine.config import EngineConfig
from engine.kv.cache import DecodeSegment, KvShape, PrefillSegment, PromptCache, TailCache
from engine.loading.snapshot import Snapshot
from engine.loading.tokenizer import StreamDecoder
from engine.models import assembly
from engine.models.decoder import Decoder
from engine.models.head import Best
from engine.quantization.formats import Format
from engine.quantization.linear import hardware_dtype

_CHARS_PER_TOKEN = 12  # no source code has longer tokens on average: bounds what is encoded


class Runner:
    """A model ready to run; owned by the engine thread.

    Args:
        config: what it may use.
        snapshot: the prepared model.
    """

    def __init__(self, config: EngineConfig, snapshot: Snapshot) -> None:
        spec = snapshot.spec
        weights = assembly.from_snapshot(spec, snapshot.tensors, snapshot.formats)
        self.context = min(config.context_tokens, spec.context)
        self.layout = snapshot.layout
        self.kv_shape = KvShape(
            spec.layers, spec.kv_heads, spec.head_dim, prefill_dtype=hardware_dtype()
        )
        self._tokenizer = snapshot.tokenizer
        self._decoder = Decoder(spec, weights, positions=self.context)
        self._banned = torch.tensor(sorted(self.layout.banned_ids), dtype=torch.int64)
        self.info = ModelInfo(
            name=config.model,
            architecture=spec.family,
            parameters=sum(
                m["rows"] * m["columns"] for m in snapshot.manifest["matrices"].values()
            ),
            weight_bytes=weights.nbytes,
            quantization=_described(snapshot.formats),
            context_tokens=self.context,
            instruct="instruct" in f"{spec.name} {config.model}".lower(),
        )

    def prompt(self, request: GenerationRequest) -> list[int]:
        """Token ids of the request's prompt, cut to leave room for what it may generate."""
        budget = self.context - request.max_tokens
        chars = max(budget, 1) * _CHARS_PER_TOKEN
        prefix = self._tokenizer.encode(request.prefix[-chars:])
        suffix = self._tokenizer.encode(request.suffix[:chars])
        return self.layout.prompt(prefix, suffix, budget)

    def stream_decoder(self) -> StreamDecoder:
        """A fresh decoder from tokens to text."""
        return StreamDecoder(self._tokenizer)

    def prefill(self, cache: PromptCache, tokens: Sequence[int]) -> Best:
        """Append tokens to a prompt; the best tokens after the last one, one row."""
        segment = PrefillSegment(cache, len(tokens))
        hidden = self._decoder.forward(torch.tensor(tokens), [segment])
        cache.tokens.extend(tokens)
        return self._decoder.best(hidden[-1:], self._banned)

    def decode(self, tokens: Sequence[int], tails: Sequence[TailCache]) -> Best:
        """One step of all candidates of some requests.

        Args:
            tokens: each candidate's last token, request by request.
            tails: the requests' caches, in that order.

        Returns:
            The best next tokens, a row for each of `tokens`.
        """
        hidden = self._decoder.forward(
            torch.tensor(tokens), [DecodeSegment(tail) for tail in tails]
        )
        for tail in tails:
            tail.length += 1
        return self._decoder.best(hidden, self._banned)


def _described(formats: Mapping[str, Format]) -> str:
    """The formats of the layers, most frequent first: `int4, int8-dynamic`."""
    counts = Counter(str(f) for name, f in formats.items() if name != "embed")
    return ", ".join(name for name, _ in counts.most_common())
