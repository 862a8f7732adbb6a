"""The model's own tokenizer, read from a GGUF's metadata or a tokenizer.json.

Special tokens are kept apart from the text tokenizer: source code that happens to contain
`<|fim_suffix|>` is encoded as ordinary text and can never steer the prompt.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from engine.errors import ModelCorrupt, UnsupportedModel

# ggml's token types (llama.h, llama_token_type).
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5

# The splitting rules behind ggml's names for pre-tokenizers, as in the models' own
# tokenizer.json. Others are refused rather than guessed: a wrong rule degrades silently.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"qwen2": _WORDS % r"\p{N}", "llama-bpe": _WORDS % r"\p{N}{1,3}"}
_PLAIN_BYTE_LEVEL = ("gpt-2", "default")


@dataclass(frozen=True)
class Tokenizer:
    """Text to token ids and back; immutable.

    Attributes:
        backend: the text tokenizer, without special tokens.
        specials: special and control tokens by their text.
        unused: ids that pad the vocabulary and must never be sampled.
        bos: put before every prompt where the model expects it.
        eos: the ids the model's files call end of text or of turn.
    """

    backend: tokenizers.Tokenizer
    specials: Mapping[str, int]
    unused: frozenset[int]
    bos: int | None
    eos: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Token ids of ordinary text; special-token text in it is not special."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ordinary tokens, exactly as the model spelled it."""
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes one ordinary token stands for; empty for special and unknown ids."""
        piece = self.backend.id_to_token(token)
        if piece is None or token in self._special_ids:
            return b""
        if self._byte_level:
            try:
                return bytes(_UNICODE_TO_BYTE[char] for char in piece)
            except KeyError:  # added beside the byte-level vocabulary: its text is itself
                return piece.encode()
        if _BYTE_TOKEN.fullmatch(piece):
            return bytes((int(piece[3:5], 16),))
        return piece.replace("▁", " ").encode()

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.specials.values())

    @cached_property
    def _byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(json.loads(self.backend.to_str()).get("decoder"))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the backend's own file; `from_snapshot` reads it back."""
        return {
            "specials": dict(self.specials),
            "unused": sorted(self.unused),
            "bos": self.bos,
            "eos": sorted(self.eos),
        }


class StreamDecoder:
    """Turns one candidate's tokens into text as they come, whole characters only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that became complete with this token."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """What is left at the end; a cut character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


def _byte_table() -> dict[str, int]:
    """GPT-2's reversible map from printable characters to bytes (Radford et al., 2019)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


_UNICODE_TO_BYTE = _byte_table()
_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")


def from_gguf(metadata: Mapping[str, Any], *, vocab: int) -> Tokenizer:
    """Build the tokenizer that a GGUF's metadata describes.

    Args:
        metadata: of the file.
        vocab: rows of the embedding; those without a token are never sampled.

    Raises:
        UnsupportedModel: a kind of tokenizer or a splitting rule that is not known.
        ModelCorrupt: the vocabulary is missing or contradicts itself.
    """
    kind = metadata.get("tokenizer.ggml.model")
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    if kind != "gpt2" or (pre not in _SPLITS and pre not in _PLAIN_BYTE_LEVEL):
        raise UnsupportedModel(
            f"the GGUF file's tokenizer ({str(kind)[:40]!r}, {pre[:40]!r}) is not supported",
            "use the model's folder with tokenizer.json and safetensors",
        )
    try:
        tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
        types: list[int] = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
        specials = {
            text: i
            for i, (text, type_) in enumerate(zip(tokens, types, strict=True))
            if type_ in (_CONTROL, _USER_DEFINED)
        }
        unused = frozenset(i for i, type_ in enumerate(types) if type_ == _UNUSED)
        hidden = frozenset(specials.values()) | unused
        texts = {text: i for i, text in enumerate(tokens) if i not in hidden}
        backend = tokenizers.Tokenizer(
            models.BPE(vocab=texts, merges=cast(list[tuple[str, str]], merges))
        )
    except KeyError as error:
        raise ModelCorrupt(f"the GGUF file lacks the key {error.args[0]}") from error
    except Exception as error:  # tokenizers raises bare Exception for a bad vocabulary
        raise ModelCorrupt(f"the GGUF file's vocabulary contradicts itself: {error}") from error
    _set_byte_level(backend, pre)
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    ends = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    for token in (bos, *ends):
        if token is not None and not isinstance(token, int):
            raise ModelCorrupt("the GGUF file names a special token by no number")
    tokenizer = Tokenizer(
        backend=backend,
        specials=specials,
        unused=unused | frozenset(range(len(tokens), vocab)),
        bos=bos if metadata.get("tokenizer.ggml.add_bos_token") else None,
        eos=frozenset(i for i in ends if i is not None),
    )
    return _within(tokenizer, vocab)


def _within(tokenizer: Tokenizer, vocab: int) -> Tokenizer:
    """The tokenizer, if the model has a row for each of its ids."""
    ids = {*tokenizer.specials.values(), *tokenizer.eos, *tokenizer.unused}
    ids |= set(tokenizer.backend.get_vocab().values())
    ids |= set() if tokenizer.bos is None else {tokenizer.bos}
    for token in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= token < vocab:
            raise ModelCorrupt(f"the vocabulary has token {token}, the model has {vocab} rows")
    return tokenizer


def _set_byte_level(backend: tokenizers.Tokenizer, pre: str) -> None:
    plain = pre in _PLAIN_BYTE_LEVEL
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=plain)
    if plain:
        backend.pre_tokenizer = byte_level
    else:
        split = pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()


def from_folder(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read tokenizer.json (and tokenizer_config.json) of a Hugging Face folder.

    Raises:
        ModelCorrupt: tokenizer.json is missing or unreadable.
    """
    path = folder / "tokenizer.json"
    try:
        described: dict[str, Any] = json.loads(path.read_text("utf-8"))
        added = {str(t["content"]): int(t["id"]) for t in described.get("added_tokens", [])}
        # Without them the backend cannot turn text into special tokens; ids stay as they are.
        described |= {"added_tokens": [], "post_processor": None, "truncation": None}
        backend = tokenizers.Tokenizer.from_str(json.dumps(described))
    except OSError as error:
        raise ModelCorrupt(
            f"cannot read {path}: {error.strerror}", "the folder needs a tokenizer.json"
        ) from error
    except Exception as error:  # tokenizers raises bare Exception for a bad file
        raise ModelCorrupt(f"{path} is not a tokenizer: {error}") from error
    settings = _side_settings(folder / "tokenizer_config.json")
    known = set(backend.get_vocab().values()) | set(added.values())
    vocab = int(config["vocab_size"])  # the spec has been read from it: it is a number
    eos = _ids(config.get("eos_token_id")) | _named(settings.get("eos_token"), added)
    bos = settings.get("add_bos_token") and _named(settings.get("bos_token"), added)
    tokenizer = Tokenizer(
        backend=backend,
        specials=added,
        unused=frozenset(set(range(vocab)) - known),
        bos=next(iter(bos)) if bos else None,
        eos=frozenset(eos),
    )
    return _within(tokenizer, vocab)


def _side_settings(path: Path) -> dict[str, Any]:
    """tokenizer_config.json, empty where there is none."""
    try:
        settings: object = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelCorrupt(f"{path} cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise ModelCorrupt(f"{path} is not a JSON object")
    return cast(dict[str, Any], settings)


def _ids(value: Any) -> set[int]:
    """config.json gives one id, a list of ids, or nothing."""
    if value is None:
        return set()
    ids = cast(list[Any], value if isinstance(value, list) else [value])
    if not all(isinstance(i, int) for i in ids):
        raise ModelCorrupt("config.json names a special token by no number")
    return set(ids)


def _named(token: Any, added: Mapping[str, int]) -> set[int]:
    """tokenizer_config.json names a token by text or by an object with its content."""
    text = str(cast(dict[str, Any], token).get("content") if isinstance(token, dict) else token)
    return {added[text]} if text in added else set()


def from_snapshot(path: Path, side: Mapping[str, Any]) -> Tokenizer:
    """Read what `backend.save` and `to_dict` wrote."""
    return Tokenizer(
        backend=tokenizers.Tokenizer.from_file(str(path)),
        specials=cast(dict[str, int], side["specials"]),
        unused=frozenset(side["unused"]),
        bos=side["bos"],
        eos=frozenset(side["eos"]),
    )
