"""Attention patterns: which timesteps a token attends to, as an index expression of the step t.

A pattern is a function from the step to a slice of timesteps; what is stored, and for how long, follows from it. To add
one, write the function, put it in `PATTERNS`, and give it a row in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tempo_llm.errors import PatternError

Reach = Callable[[Any], slice]


def causal(t: Any) -> slice:
    """Every token up to and including this one."""
    return slice(0, t + 1)


PATTERNS: Mapping[str, Reach] = {
    "causal": causal,
    "full": causal,  # what other systems call it
}


@dataclass(frozen=True)
class Attention:
    """A pattern by name; an unknown one is an error, never another pattern instead."""

    name: str = "causal"

    def __post_init__(self) -> None:
        if self.name not in PATTERNS:
            raise PatternError(f"unknown attention pattern {self.name!r}; known are {', '.join(PATTERNS)}")

    @staticmethod
    def parse(text: str) -> Attention:
        """The pattern that `text` names, as on the command line: `causal`."""
        return Attention(text.strip())

    def reach(self, t: Any) -> slice:
        """The timesteps that step `t` attends to: a slice of the past, ending after t."""
        return PATTERNS[self.name](t)
