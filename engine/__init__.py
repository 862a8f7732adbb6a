"""Ghostwright's inference engine: fill-in-the-middle completions from a local model.

Importing this package does not import torch: only `Engine.load` does, so a server can
answer its client before the heavy libraries are in memory.
"""

from engine.accuracy import LogitsReport, compare_logits
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
from engine.config import DEFAULT_MODEL, EngineConfig, default_cache_dir, default_threads
from engine.errors import (
    ConfigError,
    DownloadFailed,
    EngineError,
    EngineStopped,
    Explained,
    InvalidRequest,
    ModelCorrupt,
    ModelError,
    ModelNotFound,
    NoFimTokens,
    QuantizationError,
    UnsupportedModel,
)
from engine.loading.integrity import FileCheck, FileState
from engine.loading.progress import PullOptions, PullProgress, PullResult
from engine.loading.pull import pull_model
from engine.loading.store import ModelEntry, ModelState, list_models, resolve_model
from engine.loading.verify import VerifyReport, verify_model
from engine.local import Engine
from engine.preparation import MatrixReport, PreparationReport, prepare_model
from engine.quantization.policy import AUTO, PRECISIONS

__all__ = [
    "AUTO",
    "DEFAULT_MODEL",
    "GREEDY",
    "PRECISIONS",
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
    "Explained",
    "FileCheck",
    "FileState",
    "FinishReason",
    "Generation",
    "GenerationRequest",
    "InvalidRequest",
    "LoadProgress",
    "LogitsReport",
    "MatrixReport",
    "ModelCorrupt",
    "ModelEntry",
    "ModelError",
    "ModelInfo",
    "ModelNotFound",
    "ModelState",
    "NoFimTokens",
    "PreparationReport",
    "PullOptions",
    "PullProgress",
    "PullResult",
    "QuantizationError",
    "SamplingParams",
    "UnsupportedModel",
    "Usage",
    "VerifyReport",
    "collect",
    "compare_logits",
    "default_cache_dir",
    "default_threads",
    "list_models",
    "prepare_model",
    "pull_model",
    "resolve_model",
    "verify_model",
]
