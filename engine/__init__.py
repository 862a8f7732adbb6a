"""Ghostwright's inference engine: fill-in-the-middle completions from a local model.

Importing this package does not import torch: only `Engine.load` does, so a server can
answer its client before the heavy libraries are in memory.
"""

from engine.api import (
    GREEDY,
    Candidate,
    Chunk,
    CompletionEngine,
    EngineStats,
    FinishReason,
    Generation,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    SamplingParams,
    Usage,
    collect,
)
from engine.config import DEFAULT_MODEL, EngineConfig, default_cache_dir
from engine.errors import (
    ConfigError,
    DownloadFailed,
    EngineError,
    EngineStopped,
    InvalidRequest,
    ModelCorrupt,
    ModelError,
    ModelNotFound,
    NoFimTokens,
    UnsupportedModel,
)
from engine.local import Engine

__all__ = [
    "DEFAULT_MODEL",
    "GREEDY",
    "Candidate",
    "Chunk",
    "CompletionEngine",
    "ConfigError",
    "DownloadFailed",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStats",
    "EngineStopped",
    "FinishReason",
    "Generation",
    "GenerationRequest",
    "InvalidRequest",
    "LoadProgress",
    "ModelCorrupt",
    "ModelError",
    "ModelInfo",
    "ModelNotFound",
    "NoFimTokens",
    "SamplingParams",
    "UnsupportedModel",
    "Usage",
    "collect",
    "default_cache_dir",
]
