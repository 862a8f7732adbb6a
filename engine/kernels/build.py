"""Compiling the kernels: `python -m engine.kernels.build`, and at installation.

The library is plain C++ behind C functions: it needs a compiler, and neither PyTorch's
headers nor Python's. Its OpenMP symbols stay open and are met by the runtime that PyTorch
has loaded, so that there is one pool of threads. Standard library only: the build back end
runs this file before anything is installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
LIBRARY = Path(__file__).parent / "libghostwright.so"

_COMPILERS = ("c++", "g++", "clang++")
# Sums may be reordered so that loops vectorise; NaN and infinity keep their meaning.
_COMMON = [
    "-O3", "-std=c++17", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-fno-math-errno",
    "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math",
    "-Wall", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized",
]  # fmt: skip  # the last two: GCC's own intrinsics cause both warnings
_AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
_AVX512 = [
    *_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni",
    "-mprefer-vector-width=512",
]  # fmt: skip
_UNITS: dict[str, list[str]] = {
    "api": [],
    "avx2": _AVX2,
    "avxvnni": [*_AVX2, "-mavxvnni"],
    "avx512": _AVX512,
    "amx": [*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"],
}


class CannotBuild(Exception):
    """The kernels cannot be compiled here; the text says why."""


def find_compiler() -> str:
    """The C++ compiler: `$CXX`, or the first known one on the path.

    Raises:
        CannotBuild: there is none.
    """
    named = os.environ.get("CXX")
    for name in (named,) if named else _COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise CannotBuild(f"no C++ compiler ({named or ', '.join(_COMPILERS)}) on the path")


def build(target: Path = LIBRARY) -> Path:
    """Compile the library for every instruction set it knows and put it at `target`.

    Raises:
        CannotBuild: no compiler, a compiler that fails, or a chip the kernels are not for.
    """
    if platform.machine().lower() not in ("x86_64", "amd64") or sys.platform != "linux":
        raise CannotBuild(f"the kernels are for Linux on x86-64, this is {sys.platform} on "
                          f"{platform.machine()}")  # fmt: skip
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="ghostwright-build-") as folder:
        objects = [Path(folder) / f"{name}.o" for name in _UNITS]

        def compile_unit(name: str, flags: list[str], output: Path) -> None:
            source = SOURCES / f"{name}.cpp"
            _run([compiler, *_COMMON, *flags, "-c", str(source), "-o", str(output)])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_unit, _UNITS, _UNITS.values(), objects))
        # Beside the target, so that moving it there replaces the old one in one step.
        staged = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            _run([compiler, "-shared", "-o", str(staged), *map(str, objects)])
            staged.replace(target)
        finally:
            staged.unlink(missing_ok=True)
    return target


def platform_tag() -> str:
    """The wheel tag of a library built here."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise CannotBuild(f"{Path(command[0]).name} failed: {first}")


if __name__ == "__main__":
    try:
        print(f"built {build()}")
    except (CannotBuild, OSError) as error:
        sys.exit(f"error: {error}")
