"""Everything the engine can refuse, as a tree of typed exceptions.

    EngineError
    ├── ConfigError          a value of EngineConfig that cannot work
    ├── InvalidRequest       a GenerationRequest that cannot be carried out
    ├── EngineStopped        the engine was closed, or its thread died
    └── ModelError
        ├── ModelNotFound    nothing at that path, and no pulled model of that name
        ├── ModelCorrupt     bytes that are not what they should be
        ├── UnsupportedModel a well-formed model this engine cannot run
        │   └── NoFimTokens  its vocabulary has no fill-in-the-middle tokens
        ├── QuantizationError weights that the asked-for format cannot hold
        └── DownloadFailed   no source could deliver the file

Every error is one line of "what happened" plus, where there is one, the remedy.
"""

from __future__ import annotations


class Explained(Exception):
    """An error that says what happened and what to do; base of both error trees.

    Args:
        what: what was wrong, in one line, naming the offending thing.
        remedy: what the user can do about it, in one line; may be empty.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        what = " ".join(line.strip() for line in what.splitlines())  # libraries say it in several
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})" if self.remedy else self.what


class EngineError(Explained):
    """Base of all engine errors."""


class ConfigError(EngineError):
    """A setting of EngineConfig has a value the engine cannot work with."""


class InvalidRequest(EngineError):
    """A request asks for something impossible, for example zero tokens."""


class EngineStopped(EngineError):
    """The engine was closed or its thread died; pending requests get this."""


class ModelError(EngineError):
    """Something is wrong with the model's files."""


class ModelNotFound(ModelError):
    """The named model is neither a path nor a pulled model."""


class ModelCorrupt(ModelError):
    """The file's bytes are truncated, altered, or not of the format they claim."""


class UnsupportedModel(ModelError):
    """The model is well-formed, but of a family or format the engine does not know."""


class NoFimTokens(UnsupportedModel):
    """The vocabulary holds no fill-in-the-middle tokens, so the model cannot infill."""


class QuantizationError(ModelError):
    """The weights cannot be stored in the asked-for format."""


class DownloadFailed(ModelError):
    """No source could deliver the file."""
