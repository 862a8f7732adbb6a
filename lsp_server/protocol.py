"""pygls' protocol, with its answers to broken input and its life cycle put right.

What pygls 2.1.1 does, and what happens here instead:

- Bad JSON, bad parameters, a message that is none: pygls pops up `window/showMessage` and
  leaves the request unanswered. Here it is an error reply, as JSON-RPC wants.
- It decodes every nested object that has a `jsonrpc` key as a message. Here only the
  outermost is one.
- Before `initialize` and after `shutdown` requests raise or vanish. Here they are refused.
- `exit` ends the process, so one TCP client would end everybody's server. Here it ends the
  connection.
- Its document handling splits lines where LSP does not (see `documents/store.py`).
- It logs messages with the text in them. Its logger is off; failures are logged here.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, cast

import cattrs
from cattrs.errors import ClassValidationError
from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    LanguageServerProtocol,
    lsp_method,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from cattrs import Converter
    from pygls.protocol.json_rpc import MsgId, RPCMessage

    from lsp_server.server import GhostwrightServer

log = logging.getLogger(__name__)

_SHOWN_FAULTS = 3
_OWN_HANDLING = (  # pygls' handlers of these give way to those in features/documents.py
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
)


class GhostwrightProtocol(LanguageServerProtocol):
    """The protocol of one connection. Owned by that connection, on the event loop."""

    # pygls builds both classes for subclassing, yet types them as invariant
    _server: GhostwrightServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, server: GhostwrightServer, converter: Converter) -> None:
        super().__init__(server, converter)
        self._initialized = False
        for method in _OWN_HANDLING:
            self.fm.builtin_features.pop(method)

    @property
    def was_shut_down(self) -> bool:
        """Whether the client sent `shutdown`; decides the exit code."""
        return self._shutdown

    def receive(self, body: bytes) -> None:
        """Handle one message, whatever it is. Never raises; answers what has an id."""
        msg_id: MsgId | None = None
        answerable = True
        try:
            data = _parse(body)
            msg_id, answerable = _identity(data)
            self._admit(data)
            self.handle_message(self.structure_message(data))
        except _Unfit as error:
            self.refuse(error, error.msg_id)
        except JsonRpcException as error:
            self.refuse(error, msg_id, answerable=answerable)
        except Exception as error:  # one bad message must not end the connection
            log.exception("a message could not be handled")
            internal = JsonRpcInternalError(f"{type(error).__name__} while handling the message")
            self.refuse(internal, msg_id, answerable=answerable)

    def refuse(
        self, error: JsonRpcException, msg_id: MsgId | None = None, *, answerable: bool = True
    ) -> None:
        """Answer with an error; notifications and responses get a log line only."""
        log.warning("refused a message: %s", error.message)
        if answerable:
            reply = {"code": error.code, "message": error.message}
            self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": reply})

    async def aclose(self) -> None:
        """Cancel every request, the client's and ours, and wait for those that run."""
        futures = tuple(self._request_futures.values())
        for future in futures:
            future.cancel()
        running = [future for future in futures if isinstance(future, asyncio.Task)]
        await asyncio.gather(*running, return_exceptions=True)

    def structure_message(self, data: dict[str, Any]) -> RPCMessage:
        """Turn a checked envelope into lsprotocol's classes.

        Raises:
            JsonRpcInvalidParams: the parameters are not what the method takes.
        """
        method = data.get("method")
        expected: Any
        if method is None:
            if "error" in data:
                expected = types.ResponseErrorMessage
            else:
                expected = self._result_types.pop(data["id"], None) or JsonRPCResponseMessage
        else:
            expected = self.get_message_type(method)
            if expected is None:  # an extension of LSP, ours or not: parameters stay JSON
                return _untyped(data)
        try:
            return self._converter.structure(data, expected)
        except ClassValidationError as error:
            faults = "; ".join(cattrs.transform_error(error)[:_SHOWN_FAULTS])
            raise JsonRpcInvalidParams(f"Invalid Params: {faults}") from error

    # pygls has an lru_cache here, which is neither a method nor lets go of its owner.
    def get_message_type(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, method: str
    ) -> type[Any] | None:
        """As in pygls, without its cache, which would keep closed connections alive."""
        return types.METHOD_TO_TYPES.get(method, (None,))[0]

    def get_result_type(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, method: str
    ) -> type[Any] | None:
        """As in pygls, without its cache."""
        return types.METHOD_TO_TYPES.get(method, (None, None))[1]

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: object) -> Generator[Any, Any, None]:
        """End the connection; what that means is the transport's business."""
        self._server.exit()
        yield from ()

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: object) -> Generator[Any, Any, None]:
        """Stop all work; only `exit` is taken after this."""
        current = self.msg_id
        self._shutdown = True
        for msg_id, future in tuple(self._request_futures.items()):
            if msg_id != current:
                future.cancel()
        yield from ()

    def _admit(self, data: dict[str, Any]) -> None:
        """Refuse what the life cycle does not allow now."""
        method = data.get("method")
        if method is None or method == types.EXIT:
            return
        if self._shutdown:
            raise JsonRpcInvalidRequest("the server is shutting down; only exit is taken")
        if method == types.INITIALIZE:
            if self._initialized:
                raise JsonRpcInvalidRequest("initialize was sent before")
            self.structure_message(data)  # only a valid one counts
            self._initialized = True
        elif not self._initialized:
            raise JsonRpcServerNotInitialized("send initialize first")


class _Unfit(JsonRpcInvalidRequest):
    """A message that is none, with the id to answer to where it has one."""

    def __init__(self, msg_id: MsgId | None, message: str) -> None:
        super().__init__(message)
        self.msg_id = msg_id


def _parse(body: bytes) -> dict[str, Any]:
    try:
        data: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JsonRpcParseError(f"Parse Error: {type(error).__name__}") from error
    if isinstance(data, list):
        raise JsonRpcInvalidRequest("LSP has no batches: send one message at a time")
    if not isinstance(data, dict):
        raise JsonRpcInvalidRequest("a message is an object")
    return cast("dict[str, Any]", data)


def _identity(data: dict[str, Any]) -> tuple[MsgId | None, bool]:
    """The message's id, and whether an error may be sent back for it.

    Raises:
        JsonRpcInvalidRequest: it is neither request, notification nor response.
    """
    msg_id = data.get("id")
    if isinstance(msg_id, bool) or not isinstance(msg_id, int | str | None):
        raise JsonRpcInvalidRequest("an id is a number or a text")
    if "method" not in data:
        if msg_id is not None and ("result" in data or "error" in data):
            return msg_id, False
        raise _Unfit(msg_id, "a message has a method, or an id with a result or an error")
    if not isinstance(data["method"], str):
        raise _Unfit(msg_id, "a method is a text")
    if data.get("jsonrpc") != GhostwrightProtocol.VERSION:
        raise _Unfit(msg_id, 'jsonrpc must be "2.0"')
    if "id" in data and msg_id is None:
        raise JsonRpcInvalidRequest("a request's id cannot be null")
    return msg_id, "id" in data


def _untyped(data: dict[str, Any]) -> RPCMessage:
    params = data.get("params")
    if "id" in data:
        return JsonRPCRequestMessage(data["id"], data["method"], data["jsonrpc"], params)
    return JsonRPCNotification(data["method"], data["jsonrpc"], params)
