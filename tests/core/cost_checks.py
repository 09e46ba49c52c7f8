"""A program's costs agree with its tree: each statement is counted as often as it runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import tempo_core as tp
from tempo_core.ir.names.naming import names
from tempo_core.schedule import Execute, instances
from tempo_core.schedule.build import chosen_value


def assert_counted_as_run(program: tp.Program[Any]) -> None:
    """Executions, statement by statement: exact, or at least as many as there are where the costs say that they are a bound."""
    runs: Counter[str] = Counter()
    labels = names(program.graph)
    greatest = {chosen_value(step): program.scheduled.bounds[step.bound_symbol] - 1 for step in program.graph.chosen}
    for leaf, _ in instances(program.scheduled.root, greatest):
        if isinstance(leaf, Execute):
            runs[labels[leaf.node] + ("" if leaf.branch is None else f"|{leaf.branch}")] += 1
    cost = program.cost()
    counted: Counter[str] = Counter()  # statements may share a name: two outputs of one tensor
    inexact = {statement.name for statement in cost.by_statement if not statement.is_exact}
    for statement in cost.by_statement:
        counted[statement.name] += int(statement.numbers["times"])
    for name, number in counted.items():
        assert number == runs[name] or (name in inexact and number > runs[name]), (
            f"costs: {name} counts {number}, runs {runs[name]}"
        )
    assert all(number >= 0 for number in cost.numbers.values()), f"costs: {cost.numbers}"
