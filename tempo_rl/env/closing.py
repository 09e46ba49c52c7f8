"""The end of environments, which may raise or block without a loss of what was done before."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Protocol

PATIENCE = 10.0  # seconds for a `close()`


class Closable(Protocol):
    """Anything that is closed at its end."""

    def close(self) -> None: ...


def close_quietly(environment: Closable) -> None:
    """Close an environment whatever state it is in. One that raises is left as it is, and one that blocks is left behind."""

    def close() -> None:
        with suppress(Exception):  # the result, or the error that ended the work, matters more
            environment.close()

    thread = threading.Thread(target=close, daemon=True, name="close an environment")
    thread.start()
    thread.join(PATIENCE)
