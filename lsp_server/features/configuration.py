"""Changed settings and changed workspace folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from lsp_server.documents.store import path_of

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer


def register(server: GhostwrightServer) -> None:
    """Follow the client's settings and folders."""
    session = server.session

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def settings_changed(params: types.DidChangeConfigurationParams) -> None:
        session.configure(params.settings)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders_changed(params: types.DidChangeWorkspaceFoldersParams) -> None:
        added = [path_of(folder.uri) for folder in params.event.added]
        removed = [path_of(folder.uri) for folder in params.event.removed]
        session.spawn(
            session.change_folders(
                [path for path in added if path is not None],
                [path for path in removed if path is not None],
            )
        )
