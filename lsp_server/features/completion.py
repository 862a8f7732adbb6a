"""`textDocument/completion`: the same suggestions as items of the editor's popup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.capabilities import get_capability

from lsp_server.completion.outcome import Suggestion, Trigger
from lsp_server.documents.positions import PositionEncoding, to_offset, to_position
from lsp_server.documents.snapshot import to_lf
from lsp_server.session import Place

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer

_LABEL_CHARACTERS = 60
_WORD_END = re.compile(r"\w*\Z")
_FENCE = re.compile(r"`{3,}")


def register(server: GhostwrightServer) -> None:
    """Answer completion."""
    session = server.session
    options = types.CompletionOptions(trigger_characters=["."])

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    async def completion(params: types.CompletionParams) -> types.CompletionList:
        document = session.open_document(params.text_document.uri, types.TEXT_DOCUMENT_COMPLETION)
        if document is None:
            return types.CompletionList(is_incomplete=True, items=[])
        encoding = session.documents.encoding
        offset = to_offset(document, params.position.line, params.position.character, encoding)
        place = Place(document, document, offset)
        # LSP calls it Invoked too when the user only began to type a word, so even then a
        # pause is waited for.
        typing = params.context is not None and (
            params.context.trigger_kind is not types.CompletionTriggerKind.Invoked
        )
        trigger = Trigger.AUTOMATIC if typing else Trigger.INVOKED
        answer = await session.complete(
            types.TEXT_DOCUMENT_COMPLETION, place, trigger, debounced=params.context is not None
        )
        popup = _Popup(place, encoding, *_abilities(server.client_capabilities))
        items = [popup.item(number, each) for number, each in enumerate(answer.suggestions)]
        return types.CompletionList(is_incomplete=True, items=items)


@dataclass(frozen=True, slots=True)
class _Popup:
    """Makes items for one request.

    Attributes:
        place: where the items go.
        encoding: what the client's positions count.
        knows_as_is: whether the client can insert lines without indenting them again.
        knows_markdown: whether it shows documentation as Markdown.
    """

    place: Place
    encoding: PositionEncoding
    knows_as_is: bool
    knows_markdown: bool

    def item(self, number: int, suggestion: Suggestion) -> types.CompletionItem:
        """The item of the `number`-th suggestion.

        It replaces the word left of the cursor by itself and the suggestion, because
        editors match items against that word.
        """
        document, offset = self.place.document, self.place.offset
        line, column = document.position_at(offset)
        match = _WORD_END.search(document.line_at(line)[:column])
        word = match.group() if match else ""
        text = word + suggestion.text
        edited = types.Range(
            types.Position(*to_position(document, offset - len(word), self.encoding)),
            types.Position(
                *to_position(document, offset + suggestion.replace_after, self.encoding)
            ),
        )
        return types.CompletionItem(
            label=_label(text),
            kind=types.CompletionItemKind.Text,
            detail="Ghostwright",
            documentation=self._documentation(text, verified=suggestion.verified),
            preselect=False,
            sort_text=f"{number:04}",
            filter_text=to_lf(text).split("\n", 1)[0] or text,
            insert_text_format=types.InsertTextFormat.PlainText,
            insert_text_mode=types.InsertTextMode.AsIs if self.knows_as_is else None,
            text_edit=types.TextEdit(edited, text),
        )

    def _documentation(self, text: str, *, verified: bool) -> types.MarkupContent:
        said = "passed Pyright" if verified else "not checked"
        shown = to_lf(text)
        if not self.knows_markdown:
            return types.MarkupContent(types.MarkupKind.PlainText, f"{shown}\n\n{said}")
        longest = max((len(run) for run in _FENCE.findall(shown)), default=2)
        fence = "`" * (longest + 1)
        language = self.place.document.language_id
        return types.MarkupContent(
            types.MarkupKind.Markdown, f"{fence}{language}\n{shown}\n{fence}\n\n{said}"
        )


def _abilities(capabilities: types.ClientCapabilities) -> tuple[bool, bool]:
    item = "text_document.completion.completion_item"
    modes = get_capability(capabilities, f"{item}.insert_text_mode_support.value_set") or ()
    formats = get_capability(capabilities, f"{item}.documentation_format") or ()
    return types.InsertTextMode.AsIs in modes, types.MarkupKind.Markdown in formats


def _label(text: str) -> str:
    lines = [line.strip() for line in to_lf(text).split("\n")]
    label = next(filter(None, lines), text)
    more = len(label) > _LABEL_CHARACTERS or sum(map(bool, lines)) > 1
    return label[:_LABEL_CHARACTERS] + ("…" if more else "")
