"""A bare LSP client for tests: says exactly what it is told, valid or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]


class RawClient:
    """Sends messages and collects the answers. Owned by a test, on its event loop.

    Attributes:
        notes: notifications received, in order.
        answers: responses received, in order, those without an id of ours included.
        configuration: what `workspace/configuration` is answered with, by section.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._arrived = asyncio.Event()
        self.notes: list[Message] = []
        self.answers: list[Message] = []
        self.requests: list[Message] = []
        self.configuration: dict[str, Any] = {}
        self.ended = False
        self._task = asyncio.create_task(self._read())

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def send(self, message: object) -> None:
        """Send one framed message."""
        body = json.dumps(message).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: object = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: object = None) -> int:
        """Send a request without waiting; returns its id."""
        self._next_id += 1
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        self.send(message | ({"params": params} if params is not None else {}))
        return self._next_id

    async def answer(self, number: int | str | None) -> Message:
        """The response to a request, once it is there."""
        await self.until(lambda: any(each.get("id") == number for each in self.answers))
        return next(each for each in self.answers if each.get("id") == number)

    async def request(self, method: str, params: object = None) -> Any:
        """Send a request and wait for its result."""
        answer = await self.answer(self.ask(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    async def note(self, method: str) -> Message:
        """The first notification of a method, once it is there."""
        await self.until(lambda: any(each["method"] == method for each in self.notes))
        return next(each for each in self.notes if each["method"] == method)

    def noted(self, method: str) -> list[Any]:
        """Parameters of all notifications of a method so far."""
        return [each["params"] for each in self.notes if each["method"] == method]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true, looking after each message; fails when there are no more."""
        while not holds():
            if self.ended:
                raise AssertionError("the server closed the connection")
            self._arrived.clear()
            await self._arrived.wait()

    async def until_end(self) -> None:
        """Wait until the server has closed the connection."""
        await self._task

    async def initialize(self, **params: Any) -> Message:
        """Shake hands; returns the server's capabilities."""
        defaults: Message = {"processId": None, "rootUri": None, "capabilities": {}}
        result = await self.request("initialize", defaults | params)
        self.notify("initialized", {})
        return result["capabilities"]

    async def start(self, **params: Any) -> Message:
        """Shake hands and wait until the model is loaded; returns the capabilities."""
        capabilities = await self.initialize(**params)
        await self.request("ghostwright/ready")
        return capabilities

    def open(self, uri: str, text: str, language: str = "python") -> None:
        """Open a document at version 1."""
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, *changes: Mapping[str, Any]) -> None:
        """Change a document."""
        document = {"uri": uri, "version": version}
        params = {"textDocument": document, "contentChanges": list(changes)}
        self.notify("textDocument/didChange", params)

    def abort(self) -> None:
        """Vanish: a reset instead of a goodbye."""
        self._writer.transport.abort()

    async def aclose(self) -> None:
        """Stop reading."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                header = await self._reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in header.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                self._take(json.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended = True
            self._arrived.set()

    def _take(self, message: Message) -> None:
        if "method" not in message:
            self.answers.append(message)
        elif "id" in message:
            self.requests.append(message)
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)})
        else:
            self.notes.append(message)
        self._arrived.set()

    def _result(self, message: Message) -> Any:
        if message["method"] != "workspace/configuration":
            return None
        return [self.configuration.get(item["section"]) for item in message["params"]["items"]]


def position(line: int, character: int) -> dict[str, int]:
    """An LSP position."""
    return {"line": line, "character": character}


def span(*numbers: int) -> dict[str, Any]:
    """An LSP range from start line, start character, end line, end character."""
    return {"start": position(*numbers[:2]), "end": position(*numbers[2:])}


def inline_params(uri: str, line: int, character: int, kind: int = 1) -> Message:
    """Parameters of an inline completion request; kind 1 is invoked, 2 automatic."""
    return {
        "textDocument": {"uri": uri},
        "position": position(line, character),
        "context": {"triggerKind": kind},
    }
