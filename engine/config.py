"""What an engine is built from. Torch-free, so that a server can validate settings early."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from engine.errors import ConfigError
from engine.quantization.policy import AUTO, PrecisionPolicy

DEFAULT_MODEL = "qwen2.5-coder-0.5b"


def default_cache_dir() -> Path:
    """The user's cache folder for models; `GHOSTWRIGHT_CACHE_DIR` overrides it."""
    override = os.environ.get("GHOSTWRIGHT_CACHE_DIR")
    return Path(override) if override else Path(platformdirs.user_cache_dir("ghostwright"))


def default_threads() -> int:
    """Physical cores this process may use: more than that slows matrix products down."""
    import psutil

    physical = psutil.cpu_count(logical=False) or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else physical
    return max(1, min(physical, allowed))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to load and run a model.

    Attributes:
        model: a catalogue name, a path to a `.gguf` file, or a folder with safetensors.
        cache_dir: where pulled models and prepared snapshots live.
        threads: CPU threads for matrix products.
        context_tokens: longest prompt plus output of one sequence, in tokens.
        max_batch: most sequences decoded in one step.
        kv_budget_bytes: memory for the key/value caches kept for reuse after a request ends.
        precision: `auto`, or a format's name (`PRECISIONS`) that all matrices start from.
        weight_budget_bytes: most bytes of all weights; None is no limit.
        pinned: patterns of matrices kept in FP32, such as `head` or `layers.0.*`.

    Raises:
        ConfigError: a number is out of its range.
    """

    model: str = DEFAULT_MODEL
    cache_dir: Path = field(default_factory=default_cache_dir)
    threads: int = field(default_factory=default_threads)
    context_tokens: int = 4096
    max_batch: int = 8
    kv_budget_bytes: int = 256 * 1024 * 1024
    precision: str = AUTO
    weight_budget_bytes: int | None = None
    pinned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ConfigError("model is empty", f"name one, for example {DEFAULT_MODEL}")
        for name, low in (
            ("threads", 1),
            ("context_tokens", 64),
            ("max_batch", 1),
            ("kv_budget_bytes", 0),
        ):
            value = getattr(self, name)
            if value < low:
                raise ConfigError(f"{name} is {value}", f"it must be at least {low}")
        _ = self.policy  # refuses what cannot be

    @property
    def policy(self) -> PrecisionPolicy:
        """How the weights' formats are chosen."""
        return PrecisionPolicy(self.precision, self.weight_budget_bytes, self.pinned)
