"""What passes decide about nodes, and why: `program.explain()` runs the passes again and shows it.

A pass says `note(node.id, "moved out of the loop over {}: it does not vary with it", step)`. Notes are kept only while somebody records
them, so a compilation pays for the call alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Ref:
    """A node in the text of a decision, which shows its name; with an `index`, a read of it."""

    node: int
    index: str = ""


@dataclass(frozen=True)
class Decision:
    """A decision about a node, or about a step by its name: `text` with a {} for each of `about`.

    If the node is gone after the pass, `into` is the node that has its value, in its output number `output` (-1: in none of them).
    """

    node: int | str
    text: str
    about: tuple[object, ...] = ()
    into: int | None = None
    output: int = 0


_DECISIONS: ContextVar[list[Decision] | None] = ContextVar("decisions", default=None)


@contextmanager
def recording() -> Iterator[list[Decision]]:
    """The decisions that are made inside, in their order."""
    decisions: list[Decision] = []
    token = _DECISIONS.set(decisions)
    try:
        yield decisions
    finally:
        _DECISIONS.reset(token)


def is_recording() -> bool:
    """Whether notes are kept: a pass asks before it looks for a reason that it does not need itself."""
    return _DECISIONS.get() is not None


def note(node: int | str, text: str, *about: object, into: int | None = None, output: int = 0) -> None:
    """Record a decision about a node, or why a step is a loop."""
    decisions = _DECISIONS.get()
    if decisions is not None:
        decisions.append(Decision(node, text, about, into, output))
