"""What was computed of earlier prompts: a prompt that begins with the same tokens goes on from there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tempo_llm.prefix import Kept, Prefix
from tempo_llm.prefix_files import PrefixFiles

__all__ = ["Kept", "Prefix", "Prefixes"]

LOG = logging.getLogger("tempo")


@dataclass(eq=False)
class _Entry:
    prefix: Prefix
    file: str = ""  # the name of the file that holds it, or that covers it; "" if there is none


class Prefixes:
    """The prefixes of a model that are kept in memory, and in `directory` if there is one: those that were used last.

    Their arrays have at most `most_bytes` in memory, and their files as many. Several processes may share the directory, and it may hold
    prefixes of several models. `model` is a digest of all that the arrays depend on besides the tokens (the weights, their dtype, the
    attention patterns), or computes it, once, when a file is read or written. Threads take turns, also for the files.

    Raises RequestError for a directory that cannot be created, that belongs to another user, or that others can write.
    """

    def __init__(self, most_bytes: int, directory: Path | None = None, model: Callable[[], str] | str = ""):
        self.most_bytes = most_bytes
        self._entries: list[_Entry] = []  # in the order of their last use
        self._files = None if directory is None else PrefixFiles(directory, most_bytes, model)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many prefixes are in memory."""
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays in memory."""
        return sum(entry.prefix.nbytes for entry in self._entries)

    def find(self, tokens: Sequence[int], unit: int) -> tuple[Prefix, int] | None:
        """The prefix of which the most tokens of a prompt can be used, and how many: a multiple of `unit`, above 0.

        The last token is never among them: the next one follows from what is computed of it. Of prefixes that serve equally, those in
        memory come first. None if there is no prefix. Raises ValueError if `unit` is not above 0.
        """
        if unit < 1:
            raise ValueError(f"the unit is {unit} tokens; it must be at least 1")
        prompt = np.asarray(tokens, np.int64)
        with self._lock:
            counts = [(entry.prefix.outline.reusable(prompt, unit), entry) for entry in reversed(self._entries)]
            most, best = max(counts, key=lambda each: each[0], default=(0, None))
            loaded = self._load(prompt, unit, most)
            if loaded is not None:
                return loaded
            if best is None or most == 0:
                return None
            self._use(best)
            return best.prefix, most

    def keep(self, prefix: Prefix) -> None:
        """Keep a prefix, with copies of arrays that can be written, in place of those that it covers.

        A prefix covers another one if all that can be used of the other one can be used of it. One that is covered already is not kept a
        second time: the prefix that covers it counts as used. Nor is one kept of more than `most_bytes`, or of which nothing can be used.
        A directory that cannot be written is a warning.
        """
        if not prefix.tokens or not prefix.usable(len(prefix.tokens)):
            return
        if prefix.nbytes > self.most_bytes:
            LOG.info("a prompt of %s bytes is not kept: at most %s are", f"{prefix.nbytes:,}", f"{self.most_bytes:,}")
            return
        with self._lock:
            entry = next((entry for entry in self._entries if entry.prefix.outline.covers(prefix.outline)), None)
            if entry is None:
                entry = _Entry(prefix.fixed())
                self._insert(entry)
            else:
                self._use(entry)
            if self._files is not None:
                entry.file = self._files.keep(entry.prefix)

    def _load(self, prompt: np.ndarray, unit: int, most: int) -> tuple[Prefix, int] | None:
        """The prefix of a file that serves more than `most` tokens of a prompt."""
        if self._files is None:
            return None
        counts = {name: outline.reusable(prompt, unit) for name, outline in self._files.outlines().items()}
        for name in sorted(counts, key=lambda name: counts[name], reverse=True):
            if counts[name] <= most:
                break
            prefix = self._files.load(name)
            if prefix is not None:
                self._insert(_Entry(prefix, name))
                return prefix, counts[name]
        return None

    def _insert(self, entry: _Entry) -> None:
        """Have an entry in memory as the one that was used last, and remove what it covers, and what is above the limit."""
        if entry.prefix.nbytes > self.most_bytes:  # from a directory that another process allows to be larger
            return
        entries = [each for each in self._entries if not entry.prefix.outline.covers(each.prefix.outline)] + [entry]
        excess = sum(each.prefix.nbytes for each in entries) - self.most_bytes
        while excess > 0:
            excess -= entries.pop(0).prefix.nbytes
        self._entries = entries

    def _use(self, entry: _Entry) -> None:
        self._entries = [each for each in self._entries if each is not entry] + [entry]
        if self._files is not None and entry.file:
            self._files.touch(entry.file)
