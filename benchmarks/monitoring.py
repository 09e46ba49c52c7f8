"""What Python runs, seen by `sys.monitoring`: which functions act (`benchmarks/reach.py`), which lines a test runs (`tests/choosing.py`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

IS_THERE = sys.version_info >= (3, 12)


def first_events(event: str, owner: str, seen: Callable[[CodeType, int], object]) -> Any:
    """Call `seen` the first time that an event happens at a place: "PY_START", with a code object and an offset, or "LINE", with a line.

    The result is `sys.monitoring`. After its `restart_events` all places are new; a place that was seen costs nothing.
    """
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]

    def once(code: CodeType, place: int) -> Any:
        seen(code, place)
        return monitoring.DISABLE

    number = getattr(monitoring.events, event)
    monitoring.use_tool_id(monitoring.COVERAGE_ID, owner)
    monitoring.register_callback(monitoring.COVERAGE_ID, number, once)
    monitoring.set_events(monitoring.COVERAGE_ID, number)
    return monitoring
