"""The Verifier that asks Pyright: one warm child per workspace, one question at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.errors import CheckerUnavailable
from lsp_server.verification.baseline import (
    Comparison,
    Diagnostic,
    Edit,
    RawDiagnostic,
    compare,
    located,
)
from lsp_server.verification.environment import PythonEnvironment, find_environment
from lsp_server.verification.pyright import PyrightProcess, file_uri
from lsp_server.verification.supervisor import CLOSED, PyrightSupervisor
from lsp_server.verification.verifier import Verdict, VerdictKind

log = logging.getLogger(__name__)

_CACHE_ENTRIES = 512
# A child that still computes after this long is not coming back.
_LONGEST_CHECK_SECONDS = 120.0
# Long enough for the slowest clock tick (10 ms) to show even on a crowded machine.
_PULSE_SECONDS = 0.5
_UNTITLED = "__ghostwright_untitled__.py"

_Diagnostics = tuple[Diagnostic, ...]
# The disk's generation, and the texts of the other open documents.
_World = tuple[int, frozenset[tuple[str, bytes]]]
_Key = tuple[str, bytes, _World]


@dataclass(slots=True)
class _Job:
    """A text to be checked; `done` is cancelled when nobody waits for it any more."""

    uri: str
    document: DocumentSnapshot
    done: asyncio.Future[_Diagnostics]


class PyrightVerifier:
    """Checks candidates with a private Pyright. Lives on the event loop that first uses it.

    Every text ever checked is one entry of a cache, keyed by what Pyright could see: the
    document, its text, the other open documents, and the state of the disk as far as we were
    told of it. A verdict is the comparison of two entries, so the document after an accepted
    suggestion is its own baseline, already known.

    Args:
        root: workspace root, whose Pyright configuration applies; None for a lone file.
        interpreter: the user's Python; empty looks for one (see environment.py).
        timeout_ms: longest wait of one `check`, start of Pyright included.
        on_status: told in one line when the checker fails, once per outage.
    """

    def __init__(
        self,
        root: Path | None,
        *,
        interpreter: str = "",
        timeout_ms: int,
        on_status: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root
        self._interpreter = interpreter
        self._timeout_s = timeout_ms / 1000
        self._on_status = on_status
        self._environment: PythonEnvironment | None = None
        self._supervisor = PyrightSupervisor(self._launch, self._report)
        self._open: dict[str, DocumentSnapshot] = {}
        self._digests: dict[str, bytes] = {}
        self._generation = 0  # of the disk and the environment
        self._changed: dict[str, bool] = {}  # not yet told: is the file new or deleted?
        self._cache: OrderedDict[_Key, _Diagnostics] = OrderedDict()
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the running Pyright, for status and memory figures."""
        return self._supervisor.pid

    @property
    def environment(self) -> PythonEnvironment | None:
        """The Python that Pyright looks at; None before the first start."""
        return self._environment

    async def start(self) -> None:
        """Start Pyright and let it read the standard library; returns when it is warm.

        Never raises: a failure goes to `on_status`, and to the verdicts.
        """
        nothing = DocumentSnapshot(uri="untitled:", text="")
        with contextlib.suppress(CheckerUnavailable):
            await self._diagnostics(nothing)

    def set_timeout(self, timeout_ms: int) -> None:
        """Wait at most this long in each `check` that begins from now on."""
        self._timeout_s = timeout_ms / 1000

    def update(self, document: DocumentSnapshot) -> None:
        """Take note of what the editor shows of `document`; sent with the next question."""
        if document.language_id != "python" or document.path is None:
            return  # nothing can import it
        uri = self._uri(document)
        self._open[uri] = document
        self._digests[uri] = _digest(document.text)

    def forget(self, uri: str) -> None:
        """The editor closed the document: its file on disk counts again."""
        for own_uri in [own for own, document in self._open.items() if document.uri == uri]:
            del self._open[own_uri]
            del self._digests[own_uri]
            self._generation += 1  # the file may hold another text than we ever saw

    def files_changed(self, changes: Mapping[str, bool]) -> None:
        """Files on disk changed: URI to whether the file is new or was deleted.

        Pyright caches what it read from the disk; an editor's file events belong here.
        """
        self._generation += 1
        for uri, existence in changes.items():
            self._changed[uri] = self._changed.get(uri, False) or existence

    async def prepare(self, document: DocumentSnapshot, start: int, end: int) -> None:
        """Have the baseline ready: the document as it stands, wherever a candidate goes."""
        if _why_not(document) is None:
            with contextlib.suppress(CheckerUnavailable, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._diagnostics(document)

    async def check(self, document: DocumentSnapshot, start: int, end: int, text: str) -> Verdict:
        """Judge the document with `text` in place of `document.text[start:end]`.

        Pyright gets the document in its own line ends, and the candidate in the same ones:
        exactly the text that accepting would make.

        Raises:
            PositionOutside: the range does not lie in the document.
        """
        edit = Edit(document, start, end, text.replace("\n", document.eol))
        verdict = _why_not(document)
        if verdict is not None:
            return verdict
        try:
            async with asyncio.timeout(self._timeout_s):
                before = await self._diagnostics(edit.before)
                after = await self._diagnostics(edit.after)
        except CheckerUnavailable as error:
            return Verdict(VerdictKind.UNAVAILABLE, reason=str(error))
        except TimeoutError:
            reason = f"Pyright did not answer within {self._timeout_s:g} s"
            return Verdict(VerdictKind.UNAVAILABLE, reason=reason)
        confirmed = self._environment is not None and self._environment.confirmed
        return _verdict(compare(before, after, edit, environment_confirmed=confirmed))

    async def aclose(self) -> None:
        """Stop Pyright and wait until it is gone. Safe to call twice."""
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        while not self._jobs.empty():
            _fail(self._jobs.get_nowait(), CheckerUnavailable(CLOSED))
        await self._supervisor.aclose()

    async def _launch(self) -> PyrightProcess:
        environment = find_environment(self._root, self._interpreter)
        log.debug("Python for Pyright: %s (%s)", environment.python_path, environment.source)
        if environment.problem and environment != self._environment:
            self._report(environment.problem)
        self._environment = environment
        self._generation += 1  # a new child reads the disk anew
        return await PyrightProcess.start(self._root, environment.python_path)

    def _report(self, what: str) -> None:
        if self._on_status is not None:
            self._on_status(what)

    def _uri(self, document: DocumentSnapshot) -> str:
        """The one URI under which Pyright knows the document."""
        if document.path is not None:
            return file_uri(document.path)
        if self._root is not None:
            # Exists in memory only. Inside the root, so its imports and settings apply.
            return file_uri(self._root / _UNTITLED)
        return "untitled:Ghostwright"

    def _key(self, uri: str, text: str) -> _Key:
        others = frozenset(item for item in self._digests.items() if item[0] != uri)
        return (uri, _digest(text), (self._generation, others))

    async def _diagnostics(self, document: DocumentSnapshot) -> _Diagnostics:
        """What Pyright says of the document's text, now or before.

        Raises:
            CheckerUnavailable: it says nothing.
        """
        if self._closed:
            raise CheckerUnavailable(CLOSED)
        uri = self._uri(document)
        known = self._cache.get(self._key(uri, document.text))
        if known is not None:
            return known
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="pyright verifier")
        done: asyncio.Future[_Diagnostics] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(uri, document, done))
        return await done

    async def _work(self) -> None:
        while True:
            job = await self._jobs.get()
            if job.done.done():
                continue  # nobody waits for it any more
            try:
                await self._carry_out(job)
            except CheckerUnavailable as error:
                _fail(job, error)
            except asyncio.CancelledError:
                _fail(job, CheckerUnavailable(CLOSED))
                raise
            except Exception as error:
                log.exception("a check failed")
                _fail(job, CheckerUnavailable(f"the check failed: {error!r}"))

    async def _carry_out(self, job: _Job) -> None:
        child = await self._supervisor.child()
        if job.done.done():
            return  # given up while Pyright was starting
        key = self._key(job.uri, job.document.text)
        diagnostics = self._cache.get(key)
        if diagnostics is None:
            child.files_changed(self._changed)
            self._changed.clear()
            texts = {uri: document.text for uri, document in self._open.items()}
            child.show({**texts, job.uri: job.document.text})
            raw = await self._ask(child, job.uri)
            diagnostics = tuple(located(one, job.document) for one in raw)
            self._cache[key] = diagnostics
            if len(self._cache) > _CACHE_ENTRIES:
                self._cache.popitem(last=False)
            self._supervisor.answered()
        if not job.done.done():
            job.done.set_result(diagnostics)

    async def _ask(self, child: PyrightProcess, uri: str) -> list[RawDiagnostic]:
        """Pull, and give the child up when it neither answers nor computes."""
        pulling = asyncio.create_task(child.pull(uri), name="pyright pull")
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _LONGEST_CHECK_SECONDS
        try:
            while not (await asyncio.wait({pulling}, timeout=self._timeout_s))[0]:
                # Nobody waits any longer, but a slow child is worth keeping warm.
                used = child.cpu_seconds()
                answered, _ = await asyncio.wait({pulling}, timeout=_PULSE_SECONDS)
                if not answered and (child.cpu_seconds() <= used or loop.time() > give_up):
                    reason = f"Pyright did not answer within {self._timeout_s:g} s"
                    self._supervisor.discard(child, reason)
                    raise CheckerUnavailable(reason)
            return await pulling
        finally:
            pulling.cancel()
            await asyncio.wait({pulling})


def _why_not(document: DocumentSnapshot) -> Verdict | None:
    """The verdict for a document that Pyright is not asked about."""
    if document.language_id != "python":
        return Verdict(VerdictKind.NOT_APPLICABLE)
    if document.uri.startswith("vscode-notebook-cell:"):
        # Alone a cell lacks the names of the others, so every verdict would be wrong.
        return Verdict(VerdictKind.UNAVAILABLE, reason="notebook cells are not checked yet")
    return None


def _verdict(comparison: Comparison) -> Verdict:
    kind = VerdictKind.NEW_ERRORS if comparison.new_errors else VerdictKind.CLEAN
    return Verdict(kind, new_errors=comparison.new_errors, demoted=comparison.demoted)


def _digest(text: str) -> bytes:
    # Editors do send lone surrogates, which UTF-8 alone refuses.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _fail(job: _Job, error: CheckerUnavailable) -> None:
    if not job.done.done():
        job.done.set_exception(error)
