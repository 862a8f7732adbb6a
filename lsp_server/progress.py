"""Work-done progress in the editor while the model loads."""

from __future__ import annotations

import logging
import uuid

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.model_holder import LoadPhase, LoadState, ModelHolder
from lsp_server.status import Client

log = logging.getLogger(__name__)


async def show_loading(client: Client, holder: ModelHolder, model: str) -> None:
    """Follow the holder until it is ready or has failed, reporting to the client.

    Shows nothing when the model is ready already. Cancelling ends the display.
    """
    if holder.state.phase is not LoadPhase.LOADING:
        return
    token = f"ghostwright-{uuid.uuid4()}"
    try:
        await client.request(
            types.WINDOW_WORK_DONE_PROGRESS_CREATE, types.WorkDoneProgressCreateParams(token)
        )
    except JsonRpcException as error:
        log.info("the client shows no progress: %s", error)
        return
    _send(client, token, types.WorkDoneProgressBegin(title=f"Loading {model}", percentage=0))
    last = "stopped"
    try:
        async for state in holder.follow():
            if state.phase is LoadPhase.LOADING:
                _send(client, token, _report(state))
            else:
                last = state.phase.value
    finally:
        _send(client, token, types.WorkDoneProgressEnd(message=last))


def _report(state: LoadState) -> types.WorkDoneProgressReport:
    percentage = max(0, min(100, round(state.share * 100)))
    return types.WorkDoneProgressReport(message=state.stage, percentage=percentage)


def _send(
    client: Client,
    token: str,
    value: types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd,
) -> None:
    client.notify(types.PROGRESS, types.ProgressParams(token, value))
