"""Text as it comes, from tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence

from tempo_llm.tokenizer import Tokenizer


class Writer:
    """The text of a row: what is certain of it is written, piece by piece.

    The last characters wait while they may be a part of a character, or of a stop string. The row's last token is the one that completes a
    stop string: what ends the text, and where, does not depend on how many tokens come at once.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Sequence[str]):
        self._tokenizer, self._stops = tokenizer, stops
        self._ids: list[int] = []
        self._written = ""
        self.is_stopped = False

    @property
    def text(self) -> str | None:
        """What is written so far; None without a tokenizer."""
        return None if self._tokenizer is None else self._written

    @property
    def length(self) -> int:
        """How many tokens the text is of."""
        return len(self._ids)

    def write(self, ids: Sequence[int], is_last: bool) -> str:
        """The text that these further tokens add."""
        if self._tokenizer is None or self.is_stopped:
            return ""
        before = len(self._ids)
        self._ids += ids
        text = self._tokenizer.decode(self._ids)
        if any(stop in text for stop in self._stops):
            text, self.is_stopped = self._stopped(self._tokenizer, before, text), True
        elif not is_last:
            text = text.rstrip("\ufffd")
            text = text[: len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)]
        if len(text) <= len(self._written) or not text.startswith(self._written):
            return ""
        new = text[len(self._written) :]
        self._written = text
        return new

    def _stopped(self, tokenizer: Tokenizer, before: int, text: str) -> str:
        """The text up to the first stop string that is whole. Tokens behind it, of those that came after `before`, are dropped."""
        for length in range(before + 1, len(self._ids)):
            part = tokenizer.decode(self._ids[:length])
            if any(stop in part for stop in self._stops):
                del self._ids[length:]
                text = part
                break
        return text[: min(place for place in (text.find(stop) for stop in self._stops) if place >= 0)]


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters of a text may be the first of a stop string."""
    return next((k for k in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:k])), 0)
