"""Text to token ids and back, from a checkpoint's `tokenizer.json` or SentencePiece `tokenizer.model`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tempo_llm.chat import ChatTemplate, Message, conversation, token_text
from tempo_llm.errors import TokenizerError
from tempo_llm.files import check_regular, read_text
from tempo_llm.json_files import JsonObject
from tempo_llm.template_process import TemplateProcess

_MARK = "\ue000"  # of the characters for private use: no text means anything by it


class _Codec(Protocol):
    """The common interface of the two kinds of tokenizer file."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def token_id(self, token: str) -> int | None: ...

    def name(self, token: int) -> str: ...

    def special(self) -> Sequence[str]: ...

    def as_json(self) -> str | None: ...


class Tokenizer:
    """The tokenizer of a model directory.

    `template` is the model's chat template, or None. A begin-of-sequence token is prepended to a raw prompt where the
    tokenizer file, or `add_bos_token` in tokenizer_config.json, says so.
    """

    def __init__(self, codec: _Codec, settings: JsonObject, template: ChatTemplate | None):
        self._codec = codec
        self._settings = settings
        self.template = template
        self._special = sorted((token for token in codec.special() if token), key=len, reverse=True)

    @staticmethod
    def from_directory(directory: str | Path) -> Tokenizer:
        """Read the tokenizer. Raises `TokenizerError` if it is missing or damaged."""
        root = Path(directory)
        settings = _read_settings(root / "tokenizer_config.json")
        return Tokenizer(_read_codec(root), settings, ChatTemplate.find(root, settings))

    @staticmethod
    def if_there(directory: str | Path) -> Tokenizer | None:
        """The tokenizer of a model directory, or None if there is none. Raises `TokenizerError` if it is damaged."""
        root = Path(directory)
        if root.is_file():
            from tempo_llm.gguf_model import tokenizer_of

            return tokenizer_of(root)
        is_there = (root / "tokenizer.json").exists() or (root / "tokenizer.model").exists()
        return Tokenizer.from_directory(root) if is_there else None

    @staticmethod
    def of_fast(fast: Any, settings: JsonObject, template: ChatTemplate | None) -> Tokenizer:
        """A tokenizer of the package `tokenizers`."""
        return Tokenizer(_Tokenizers(fast), settings, template)

    def encode(self, prompt: str, *, raw: bool, system_prompt: str | None = None, special: bool = False) -> list[int]:
        """The ids of `prompt`: of its text alone if `raw`, else of a user's message in the chat template.

        Special tokens that are spelled out in the prompt are encoded as text, unless `special` is on.
        """
        if raw:
            if system_prompt is not None:
                raise TokenizerError("a system prompt needs a chat template, but a raw prompt uses none")
            return self._with_bos(self._encoded(prompt if special else self._guarded(prompt), True))
        return self.encode_conversation(conversation(prompt, system_prompt), special)

    def encode_conversation(self, messages: Sequence[Message], special: bool = False) -> list[int]:
        """The ids of a conversation in the chat template, up to the place where the model answers next."""
        return self._encoded(self.render([messages], special)[0], False)

    def encode_messages(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], process: TemplateProcess | None = None
    ) -> list[int]:
        """The ids of a conversation whose messages may have more than a role and a text, in the chat template, which may use `variables`.

        The `process` of earlier conversations renders this one too. Raises TokenizerError as `render` does.
        """
        if self.template is None:
            raise TokenizerError("this model has no chat template", hint="send a prompt instead: /v1/completions")
        guarded = [{name: self._guarded_json(value) for name, value in message.items()} for message in messages]
        return self._encoded(self.template.render_all([guarded], True, self._guarded_json(variables), process)[0], False)

    def _guarded_json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._guarded(value)
        if isinstance(value, Mapping):
            return {self._guarded(name): self._guarded_json(each) for name, each in value.items()}
        return [self._guarded_json(each) for each in value] if isinstance(value, (list, tuple)) else value

    def as_json(self) -> str | None:
        """The text of a tokenizer.json; None for a SentencePiece model."""
        return self._codec.as_json()

    def render(self, conversations: Sequence[Sequence[Message]], special: bool = False, prompt: bool = True) -> list[str]:
        """The texts of conversations in the chat template: up to the place where the model answers next, or, without `prompt`, to the end of
        the last message. A mark, which `encode_rendered` understands, stands in the special tokens that messages spell out, unless `special`
        is on. Raises TokenizerError if the model has no chat template, or if it fails.
        """
        if self.template is None:
            raise TokenizerError("this model has no chat template", hint="send the prompt without a template: --raw")
        guard = (lambda text: text) if special else self._guarded
        return self.template.render_all(
            [[{**message, "content": guard(message["content"])} for message in messages] for messages in conversations], prompt
        )

    def encode_behind(self, text: str) -> list[int]:
        """The ids of a text that stands behind another one: without a begin token. Special tokens that it spells out are encoded as text."""
        return self._encoded(self._guarded(text), False)

    def encode_all(self, prompts: Sequence[str], *, raw: bool, system_prompt: str | None, special: bool) -> list[list[int]]:
        """`encode` of each prompt. The chat template runs once for all of them."""
        if raw:
            return [self.encode(prompt, raw=True, system_prompt=system_prompt, special=special) for prompt in prompts]
        return [self._encoded(text, False) for text in self.render([conversation(p, system_prompt) for p in prompts], special)]

    def token_text(self, token: int) -> str:
        """The text of one token: what it adds behind another one. A special token is its own name, and a part of a character is U+FFFD."""
        name = self._codec.name(token)
        if name in self._special:
            return name
        before = self._codec.encode("a", False)
        return self.decode([*before, token]).removeprefix(self.decode(before))

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a part of what `render` gives."""
        return self._encoded(text, False)

    def _guarded(self, text: str) -> str:
        """A text in which no special token is left: a mark stands after the first character of each."""
        text = text.replace(_MARK, "")
        for token in self._special:
            text = text.replace(token, f"{token[:1]}{_MARK}{token[1:]}")
        return text

    def _encoded(self, text: str, add_special_tokens: bool) -> list[int]:
        first, *rest = text.split(_MARK)
        try:
            ids = self._codec.encode(first, add_special_tokens)
            return ids + [token for part in rest for token in self._codec.encode(part, False)]
        except (UnicodeError, ValueError, TypeError) as error:
            raise TokenizerError(f"the prompt cannot be encoded: {error}", hint="prompts are UTF-8 text") from None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without special tokens."""
        return self._codec.decode(ids)

    def _with_bos(self, ids: list[int]) -> list[int]:
        text = token_text(self._settings.get("bos_token"))
        bos = self._codec.token_id(text) if text else None
        if self._settings.get("add_bos_token") is True and bos is not None and ids[:1] != [bos]:
            return [bos, *ids]
        return ids


def _read_settings(path: Path) -> JsonObject:
    if not path.exists():
        return {}
    try:
        return dict(json.loads(read_text(path)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise TokenizerError(f"{path} is not a JSON object: {error}") from None


def _read_codec(root: Path) -> _Codec:
    if (root / "tokenizer.json").exists():
        return _Tokenizers.of_file(root / "tokenizer.json")
    if (root / "tokenizer.model").exists():
        return _SentencePiece(root / "tokenizer.model")
    raise TokenizerError(f"no tokenizer.json or tokenizer.model in {root}", hint="copy it from the model's own directory")


class _Tokenizers:
    """A tokenizer of the package `tokenizers`."""

    def __init__(self, fast: Any):
        self._fast = fast
        self._fast.no_truncation()
        self._fast.no_padding()

    @staticmethod
    def of_file(path: Path) -> _Tokenizers:
        """That of a tokenizer.json."""
        try:
            from tokenizers import Tokenizer as Fast
        except ImportError:
            raise TokenizerError(
                "reading tokenizer.json needs the package tokenizers", hint="pip install 'tempo-dl[llm]'"
            ) from None
        try:
            check_regular(path)
            return _Tokenizers(Fast.from_file(str(path)))
        except Exception as error:  # the package raises a bare Exception for every fault in the file
            raise TokenizerError(f"{path} cannot be read: {str(error)[:300]}") from None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(self._fast.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._fast.decode(list(ids), skip_special_tokens=True))

    def token_id(self, token: str) -> int | None:
        return self._fast.token_to_id(token)

    def name(self, token: int) -> str:
        return self._fast.id_to_token(token) or ""

    def special(self) -> Sequence[str]:
        return [token.content for token in self._fast.get_added_tokens_decoder().values() if token.special]

    def as_json(self) -> str | None:
        return str(self._fast.to_str())


class _SentencePiece:
    """tokenizer.model, through the `sentencepiece` package. The only special token that it adds is the begin token."""

    def __init__(self, path: Path):
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise TokenizerError(
                "reading tokenizer.model needs the package sentencepiece", hint="pip install sentencepiece"
            ) from None
        try:
            check_regular(path)
            self._pieces = SentencePieceProcessor(model_file=str(path))
        except (RuntimeError, OSError) as error:
            raise TokenizerError(f"{path} cannot be read as a SentencePiece model: {error}") from None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if add_special_tokens:
            return self._pieces.encode(text, add_bos=self._pieces.bos_id() >= 0)
        return self._encode_special(text)

    def _encode_special(self, text: str) -> list[int]:
        """The ids of a rendered template. It spells out the begin and end tokens, which SentencePiece would cut into letters."""
        for token in (self._pieces.bos_id(), self._pieces.eos_id()):
            if token >= 0 and (piece := self._pieces.id_to_piece(token)) in text:
                before, after = text.split(piece, 1)
                return [*self._encode_special(before), token, *self._encode_special(after)]
        return list(self._pieces.encode(text)) if text else []

    def decode(self, ids: Sequence[int]) -> str:
        vocabulary = range(self._pieces.get_piece_size())
        return str(self._pieces.decode([i for i in ids if i in vocabulary and not self._pieces.is_control(i)]))

    def token_id(self, token: str) -> int | None:
        number = self._pieces.piece_to_id(token)
        return None if number == self._pieces.unk_id() else int(number)

    def name(self, token: int) -> str:
        return str(self._pieces.id_to_piece(token)) if token < self._pieces.get_piece_size() else ""

    def special(self) -> Sequence[str]:
        return [self._pieces.id_to_piece(token) for token in (self._pieces.bos_id(), self._pieces.eos_id()) if token >= 0]

    def as_json(self) -> str | None:
        return None
