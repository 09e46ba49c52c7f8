"""Tokens to text: the bytes that each token adds, and the characters that these bytes are."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable, Sequence, Set

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_LAST = 16  # tokens of a prompt whose bytes a text behind it may go on with: a character has four bytes at most


@functools.cache
def _byte_level() -> dict[str, int]:
    """The byte that a character of a byte-level vocabulary stands for."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {**{chr(byte): byte for byte in printed}, **{chr(256 + k): byte for k, byte in enumerate(others)}}


class Spelling:
    """What the tokens of a vocabulary add to a text.

    A token has the same bytes wherever it stands, but for the first one of a text, whose space some decoders leave out. So whole texts,
    texts that come token by token, and the bytes of log-probabilities are the same bytes.
    """

    def __init__(self, name: Callable[[int], str | None], joined: Callable[[Sequence[str]], str], special: Set[str]):
        """`name` is that of a token in the vocabulary; `joined` is the text of such names; `special` are the names that no text shows."""
        self._name, self._joined, self._special = name, joined, special
        self.bytes_of = functools.lru_cache(1 << 18)(self._bytes_of)

    def is_shown(self, token: int) -> bool:
        """Whether a token is part of a text: it is known, and not a special one."""
        name = self._name(token)
        return name is not None and name not in self._special

    def _bytes_of(self, token: int, is_first: bool = False) -> bytes:
        """The bytes that a token adds to a text, of which it `is_first`, or stands behind another one. A special token adds none."""
        name = self._name(token)
        if name is None or name in self._special:
            return b""
        text = self._joined([name]) if is_first else self._joined(["a", name]).removeprefix(self._joined(["a"]))
        if "\ufffd" not in text:
            return text.encode()
        byte = _BYTE.fullmatch(name)  # a part of a character
        if byte is not None:
            return bytes([int(byte[1], 16)])
        table = _byte_level()
        return bytes(table[each] for each in name) if all(each in table for each in name) else text.encode()


class TextDecoder:
    """The text of tokens as they come, behind the tokens `before`.

    A character is given when its last byte has come. Bytes that are no UTF-8 are U+FFFD; what follows them is not touched by it.
    """

    def __init__(self, spelling: Spelling, before: Sequence[int] = ()):
        self._spelling = spelling
        self._utf_8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_first = not any(spelling.is_shown(token) for token in before[:-_LAST])
        for token in before[-_LAST:]:
            self.write(token)

    def spell(self, token: int) -> bytes:
        """The bytes that a token would add here."""
        return self._spelling.bytes_of(token, self._is_first)

    def write(self, token: int) -> str:
        """The characters that are whole with a further token."""
        text = self._utf_8.decode(self.spell(token))
        self._is_first = self._is_first and not self._spelling.is_shown(token)
        return text

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that is not whole."""
        return self._utf_8.decode(b"", True)
