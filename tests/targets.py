"""Targets for tests: small caches and free operations, so that small programs have the forms of large ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tempo_core import target as targets


@contextmanager
def numbers(**changed: Any) -> Iterator[None]:
    """The device at hand is a CPU with other numbers."""
    with patch.object(targets, "CPU", replace(targets.CPU, **changed)):
        yield


@contextmanager
def strips(bytes: float) -> Iterator[None]:
    """All chains of products run in strips of about so many bytes, or of the divisor next to that."""
    with numbers(cache_bytes=3 * bytes), patch("tempo_core.passes.tiles.strip.seconds", lambda strips, *_: 1 / strips):
        yield
