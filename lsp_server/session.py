"""What one connection owns: settings, documents, running requests, its share of a checker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import CompletionEngine, ConfigError, EngineConfig
from lsp_server.completion.latest import Latest, Pause
from lsp_server.completion.outcome import Completion, Outcome, Trigger
from lsp_server.configuration import Configuration
from lsp_server.documents.edits import Edit
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.documents.store import DocumentStore
from lsp_server.model_holder import LoadPhase, ModelHolder
from lsp_server.progress import show_loading
from lsp_server.settings import Settings
from lsp_server.settings_loading import Layer
from lsp_server.status import Client, Notices, RequestRecord
from lsp_server.verification.pool import VerifierLease, VerifierPool
from lsp_server.workspaces import Checking, Pipeline, Workspaces

log = logging.getLogger(__name__)

MakePipeline = Callable[[CompletionEngine, VerifierLease], Pipeline]
MakeConfig = Callable[[Settings], EngineConfig]


@dataclass(frozen=True, slots=True)
class Services:
    """What all sessions share; built by app.py.

    Attributes:
        holder: the engine.
        pool: the type checkers.
        record: counts and logs requests.
        make_pipeline: pipeline over an engine and a checker.
        make_config: how to load the engine for some settings.
        overrides: what the command line says.
        pause: sleeps that many seconds.
    """

    holder: ModelHolder
    pool: VerifierPool
    record: RequestRecord
    make_pipeline: MakePipeline
    make_config: MakeConfig
    overrides: Layer
    pause: Pause


@dataclass(frozen=True, slots=True)
class Place:
    """Where to complete.

    Attributes:
        shown: the open document as it was when the request came.
        document: what to complete in; differs from `shown` where the editor asks as if a
            popup's item had been accepted.
        offset: code-point offset in `document`.
    """

    shown: DocumentSnapshot
    document: DocumentSnapshot
    offset: int


class Session:
    """One client's state. Owned by its connection, on the event loop.

    Args:
        client: the other end.
        services: what is shared with other sessions.
    """

    def __init__(self, client: Client, services: Services) -> None:
        self._client = client
        self._services = services
        self.documents = DocumentStore()
        self.notices = Notices(client)
        self.configuration = Configuration(client, self.notices, services.overrides)
        self.workspaces = Workspaces(services.pool, self._outage)
        self.shows_progress = False
        self._latest = Latest(services.pause)
        self._tasks: set[asyncio.Task[None]] = set()
        self._configured = asyncio.Event()  # and no change of the settings is still unread
        self._unread = 0
        self._reloading = asyncio.Lock()
        self._progress_shown = False

    @property
    def settings(self) -> Settings:
        """The settings now."""
        return self.configuration.settings

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else; ends with the session at the latest."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def configure(self, pushed: object = None) -> None:
        """Read the settings and act on them; see Configuration.reload.

        Requests that come from now on wait for it: what the user has just switched off must
        not answer the next keystroke.
        """
        self._unread += 1
        self._configured.clear()
        self.spawn(self._configure(pushed))

    async def configured(self) -> None:
        """Return once the client's settings are known."""
        await self._configured.wait()

    async def change_folders(self, added: list[Path], removed: list[Path]) -> None:
        """Workspace folders came and went."""
        async with self._reloading:
            await self.workspaces.change_folders(added, removed, list(self.documents))

    def open_document(self, uri: str, method: str) -> DocumentSnapshot | None:
        """The document a request is about; one that is not open is logged and is None."""
        document = self.documents.get(uri)
        if document is None:
            completion = Completion(Outcome.EXCLUDED, reason="the document is not open")
            self._services.record.add(method, _name(uri), completion, 0.0)
        return document

    def did_open(self, uri: str, text: str, version: int, language_id: str) -> None:
        """The editor opened a document."""
        self._supersede(uri)
        self.workspaces.update(self.documents.open(uri, text, version, language_id))

    def did_change(self, uri: str, edits: Iterable[Edit], version: int) -> None:
        """The editor changed a document; requests about its old text end."""
        before = self.documents.get(uri)
        document = self.documents.change(uri, edits, version)
        if before is None or document is None:
            log.warning("a change of a document that is not open was ignored")
        elif document.text != before.text:
            self._supersede(uri)
            self.workspaces.update(document)

    def did_close(self, uri: str) -> None:
        """The editor closed a document."""
        self._supersede(uri)
        document = self.documents.close(uri)
        if document is not None:
            self.workspaces.forget(document)

    async def complete(
        self, method: str, place: Place, trigger: Trigger, *, debounced: bool
    ) -> Completion:
        """Complete a place, or say why not. Counted and logged whatever happens.

        Args:
            method: the LSP method that asks; requests of one method and document
                supersede each other.
            place: where.
            trigger: what made the client ask.
            debounced: whether to wait for a pause in typing first.

        Raises:
            asyncio.CancelledError: the client took the request back, or went away.
        """
        started = time.perf_counter()
        completion = Completion(Outcome.CANCELLED)
        try:
            completion = await self._latest.run(
                (place.shown.uri, method),
                lambda: self._completed(place, trigger),
                debounce_ms=self.settings.completion.debounce_ms if debounced else 0,
            )
            now = self.documents.get(place.shown.uri)
            if now is None or now.text != place.shown.text:
                completion = Completion(Outcome.SUPERSEDED)
        except Exception as error:  # a keystroke must be answered, whatever broke
            log.exception("a completion request failed")
            completion = Completion(Outcome.FAILED, reason=type(error).__name__)
        finally:
            total_ms = (time.perf_counter() - started) * 1000
            self._services.record.add(method, _name(place.shown.uri), completion, total_ms)
        self._notice(completion)
        return completion

    async def aclose(self) -> None:
        """Cancel all work, give the checkers back, forget the documents."""
        await self._latest.aclose()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.workspaces.aclose()
        self.documents = DocumentStore()

    async def _completed(self, place: Place, trigger: Trigger) -> Completion:
        await self._configured.wait()
        if not self.settings.enabled:
            return Completion(Outcome.DISABLED)
        holder = self._services.holder
        if holder.engine is None:
            if holder.state.phase is LoadPhase.FAILED:
                holder.retry_if_missing()
                return Completion(Outcome.MODEL_UNAVAILABLE, reason=str(holder.state.error or ""))
            return Completion(Outcome.MODEL_LOADING)
        verifier = self.workspaces.verifier_for(place.shown)
        pipeline = self._services.make_pipeline(holder.engine, verifier)
        return await pipeline.run(place.document, place.offset, trigger, self.settings)

    async def _configure(self, pushed: object) -> None:
        try:
            async with self._reloading:
                await self.configuration.reload(pushed)
                checking = Checking(
                    self.settings.enabled and self.settings.verification.mode != "off",
                    self.configuration.interpreter,
                    self.settings.verification.timeout_ms,
                )
                await self.workspaces.configure(checking, list(self.documents))
                self._load_model()
        finally:
            self._unread -= 1
            if not self._unread:
                self._configured.set()

    def _load_model(self) -> None:
        if not self.settings.enabled:
            return
        holder = self._services.holder
        try:
            config = self._services.make_config(self.settings)
        except ConfigError as error:
            self.notices.model(error)
            return
        holder.start(config)
        if holder.config is not None and holder.config.model != config.model:
            self.notices.other_model(config.model, holder.config.model)
        if not self._progress_shown:
            self._progress_shown = True
            self.spawn(self._follow_loading())

    async def _follow_loading(self) -> None:
        holder = self._services.holder
        if self.shows_progress and holder.config is not None:
            await show_loading(self._client, holder, holder.config.model)
        async for state in holder.follow():
            self.notices.model(state.error)
        self._progress_shown = False

    def _notice(self, completion: Completion) -> None:
        if completion.outcome is Outcome.UNVERIFIED:
            self._outage(completion.reason)
        elif any(suggestion.verified for suggestion in completion.suggestions):
            self.notices.outage_over()

    def _outage(self, reason: str) -> None:
        if self.settings.verification.mode == "required":
            self.notices.outage(reason)

    def _supersede(self, uri: str) -> None:
        document = self.documents.get(uri)
        if document is not None:
            self._latest.supersede_all(document.uri)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work of a session failed", exc_info=error)


def _name(uri: str) -> str:
    return uri.rsplit("/", 1)[-1] or uri
