"""Values that iterations hand to the next ones: counted in the optimized HLO, and right wherever a loop begins, ends or does not run."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import Instruction, Module, Shape, parse
from tests import reference
from tests.cases import cells
from tests.core.running import SETTINGS, assert_all_same

B = 64

cpu_only = pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers place copies in other ways")


def elimination() -> tuple[tp.Context, tp.Expr, list[tp.Tensor]]:
    """Thomas's algorithm: `ratio` and `rest` are read at i - 1 in their own loop and as a whole later; `x` runs backwards."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        a, y = tp.input("a", (B,), domain=(i,)), tp.input("y", (B,), domain=(i,))
        ratio, rest, x = (tp.recurrence((B,), domain=(i,), name=name) for name in ("ratio", "rest", "x"))
        pivot = 4.0 - a * ratio[i - 1]
        ratio[0], ratio[i] = a[0] / 4.0, a / pivot
        rest[0], rest[i] = y[0] / 4.0, (y - a * rest[i - 1]) / pivot
        x[I - 1], x[i] = rest[I - 1], rest - ratio * x[i + 1]
        return ctx, I, [x, *tp.grad((x**2)[0:I].sum(), [a, y])]


def stairs() -> tuple[tp.Context, tp.Expr, list[tp.Tensor]]:
    """`h` is taken over in all iterations but the first; `before` is the value before the last one."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        a, y = tp.input("a", (B,), domain=(i,)), tp.input("y", (B,), domain=(i,))
        h, before = (tp.recurrence((B,), domain=(i,), name=name) for name in ("h", "before"))
        after = tp.tanh(a * h + before.flip(0)) / (1.0 + h.sum(0) ** 2)
        h[0], h[i + 1] = y[0], after
        before[0], before[i + 1] = a[0], h
        return ctx, I, [after, h[I - 1], before, *tp.grad((after * y)[0:I].sum(), [a, y])]


PROGRAMS = {"elimination": elimination, "stairs": stairs}


def inputs(length: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=(length, B)).astype("float32") for name in ("a", "y")}


def compiled(name: str, length: int, **options: Any) -> tp.Program[Any]:
    ctx, bound, outputs = PROGRAMS[name]()
    return ctx.compile({bound: length}, outputs, tp.Config(**options))


def in_loops(program: tp.Program[Any]) -> list[tuple[Module, Instruction]]:
    """The operations in the bodies of loops."""
    assert program._staged is not None
    program.run(inputs(100))
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments if segment.compiled is not None]
    return [(m, i) for m in modules for loop in m.loops() for i in m.operations(loop.body)]


@pytest.mark.parametrize(("name", "length"), cells(PROGRAMS, [1, 2, 3, 7]))
def test_values(name: str, length: int) -> None:
    ctx, bound, outputs = PROGRAMS[name]()
    expected = reference.evaluate(ctx, outputs, {bound: length}, inputs(length))
    for config in SETTINGS.values():
        assert_all_same(ctx.run({bound: length}, outputs, inputs(length), config), expected)


@pytest.mark.parametrize(("name", "launch_seconds"), cells(PROGRAMS, [0.0, None]))
def test_values_are_those_without_registers(name: str, launch_seconds: float | None) -> None:
    """Loops cut into launches begin with iterations that are not their first ones."""
    with_registers = compiled(name, 9, launch_seconds=launch_seconds)
    without = compiled(name, 9, launch_seconds=launch_seconds, disable=("registers",))
    for value, expected in zip(with_registers.run(inputs(9)), without.run(inputs(9)), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-7)


@cpu_only
def test_a_store_is_not_copied_in_the_loop_that_reads_its_last_value() -> None:
    length = 100

    def copies(program: tp.Program[Any]) -> int:
        return sum(i.opcode == "copy" and Shape("f32", (length, B)) in i.shapes for _, i in in_loops(program))

    assert copies(compiled("elimination", length)) == 0
    assert copies(compiled("elimination", length, disable=("registers",))) > 0


@pytest.mark.slow
@cpu_only
def test_a_value_that_is_taken_over_needs_no_selection() -> None:
    def selections(program: tp.Program[Any]) -> int:
        return sum(each.opcode == "select" for module, i in in_loops(program) for each in module.inside(i))

    one_by_one, plain = (compiled("elimination", 100, disable=("vectorize", *rest)) for rest in ((), ("registers",)))
    assert selections(one_by_one) < selections(plain)
