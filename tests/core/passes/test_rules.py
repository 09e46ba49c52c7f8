"""Each row of `passes/clean/rules.py` applies to the graphs of its algebra, and keeps their values, in every dtype that reaches it.

`GENERATORS` has a row for each rule: a function that draws a graph to which the rule applies, and the dtypes for which it does. Inputs are
numbers that break rules: zeros with a sign, NaN, infinities, the ends of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_core.errors import TempoError
from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.types import DTYPES
from tempo_core.ir.verify import verify
from tempo_core.passes.clean.rules import BY_OP, ROUNDING, RULES, SIGN_OF_ZERO, View
from tempo_core.symbolic.domain import full_range
from tempo_core.symbolic.domain import identity as identity_of
from tests.cases import fast
from tests.core.passes.rule_checks import ROWS, assert_same_values, check
from tests.core.passes.rule_graphs import GENERATORS, Make


@pytest.mark.parametrize("name", ROWS)
def test_a_rule_has_a_name_its_algebra_and_a_generator(name: str) -> None:
    assert name in GENERATORS, f"give the rule `{name}` a generator in GENERATORS"
    before, arrow, after = ROWS[name].algebra.partition(" -> ")
    assert before and arrow and after
    assert ROWS[name].up_to in ("", SIGN_OF_ZERO, ROUNDING)


def test_no_two_rules_have_one_name() -> None:
    assert len(ROWS) == len(RULES)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_has_a_rule_which_the_engine_reaches(name: str) -> None:
    assert name in ROWS, f"the rule `{name}` is gone"
    assert ROWS[name] in BY_OP[ROWS[name].op]


def test_the_table_of_rules(golden: Callable[[str, str], None]) -> None:
    """All rules as text: the golden file shows every rule that is added, removed or weakened."""
    lines = [f"{r.name:24} {r.op.__name__:10} {r.algebra}{f'   up to {r.up_to}' if r.up_to else ''}" for r in RULES]
    golden("passes/rules.txt", "\n".join(lines))


@pytest.mark.parametrize("dtype", fast(DTYPES, "float32", "int32", "bool"))
@pytest.mark.parametrize("name", [name for name in GENERATORS if name in ROWS])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_rule_applies_to_its_example_and_keeps_the_values(name: str, dtype: str, data: st.DataObject) -> None:
    check(ROWS[name], GENERATORS[name], Make(data.draw, dtype))


@pytest.mark.parametrize("name", [name for name in GENERATORS if name in ROWS])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_rules_of_operands_that_are_read_over_ranges(name: str, data: st.DataObject) -> None:
    """The operands of the examples, read at all points of their last step: a rule keeps the values there too, or does not apply."""
    generator = GENERATORS[name]
    make = Make(data.draw, generator.dtypes[0])
    graph, edge = make.graph, generator.draw(make)
    node = graph[edge.source]
    ranged = [_over_a_range(graph, operand) for operand in node.inputs]
    for op in _with_one_dimension_more(node.op):
        for inputs in {tuple(ranged), *(_with_one(node.inputs, k, other) for k, other in enumerate(ranged))} - {node.inputs}:
            for rule in BY_OP[type(op)]:
                trial = graph.copy()
                try:
                    other = trial.add(op, inputs)
                    verify(trial)
                except (TempoError, AssertionError, IndexError):  # the op does not take such operands
                    break
                replaced = rule.replacement(View(trial, other, Builder(trial, other)))
                if replaced is not None:
                    assert_same_values(trial, Edge(other.id, identity_of(other.domain)), replaced, rule.up_to)


def _over_a_range(graph: Graph, edge: Edge) -> Edge:
    steps = graph[edge.source].domain.steps
    return replace(edge, index=(*edge.index[:-1], full_range(steps[-1]))) if steps else edge


def _with_one(inputs: tuple[Edge, ...], position: int, edge: Edge) -> tuple[Edge, ...]:
    return (*inputs[:position], edge, *inputs[position + 1 :])


def _with_one_dimension_more(op: ops.Op) -> Iterator[ops.Op]:
    """An op, and the same for operands with one dimension more in front."""
    yield op
    if isinstance(op, ops.Reduce):
        yield replace(op, axes=tuple(a + 1 for a in op.axes))
    elif isinstance(op, (ops.Slice, ops.Pad, ops.Concat, ops.Gather)):
        yield replace(op, axis=op.axis + 1)
    elif isinstance(op, ops.Permute):
        yield ops.Permute((0, *(a + 1 for a in op.order)))
