"""Text as it comes, from tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence

from tempo_llm.tokenizer import Tokenizer


class Writer:
    """The text of a row behind its prompt: what is certain of it is written, piece by piece. Prompt and text are what all tokens decode to.

    The last characters wait while they may be a part of a character, or of a stop string. The row's last token is the one that completes a
    stop string: what ends the text, and where, does not depend on how many tokens come at once.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Sequence[str], prompt: Sequence[int] = ()):
        self._decoder = None if tokenizer is None else tokenizer.decoder(prompt)
        self._stops = stops
        self._text, self._written = "", 0  # all that is decoded; how many characters of it are written
        self.length = 0  # how many tokens the text is of
        self.is_stopped = False

    @property
    def text(self) -> str | None:
        """What is written so far; None without a tokenizer."""
        return None if self._decoder is None else self._text[: self._written]

    def write(self, ids: Sequence[int], is_last: bool) -> str:
        """The text that these further tokens add."""
        if self._decoder is None or self.is_stopped:
            return ""
        before = self._written
        for token in ids:
            self.length += 1
            if self._add(self._decoder.write(token)):
                return self._text[before : self._written]
        if is_last and self._add(self._decoder.finish()):
            return self._text[before : self._written]
        waiting = 0 if is_last else max((_overlap(self._text, stop) for stop in self._stops), default=0)
        self._written = max(self._written, len(self._text) - waiting)
        return self._text[before : self._written]

    def _add(self, text: str) -> bool:
        """Add characters. True if a stop string is whole with them: the text ends before the first one."""
        start = len(self._text)
        self._text += text
        if not text:
            return False
        places = [self._text.find(stop, max(start - len(stop) + 1, 0)) for stop in self._stops]
        found = [place for place in places if place >= 0]
        if found:
            self._written, self.is_stopped = max(min(found), self._written), True
        return bool(found)


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters of a text may be the first of a stop string."""
    return next((k for k in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:k])), 0)
