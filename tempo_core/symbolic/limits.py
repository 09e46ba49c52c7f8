"""Bounds that a run chooses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpTo:
    """A bound that each run chooses, between `at_least` and `capacity`. `tp.upto` makes it."""

    capacity: int
    at_least: int = 1

    def __str__(self) -> str:
        return f"upto({self.capacity})" if self.at_least == 1 else f"upto({self.capacity}, at_least={self.at_least})"
