"""What the figures were measured on."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from engine.config import default_threads

# Of all a chip can do, what matrix products ask for; PyTorch's names for them.
_FEATURES = (
    "avx2", "fma3", "f16c", "avx_vnni", "avx512_f", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_int8", "amx_bf16", "neon", "dot", "i8mm", "bf16", "sve",
)  # fmt: skip


def describe_machine(threads: int | None = None) -> dict[str, Any]:
    """Chip, cores, features and library, ready for JSON.

    Args:
        threads: how many the measurements use; None is what the engine would take.
    """
    capabilities = torch.cpu.get_capabilities()
    return {
        "cpu": _cpu_name(),
        "cores": default_threads(),
        "threads": threads or default_threads(),
        "features": [name for name in _FEATURES if capabilities.get(name)],
        "last_level_cache_bytes": _last_level_cache(),
        "torch": torch.__version__,
        "torch_instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _last_level_cache() -> int | None:
    """Bytes of the largest cache the first core sees; None where that is not known.

    A model smaller than it may be read from it, and then memory is no limit.
    """
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes: list[int] = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text("ascii").strip()
        if text[-1:] in units and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * units[text[-1]])
    return max(sizes, default=None)
