"""Programs that a thread compiles while others run: those that are wanted first, then all others."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Hashable, Mapping

from tempo_core.compiling import leave_behind

LOG = logging.getLogger("tempo.serve")


class Ahead:
    """Functions that compile a program each, by keys. `compile` compiles some at once, and a thread of its own those that are wanted.

    With `everything`, the thread compiles all others too, in their order, before they are wanted. A program whose compilation fails counts as
    ready: the first run that uses it tries again.
    """

    def __init__(self, programs: Mapping[Hashable, Callable[[], object]], everything: bool = True):
        self._programs, self._everything = programs, everything
        self._ready: set[Hashable] = set()
        self._asked: set[Hashable] = set()
        self._wanted: queue.SimpleQueue[Hashable] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="tempo-ahead", daemon=True)

    def compile(self, key: Hashable) -> None:
        self._programs[key]()
        self._ready.add(key)

    def start(self) -> None:
        leave_behind(self._thread)
        self._thread.start()

    def close(self) -> None:
        """Compile no further programs."""
        self._is_closed = True
        self._wanted.put(None)

    def is_ready(self, key: Hashable) -> bool:
        """Whether a program is compiled. If it is not, it is the next one."""
        if key in self._ready:
            return True
        if key not in self._asked:
            self._asked.add(key)
            self._wanted.put(key)
        return False

    def is_asked(self, key: Hashable) -> bool:
        """Whether a program was wanted before it was ready."""
        return key in self._asked

    @property
    def waiting(self) -> int:
        """How many programs are still to be compiled."""
        return len((self._programs.keys() if self._everything else set(self._asked)) - self._ready)

    def _run(self) -> None:
        while len(self._ready) < len(self._programs):
            try:
                key = self._wanted.get(block=not self._everything)
            except queue.Empty:
                key = next(each for each in self._programs if each not in self._ready)
            if self._is_closed or key is None:
                return
            if key in self._ready:
                continue
            try:
                self.compile(key)
            except Exception:
                LOG.exception("a program could not be compiled; the first run that uses it tries again")
                self._ready.add(key)
