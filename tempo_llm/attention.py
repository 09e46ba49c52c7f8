"""Attention patterns by the names of the command line. A pattern is one of `tp.nn`: a function from the step t and its bound
to slices of timesteps; what is stored, and for how long, follows from it.

To add one, give it a row in `PATTERNS`, and one in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tempo_core as tp
from tempo_llm.errors import PatternError

PATTERNS: Mapping[str, tp.nn.Pattern] = {
    "causal": tp.nn.causal,
    "full": tp.nn.causal,  # what other systems call it: every token so far
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

    def reach(self, t: Any, T: Any) -> tuple[slice, ...]:
        """The timesteps that step `t` of `T` attends to: slices of the past, the last of them ending after t."""
        return PATTERNS[self.name].slices(t, T)
