"""The forms in which a model brings its tokenizer: `tokenizer.json`, `tokenizer.model`, and the files that add tokens to them.

Each form means what it means to `transformers`, to the ids. There a class stands for a way to cut texts, and may overrule the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tempo_llm import sentencepieces
from tempo_llm.codec import Codec
from tempo_llm.errors import TokenizerError
from tempo_llm.files import check_regular, read_text
from tempo_llm.json_files import JsonObject
from tempo_llm.sentencepieces import PieceModel

LLAMA, GEMMA = "LlamaTokenizer", "GemmaTokenizer"
_AS_WRITTEN = ("mistral", "ministral", "mixtral", "olmo", "phi", "qwen")  # model types whose tokenizers no class overrules
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_GEMMA_NAMES = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "unk", "pad", "mask")}
_LLAMA_NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def read_codec(root: Path) -> tuple[Codec, JsonObject]:
    """The tokenizer of a model directory, and the settings of its tokenizer_config.json, with the special tokens that its class and its
    other files name. Raises TokenizerError if it is missing or damaged.
    """
    file, pieces = root / "tokenizer.json", root / "tokenizer.model"
    if not file.exists() and not pieces.exists():
        raise TokenizerError(f"no tokenizer.json or tokenizer.model in {root}", hint="copy it from the model's own directory")
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise TokenizerError("reading a tokenizer needs the package tokenizers", hint="pip install 'tempo-dl[llm]'") from None
    settings = _read_object(root / "tokenizer_config.json")
    kind = _class_of(root, settings)
    older: dict[str, Any] = {} if "added_tokens_decoder" in settings else _read_object(root / "special_tokens_map.json")
    further = older.pop("additional_special_tokens", None)
    settings = {**settings, **older}
    added = _added_tokens(root, settings)
    if file.exists():
        fast = _of_file(file)
        names: Mapping[str, str] = _shape(fast, kind, settings)
    else:
        fast, names, has_first_space = _of_pieces(pieces, kind, settings, added)
        if kind is None and has_first_space:  # they are found in the text as it is: what stands behind one begins with a space
            added = {number: _as_it_is(token) for number, token in added.items()}
    settings = {**names, **({} if further is None or not file.exists() else {"additional_special_tokens": further}), **settings}
    _add(fast, added, settings)
    if not file.exists():
        add_ends(fast, settings, ("bos", "eos"))
    elif fast.encode("").tokens[:1] != [_text(settings.get("bos_token"))]:
        add_ends(fast, settings, ("bos",))
    return Codec(fast), settings


def add_ends(fast: Any, settings: JsonObject, names: Sequence[str]) -> None:
    """Add the tokens of begin and end to each text where `add_bos_token` and `add_eos_token` ask for them, beside those that are added already."""
    from tokenizers import processors

    asked = [name for name in names if settings.get(f"add_{name}_token") is True]
    tokens = {
        name: text for name in asked if (text := _text(settings.get(f"{name}_token"))) and fast.token_to_id(text) is not None
    }
    if tokens:
        ends = [*([tokens["eos"]] if "eos" in tokens else []), *fast.encode("").tokens]
        parts = [*([tokens["bos"]] if "bos" in tokens else []), "$A", *ends]
        special = [(token, fast.token_to_id(token)) for token in {*parts} - {"$A"}]
        fast.post_processor = processors.TemplateProcessing(single=parts, special_tokens=special)


def _class_of(root: Path, settings: JsonObject) -> str | None:
    """The class of `transformers` that overrules a file: LLAMA, GEMMA, or None."""
    config = _read_object(root / "config.json")
    model, said = str(config.get("model_type") or ""), settings.get("tokenizer_class") or config.get("tokenizer_class")
    if model.startswith(_AS_WRITTEN):
        return None
    if said is None:
        return GEMMA if model.startswith("gemma") else None
    name = str(said).removesuffix("Fast")
    return name if name in (LLAMA, GEMMA) else None


# -- the two files --------------------------------------------------------------------------------------------------------


def _of_file(path: Path) -> Any:
    """The tokenizer of a tokenizer.json."""
    from tokenizers import Tokenizer

    try:
        check_regular(path)
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises a bare Exception for every fault in the file
        raise TokenizerError(f"{path} cannot be read: {str(error)[:300]}") from None


def _of_pieces(
    path: Path, kind: str | None, settings: JsonObject, added: Mapping[int, Any]
) -> tuple[Any, Mapping[str, str], bool]:
    """The tokenizer of a tokenizer.model, the names of its special tokens, and whether its texts begin with a space."""
    from tokenizers import AddedToken, Tokenizer, models

    try:
        check_regular(path)
        model = PieceModel.parse(path.read_bytes())
        if kind is None:
            size = len(model.pieces)
            renamed = {number: token.content for number, token in added.items() if number < size}
            fast = sentencepieces.as_written(model, renamed, settings.get("legacy", True) is not False)
            fast.add_tokens([AddedToken(text, special=True) for text in model.of_kind(sentencepieces.CONTROL)])
            return fast, model.names, model.has_first_space
        vocabulary = {piece.text: number for number, piece in enumerate(model.pieces)}
        pairs = sentencepieces.byte_pairs(vocabulary, vocabulary, lambda text: (vocabulary[text],))
        fast = Tokenizer(models.BPE(**pairs, fuse_unk=True, byte_fallback=True))
    except (ValueError, OSError) as error:
        raise TokenizerError(f"{path} cannot be read as a SentencePiece model: {error}") from None
    except Exception as error:  # the package raises a bare Exception for every fault in the vocabulary
        raise TokenizerError(f"{path} cannot be read: {str(error)[:300]}") from None
    names = _shape(fast, kind, settings)
    for each, is_special in ((sentencepieces.CONTROL, True), (sentencepieces.USER, False)):
        fast.add_tokens([AddedToken(text, normalized=False, special=is_special) for text in model.of_kind(each)])
    return fast, names, model.has_first_space


def _shape(fast: Any, kind: str | None, settings: JsonObject) -> Mapping[str, str]:
    """Have a tokenizer cut texts as its class does. Gives the names of the class's special tokens."""
    model = fast.model
    if kind is None or type(model).__name__ != "BPE" or "ByteLevel" in str(fast.pre_tokenizer):
        return {}
    model.fuse_unk, model.byte_fallback = True, True
    if kind == GEMMA:
        names = _GEMMA_NAMES
        model.unk_token = _text(settings.get("unk_token", names["unk_token"]))
        sentencepieces.like_gemma(fast)
    else:
        names = _LLAMA_NAMES
        model.unk_token = None
        sentencepieces.like_llama(fast, settings.get("legacy") is True, settings.get("add_prefix_space") is not False)
    return names


# -- tokens that other files add ------------------------------------------------------------------------------------------


def _added_tokens(root: Path, settings: JsonObject) -> dict[int, Any]:
    """The tokens of `added_tokens_decoder` in tokenizer_config.json, else those of added_tokens.json, by their numbers."""
    from tokenizers import AddedToken

    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    try:
        said: Any = settings.get("added_tokens_decoder")
        if said is not None:
            given = {int(number): token for number, token in said.items()}
            tokens = {
                number: AddedToken(token["content"], **{flag: token[flag] for flag in flags if flag in token})
                for number, token in given.items()
            }
        else:
            special = {_text(settings.get(name)) for name in _NAMES} | set(_further(settings))
            tokens = {
                int(number): AddedToken(text, normalized=text not in special, special=text in special)
                for text, number in _read_object(root / "added_tokens.json").items()
            }
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise TokenizerError(f"the tokens that {root} adds to its tokenizer cannot be read: {error}") from None
    return dict(sorted(tokens.items()))


def _as_it_is(token: Any) -> Any:
    from tokenizers import AddedToken

    flags = {flag: getattr(token, flag) for flag in ("single_word", "lstrip", "rstrip", "special")}
    return AddedToken(token.content, normalized=False, **flags)


def _add(fast: Any, added: Mapping[int, Any], settings: JsonObject) -> None:
    """Add tokens to a tokenizer, and the special ones that have a name."""
    from tokenizers import AddedToken

    known = {repr(token) for token in fast.get_added_tokens_decoder().values()}
    fast.add_tokens([token for token in added.values() if repr(token) not in known])
    there = {token.content for token in fast.get_added_tokens_decoder().values()}
    special = {token.content for token in fast.get_added_tokens_decoder().values() if token.special}
    named = [text for name in _NAMES if (text := _text(settings.get(name))) and text not in special]
    named += [text for text in _further(settings) if text not in there]
    fast.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in named])


def _further(settings: JsonObject) -> list[str]:
    """The special tokens beside those of `_NAMES`."""
    found: list[str] = []
    for key in ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"):
        given = settings.get(key)
        each = given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else ()
        found += [text for text in map(_text, each) if text]
    return found


def _text(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a file of JSON; an empty one if there is no file. Raises TokenizerError."""
    if not path.exists():
        return {}
    try:
        return dict(json.loads(read_text(path)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise TokenizerError(f"{path} is not a JSON object: {error}") from None
