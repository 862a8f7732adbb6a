"""Reading the JSON files that come with models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from engine.errors import ModelCorrupt, ModelNotFound


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelNotFound: the file is missing or unreadable.
        ModelCorrupt: it is not a JSON object.
    """
    try:
        values: object = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelNotFound(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelCorrupt(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelCorrupt(f"{path} is not a JSON object")
    return cast(dict[str, Any], values)
