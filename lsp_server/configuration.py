"""One client's settings: asked for, pushed, or read from its workspace's pyproject.toml."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.settings_loading import SECTION, Layer, combine, read_layer, read_pyproject
from lsp_server.status import Client, Notices

log = logging.getLogger(__name__)

# A client that announces workspace/configuration answers it from memory; one that has not
# by then never will, and completion should not wait for it.
ANSWER_SECONDS = 5.0
_PYTHON_SECTION = "python"
_PYTHON_KEYS = ("pythonPath", "defaultInterpreterPath")


class Configuration:
    """Merges the sources of one session's settings. Owned by the session.

    Args:
        client: whom to ask.
        notices: who hears of mistakes.
        overrides: what the command line says; wins over everything.
    """

    def __init__(self, client: Client, notices: Notices, overrides: Layer) -> None:
        self._client = client
        self._notices = notices
        self._overrides = overrides
        self._root: Path | None = None
        self._can_ask = False
        self._options = Layer()
        self._configured = Layer()
        self._hint = ""
        self.settings = combine(overrides)

    @property
    def interpreter(self) -> str:
        """The user's Python: our setting, else the editor's choice, else empty."""
        return self.settings.verification.interpreter or self._hint

    def initialize(self, raw_options: object, root: Path | None, *, can_ask: bool) -> None:
        """Take what `initialize` brings.

        Args:
            raw_options: initializationOptions.
            root: the first workspace folder.
            can_ask: whether the client answers workspace/configuration.
        """
        self._root = root
        self._can_ask = can_ask
        self._options = read_layer(raw_options, "initializationOptions")

    async def reload(self, pushed: object = None) -> None:
        """Read all sources again.

        Args:
            pushed: the settings a didChangeConfiguration carried; used where the client
                cannot be asked.
        """
        if self._can_ask:
            await self._ask()
        elif isinstance(pushed, Mapping) and SECTION in pushed:
            section = cast("Mapping[str, object]", pushed)[SECTION]
            self._configured = read_layer(section, "settings")
        project = await asyncio.to_thread(read_pyproject, self._root)
        layers = (project, self._options, self._configured, self._overrides)
        self.settings = combine(*layers)
        self._notices.settings([problem for layer in layers for problem in layer.problems])

    async def _ask(self) -> None:
        scope = self._root.as_uri() if self._root is not None else None
        items = [
            types.ConfigurationItem(scope_uri=scope, section=section)
            for section in (SECTION, _PYTHON_SECTION)
        ]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._client.request(
                    types.WORKSPACE_CONFIGURATION, types.ConfigurationParams(items)
                )
        except (TimeoutError, JsonRpcException) as error:
            log.warning("the client gave no configuration: %s", error or "it did not answer")
            return
        sections = list(cast("list[object]", answer)) if isinstance(answer, list | tuple) else []
        sections += [None] * (len(items) - len(sections))
        self._configured = read_layer(sections[0], "settings")
        self._hint = _python_hint(sections[1], self._root)


def _python_hint(section: object, root: Path | None) -> str:
    """The interpreter the editor's Python extension names, if it is there; else empty."""
    if not isinstance(section, Mapping):
        return ""
    for key in _PYTHON_KEYS:
        value: Any = cast("Mapping[str, Any]", section).get(key)
        if not isinstance(value, str) or os.sep not in value:
            continue  # a bare "python" is the extension's default and says nothing
        path = Path(value.replace("${workspaceFolder}", str(root or "."))).expanduser()
        path = root / path if root is not None else path
        if path.exists():
            return str(path)
    return ""
