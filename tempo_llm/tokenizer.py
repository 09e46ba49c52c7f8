"""Text to token ids and back, from a checkpoint's `tokenizer.json` or SentencePiece `tokenizer.model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tempo_llm.chat import ChatTemplate, Message, conversation
from tempo_llm.codec import Codec
from tempo_llm.errors import TokenizerError
from tempo_llm.json_files import JsonObject
from tempo_llm.spelling import TextDecoder
from tempo_llm.template_process import TemplateProcess
from tempo_llm.tokenizer_files import add_ends, read_codec


class Tokenizer:
    """The tokenizer of a model directory.

    `template` is the model's chat template, or None. A begin-of-sequence token is prepended to a raw prompt where the
    tokenizer file, or `add_bos_token` in tokenizer_config.json, says so. Ids and texts are those of `transformers`.

    A text is the bytes of its tokens, read as UTF-8. Bytes that are none are U+FFFD.
    """

    def __init__(self, codec: Codec, template: ChatTemplate | None):
        self._codec = codec
        self.template = template

    @staticmethod
    def from_directory(directory: str | Path) -> Tokenizer:
        """Read the tokenizer. Raises `TokenizerError` if it is missing or damaged."""
        root = Path(directory)
        codec, settings = read_codec(root)
        return Tokenizer(codec, ChatTemplate.find(root, settings))

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
        """A tokenizer of the package `tokenizers`, with the settings of a tokenizer_config.json."""
        add_ends(fast, settings, ("bos", "eos"))
        return Tokenizer(Codec(fast), template)

    def encode(self, prompt: str, *, raw: bool, system_prompt: str | None = None, special: bool = False) -> list[int]:
        """The ids of `prompt`: of its text alone if `raw`, else of a user's message in the chat template.

        Special tokens that are spelled out in the prompt are encoded as text, unless `special` is on.
        """
        if raw:
            if system_prompt is not None:
                raise TokenizerError("a system prompt needs a chat template, but a raw prompt uses none")
            return self._encoded(prompt if special else self._guarded(prompt), True)
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

    def as_json(self) -> str:
        """The text of a tokenizer.json."""
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
        """The ids of a text that stands behind another one: without a begin token, or a space of its own. Special tokens that it spells out
        are encoded as text."""
        return self._behind(self._guarded(text))

    def encode_all(self, prompts: Sequence[str], *, raw: bool, system_prompt: str | None, special: bool) -> list[list[int]]:
        """`encode` of each prompt. The chat template runs once for all of them."""
        if raw:
            return [self.encode(prompt, raw=True, system_prompt=system_prompt, special=special) for prompt in prompts]
        return [self._encoded(text, False) for text in self.render([conversation(p, system_prompt) for p in prompts], special)]

    def token_text(self, token: int) -> str:
        """The text of one token: what it adds behind another one. A special token is its own name, and a part of a character is U+FFFD."""
        return self.token_bytes(token).decode("utf-8", "replace") or self._codec.name(token)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text behind another one; none if it is a special token."""
        return self._codec.spelling.bytes_of(token)

    def decoder(self, before: Sequence[int] = ()) -> TextDecoder:
        """The text of tokens as they come, behind the tokens `before`: both together are what `decode` gives for all of them."""
        return TextDecoder(self._codec.spelling, before)

    def encode_rendered(self, text: str, is_first: bool = True) -> list[int]:
        """The ids of a part of what `render` gives: of its beginning, or of a part that is not the first one."""
        return self._encoded(text, False) if is_first else self._behind(text)

    def _behind(self, text: str) -> list[int]:
        """The ids of a text behind another one. Where a vocabulary puts a space before each text, those that it has behind some other text."""
        ids, expected = self._encoded(text, False), self._codec.shown(text)
        for other in ("", "\n", "a", ".", "0"):
            before = self._encoded(other, False)
            whole = self._encoded(other + text, False) if other else ids
            behind = whole[len(before) :]
            if whole[: len(before)] == before and b"".join(map(self.token_bytes, behind)) == expected.encode():
                return behind
        return ids

    def _guarded(self, text: str) -> str:
        return self._codec.guarded(text)

    def _encoded(self, text: str, add_special_tokens: bool) -> list[int]:
        try:
            return self._codec.encode(text, add_special_tokens)
        except (UnicodeError, ValueError, TypeError) as error:
            raise TokenizerError(f"the prompt cannot be encoded: {error}", hint="prompts are UTF-8 text") from None

    def decode(self, ids: Sequence[int], before: Sequence[int] = ()) -> str:
        """The text of `ids`, without special tokens, behind the tokens `before`."""
        decoder = self.decoder(before)
        return "".join(map(decoder.write, ids)) + decoder.finish()
