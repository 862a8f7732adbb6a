"""Compiles the kernels when the package is installed or a wheel is built.

Without a compiler the package installs all the same and computes with PyTorch's operators.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelBuildHook(BuildHookInterface):
    """See hatchling's build hooks; for sdists there is nothing to build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the library into the source tree, and tell hatchling that it belongs in."""
        if self.target_name != "wheel":
            return
        kernels = runpy.run_path(str(Path(self.root) / "engine" / "kernels" / "build.py"))
        try:
            library: Path = kernels["build"]()
        except (kernels["CannotBuild"], OSError) as error:
            self.app.display_warning(
                f"ghostwright's kernels were not compiled: {error}. It will work, with "
                "PyTorch's slower operators; `python -m engine.kernels.build` tries again."
            )
            return
        build_data["artifacts"].append(library.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{kernels['platform_tag']()}"
