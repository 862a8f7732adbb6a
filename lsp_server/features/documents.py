"""Document synchronization, and files that change on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from lsp_server.documents.edits import Edit

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer


def register(server: GhostwrightServer) -> None:
    """Follow the client's documents."""
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        session.did_open(item.uri, item.text, item.version, item.language_id)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        edits = map(_edit, params.content_changes)
        session.did_change(params.text_document.uri, edits, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        session.did_close(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        session.workspaces.files_changed({params.text_document.uri: False})

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(params: types.DidChangeWatchedFilesParams) -> None:
        session.workspaces.files_changed(
            {event.uri: event.type is not types.FileChangeType.Changed for event in params.changes}
        )


def _edit(change: types.TextDocumentContentChangeEvent) -> Edit:
    if isinstance(change, types.TextDocumentContentChangeWholeDocument):
        return Edit(change.text)
    start, end = change.range.start, change.range.end
    return Edit(change.text, (start.line, start.character, end.line, end.character))
