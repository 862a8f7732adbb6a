"""What the engine and the server have done so far, and whether they are ready yet.

`ghostwright/stats` answers at once; `ghostwright/ready` when the model is loaded or has
failed to load, for editors and scripts that have to wait for it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lsp_server.session import Services

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer

STATS = "ghostwright/stats"
READY = "ghostwright/ready"


def register(server: GhostwrightServer, services: Services) -> None:
    """Answer the request; it takes no parameters and changes nothing."""

    # Any, not object: pygls takes a parameter whose type the server is an instance of for
    # one that wants the server.
    @server.feature(STATS)
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

    @server.feature(READY)
    async def ready(params: Any) -> dict[str, Any]:
        """`phase` of the model once it does not load any more; `error`, null without one."""
        await server.session.configured()
        state = await services.holder.final()
        return {"phase": state.phase.value, "error": str(state.error) if state.error else None}
