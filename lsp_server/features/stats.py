"""`ghostwright/stats`: what the engine and the server have done so far."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lsp_server.session import Services

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer

METHOD = "ghostwright/stats"


def register(server: GhostwrightServer, services: Services) -> None:
    """Answer the request; it takes no parameters and changes nothing."""

    # Any, not object: pygls takes a parameter whose type the server is an instance of for
    # one that wants the server.
    @server.feature(METHOD)
    def stats(params: Any) -> dict[str, Any]:
        """`phase` of the model, `model` and `engine` once it is ready, `outcomes` by name."""
        engine = services.holder.engine
        return {
            "phase": services.holder.state.phase.value,
            "model": dataclasses.asdict(engine.model) if engine is not None else None,
            "engine": dataclasses.asdict(engine.stats()) if engine is not None else None,
            "outcomes": {
                outcome.value: count for outcome, count in services.record.outcomes.items()
            },
        }
