"""`initialize` and `initialized`: who the client is, and when to start working."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException

from lsp_server.documents.positions import PositionEncoding
from lsp_server.documents.store import path_of

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer

_PYTHON_FILES = "**/*.{py,pyi}"


def register(server: GhostwrightServer) -> None:
    """Take part in the life cycle."""
    session = server.session

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        if params.process_id is not None:
            server.watch(params.process_id)
        session.documents.encoding = PositionEncoding(server.workspace.position_encoding)
        session.workspaces.folders = _folders(params)
        folders = session.workspaces.folders
        capabilities = params.capabilities
        session.shows_progress = bool(get_capability(capabilities, "window.work_done_progress"))
        session.configuration.initialize(
            params.initialization_options,
            folders[0] if folders else None,
            can_ask=bool(get_capability(capabilities, "workspace.configuration")),
        )

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        session.configure()
        session.spawn(_register_for_events(server))


async def _register_for_events(server: GhostwrightServer) -> None:
    """Ask to be told of changed settings and files, where the client wants to be asked."""
    capabilities = server.client_capabilities
    wanted: list[types.Registration] = []
    if get_capability(capabilities, "workspace.did_change_configuration.dynamic_registration"):
        options = types.DidChangeConfigurationRegistrationOptions(section=["ghostwright", "python"])
        wanted.append(_registration(types.WORKSPACE_DID_CHANGE_CONFIGURATION, options))
    if get_capability(capabilities, "workspace.did_change_watched_files.dynamic_registration"):
        watchers = [types.FileSystemWatcher(glob_pattern=_PYTHON_FILES)]
        watched = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        wanted.append(_registration(types.WORKSPACE_DID_CHANGE_WATCHED_FILES, watched))
    if not wanted:
        return
    try:
        await server.client_register_capability_async(types.RegistrationParams(wanted))
    except JsonRpcException as error:
        server.report_server_error(error, JsonRpcException)


def _registration(method: str, options: object) -> types.Registration:
    return types.Registration(id=f"ghostwright-{method}", method=method, register_options=options)


def _folders(params: types.InitializeParams) -> list[Path]:
    uris = [folder.uri for folder in params.workspace_folders or ()]
    if not uris and params.root_uri:
        uris = [params.root_uri]
    paths = [path for path in map(path_of, uris) if path is not None]
    if not uris and params.root_path:
        paths = [Path(params.root_path)]
    return paths
