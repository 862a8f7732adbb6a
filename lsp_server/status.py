"""What the user is told in message boxes, and what is logged of each request."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from lsprotocol import types

from lsp_server.completion.outcome import Completion, Outcome
from lsp_server.errors import ServerError

log = logging.getLogger(__name__)

_MOST_PROBLEMS = 5


class Client(Protocol):
    """The other end of a connection, as the rest of the server sees it."""

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and wait for its result.

        Raises:
            JsonRpcException: the client answered with an error.
        """
        ...


class Notices:
    """Message boxes, none of them twice. Owned by one session."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: dict[str, str] = {}
        self._outage = False

    def settings(self, problems: Sequence[ServerError]) -> None:
        """Name the settings that could not be used, once as long as they are the same ones."""
        lines = [str(problem) for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            lines.append(f"and {len(problems) - _MOST_PROBLEMS} more")
        self._tell("settings", types.MessageType.Warning, "\n".join(lines))

    def model(self, error: Exception | None) -> None:
        """Say why there is no model; None when there is one."""
        self._tell("model", types.MessageType.Error, str(error) if error is not None else "")

    def other_model(self, wanted: str, loaded: str) -> None:
        """Say that the session's model setting has no effect here."""
        self._tell(
            "other model",
            types.MessageType.Warning,
            f"This server runs {loaded}; to use {wanted}, restart it.",
        )

    def outage(self, reason: str) -> None:
        """Say that suggestions cannot be checked: once, until they can be again."""
        if not self._outage:
            self._outage = True
            self._show(
                types.MessageType.Warning,
                f"No suggestions until Pyright can check them again: {reason}",
            )

    def outage_over(self) -> None:
        """A suggestion was checked: the next outage is a new one."""
        self._outage = False

    def _tell(self, topic: str, kind: types.MessageType, text: str) -> None:
        if self._last.get(topic, "") != text:
            self._last[topic] = text
            if text:
                self._show(kind, text)

    def _show(self, kind: types.MessageType, text: str) -> None:
        params = types.ShowMessageParams(type=kind, message=f"Ghostwright: {text}")
        self._client.notify(types.WINDOW_SHOW_MESSAGE, params)


class RequestRecord:
    """Counts requests by outcome and logs a line for each. Owned by the app."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()

    def add(self, method: str, document: str, completion: Completion, total_ms: float) -> None:
        """Note one finished request; `document` is a name, and no text is ever logged."""
        self.outcomes[completion.outcome] += 1
        timing, tokens = completion.timing, completion.tokens
        log.info(
            "%s %s %s %d of %d in %.0f ms (context %.0f, prefill %.0f, decode %.0f, verify %.0f) "
            "tokens %d prompt, %d reused, %d generated%s",
            method,
            document,
            completion.outcome.value,
            len(completion.suggestions),
            len(completion.suggestions) + len(completion.rejected),
            total_ms,
            timing.context_ms,
            timing.prefill_ms,
            timing.decode_ms,
            timing.verify_ms,
            tokens.prompt,
            tokens.reused,
            tokens.generated,
            f": {completion.reason}" if completion.reason else "",
        )
