"""The engine as its callers see it: frozen values in, frozen values out, no torch.

`CompletionEngine` is the seam: the local engine and a remote one both fit it, and
`lsp_server` knows nothing else of either.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.errors import InvalidRequest


class FinishReason(StrEnum):
    """Why a candidate ended."""

    STOP_TOKEN = "stop_token"  # the model said so: end of text, or any FIM token
    STOP_TEXT = "stop_text"  # one of the request's stop strings, or its line limit
    LENGTH = "length"  # max_tokens: the text may end anywhere


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one candidate picks its tokens.

    Attributes:
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_p: nucleus sampling (Holtzman et al., 2020): the smallest set of tokens whose
            probability reaches `top_p`. Ignored when greedy.
        seed: same seed, request and model give the same text, whatever else runs. Where more
            of the prompt was in a cache, logits may differ in the last bits of BF16, and a
            near tie may fall the other way.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 10.0:
            raise InvalidRequest(f"temperature is {self.temperature}", "use 0 to 10")
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidRequest(f"top_p is {self.top_p}", "use more than 0, at most 1")
        if not 0 <= self.seed < 1 << 63:
            raise InvalidRequest(f"seed is {self.seed}", "use 0 to 2**63 - 1")


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One hole to fill, with one entry of `sampling` per wanted candidate.

    Attributes:
        prefix: text before the hole, LF line ends. Too long a text is cut at its start.
        suffix: text after the hole, LF line ends. Too long a text is cut at its end.
        sampling: one entry per candidate; all candidates share one prefill.
        max_tokens: most tokens a candidate may have.
        stop: strings that end a candidate; the text returned ends before them.
        max_lines: end a candidate once it has that many complete lines (the last line
            is returned without its line end); None is no limit.

    Raises:
        InvalidRequest: no candidates, no tokens, or an empty stop string.
    """

    prefix: str
    suffix: str = ""
    sampling: tuple[SamplingParams, ...] = (GREEDY,)
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    max_lines: int | None = None

    def __post_init__(self) -> None:
        if not self.sampling:
            raise InvalidRequest("no candidates asked for", "give at least one SamplingParams")
        if self.max_tokens < 1:
            raise InvalidRequest(f"max_tokens is {self.max_tokens}", "use at least 1")
        if "" in self.stop:
            raise InvalidRequest("a stop string is empty", "leave it out")
        if self.max_lines is not None and self.max_lines < 1:
            raise InvalidRequest(f"max_lines is {self.max_lines}", "use at least 1, or None")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost so far; sent with its first chunk, and whole with its last.

    Attributes:
        prompt_tokens: length of the prompt.
        reused_tokens: how many of them were already in a key/value cache.
        generated_tokens: tokens decoded over all candidates, stop tokens included.
        queue_ms: waiting before the prefill began.
        prefill_ms: from the start of the prefill to the first logits.
        decode_ms: from the first logits to the end.
    """

    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    queue_ms: float
    prefill_ms: float
    decode_ms: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one candidate, as it is decoded.

    Attributes:
        index: which candidate, 0-based, in the order of `GenerationRequest.sampling`.
        text: new text; always whole characters, never a special token, may be empty.
        logprob: sum of the natural-log probabilities of this piece's tokens under the
            model itself (temperature 1, no nucleus).
        tokens: how many tokens those are.
        finish: set on the candidate's last chunk.
        usage: set on the request's first and last chunk.
    """

    index: int
    text: str
    logprob: float
    tokens: int
    finish: FinishReason | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finished candidate, put together from its chunks."""

    index: int
    text: str
    logprob: float
    tokens: int
    finish: FinishReason


@dataclass(frozen=True, slots=True)
class Generation:
    """All candidates of a request, and what they cost."""

    candidates: tuple[Candidate, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is loaded.

    Attributes:
        name: as in EngineConfig.model.
        architecture: family, for example `qwen2`.
        parameters: number of weights the files hold.
        weight_bytes: bytes the weights take in memory.
        quantization: for example `int8`.
        context_tokens: longest sequence.
        instruct: whether the vocabulary or name says it was tuned for chat.
    """

    name: str
    architecture: str
    parameters: int
    weight_bytes: int
    quantization: str
    context_tokens: int
    instruct: bool = False


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine was loaded; a consistent snapshot.

    Attributes:
        requests: accepted so far.
        running: sequences (candidates) that hold a slot now.
        waiting: requests accepted but not yet prefilled.
        cancelled: requests whose iterator was closed before their end.
        decode_steps: forward passes that decoded.
        prefill_tokens: prompt tokens computed.
        reused_tokens: prompt tokens found in a key/value cache.
        generated_tokens: tokens decoded.
        steps_after_cancel: decode steps that a cancelled request still took part in after
            its cancellation reached the engine, summed over all cancelled requests.
        kv_bytes: memory of all key/value caches, running and kept.
    """

    requests: int = 0
    running: int = 0
    waiting: int = 0
    cancelled: int = 0
    decode_steps: int = 0
    prefill_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    steps_after_cancel: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far loading has come: a stage a user can read, and a share from 0 to 1."""

    stage: str
    share: float


Tell = Callable[[LoadProgress], None]


class CompletionEngine(Protocol):
    """What the language server needs of an engine, local or remote."""

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        """Stream the request's candidates, interleaved.

        Closing the iterator early (`aclose`, or cancelling the task that reads it) stops
        decoding within one step and frees the request's slots.

        Raises:
            InvalidRequest: the request cannot be carried out.
            EngineStopped: the engine was closed.
        """
        ...

    async def warm(self, request: GenerationRequest) -> int:
        """Prefill the request's prompt without decoding; returns the tokens computed."""
        ...

    def stats(self) -> EngineStats:
        """Counters so far."""
        ...

    async def aclose(self) -> None:
        """Stop; pending requests raise EngineStopped. Safe to call twice."""
        ...


async def collect(chunks: AsyncIterator[Chunk]) -> Generation:
    """Read a stream to its end and put the candidates together."""
    texts: dict[int, list[str]] = {}
    logprobs: dict[int, float] = {}
    tokens: dict[int, int] = {}
    finish: dict[int, FinishReason] = {}
    usage: Usage | None = None
    async for chunk in chunks:
        texts.setdefault(chunk.index, []).append(chunk.text)
        logprobs[chunk.index] = logprobs.get(chunk.index, 0.0) + chunk.logprob
        tokens[chunk.index] = tokens.get(chunk.index, 0) + chunk.tokens
        if chunk.finish is not None:
            finish[chunk.index] = chunk.finish
        usage = chunk.usage or usage
    assert usage is not None, "a stream ends with its usage"
    return Generation(
        tuple(
            Candidate(i, "".join(texts[i]), logprobs[i], tokens[i], finish[i])
            for i in sorted(texts)
        ),
        usage,
    )
