"""A vocabulary's ids and texts, by the package `tokenizers`."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from tempo_llm.errors import TokenizerError
from tempo_llm.spelling import Spelling

MARK = "\ufdd0"  # no character of any text: Unicode keeps it free for programs
_ALIAS, _DIGITS = "\ufdd1", 0xE000  # an alias is this sign and two digits of 4,096, of the characters for private use


class Codec:
    """A tokenizer of the package `tokenizers`, with the special tokens that it has."""

    def __init__(self, fast: Any):
        self._fast = fast
        fast.no_truncation()
        fast.no_padding()
        added = fast.get_added_tokens_decoder().values()
        self.special: list[str] = sorted(
            {token.content for token in added if token.special and token.content}, key=len, reverse=True
        )
        decoder = fast.decoder
        self._spelled = re.compile("|".join(f"{re.escape(each)}(?!{MARK})" for each in self.special) or "(?!)")
        self.spelling = Spelling(fast.id_to_token, " ".join if decoder is None else decoder.decode, frozenset(self.special))

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """The ids of a text. A special token that has a MARK in it is text as any other."""
        fast = self._fast
        if MARK in text:
            fast, aliases = self._renamed
            text = self._spelled.sub(lambda found: aliases[found[0]], text).replace(MARK, "")
        return list(fast.encode(text, add_special_tokens=add_special_tokens).ids)

    def guarded(self, text: str) -> str:
        """A text in which no special token is left: a MARK stands behind the first character of each.

        A special token of one character stays: a vocabulary has no other spelling of it.
        """
        text = text.replace(MARK, "")
        for token in (each for each in self.special if len(each) > 1):
            text = text.replace(token, f"{token[:1]}{MARK}{token[1:]}")
        return text

    def shown(self, text: str) -> str:
        """A text without its special tokens and MARKs."""
        return self._spelled.sub("", text).replace(MARK, "")

    def name(self, token: int) -> str:
        return self._fast.id_to_token(token) or ""

    def as_json(self) -> str:
        """The text of a tokenizer.json."""
        return str(self._fast.to_str())

    @functools.cached_property
    def _renamed(self) -> tuple[Any, dict[str, str]]:
        """The same tokenizer with other names for its special tokens, and these names.

        To it a text that spells a special token is a text as any other, encoded as one piece with what stands around it.
        """
        from tokenizers import Tokenizer

        aliases = {
            token: f"{_ALIAS}{chr(_DIGITS + number // 4096)}{chr(_DIGITS + number % 4096)}"
            for number, token in enumerate(self.special)
        }
        content = json.loads(self._fast.to_str())
        for token in content["added_tokens"]:
            token["content"] = aliases.get(token["content"], token["content"])
        model = content["model"]
        vocabulary = model["vocab"]
        if isinstance(vocabulary, dict):
            model["vocab"] = {aliases.get(name, name): number for name, number in vocabulary.items()}
        else:  # pieces with their scores
            model["vocab"] = [[aliases.get(name, name), score] for name, score in vocabulary]
        if "merges" in model:
            pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
            model["merges"] = [pair for pair in pairs if aliases.keys().isdisjoint((*pair, "".join(pair)))]
        if model.get("unk_token") is not None:
            model["unk_token"] = aliases.get(model["unk_token"], model["unk_token"])
        try:
            fast = Tokenizer.from_str(json.dumps(content))
        except Exception as error:  # the package raises a bare Exception for every fault
            raise TokenizerError(
                f"a text that spells a special token cannot be encoded with this tokenizer: {str(error)[:300]}",
                hint="leave the special token out, or read it as one: --special-tokens",
            ) from None
        return fast, aliases
