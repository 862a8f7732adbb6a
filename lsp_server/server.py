"""One LSP server object per connection, with all features registered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from lsp_server.features import (
    completion,
    configuration,
    documents,
    inline_completion,
    lifecycle,
    stats,
)
from lsp_server.parent import ClientProcess
from lsp_server.protocol import GhostwrightProtocol
from lsp_server.session import Services, Session
from lsp_server.version import installed_version

log = logging.getLogger(__name__)


class GhostwrightServer(LanguageServer):
    """The server as one client sees it. Owned by its connection, on the event loop.

    It satisfies `status.Client`, through which the session talks back.

    Args:
        services: what all connections share.
    """

    protocol: GhostwrightProtocol  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, services: Services) -> None:
        super().__init__(
            "ghostwright",
            installed_version(),
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            protocol_cls=GhostwrightProtocol,
            converter_factory=default_converter,
        )
        self.session = Session(self, services)
        self.ended = asyncio.Event()
        self.exit_sent = False
        self.ends_with_client = False  # set by a transport that serves this client alone
        self._watching: asyncio.Task[None] | None = None
        lifecycle.register(self)
        configuration.register(self)
        documents.register(self)
        inline_completion.register(self)
        completion.register(self)
        stats.register(self, services)

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self.protocol.notify(method, params)

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and wait for its result; see `status.Client`."""
        return await self.protocol.send_request_async(method, params)

    def watch(self, pid: int) -> None:
        """The client's process is `pid`: end with it, where the server is its alone."""
        if not self.ends_with_client or self._watching is not None:
            return
        process = ClientProcess.find(pid)
        if process is not None:
            self._watching = asyncio.create_task(self._watch(process), name="watch client process")

    def shutdown(self) -> None:
        """End this connection; the process is the transport's business."""
        self.ended.set()

    def exit(self) -> None:
        """The client sent `exit`."""
        self.exit_sent = True
        self.shutdown()

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Log what pygls could not handle; a message box would help nobody."""
        log.error("%s: %s: %s", source.__name__, type(error).__name__, error)

    async def aclose(self) -> None:
        """Cancel everything this connection started and wait for its end."""
        self.ended.set()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.protocol.aclose()
        await self.session.aclose()

    async def _watch(self, process: ClientProcess) -> None:
        try:
            await process.until_ended()
            log.warning("the client's process has ended; so does this one")
            self.shutdown()
        finally:
            process.close()
