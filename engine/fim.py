"""Fill-in-the-middle prompts, laid out with the tokens the model itself was trained on.

Layouts are found by the tokens in the model's vocabulary, never by its name. PSM puts the
prefix first, SPM the suffix (Bavarian et al., 2022, "Efficient Training of Language Models
to Fill in the Middle").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import NoFimTokens
from engine.loading.tokenizer import Tokenizer


class Order(StrEnum):
    """Which part comes first."""

    PSM = "psm"
    SPM = "spm"


# Token texts that begin the prefix, the suffix and the middle, and the order the models with
# these tokens were trained in.
_KNOWN: tuple[tuple[str, str, str, Order], ...] = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", Order.PSM),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", Order.PSM),  # StarCoder, Granite code
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", Order.PSM),  # noqa: RUF001 DeepSeek-Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>", Order.PSM),  # CodeLlama
    ("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", Order.SPM),  # Seed-Coder
)

_SUFFIX_SHARE = 0.3  # of the budget, when both sides are longer than it


@dataclass(frozen=True, slots=True)
class FimLayout:
    """How one model wants its prompts.

    Attributes:
        prefix, suffix, middle: ids of the three tokens.
        order: which part comes first.
        bos: id to begin with, or None.
        stop_ids: ids that end a candidate.
        banned_ids: ids that must never be sampled.
    """

    prefix: int
    suffix: int
    middle: int
    order: Order
    bos: int | None
    stop_ids: frozenset[int]
    banned_ids: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> FimLayout:
        """Find the layout of a vocabulary.

        Raises:
            NoFimTokens: it has none of the known sets of tokens.
        """
        ids = _Lookup(tokenizer)
        for prefix, suffix, middle, order in _KNOWN:
            found = [ids.get(text) for text in (prefix, suffix, middle)]
            if None not in found:
                start, end, hole = (i for i in found if i is not None)
                # Every special token ends the text: none of them belongs into source code.
                stops = tokenizer.eos | set(tokenizer.specials.values()) | {start, end, hole}
                return cls(
                    prefix=start,
                    suffix=end,
                    middle=hole,
                    order=order,
                    bos=tokenizer.bos,
                    stop_ids=frozenset(stops),
                    banned_ids=tokenizer.unused,
                )
        raise NoFimTokens(
            "the model's vocabulary has no fill-in-the-middle tokens, so it cannot complete code",
            "use a code model, for example qwen2.5-coder-0.5b",
        )

    @property
    def overhead(self) -> int:
        """Tokens a prompt has besides its text."""
        return 3 + (self.bos is not None)

    def prompt(self, prefix: list[int], suffix: list[int], budget: int) -> list[int]:
        """Token ids of a prompt of at most `budget` tokens.

        The text nearest to the hole is kept: the prefix loses its beginning, the suffix its
        end. The suffix gets what the prefix leaves, and never less than a fixed share.
        """
        room = max(0, budget - self.overhead)
        for_suffix = min(len(suffix), max(int(room * _SUFFIX_SHARE), room - len(prefix)))
        kept_suffix = suffix[:for_suffix]
        for_prefix = room - for_suffix
        kept_prefix = prefix[-for_prefix:] if for_prefix else []
        start = [] if self.bos is None else [self.bos]
        before, after = [self.prefix, *kept_prefix], [self.suffix, *kept_suffix]
        parts = before + after if self.order is Order.PSM else after + before
        return start + parts + [self.middle]


class _Lookup:
    """Ids by text: special tokens first, then the ordinary vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._specials: Mapping[str, int] = tokenizer.specials
        self._backend = tokenizer.backend

    def get(self, text: str) -> int | None:
        found = self._specials.get(text)
        return self._backend.token_to_id(text) if found is None else found
