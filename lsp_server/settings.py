"""The one schema of all settings, with their defaults and their documentation.

Values arrive as `initializationOptions`, as the `ghostwright` section of
`workspace/configuration`, and as `[tool.ghostwright]` in pyproject.toml. Keys may be
written in camelCase, kebab-case or snake_case.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from engine import DEFAULT_MODEL, EngineConfig, default_threads


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class CompletionSettings(_Section):
    """What is generated, and how much of it."""

    max_tokens: int = Field(
        default=64, ge=1, le=1024, description="Most tokens one suggestion may have."
    )
    multiline: Literal["auto", "never"] = Field(
        default="auto",
        description="`auto` offers several lines where a block begins or a line is empty, "
        "`never` stops at the end of the line.",
    )
    automatic_candidates: int = Field(
        default=2, ge=1, le=8, description="Candidates generated while typing; the best is shown."
    )
    invoked_candidates: int = Field(
        default=4,
        ge=1,
        le=8,
        description="Candidates generated on request; all good ones are shown.",
    )
    temperature: float = Field(
        default=0.6,
        ge=0,
        le=2,
        description="Of the second and later candidates; the first is greedy.",
    )
    top_p: float = Field(default=0.95, gt=0, le=1, description="Nucleus of the sampled candidates.")
    debounce_ms: int = Field(
        default=60, ge=0, le=2000, description="Pause in typing before an automatic request runs."
    )
    time_budget_ms: int = Field(
        default=15000,
        ge=50,
        le=120000,
        description="A request without an answer by then gets none.",
    )


class VerificationSettings(_Section):
    """How suggestions are checked."""

    mode: Literal["required", "preferred", "off"] = Field(
        default="required",
        description="`required` shows only what Pyright passed, `preferred` shows unverified "
        "text when the time is up, `off` checks nothing.",
    )
    timeout_ms: int = Field(
        default=10000, ge=50, le=120000, description="Longest wait for Pyright on one candidate."
    )
    interpreter: str = Field(
        default="",
        description="Python whose packages Pyright sees; empty looks for one: the editor's "
        "setting, .venv or venv in the workspace, VIRTUAL_ENV, PATH.",
    )


class ModelSettings(_Section):
    """Which model, and what it may use."""

    name: str = Field(
        default=DEFAULT_MODEL, min_length=1, description="A pulled model's name, or a path to one."
    )
    threads: int = Field(
        default=0, ge=0, le=512, description="CPU threads; 0 is one per physical core."
    )
    context_tokens: int = Field(
        default=1024, ge=128, le=32768, description="Most tokens of the document sent to the model."
    )
    precision: Literal[
        "auto", "fp32", "bf16", "fp16", "int8", "int8-dynamic", "int8-static", "int4", "int4-zp"
    ] = Field(
        default="auto",
        description="Format of the weights; `auto` chooses for each layer, `fp32` is unquantized.",
    )
    weight_budget: int = Field(
        default=0, ge=0, description="Most mebibytes of weights, for `auto`; 0 is no limit."
    )
    pinned: list[str] = Field(
        default_factory=list, description="Layers kept in FP32, such as `head` or `layers.0.*`."
    )


class Settings(_Section):
    """All settings of Ghostwright."""

    enabled: bool = Field(
        default=True, description="Off means no completion and no model in memory."
    )
    completion: CompletionSettings = Field(default_factory=CompletionSettings)
    verification: VerificationSettings = Field(default_factory=VerificationSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)


def engine_config(settings: Settings) -> EngineConfig:
    """How to load the engine for these settings.

    Raises:
        ConfigError: a value the engine cannot work with.
    """
    return EngineConfig(
        settings.model.name,
        threads=settings.model.threads or default_threads(),
        context_tokens=settings.model.context_tokens + settings.completion.max_tokens,
        precision=settings.model.precision,
        weight_budget_bytes=settings.model.weight_budget << 20 or None,
        pinned=tuple(settings.model.pinned),
    )
