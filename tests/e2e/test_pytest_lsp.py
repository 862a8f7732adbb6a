"""The real server under pytest-lsp's client, which checks every message against the spec."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from lsprotocol import types
from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

from tests.support.server_process import COMMAND, running_server

pytestmark = pytest.mark.model

TEXT = '''import math


class Circle:
    """🟠 a circle"""

    def __init__(self, radius: float) -> None:
        self.radius = radius

    def area(self) -> float:
        """π r²"""
        return '''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "circle.py"
    path.write_text(TEXT, "utf-8")
    return path


@pytest.fixture(params=["stdio", "tcp"])
async def client(
    request: pytest.FixtureRequest, real_model: Path, file: Path
) -> AsyncGenerator[LanguageClient, None]:
    """pytest-lsp's client, past the handshake, over each transport."""
    client = make_test_lsp_client()
    client.set_configuration({"ghostwright": {"completion": {"timeBudgetMs": 120_000}}})
    params = types.InitializeParams(
        capabilities=client_capabilities("neovim"), root_uri=file.parent.as_uri()
    )
    if request.param == "stdio":
        await client.start_io(*COMMAND, "--stdio")
        await client.initialize_session(params)
        yield client
        await client.shutdown_session()
        return
    async with running_server("--tcp", "127.0.0.1:0") as server:
        await client.start_tcp("127.0.0.1", server.port)
        await client.initialize_session(params)
        yield client
        await client.shutdown_session()
        await client.stop()


def place(file: Path) -> tuple[types.TextDocumentIdentifier, types.Position]:
    lines = TEXT.split("\n")
    return types.TextDocumentIdentifier(file.as_uri()), types.Position(
        len(lines) - 1, len(lines[-1])
    )


async def test_both_kinds_of_completion(client: LanguageClient, file: Path) -> None:
    client.text_document_did_open(
        types.DidOpenTextDocumentParams(
            types.TextDocumentItem(file.as_uri(), types.LanguageKind.Python, 1, TEXT)
        )
    )
    await client.protocol.send_request_async("ghostwright/ready")
    document, position = place(file)
    inline = await client.text_document_inline_completion_async(
        types.InlineCompletionParams(
            context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Invoked),
            text_document=document,
            position=position,
        )
    )
    assert isinstance(inline, types.InlineCompletionList)
    assert inline.items
    for item in inline.items:
        assert isinstance(item.insert_text, str)
        assert item.insert_text.startswith("        return ")
        assert item.range is not None
        assert item.range.start == types.Position(position.line, 0)
    listed = await client.text_document_completion_async(
        types.CompletionParams(text_document=document, position=position)
    )
    assert isinstance(listed, types.CompletionList)
    assert any("self.radius" in item.label for item in listed.items)
