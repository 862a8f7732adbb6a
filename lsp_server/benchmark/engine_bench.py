"""`bench engine`: prefill and decode, ours and llama.cpp's in turns, medians and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import LoadProgress
from lsp_server.benchmark.llama_cpp import SHIPPED, LlamaCpp, Speeds
from lsp_server.benchmark.measuring import MeasuringProcess

PREFILL, DECODE = 512, 64  # tokens
_CONTEXT = 128  # tokens of prompt before a decode
_SHORT = 128


@dataclass(slots=True)
class _Ours:
    """Tokens a second of every round."""

    prefill: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    decode: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    python: list[float] = field(default_factory=list[float])


def bench_engine(
    *,
    model: str,
    cache_dir: Path,
    threads: int,
    rounds: int,
    batches: Sequence[int],
    rival: LlamaCpp | None,
    step: Callable[[str], None],
    tell: Callable[[LoadProgress], None],
) -> dict[str, Any]:
    """Measure, and put the figures together; the keys are design's.

    Args:
        model: name or path.
        cache_dir: of models and snapshots; the rival's files are made there too.
        threads: of both.
        rounds: each measures everything once, ours and theirs in turn.
        batches: candidates decoded at once; 1 is always among them.
        rival: llama.cpp, or None.
        step: told what is being measured.
        tell: told of loading.

    Raises:
        MeasuringFailed, LlamaCppFailed: a measurement cannot be made.
    """
    batches = sorted({1, *batches})
    with MeasuringProcess(tell) as ours:
        place = {"model": model, "cache_dir": str(cache_dir)}
        source = Path(ours.ask("source", **place))
        info = ours.ask(
            "load", **place, threads=threads, context_tokens=1024, max_batch=max(batches)
        )
        machine = ours.ask("machine", threads=threads)
        files = {}
        if rival is not None and source.suffix == ".gguf":
            step("making llama.cpp's files")
            files = dict(rival.files(source, cache_dir / "benchmark"))
        seen, theirs = _Ours(), {name: list[Speeds]() for name in files}
        bandwidth: list[float] = []
        for number in range(rounds):
            turn = f"round {number + 1} of {rounds}"
            step(f"{turn}: memory")
            bandwidth.append(ours.ask("bandwidth", threads=threads))
            for name in files or {"": None}:  # ours before each of theirs: noise meets both alike
                step(f"{turn}: ours")
                _measure_ours(ours, seen, batches, seed=number)
                if rival is not None and name:
                    step(f"{turn}: llama.cpp {name}")
                    speeds = rival.measure(
                        files[name], prefill=PREFILL, decode=DECODE, threads=threads
                    )
                    theirs[name].append(speeds)
        context = _CONTEXT + DECODE // 2
        moved = ours.ask("traffic", context=context)
        rival_moved = {
            name: ours.ask("gguf_traffic", path=str(path), context=DECODE // 2)
            for name, path in files.items()
        }
    best = max(bandwidth)
    machine["memory_bandwidth_gbs"] = best
    result: dict[str, Any] = {
        "machine": machine,
        "model": info,
        "ours": _ours(seen, moved, best),
        "llama_cpp": _theirs(theirs, rival_moved, best) if theirs else None,
        "ratio": None,
    }
    if result["llama_cpp"] is not None:
        result["ratio"] = {
            key: result["ours"][key] / result["llama_cpp"][key]
            for key in ("prefill_512", "decode", "bandwidth_share")
        } | {"decode_speculative": None}
    return result


def _measure_ours(
    process: MeasuringProcess, seen: _Ours, batches: Sequence[int], seed: int
) -> None:
    for count in (_SHORT, PREFILL):
        tokens = process.ask("tokens", count=count, seed=seed)
        seconds = process.ask("prefill", tokens=tokens)
        seen.prefill.setdefault(count, []).append(count / seconds)
    prompt = process.ask("tokens", count=_CONTEXT, seed=seed)
    for batch in batches:
        timed = process.ask("decode", prompt=prompt, candidates=batch, steps=DECODE)
        seen.decode.setdefault(batch, []).append(batch * timed["steps"] / timed["seconds"])
        if batch == 1 and timed["kernel_seconds"] is not None:
            seen.python.append(1 - timed["kernel_seconds"] / timed["seconds"])


def _ours(seen: _Ours, moved: int, bandwidth: float) -> dict[str, Any]:
    decode = {str(batch): statistics.median(each) for batch, each in seen.decode.items()}
    return {
        "prefill_512": statistics.median(seen.prefill[PREFILL]),
        "decode": decode["1"],
        "decode_speculative": None,
        "bandwidth_share": decode["1"] * moved / 1e9 / bandwidth,
        "prefill": {str(count): statistics.median(each) for count, each in seen.prefill.items()},
        "decode_batch": decode,
        "bytes_per_token": moved,
        "python_share": statistics.median(seen.python) if seen.python else None,
        "rounds": {
            "prefill_512": seen.prefill[PREFILL],
            "decode": seen.decode[1],
        },
    }


def _theirs(
    theirs: dict[str, list[Speeds]], moved: dict[str, int], bandwidth: float
) -> dict[str, Any]:
    formats: dict[str, dict[str, Any]] = {
        name: {
            "prefill_512": statistics.median(speed.prefill for speed in speeds),
            "decode": statistics.median(speed.decode for speed in speeds),
            "bytes_per_token": moved[name],
            "rounds": {
                "prefill_512": [speed.prefill for speed in speeds],
                "decode": [speed.decode for speed in speeds],
            },
        }
        for name, speeds in theirs.items()
    }
    prefill = max(formats, key=lambda name: formats[name]["prefill_512"])
    decode = max(formats, key=lambda name: formats[name]["decode"])
    chosen = formats[decode]
    return {
        "prefill_512": formats[prefill]["prefill_512"],
        "decode": chosen["decode"],
        "decode_speculative": None,
        "bandwidth_share": chosen["decode"] * chosen["bytes_per_token"] / 1e9 / bandwidth,
        "best_format": {"prefill_512": prefill, "decode": decode},
        "formats": formats,
    }


def report_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """The figures as a table for people."""
    ours, theirs, ratio = result["ours"], result["llama_cpp"], result["ratio"]
    names = [SHIPPED, *sorted(set(theirs["formats"]) - {SHIPPED})] if theirs else []
    rows = [("tokens a second", "ours", *(f"llama.cpp {name}" for name in names), "ratio")]
    for key, label in (("prefill_512", f"prefill of {PREFILL}"), ("decode", "decode, 1 stream")):
        others = [f"{theirs['formats'][name][key]:.1f}" for name in names]
        against = f"{ratio[key]:.2f}x" if ratio else ""
        rows.append((label, f"{ours[key]:.1f}", *others, against))
    for batch, speed in ours["decode_batch"].items():
        if batch != "1":
            row = (f"decode, {batch} streams", f"{speed:.1f}", *("" for _ in names), "")
            rows.append(row)
    share = f"{ours['bandwidth_share']:.0%}"
    rows.append(("share of the memory's speed", share, *("" for _ in names), ""))
    if ours["python_share"] is not None:
        python = f"{ours['python_share']:.1%}"
        rows.append(("Python's share of a step", python, *("" for _ in names), ""))
    return rows
