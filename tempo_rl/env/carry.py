"""State that outlives a loop: what the last step of an inner loop left is where the next outer step begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def step_symbol(step: Any) -> Any:
    """The symbol of a step that is given as an expression: what domains list."""
    return step.single_atom


def carry(recurrence: Any, start: Any, following: Any, kept: Sequence[Any]) -> None:
    """Define `recurrence` by its first value and by `following`, the value after each point, over nested loops.

    The steps in `kept` are parallel (environments), the others loops. Over (b, i, t) with b kept this assigns
    `x[b, 0, 0] = start`, `x[b, i, t + 1] = following[b, i, t]` and `x[b, i + 1, 0] = following[b, i, T - 1]`.
    """
    steps = recurrence.domain.steps
    loops = [step for step in steps if step not in kept]
    recurrence[tuple(step.expr if step in kept else 0 for step in steps)] = start
    for advancing in reversed(loops):
        inner = loops[loops.index(advancing) + 1 :]
        target: list[Any] = []
        source: list[Any] = []
        for step in steps:
            if step in inner:
                target.append(0)
                source.append(step.bound_expr - 1)
            else:
                target.append(step.expr + 1 if step == advancing else step.expr)
                source.append(step.expr)
        recurrence[tuple(target)] = following[tuple(source)]
