"""SentencePiece's `tokenizer.model` as a tokenizer of the package `tokenizers`: its pieces, and how it cuts texts into them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4  # kinds of pieces
_BYTE_PAIRS = 2  # the kind of model; the other one is 1, a unigram model
_SPACE = "▁"


@dataclass(frozen=True)
class Piece:
    """A token of the vocabulary."""

    text: str
    score: float
    kind: int


class BytePairs(TypedDict):
    """A byte-pair model: tokens with their numbers, and the pairs of tokens that are joined, the first ones first."""

    vocab: dict[str, int]
    merges: list[tuple[str, str]]


@dataclass(frozen=True)
class PieceModel:
    """What a `tokenizer.model` says."""

    pieces: list[Piece]
    is_byte_pairs: bool
    has_bytes: bool  # characters that are no piece are written as their bytes
    unknown_id: int
    names: Mapping[str, str]  # of the tokens of begin, end and of what is unknown, by their names in tokenizer_config.json
    characters: bytes  # what other characters are read as, in SentencePiece's form
    has_first_space: bool  # a text begins with a space
    drops_spaces: bool  # at the ends, and beside others
    marks_spaces: bool

    @staticmethod
    def parse(content: bytes) -> PieceModel:
        """Read a file's content. Raises ValueError if it is not such a model."""
        try:
            model = list(_fields(content))
            trained = dict(_fields(_last(model, 2, b"")))
            cut = dict(_fields(_last(model, 3, b"")))
            pieces = [_piece(dict(_fields(value))) for number, value in model if number == 1]
            names: dict[str, str] = {}
            for k, (name, usual) in enumerate({"unk": "<unk>", "bos": "<s>", "eos": "</s>"}.items()):
                if _signed(trained.get(40 + k, k)) >= 0:
                    names[f"{name}_token"] = trained.get(45 + k, usual.encode()).decode()
        except (IndexError, TypeError, AttributeError, struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"it is damaged: {error}") from None
        if not pieces:
            raise ValueError("it has no pieces")
        return PieceModel(
            pieces,
            trained.get(3, 1) == _BYTE_PAIRS,
            bool(trained.get(35, 0)),
            _signed(trained.get(40, 0)),
            names,
            cut.get(2, b""),
            *(bool(cut.get(number, 1)) for number in (3, 4, 5)),
        )

    def of_kind(self, kind: int) -> list[str]:
        return [piece.text for piece in self.pieces if piece.kind == kind]


def as_written(model: PieceModel, renamed: Mapping[int, str], is_legacy: bool) -> Tokenizer:
    """The tokenizer that cuts texts as the model says itself.

    `renamed` are other names of some pieces, by number. If it `is_legacy`, each part of a text between special tokens begins with a space.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    kept = {piece.text for number, piece in enumerate(model.pieces) if number not in renamed}
    names = [
        piece.text if renamed.get(k, piece.text) in kept else renamed.get(k, piece.text) for k, piece in enumerate(model.pieces)
    ]
    users = [names[k] for k, piece in enumerate(model.pieces) if piece.kind == USER]
    if model.is_byte_pairs:
        normal = {names[k]: (-piece.score, k) for k, piece in enumerate(model.pieces) if piece.kind == NORMAL}
        pairs = byte_pairs({name: k for k, name in enumerate(names)}, normal, normal.__getitem__)
        fast = Tokenizer(
            models.BPE(
                **pairs,
                unk_token=model.names.get("unk_token"),
                fuse_unk=True,
                byte_fallback=model.has_bytes,
                ignore_merges=bool(users),
            )
        )
    else:
        scores = [(name, piece.score) for name, piece in zip(names, model.pieces, strict=True)]
        fast = Tokenizer(models.Unigram(scores, unk_id=model.unknown_id, byte_fallback=model.has_bytes))
    changes: list[Any] = [normalizers.Precompiled(model.characters)] if model.characters else []
    if model.drops_spaces:
        changes += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.marks_spaces:
        changes.append(normalizers.Replace(" ", _SPACE))
    if model.has_first_space and is_legacy:  # one more, also before a text that begins with one
        changes.append(normalizers.Replace(Regex(rf"\A{_SPACE}"), 2 * _SPACE))
    fast.normalizer = normalizers.Sequence(changes)
    cuts = [_first_space(is_legacy)] if model.has_first_space else []
    if users:  # they stay whole, and are joined with nothing
        pattern = "|".join(re.escape(name) for name in sorted(users, key=len, reverse=True))
        cuts.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    if cuts:
        fast.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    fast.decoder = decoders.Sequence([*joined(model.has_bytes), *([decoders.Strip(" ", 1, 0)] if model.has_first_space else [])])
    return fast


def byte_pairs(vocabulary: Mapping[str, int], pieces: Iterable[str], rank: Callable[[str], tuple[float, ...]]) -> BytePairs:
    """The arguments of a byte-pair model: two neighbours are joined to a piece, the one of the lowest rank first."""
    known = set(pieces)
    merges: list[tuple[tuple[float, ...], int, tuple[str, str]]] = []
    for piece in known:
        for cut in range(1, len(piece)):
            first, second = piece[:cut], piece[cut:]
            if first in known and second in known:
                merges.append((rank(piece), cut, (first, second)))
    return {"vocab": dict(vocabulary), "merges": [pair for *_, pair in sorted(merges)]}


def like_llama(fast: Any, is_legacy: bool, has_first_space: bool) -> None:
    """Cut texts as the class LlamaTokenizer of `transformers` does, whatever the file says."""
    from tokenizers import decoders, pre_tokenizers

    fast.normalizer = None
    fast.pre_tokenizer = (
        _first_space(is_legacy) if has_first_space else pre_tokenizers.Metaspace(_SPACE, prepend_scheme="never", split=False)
    )
    fast.decoder = decoders.Sequence([*joined(True), *([decoders.Strip(" ", 1, 0)] if has_first_space else [])])


def like_gemma(fast: Any) -> None:
    """Cut texts as the class GemmaTokenizer of `transformers` does: no text begins with a space of its own."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    fast.normalizer = normalizers.Replace(" ", _SPACE)
    fast.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    fast.decoder = decoders.Sequence(joined(True))


def joined(has_bytes: bool) -> list[object]:
    """The steps from pieces to a text."""
    from tokenizers import decoders

    return [decoders.Replace(_SPACE, " "), *([decoders.ByteFallback()] if has_bytes else []), decoders.Fuse()]


def _first_space(is_legacy: bool) -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Metaspace(_SPACE, prepend_scheme="always" if is_legacy else "first", split=False)


# -- the file's form, which is that of Protocol Buffers -------------------------------------------------------------------


def _piece(fields: Mapping[int, Any]) -> Piece:
    (score,) = struct.unpack("<f", fields.get(2, b"\0\0\0\0"))
    return Piece(fields.get(1, b"").decode(), score, fields.get(3, NORMAL))


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, and bytes for all else."""
    at = 0
    while at < len(content):
        key, at = _number(content, at)
        kind = key & 7
        if kind == 0:
            value, at = _number(content, at)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            if kind != 2:
                raise TypeError(f"a field of the kind {kind}")
            length, at = _number(content, at)
        if at + length > len(content):
            raise IndexError("it ends too early")
        yield key >> 3, content[at : at + length]
        at += length


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise TypeError("a number of more than 64 bits")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _last(fields: Iterable[tuple[int, Any]], number: int, default: bytes) -> bytes:
    return next((value for key, value in reversed(list(fields)) if key == number), default)
