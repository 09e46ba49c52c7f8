"""A counter of the XLA programs that JAX compiles, and of the seconds that this takes, from JAX's own reports."""

from __future__ import annotations

from types import TracebackType

import jax


class CompileCounter:
    """Counts XLA compilations inside its `with`: `count` programs, which took `seconds` together."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0

    def __enter__(self) -> CompileCounter:
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        jax.monitoring.unregister_event_duration_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            self.count += 1
            self.seconds += duration_secs
