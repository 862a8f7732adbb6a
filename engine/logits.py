"""Logits of a model in several precisions on real code, by teacher forcing."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine.accuracy import LogitsReport
from engine.api import LoadProgress, Tell
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv.cache import KvShape, PrefillSegment, PromptCache
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.loading.conversion import convert
from engine.loading.store import resolve_model
from engine.models import assembly
from engine.models.decoder import Decoder, DecoderWeights
from engine.quantization.formats import Format
from engine.quantization.linear import hardware_dtype
from engine.quantization.policy import PrecisionPolicy

# Other files than calibration reads: what is measured must not be what was fitted.
FILES = (
    "heapq.py", "textwrap.py", "tarfile.py", "configparser.py", "bisect.py", "csv.py",
    "optparse.py", "zipfile.py", "string.py", "sched.py", "queue.py", "pprint.py", "locale.py",
    "imaplib.py", "inspect.py", "ast.py",
)  # fmt: skip
_LENGTH = 128  # tokens of a piece
_PREFILL, _DECODE = _LENGTH, 16  # rows of a pass
_SKIP_CHARS = 1500


def compare(
    config: EngineConfig, precisions: Sequence[str], positions: int, tell: Tell
) -> Iterator[LogitsReport]:
    """See `accuracy.compare_logits`."""
    policies = {name: PrecisionPolicy(name) for name in precisions}
    if positions < _LENGTH:
        raise ConfigError(f"{positions} positions are too few", f"ask for at least {_LENGTH}")
    source = resolve_model(config.model, config.cache_dir)
    return _compare(source, policies, positions, config, tell)


@torch.inference_mode()
def _compare(
    source: Path,
    policies: dict[str, PrecisionPolicy],
    positions: int,
    config: EngineConfig,
    tell: Tell,
) -> Iterator[LogitsReport]:
    torch.set_num_threads(config.threads)
    with open_checkpoint(source) as checkpoint:
        pieces = _pieces(checkpoint, positions)
        tell(LoadProgress("FP32 reference", 0.0))
        exact = _logits(checkpoint, assembly.dense(checkpoint), pieces, _PREFILL, torch.float32)
        for number, (name, policy) in enumerate(policies.items()):

            def shown(step: LoadProgress, at: int = number, name: str = name) -> None:
                share = (at + step.share) / len(policies)
                tell(replace(step, stage=f"{name}: {step.stage}", share=share))

            yield _report(name, checkpoint, policy, pieces, exact, shown)


def _pieces(checkpoint: Checkpoint, positions: int) -> list[list[int]]:
    """Pieces of code of one length, together at least so many tokens."""
    tokenizer = checkpoint.tokenizer()
    folder = Path(sysconfig.get_paths()["stdlib"])
    pieces: list[list[int]] = []
    rounds = 0
    while len(pieces) * _LENGTH < positions:
        before = len(pieces)
        for name in FILES:
            path = folder / name
            if not path.exists():
                continue
            tokens = tokenizer.encode(path.read_text("utf-8")[_SKIP_CHARS:])
            piece = tokens[rounds * _LENGTH : (rounds + 1) * _LENGTH]
            if len(piece) == _LENGTH and len(pieces) * _LENGTH < positions:
                pieces.append(piece)
        if len(pieces) == before:
            raise ConfigError(
                f"this Python's library has only {before * _LENGTH} tokens of such code",
                "ask for fewer positions",
            )
        rounds += 1
    return pieces


def _report(
    name: str,
    checkpoint: Checkpoint,
    policy: PrecisionPolicy,
    pieces: list[list[int]],
    exact: torch.Tensor,
    tell: Tell,
) -> LogitsReport:
    converted = convert(checkpoint, policy, tell)
    matrices = converted.record["matrices"]
    formats = {place: Format(entry["format"]) for place, entry in matrices.items()}
    weights = assembly.from_snapshot(checkpoint.spec, converted.tensors, formats)
    tell(LoadProgress("running", 0.9))
    many = _logits(checkpoint, weights, pieces, _PREFILL, hardware_dtype())
    difference = (many - exact).abs_()
    largest, mean = float(difference.max()), float(difference.mean())
    del difference
    divergence, agreement = _distance(many, exact)
    del many
    few = _logits(checkpoint, weights, pieces, _DECODE, torch.float32)
    decode_divergence, decode_agreement = _distance(few, exact)
    return LogitsReport(
        precision=name,
        weight_bytes=sum(entry["bytes"] for place, entry in matrices.items() if place != "embed"),
        positions=len(exact),
        largest=largest,
        mean=mean,
        divergence=divergence,
        agreement=agreement,
        decode_divergence=decode_divergence,
        decode_agreement=decode_agreement,
    )


def _distance(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """Mean divergence, and share of equal maxima; a few rows at a time to save memory."""
    divergence, equal = 0.0, 0
    for ours, theirs in zip(got.split(_LENGTH), exact.split(_LENGTH), strict=True):
        p, q = theirs.log_softmax(-1), ours.log_softmax(-1)
        divergence += float((p.exp() * (p - q)).sum())
        equal += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    return divergence / len(exact), equal / len(exact)


def _logits(
    checkpoint: Checkpoint,
    weights: DecoderWeights,
    pieces: list[list[int]],
    rows: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """float32 [positions, vocab], so many rows of a piece at a time."""
    spec = checkpoint.spec
    decoder = Decoder(spec, weights, positions=_LENGTH)
    out = torch.empty(len(pieces) * _LENGTH, spec.vocab)
    at = 0
    for piece in pieces:
        cache = PromptCache(KvShape(spec.layers, spec.kv_heads, spec.head_dim, dtype))
        for start in range(0, _LENGTH, rows):
            tokens = piece[start : start + rows]
            hidden = decoder.forward(torch.tensor(tokens), [PrefillSegment(cache, len(tokens))])
            cache.tokens.extend(tokens)
            out[at : at + len(tokens)] = decoder.logits(hidden)
            at += len(tokens)
    return out
