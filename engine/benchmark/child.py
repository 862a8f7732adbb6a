"""The measuring process: one JSON request a line in, one JSON answer a line out.

    {"do": "load", "model": "...", ...}  ->  {"progress": {...}} ... {"result": {...}}

An answer is `{"result": ...}` or `{"error": {"what": ..., "remedy": ...}}`; while a model
loads, lines of `{"progress": {"stage": ..., "share": ...}}` come before it. Between requests
the process waits for the next line and computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from engine.api import LoadProgress, Tell
from engine.benchmark.bandwidth import memory_bandwidth
from engine.benchmark.machine import describe_machine
from engine.benchmark.passes import Passes
from engine.benchmark.traffic import gguf_bytes_per_token
from engine.config import EngineConfig
from engine.errors import EngineError, Explained
from engine.loading.store import resolve_model


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until their stream ends."""

    def send(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def tell(progress: LoadProgress) -> None:
        send({"progress": asdict(progress)})

    session = _Session(tell)
    for line in requests:
        try:
            send({"result": session.answer(json.loads(line))})
        except Explained as error:
            send({"error": {"what": error.what, "remedy": error.remedy}})
        except Exception as error:  # a fault of ours; the caller reports it in one line
            send({"error": {"what": f"{type(error).__name__}: {error}", "remedy": ""}})


class _Session:
    """What has been loaded, and what can be asked."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._loaded: Passes | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        """Carry out one request; the other keys are the arguments of the method it names."""
        verbs: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "source": self._source,
            "machine": describe_machine,
            "bandwidth": memory_bandwidth,
            "tokens": self._tokens,
            "prefill": self._prefill,
            "decode": self._decode,
            "traffic": self._traffic,
            "gguf_traffic": self._gguf_traffic,
        }
        name = request.pop("do", None)
        if name not in verbs:
            raise EngineError(f"nothing is known to do for {name!r}")
        return verbs[name](**request)

    @property
    def _passes(self) -> Passes:
        if self._loaded is None:
            raise EngineError("no model has been loaded")
        return self._loaded

    def _source(self, model: str, cache_dir: str) -> str:
        return str(resolve_model(model, Path(cache_dir)))

    def _load(
        self, model: str, cache_dir: str, threads: int, context_tokens: int, max_batch: int
    ) -> dict[str, Any]:
        self._loaded = Passes.load(
            EngineConfig(
                model,
                cache_dir=Path(cache_dir),
                threads=threads,
                context_tokens=context_tokens,
                max_batch=max_batch,
            ),
            self._tell,
        )
        return asdict(self._loaded.info)

    def _tokens(self, count: int, seed: int) -> list[int]:
        return self._passes.code_tokens(count, seed)

    def _prefill(self, tokens: list[int]) -> float:
        return self._passes.prefill(tokens)

    def _decode(self, prompt: list[int], candidates: int, steps: int) -> dict[str, Any]:
        return asdict(self._passes.decode(prompt, candidates, steps))

    def _traffic(self, context: int) -> int:
        return self._passes.bytes_per_token(context)

    def _gguf_traffic(self, path: str, context: int) -> int:
        return gguf_bytes_per_token(Path(path), self._passes.spec, context)
