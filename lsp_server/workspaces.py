"""The workspace folders of one client, each with its checker and pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lsp_server.completion.outcome import Completion, Trigger
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.settings import Settings
from lsp_server.verification.pool import CheckerKey, OnStatus, VerifierLease, VerifierPool


class Pipeline(Protocol):
    """What completes a place; CompletionPipeline is one."""

    async def run(
        self, document: DocumentSnapshot, offset: int, trigger: Trigger, settings: Settings
    ) -> Completion:
        """Complete `document` at code-point `offset`; cancelling stops all work."""
        ...


@dataclass(frozen=True, slots=True)
class Checking:
    """What the checkers are chosen by; a change of it changes them."""

    enabled: bool
    interpreter: str
    timeout_ms: int


class Workspaces:
    """Which checker looks at which document. Owned by the session.

    A document belongs to the deepest folder it lies in, and to the first folder where it
    lies in none. Checkers start with the first document of their folder.

    Args:
        pool: where checkers come from.
        on_outage: told in one line when a checker fails.
    """

    def __init__(self, pool: VerifierPool, on_outage: OnStatus) -> None:
        self._pool = pool
        self._on_outage = on_outage
        self._checking: Checking | None = None
        self._leases: dict[Path | None, VerifierLease] = {}
        self.folders: list[Path] = []

    def verifier_for(self, document: DocumentSnapshot) -> VerifierLease:
        """The checker of the document's folder.

        `configure` must have been called.
        """
        assert self._checking is not None, "a session is configured before it checks"
        folder = self._folder_of(document.path)
        lease = self._leases.get(folder)
        if lease is None:
            key = CheckerKey(folder, self._checking.interpreter, self._checking.timeout_ms)
            lease = self._leases[folder] = self._pool.acquire(key, self._on_outage)
        return lease

    def update(self, document: DocumentSnapshot) -> None:
        """The editor shows this text now."""
        if document.language_id == "python" and self._checking and self._checking.enabled:
            self.verifier_for(document).update(document)

    def forget(self, document: DocumentSnapshot) -> None:
        """The editor closed the document."""
        for lease in self._leases.values():
            lease.forget(document.uri)

    def files_changed(self, changes: Mapping[str, bool]) -> None:
        """Files on disk changed: URI to whether the file is new or was deleted."""
        for lease in self._leases.values():
            lease.files_changed(changes)

    async def configure(self, checking: Checking, documents: list[DocumentSnapshot]) -> None:
        """Use other checkers from now on, if these differ; `documents` are open."""
        if checking == self._checking:
            return
        self._checking = checking
        await self._restart(documents)

    async def change_folders(
        self, added: list[Path], removed: list[Path], documents: list[DocumentSnapshot]
    ) -> None:
        """Folders came and went; documents may belong to another one now."""
        kept = [folder for folder in self.folders if folder not in removed]
        self.folders = [*kept, *(folder for folder in added if folder not in kept)]
        if self._checking is not None:
            await self._restart(documents)

    async def aclose(self) -> None:
        """Give all checkers back."""
        leases = tuple(self._leases.values())
        self._leases.clear()
        for lease in leases:
            await lease.aclose()

    async def _restart(self, documents: list[DocumentSnapshot]) -> None:
        old = tuple(self._leases.values())
        self._leases.clear()
        for document in documents:
            self.update(document)  # takes the new shares first: a checker kept stays warm
        for lease in old:
            await lease.aclose()

    def _folder_of(self, path: Path | None) -> Path | None:
        around = [f for f in self.folders if path is not None and path.is_relative_to(f)]
        if around:
            return max(around, key=lambda folder: len(folder.parts))
        return self.folders[0] if self.folders else None
