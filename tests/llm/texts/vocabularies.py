"""Small tokenizers of every form, written by hand: `tokenizer.json`, SentencePiece's `tokenizer.model`, and the files that add tokens."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁t", "he", "▁the", "▁f", "ox", "▁fox", "▁g", "go", "▁go", "▁▁", "in", "ing", "ma", "maî"]
LETTERS = list("▁thefoxginamsy<>/|.î5")
PIECES = ["<unk>", "<s>", "</s>", *BYTES, *WORDS, *LETTERS]
THE, FOX, GO = (PIECES.index(piece) for piece in ("▁the", "▁fox", "▁go"))


def _field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    content = b"" if isinstance(value, int) else value
    out = _varint(number << 3 | (0 if isinstance(value, int) else 2))
    return out + (_varint(value) if isinstance(value, int) else _varint(len(content)) + content)


def _varint(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 127
        out += bytes([low | 128 if value else low])
        if not value:
            return out


def piece_model(unigram: bool = False, user: tuple[str, ...] = ()) -> bytes:
    """A SentencePiece model of PIECES, and pieces of the `user` behind them: byte pairs, or a unigram model."""
    model = b""
    for number, piece in enumerate((*PIECES, *user)):
        kind = 2 if number == 0 else 3 if number < 3 else 6 if piece in BYTES else 4 if piece in user else 1
        model += _field(1, _field(1, piece.encode()) + _field(2, float(-number / 8 if kind == 1 else 0)) + _field(3, kind))
    trained = _field(3, 1 if unigram else 2) + _field(35, 1)
    return model + _field(2, trained) + _field(3, _field(3, 1) + _field(4, int(unigram)) + _field(5, 1))


def byte_level() -> dict[str, Any]:
    """A tokenizer.json of bytes as characters, whose texts begin with `<s>`."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["Ġt", "he", "Ġthe", "Ġf", "ox", "Ġfox", "go", "in", "ing"]
    merges = [["Ġ", "t"], ["h", "e"], ["Ġt", "he"], ["Ġ", "f"], ["o", "x"], ["Ġf", "ox"], ["g", "o"], ["i", "n"], ["in", "g"]]
    names = ["<unk>", "<s>", "</s>", "<|new|>", *alphabet, *words]
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        **_common(["<unk>", "<s>", "</s>", "<|new|>"]),
        "pre_tokenizer": cut,
        "decoder": cut,
        "model": {"type": "BPE", "vocab": {name: k for k, name in enumerate(names)}, "merges": merges},
    }


def byte_fallback() -> dict[str, Any]:
    """A tokenizer.json of PIECES, in the older form of Llama 2: each part of a text begins with a space, which decoding strips."""
    vocabulary = {piece: k for k, piece in enumerate(PIECES)}
    merges = [
        [word[:cut], word[cut:]] for word in WORDS for cut in range(1, len(word)) if {word[:cut], word[cut:]} <= vocabulary.keys()
    ]
    space = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    return {
        **_common(["<unk>", "<s>", "</s>"]),
        "normalizer": {"type": "Sequence", "normalizers": space},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocabulary, "merges": merges,
        },
    }  # fmt: skip


def _common(special: list[str]) -> dict[str, Any]:
    begin = {"id": "<s>", "ids": [1], "tokens": ["<s>"]}
    return {
        "version": "1.0",
        "added_tokens": [{"id": k, **token(name)} for k, name in enumerate(special)],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": begin},
        },
    }


def token(name: str, is_special: bool = True, **flags: bool) -> dict[str, Any]:
    """A token that is added to a vocabulary."""
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not is_special, "special": is_special}
    return {"content": name, **usual, **flags}


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|new|>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|new|> go{% endif %}"
)
_LLAMA = {"tokenizer_class": "LlamaTokenizer"}
_NEW, _TOOL = len(PIECES), len(PIECES) + 1
_ADDED = {"added_tokens_decoder": {str(_NEW): token("<|new|>", rstrip=True), str(_TOOL): token("<tool>", False)}}
_ADDED_FILE = {"added_tokens.json": {"<|new|>": _NEW, "<tool>": _TOOL}}
_SPECIAL_FILE = {"special_tokens_map.json": {"bos_token": token("<s>"), "eos_token": "</s>"}}

FORMS: dict[str, tuple[str, str | None, dict[str, Any], dict[str, Any]]] = {
    # the tokenizer's files; model_type; tokenizer_config.json; further files
    "json of bytes": ("level", "llama", {"bos_token": "<s>", "eos_token": "</s>"}, {}),
    "json of bytes, its class Llama's": ("level", "llama", {**_LLAMA, "bos_token": "<s>"}, {}),
    "json of bytes, tokens beside it": ("level", "olmo2", {"extra_special_tokens": ["<tool>"]}, _SPECIAL_FILE),
    "json of pieces": ("fallback", "llama", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}, {}),
    "json of pieces, its class Llama's": ("fallback", "llama", _LLAMA, {}),
    "json of pieces, added tokens": ("fallback", "mistral", {**_LLAMA, "bos_token": "<s>"}, _ADDED_FILE),
    "pieces alone": ("pieces", None, {}, {}),
    "pieces, with Llama's class": ("pieces", "llama", {**_LLAMA, "add_bos_token": True}, {}),
    "pieces, an older Llama": ("pieces", "llama", {**_LLAMA, "add_bos_token": True, "add_eos_token": True, "legacy": True}, {}),
    "pieces, no first space": ("pieces", "llama", {**_LLAMA, "add_prefix_space": False}, {}),
    "pieces of Mistral": ("pieces", "mistral", {**_LLAMA, "add_bos_token": True, "legacy": False}, {}),
    "pieces of Gemma": ("pieces", "gemma2", {"add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}, {}),
    "pieces, added_tokens.json": ("pieces", "llama", {**_LLAMA, "extra_special_tokens": ["<|new|>"]}, _ADDED_FILE),
    "pieces, added_tokens.json, no class": ("pieces", "llama", {}, {**_ADDED_FILE, **_SPECIAL_FILE}),
    "pieces, added_tokens_decoder": ("pieces", "phi3", {**_LLAMA, "add_bos_token": True, **_ADDED}, {}),
    "pieces of Llama, added_tokens_decoder": ("pieces", "llama", {**_LLAMA, "add_bos_token": True, **_ADDED}, {}),
    "pieces of the user": ("user", "llama", {}, {}),
    "pieces of the user, with Llama's class": ("user", "llama", _LLAMA, {}),
    "unigram": ("unigram", "llama", {"add_bos_token": True}, {}),
    "both": ("fallback pieces", "llama", {**_LLAMA, "add_bos_token": True}, {}),
    "both, an older Llama": ("fallback pieces", "llama", {**_LLAMA, "legacy": True}, _SPECIAL_FILE),
    "both, added tokens": ("fallback pieces", "llama", {"bos_token": "<s>"}, _ADDED_FILE),
}


def write_form(directory: Path, form: str) -> Path:
    """The files of a form, in a directory of their own."""
    files, kind, settings, further = FORMS[form]
    directory.mkdir(parents=True)
    contents: dict[str, Any] = {"tokenizer_config.json": {**settings, "chat_template": TEMPLATE}, **further}
    if kind is not None:
        contents["config.json"] = {"model_type": kind}
    if "level" in files or "fallback" in files:
        contents["tokenizer.json"] = byte_level() if "level" in files else byte_fallback()
    for name, content in contents.items():
        (directory / name).write_text(json.dumps(content))
    if "level" not in files and files != "fallback":
        user = ("<user>",) if files == "user" else ()
        (directory / "tokenizer.model").write_bytes(piece_model("unigram" in files, user))
    return directory


def byte_of(character: str) -> int:
    """The byte that a character of `byte_level` stands for: its own, or, of those that cannot be printed, one after the other from 256 on."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return ord(character) if ord(character) < 256 else [byte for byte in range(256) if byte not in printed][ord(character) - 256]
