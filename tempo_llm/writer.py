"""Text as it comes, from tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence

from tempo_llm.tokenizer import Tokenizer


class Writer:
    """The text of a row: what is certain of it is written, piece by piece.

    The last characters wait while they may be a part of a character, or of a stop string.
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

    def write(self, ids: Sequence[int], is_last: bool) -> str:
        """The text that these further tokens add."""
        if self._tokenizer is None or self.is_stopped:
            return ""
        self._ids += ids
        text = self._tokenizer.decode(self._ids)
        places = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if places:
            text, self.is_stopped = text[: min(places)], True
        elif not is_last:
            text = text.rstrip("\ufffd")
            text = text[: len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)]
        if len(text) <= len(self._written) or not text.startswith(self._written):
            return ""
        new = text[len(self._written) :]
        self._written = text
        return new


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters of a text may be the first of a stop string."""
    return next((k for k in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:k])), 0)
