"""A program's costs agree with its tree: each statement is counted as often as it runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import tempo_core as tp
from tempo_core.ir.naming import names
from tempo_core.schedule import Execute, instances


def assert_counted_as_run(program: tp.Program[Any]) -> None:
    """Executions, statement by statement: exact, or at least as many as there are where the costs say that they are a bound."""
    runs: Counter[str] = Counter()
    labels = names(program.graph)

    def visit(leaf: Any, _: Any) -> None:
        if isinstance(leaf, Execute):
            runs[labels[leaf.node] + ("" if leaf.branch is None else f"|{leaf.branch}")] += 1

    instances(program.scheduled.root, visit)
    cost = program.cost()
    for statement in cost.by_statement:
        number = statement.numbers["times"]
        assert number >= runs[statement.name], f"costs: {statement} runs {runs[statement.name]} times"
        assert not statement.is_exact or number == runs[statement.name], f"costs: {statement} runs {runs[statement.name]} times"
    assert all(number >= 0 for number in cost.numbers.values()), f"costs: {cost.numbers}"
