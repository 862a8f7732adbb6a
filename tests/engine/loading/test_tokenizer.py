"""The tokenizer: exact round trips, and specials that text can never become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ModelCorrupt, UnsupportedModel
from engine.loading import tokenizer as tokenizers
from engine.loading.checkpoint import open_checkpoint
from engine.loading.gguf import GgufFile
from engine.loading.tokenizer import StreamDecoder, Tokenizer
from tests.support.tiny_models import FIM_TOKENS, VOCAB, reference_model, write_folder, write_gguf


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = write_gguf(tmp_path_factory.mktemp("gguf") / "t.gguf", reference_model("qwen2"))
    with open_checkpoint(path) as checkpoint:
        return checkpoint.tokenizer()


@pytest.fixture(scope="module")
def from_folder(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = write_folder(tmp_path_factory.mktemp("folder"), reference_model("qwen2"))
    with open_checkpoint(folder) as checkpoint:
        return checkpoint.tokenizer()


@pytest.mark.parametrize("source", ["from_file", "from_folder"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text())
def test_text_survives_the_round_trip(
    source: str, text: str, request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(source)
    # Qwen normalizes to NFC; the tiny folder does not normalize.
    import unicodedata

    expected = unicodedata.normalize("NFC", text) if source == "from_file" else text
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == expected
    stream = StreamDecoder(tokenizer)
    assert "".join(map(stream.push, ids)) + stream.flush() == expected


@pytest.mark.parametrize("source", ["from_file", "from_folder"])
@pytest.mark.parametrize("special", FIM_TOKENS)
def test_special_text_in_source_code_stays_text(
    source: str, special: str, request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(source)
    ids = tokenizer.encode(f"x = '{special}'")
    assert tokenizer.specials[special] not in ids
    assert tokenizer.decode(ids) == f"x = '{special}'"


def test_special_tokens_have_no_text(from_file: Tokenizer) -> None:
    for i in (*from_file.specials.values(), *from_file.unused, 10**6):
        assert from_file.token_bytes(i) == b""


def test_both_formats_know_the_same_tokens(from_file: Tokenizer, from_folder: Tokenizer) -> None:
    assert from_file.specials == from_folder.specials
    assert from_file.eos == from_folder.eos == {256}
    assert from_file.unused == set(range(262, 272))
    assert from_folder.unused == set(range(261, 272))  # `ab` is in the GGUF file only


def test_a_character_spread_over_tokens_comes_out_whole(from_file: Tokenizer) -> None:
    stream = StreamDecoder(from_file)
    pieces = [stream.push(token) for token in from_file.encode("é🎉")]
    assert [piece for piece in pieces if piece] == ["é", "🎉"]


def test_a_cut_character_is_replaced_at_the_end(from_file: Tokenizer) -> None:
    stream = StreamDecoder(from_file)
    first, *_ = from_file.encode("🎉")
    assert stream.push(first) == ""
    assert stream.flush() == "\ufffd"


@pytest.fixture
def metadata(tmp_path: Path) -> dict[str, Any]:
    with GgufFile(write_gguf(tmp_path / "t.gguf", reference_model("qwen2"))) as file:
        return dict(file.metadata)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tokenizer.ggml.model": "llama"}, UnsupportedModel),
        ({"tokenizer.ggml.pre": "something-new"}, UnsupportedModel),
        ({"tokenizer.ggml.merges": ["zz yy"]}, ModelCorrupt),
        ({"tokenizer.ggml.token_type": [1, 2, 3]}, ModelCorrupt),
    ],
)
def test_a_vocabulary_that_makes_no_sense_is_refused(
    metadata: dict[str, Any], change: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        tokenizers.from_gguf(metadata | change, vocab=VOCAB)
