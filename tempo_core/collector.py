"""Python's search for cyclic garbage, and the parts of the compiler during which it rests."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def without_collector(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: no search for cyclic garbage while the function runs.

    The compiler makes many small objects, hardly any in cycles. The search would walk all of them, and the rest of the process,
    again and again: a quarter of the time of compiling.
    """

    @functools.wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return paused
