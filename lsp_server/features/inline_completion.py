"""`textDocument/inlineCompletion`: ghost text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lsprotocol import types

from lsp_server.completion.outcome import Suggestion, Trigger
from lsp_server.documents.positions import PositionEncoding, to_offset, to_position
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.session import Place

if TYPE_CHECKING:
    from lsp_server.server import GhostwrightServer


def register(server: GhostwrightServer) -> None:
    """Answer inline completion; without options pygls would advertise nothing."""
    session = server.session
    options = types.InlineCompletionOptions()

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, options)
    async def inline_completion(
        params: types.InlineCompletionParams,
    ) -> types.InlineCompletionList:
        document = session.open_document(
            params.text_document.uri, types.TEXT_DOCUMENT_INLINE_COMPLETION
        )
        if document is None:
            return types.InlineCompletionList([])
        spot = _spot(document, params, session.documents.encoding)
        invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
        completion = await session.complete(
            types.TEXT_DOCUMENT_INLINE_COMPLETION,
            spot.place,
            Trigger.INVOKED if invoked else Trigger.AUTOMATIC,
            debounced=not invoked,
        )
        wanted = completion.suggestions if invoked else completion.suggestions[:1]
        items = [spot.item(suggestion) for suggestion in wanted]
        return types.InlineCompletionList([item for item in items if item is not None])


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where the items go: `start` to `end` are offsets in the document the client shows.

    Attributes:
        typed: what stands between `start` and the place to complete at.
        fixed: the range may not grow, as the popup's selected item prescribes it.
    """

    place: Place
    start: int
    end: int
    typed: str
    fixed: bool
    encoding: PositionEncoding

    def item(self, suggestion: Suggestion) -> types.InlineCompletionItem | None:
        """The item that inserts the suggestion; None where the range does not allow it.

        It replaces the line up to the cursor by itself and the suggestion: editors redraw
        ghost text without a flash when the range begins where the line does.
        """
        if self.fixed and suggestion.replace_after:
            return None
        text = self.typed + suggestion.text
        end = self.end + suggestion.replace_after
        return types.InlineCompletionItem(
            insert_text=text,
            filter_text=text,
            range=_range(self.place.shown, self.start, end, self.encoding),
        )


def _spot(
    document: DocumentSnapshot, params: types.InlineCompletionParams, encoding: PositionEncoding
) -> _Spot:
    selected = params.context.selected_completion_info
    if selected is not None and selected.range.start.line == selected.range.end.line:
        start, end = (
            to_offset(document, position.line, position.character, encoding)
            for position in (selected.range.start, selected.range.end)
        )
        if start <= end:
            text = document.text[:start] + selected.text + document.text[end:]
            imagined = replace(document, text=text)
            place = Place(document, imagined, start + len(selected.text))
            return _Spot(place, start, end, selected.text, fixed=True, encoding=encoding)
    offset = to_offset(document, params.position.line, params.position.character, encoding)
    start = offset - document.position_at(offset)[1]
    typed = document.text[start:offset]
    place = Place(document, document, offset)
    return _Spot(place, start, offset, typed, fixed=False, encoding=encoding)


def _range(
    document: DocumentSnapshot, start: int, end: int, encoding: PositionEncoding
) -> types.Range:
    return types.Range(
        types.Position(*to_position(document, start, encoding)),
        types.Position(*to_position(document, end, encoding)),
    )
