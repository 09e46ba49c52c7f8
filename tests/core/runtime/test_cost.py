"""`program.cost()` says what runs: executions are those of the program tree, and bodies and temporaries are those of XLA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import pytest
import sympy

import tempo_core as tp
from tempo_core.config import PASSES
from tempo_core.prices import WORTH_OWN_CODE
from tempo_core.runtime.cost.count import _Counting
from tempo_core.runtime.cost.kernels import Kernels
from tempo_core.symbolic.domain import Range
from tests.cases import fast, slow
from tests.core.cost_checks import assert_counted_as_run
from tests.core.growth.table import rows
from tests.core.passes.programs import HARD, PROGRAMS

GROWTH = {row.name: row for row in rows()}


def numbers_at(bounds: dict[Any, int]) -> dict[str, int]:
    return {str(bound): number for bound, number in bounds.items()}


TABLE = """\
statement  times  operations  bytes moved  temporaries
next h     T - 1  9*T - 9     36*T - 36    0
output h   1      0           24*T         0
h|1        T - 1  0           24*T - 24    0
first h    1      3           24           0
h|0        1      0           24           0

in all
  executions              201  2*T + 1
  operations              894  9*T - 6
  bytes moved           8,388  84*T - 12
  stores                1,200  12*T
  temporaries              12  12"""


# -- executions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disable", [(), slow((("vectorize",),)), PASSES], ids=["all passes", "not vectorized", "no passes"])
@pytest.mark.parametrize("name", fast(PROGRAMS, *HARD))
def test_statements_run_as_often_as_in_the_tree(name: str, disable: tuple[str, ...]) -> None:
    context, outputs = PROGRAMS[name].build()
    bounds = {step.bound_symbol.expr: number for step, number in zip(context.steps, (3, 7), strict=True)}
    program = context.compile(bounds, outputs, tp.Config(backend="numpy", disable=disable))
    assert_counted_as_run(program)


def test_a_selection_runs_in_every_iteration() -> None:
    """In XLA, branches that only move values are selections: both sides run at all points of their loop."""
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[0] = x[0]
        h[t, t % 3 == 0] = x
        h[t] = tp.tanh(h[t - 1])
    config = tp.Config(disable=("vectorize",))
    program = context.compile({T: 30}, [h[T - 1]], config)
    assert "if (t%3)" in program.text("program", full=True)
    reset = next(each for each in program.cost().by_statement if each.name == "h|1")
    assert reset.times == sympy.Symbol("T") and not reset.is_exact
    assert reset.bytes_read == 2 * reset.bytes_written  # the new value, and the present one
    interpreted = context.compile({T: 30}, [h[T - 1]], tp.Config(backend="numpy", disable=("vectorize",))).cost()
    assert next(each for each in interpreted.by_statement if each.name == "h|1").numbers["times"] <= 11


# -- polynomials ------------------------------------------------------------------------------------------------------

AT_OTHER_BOUNDS = [
    "point, forward", "previous, gradient", "prefix, max, forward", "window back, sum, gradient", "each whole row, sum, gradient",
    "rows so far, sum, forward", "previous value, gradient of a parameter", "its own window, last value", "RNN, gradient of a bias",
    "stencil, forward", "updates, gradient",
]  # fmt: skip


@pytest.mark.parametrize("name", AT_OTHER_BOUNDS)
def test_a_polynomial_gives_the_numbers_of_other_bounds(name: str) -> None:
    context, small, outputs = GROWTH[name].program()
    bounds = {bound: number + WORTH_OWN_CODE for bound, number in small.items()}  # shorter loops have another form
    program = context.compile(bounds, outputs)
    cost = program.cost()
    for factor in (2, 3):
        larger = {bound: factor * number + 1 for bound, number in bounds.items()}
        other = program.with_bounds(larger).cost()
        for figure in ("executions", "operations", "bytes_moved", "stores", "temporaries"):
            polynomial = getattr(cost, figure).subs(numbers_at(larger))
            assert int(polynomial) == other.numbers[figure], f"{figure}: {getattr(cost, figure)}"


@pytest.mark.parametrize("name", AT_OTHER_BOUNDS)
def test_numbers_are_those_of_the_polynomials(name: str) -> None:
    context, bounds, outputs = GROWTH[name].program()
    program = context.compile(bounds, outputs)
    cost, alone = program.cost(), program._numbers()
    assert alone.numbers == cost.numbers and alone.operations == 0
    assert [each.numbers for each in alone.by_statement] == [each.numbers for each in cost.by_statement]
    for figure, number in cost.numbers.items():
        assert int(getattr(cost, figure).subs(numbers_at(bounds))) == number
    assert cost.numbers["bytes_moved"] == sum(each.numbers["bytes_moved"] for each in cost.by_statement)
    assert sympy.expand(cost.operations - sum(each.operations for each in cost.by_statement)) == 0


def test_a_part_of_a_part_costs_what_is_read_of_it() -> None:
    """The row of one step at a point of another one, which is a gather of a gather."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x = tp.input("x", (4,), domain=(b, t))
        h = tp.recurrence((4,), domain=(b, t), name="h")
        h[b, 0] = x[b, 0]
        h[b, t] = tp.tanh(h[b, t - 1] + tp.exp(x))
    cost = ctx.compile({B: 5, T: 20}, h[0:B, T - 1], tp.Config(disable=("vectorize",))).cost()
    assert cost.numbers["operations"] < 5 * 20 * 4 * 6 and cost.numbers["bytes_moved"] < 5 * 20 * 4 * 4 * 12


def test_operations_of_products_and_of_dear_functions_are_counted_apart() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (8,), domain=(t,)), tp.input("w", (8, 8))
        y = (tp.tanh(x @ w) ** 2 + x).sum(0)
    numbers = [each.numbers for each in ctx.compile({T: 10}, y)._numbers().by_statement]
    assert sum(each["products"] for each in numbers) == 2 * 10 * 8 * 8
    assert sum(each["dear"] for each in numbers) == 10 * 8


# -- against XLA ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    operations: float
    bytes: float
    temporaries: int


def measured(program: tp.Program[Any]) -> Measured:
    """What XLA counts, for a program of one XLA program without loops."""
    staged = program._staged
    assert staged is not None
    staged.lower_all()
    (segment,) = staged.segments
    compiled = segment.lowered.compile()
    figures = compiled.cost_analysis()
    operations = figures.get("flops", 0.0) + figures.get("transcendentals", 0.0)
    return Measured(operations, figures["bytes accessed"], compiled.memory_analysis().temp_size_in_bytes)


Body = Callable[[tp.Tensor, tp.Tensor, Any, Any], tp.Tensor]
# What XLA counts may be so many times ours, or a part of it as small: (operations, bytes, temporaries).
BODIES: dict[str, tuple[Body, tuple[float, float, float]]] = {
    "elementwise": (lambda x, w, t, T: tp.exp(x) * 2.0 + x, (1.1, 1.1, 1.1)),
    "product with a matrix": (lambda x, w, t, T: x @ w, (1.1, 1.1, 1.1)),
    "layers": (lambda x, w, t, T: tp.tanh(tp.tanh(x @ w) @ w), (1.1, 1.2, 2.0)),
    "sum of all": (lambda x, w, t, T: x[0:T].sum(0), (1.1, 1.1, 2.0)),
    "softmax": (lambda x, w, t, T: x.softmax(-1), (1.1, 1.5, 2.0)),
    "sort": (lambda x, w, t, T: tp.sort(x, -1), (2.5, 1.7, 2.5)),
    "deviation": (lambda x, w, t, T: x - x.mean(-1), (1.1, 1.5, 2.0)),
    "attention": (lambda x, w, t, T: (x[0 : t + 1] @ x).softmax(0) @ x[0 : t + 1], (1.1, 1.5, 2.0)),
    "prefix max": (lambda x, w, t, T: x[0 : t + 1].max(0), (2.0, 6.0, 2.5)),  # XLA counts all of an operand for each slice of it
    "gradient": (lambda x, w, t, T: tp.grad(((tp.tanh(x @ w) ** 2).sum())[0:T].sum(0), [w])[0], (1.1, 1.5, 2.0)),
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", BODIES)
def test_a_body_costs_what_xla_counts(name: str) -> None:
    body, (operations, bytes, temporaries) = BODIES[name]
    context = tp.Context("t")
    with context as ((t, T),):
        y = body(tp.input("x", (32,), domain=(t,)), tp.input("w", (32, 32)), t, T)
    program = context.compile({T: 96}, [y])
    ours, xla = program.cost(), measured(program)
    assert 1 / operations <= xla.operations / ours.numbers["operations"] <= operations, (xla, str(ours))
    assert 1 / bytes <= xla.bytes / ours.numbers["bytes_moved"] <= bytes, (xla, str(ours))
    least = 16_384  # bytes: XLA may give a small value the place of a larger one that is no longer needed
    assert ours.numbers["temporaries"] <= max(temporaries * xla.temporaries, least), (xla, str(ours))
    assert xla.temporaries <= max(temporaries * ours.numbers["temporaries"], least), (xla, str(ours))


# -- memory and the parts of stores -----------------------------------------------------------------------------------


def test_a_value_that_is_written_into_a_store_counts_alone() -> None:
    """One row of a store of T rows is written in each of T iterations: T rows in all, not T * T."""
    context, bounds, outputs = GROWTH["previous value, every value"].program()
    cost = context.compile(bounds, outputs).cost()
    (T,) = (sympy.Symbol(str(bound)) for bound in bounds if str(bound) == "T")
    assert sympy.degree(cost.bytes_written, T) == 1 and sympy.degree(cost.stores, T) == 1


@pytest.mark.parametrize("kind", ["prefix", "window", "window ahead", "every other"])
def test_a_range_of_one_step_at_a_point_of_another_is_read_as_the_lowering_reads_it(kind: str) -> None:
    """What a read gathers, position by position, has the bytes of the gathers that JAX traces for it; slices are fused."""
    context = tp.Context("t", "l")
    with context as ((t, T), (l, L)):
        ranges = {
            "prefix": slice(0, t + 1),
            "window": slice(tp.max(t - 3, 0), t + 1),
            "window ahead": slice(t, tp.min(t + 4, T)),
            "every other": slice(0, T, 2),
        }
        x = tp.input("x", (8,), domain=(t,))
        h = tp.recurrence((8,), domain=(t, l), name="h")
        h[t, 0] = x
        h[t, l + 1] = h + (tp.tanh(h)[ranges[kind], l]).max(0) if kind in ("prefix", "window") else tp.tanh(h)
        read = h[ranges[kind], l].max(0)
        out = (read * h)[0:T, L - 1].sum(0)
    program = context.compile({T: 16, L: 4}, [out], tp.Config(disable=("vectorize",)))
    edges = [
        (node, edge)
        for node in program.graph
        for edge in node.inputs
        if any(isinstance(index, Range) for index in edge.index) and program.scheduled.storage[edge.source, edge.output].size > 1
    ]
    assert edges
    for node, edge in edges:
        counting, kernels = _Counting(program.scheduled, program._staged), Kernels()
        counting.reading.read(edge, kernels)
        ours = [size.evaluate(program.scheduled.bounds) for size in kernels.alive]
        assert ours == gathers(program, node, edge), (node.label, [str(index) for index in edge.index])


def gathers(program: tp.Program[Any], node: Any, edge: Any) -> list[int]:
    """The bytes of the gathers of a read of an edge, at a traced point."""
    lowering = program._staged.lowering  # type: ignore[union-attr]
    key = (edge.source, edge.output)
    store = jax.ShapeDtypeStruct(lowering.shape(key), lowering.dtype(key))

    def read(value: Any, point: list[Any]) -> Any:
        env = {**lowering.bounds, **dict(zip(node.domain.steps, point, strict=True))}
        return lowering.read(edge, {key: value}, {}, env)

    point = [jax.ShapeDtypeStruct((), "int32") for _ in node.domain.steps]
    every = equations(jax.make_jaxpr(read)(store, point).jaxpr)
    return [each.outvars[0].aval.size * 4 for each in every if each.primitive.name == "gather"]


def equations(jaxpr: Any) -> list[Any]:
    """All equations, also those inside of calls."""
    every = []
    for equation in jaxpr.eqns:
        every.append(equation)
        for inner in (parameter.jaxpr for parameter in equation.params.values() if hasattr(parameter, "jaxpr")):
            every += equations(inner)
    return every


# -- the result -------------------------------------------------------------------------------------------------------


def test_the_table() -> None:
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = x[0]
        h[t] = tp.tanh(h[t - 1] + x)
    cost = context.compile({T: 100}, [h]).cost()
    assert cost.is_exact
    assert str(cost) == TABLE


def test_costs_of_shapes_that_vary_are_sums_over_the_points() -> None:
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = tp.exp(x[0 : t + 1]).sum(0)
    cost = context.compile({T: 10}, [y], tp.Config(backend="numpy", disable=PASSES)).cost()
    T_ = sympy.Symbol("T")
    exp = next(each for each in cost.by_statement if "exp" in each.name)
    assert sympy.expand(exp.operations - T_ * (T_ + 1) / 2) == 0 and exp.numbers["operations"] == 55


def test_a_size_that_is_negative_where_nobody_needs_the_value_counts_as_none() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        ones = tp.ones((t - 3, 5)) * t
        y = tp.recurrence((), domain=(t,), name="y")
        y[t, t < 4] = tp.zeros(())
        y[t] = ones.sum()
    program = ctx.compile({T: 7}, y, tp.Config(disable=("pad", "vectorize"), backend="numpy"))
    assert program.run({}).tolist() == [0, 0, 0, 0, 20, 50, 90]
    summed = next(s for s in program.cost().by_statement if s.name == "first y")
    elements = sum(5 * max(k - 3, 0) for k in range(7))
    assert summed.numbers["operations"] >= elements and summed.numbers["bytes_read"] >= 4 * elements


def test_a_tiled_step_counts_by_the_bounds_of_the_user() -> None:
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        y = tp.tanh(x)[0:T].sum(0)
    cost = context.compile({T: 64}, [y], tp.Config(tile={"t": 8})).cost()
    assert {str(symbol) for symbol in cost.operations.free_symbols} == {"T"}
    assert cost.numbers["operations"] >= 2 * 64 * 4
