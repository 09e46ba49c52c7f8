"""Scans of which each position is read in part: the loop of the scan computes what reads them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.backends.xla_cpu.loops import groups
from tempo_core.ir import ops
from tempo_core.ir.graph import Dataflowed
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr
from tests.core.backends.support import steered
from tests.core.gradient_checks import normal

pytestmark = pytest.mark.cpu

B, T, K = 3, 50, 16


def number(value: int) -> Expr:
    return Expr.of(value)


class Island:
    """An island of float32 [B, T, K] and int32 [B, T], written operation by operation."""

    def __init__(self) -> None:
        self.types = [TensorType.of("float32", B, T, K), TensorType.of("int32", B, T)]
        self.instructions: list[tuple[ops.Op, tuple[int, ...], tuple[int, ...]]] = []

    def add(self, op: ops.Op, *sources: int) -> int:
        (type,) = op.infer(tuple(self.types[s] for s in sources))
        self.instructions.append((op, sources, (len(self.types),)))
        self.types.append(type)
        return len(self.types) - 1

    def before(self, slot: int, by: int) -> int:
        """The elements of the position before, by a gather."""
        distance = self.add(ops.Broadcast((number(T),), ()), self.add(ops.Constant("int32", (), np.int32(by).tobytes())))
        return self.add(ops.Gather(1), slot, self.add(ops.Binary("add"), distance, self.add(ops.Iota(number(T)))))

    def pick(self, slot: int) -> int:
        return self.add(ops.Gather(2, batch=2), slot, 1)

    def giving(self, *slots: int) -> ops.Dataflow:
        return ops.Dataflow(Dataflowed(tuple(self.types[:2]), tuple(self.instructions), slots, tuple(self.types)))


def picks(scan: ops.Op, *operands: int) -> ops.Dataflow:
    island = Island()
    return island.giving(island.pick(island.add(scan, *operands)))


def picks_before(scan: ops.Op, by: int) -> ops.Dataflow:
    island = Island()
    slot = island.add(scan, *(0 for _ in range(2 if isinstance(scan, ops.LinearScan) else 1)))
    return island.giving(island.pick(island.before(slot, by)), island.pick(slot))


def reduces(scan: ops.Op) -> ops.Dataflow:
    """The sum of what the scan adds, times an operand; and the greatest element along the first dimension."""
    island = Island()
    slot = island.add(scan, 0)
    earlier = island.add(ops.Slice(1, number(-1), number(T - 1)), slot)
    change = island.add(ops.Binary("mul"), island.add(ops.Binary("sub"), slot, earlier), 0)
    return island.giving(island.add(ops.Reduce("sum", (2,)), change), island.add(ops.Reduce("max", (0, 2)), slot))


IN_LOOP = {
    "sum": picks(ops.CumSum(1), 0),
    "sum of a suffix": picks(ops.CumSum(1, True), 0),
    "maximum": picks(ops.CumMax(1), 0),
    "recurrence": picks(ops.LinearScan(1), 0, 0),
    "sum before": picks_before(ops.CumSum(1), -1),
    "maximum before": picks_before(ops.CumMax(1), -1),
    "maximum after": picks_before(ops.CumMax(1, True), 1),
    "recurrence before": picks_before(ops.LinearScan(1), -1),
    "reduced sum": reduces(ops.CumSum(1)),
    "reduced maximum": reduces(ops.CumMax(1)),
}


def temporary_bytes(op: ops.Dataflow) -> int:
    """Of the program in JAX, after a comparison of its results with those of NumPy."""
    x, at = normal(B, T, K, seed=1).astype(np.float32), np.random.default_rng(0).integers(0, K, (B, T)).astype(np.int32)
    compiled = jax.jit(lambda *operands: JaxBackend().kernel(op, operands, {}, 0)).lower(x, at).compile()
    for result, expected in zip(compiled(x, at), NumpyBackend().kernel(op, [x, at], {}, 0), strict=True):
        np.testing.assert_allclose(result, expected, 1e-5, 1e-6)
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", IN_LOOP)
def test_results_are_computed_in_the_loop(name: str) -> None:
    """XLA's program keeps no array of the scan's elements."""
    assert temporary_bytes(IN_LOOP[name]) < 4 * B * T * K


def whole_result() -> ops.Dataflow:
    island = Island()
    slot = island.add(ops.CumSum(1), 0)
    return island.giving(island.pick(slot), slot)


def later() -> ops.Dataflow:
    """The elements of the position after."""
    island = Island()
    return island.giving(island.pick(island.before(island.add(ops.CumSum(1), 0), 1)))


def far() -> ops.Dataflow:
    island = Island()
    return island.giving(island.pick(island.before(island.add(ops.CumSum(1), 0), -2)))


def along_the_scan() -> ops.Dataflow:
    island = Island()
    return island.giving(island.add(ops.Reduce("sum", (1,)), island.add(ops.CumSum(1), 0)))


def twice_before() -> ops.Dataflow:
    """The position before the position before."""
    island = Island()
    return island.giving(island.pick(island.before(island.before(island.add(ops.CumSum(1), 0), -1), -1)))


def operand_of_the_result() -> ops.Dataflow:
    """A second reader's operand depends on the result of the first."""
    island = Island()
    slot = island.add(ops.CumSum(1), 0)
    again = island.add(ops.Cast("int32"), island.pick(slot))
    return island.giving(island.add(ops.Gather(2, batch=2), slot, again))


@pytest.mark.parametrize("build", [whole_result, later, far, along_the_scan, twice_before, operand_of_the_result])
def test_other_readers_read_the_whole_scan(build: Callable[[], ops.Dataflow]) -> None:
    op = build()
    assert not groups(steered(op.body))
    temporary_bytes(op)


def test_a_reader_of_two_scans_is_computed_in_the_loop_of_one() -> None:
    """The product of the others' factors: of a prefix and of a suffix, at each position."""
    island = Island()
    slots = [island.add(ops.CumSum(1, reverse), 0) for reverse in (False, True)]
    op = island.giving(island.add(ops.Reduce("sum", (2,)), island.add(ops.Binary("mul"), *slots)))
    assert len(groups(steered(op.body))) == 2
    temporary_bytes(op)


@pytest.mark.parametrize("bits", [16, 32])
def test_counts_of_the_past_and_their_gradient(bits: int) -> None:
    """A whole program: what the past says about the next symbol, with gradients that go through the picked sums."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x = tp.input("x", (8,), f"float{bits}", domain=(t,))
        at = tp.input("at", (), "int32", domain=(t,))
        total = (x[0:t].sum(0).index(0, at) ** 2)[0:n_t].sum(0)
        outputs = [total, *tp.grad(total, wrt=[x])]
    values, places = normal(5, 8, seed=2).astype(f"float{bits}"), np.asarray([1, 7, 0, 1, 3], np.int32)
    result, gradient = ctx.compile({n_t: 5}, outputs).run({"x": values, "at": places})
    before = np.concatenate([np.zeros((1, 8)), np.cumsum(values.astype(np.float64), 0)[:-1]])
    picked = before[np.arange(5), places]
    expected = np.zeros((5, 8))
    for t_, (k, value) in enumerate(zip(places, picked, strict=True)):
        expected[:t_, k] += 2 * value
    tolerance = 2e-2 if bits == 16 else 1e-5
    np.testing.assert_allclose(result, (picked**2).sum(), tolerance)
    np.testing.assert_allclose(gradient, expected, tolerance, tolerance)


def test_a_program_as_users_write_it_is_computed_in_the_loop() -> None:
    """`x[b, 0:t].sum(0).index(0, k)`: what lifting and vectorizing make of it is a form that is recognized here."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        symbol = tp.input("symbol", (), "int32", domain=(b, t))
        count = symbol.one_hot(K)[b, 0:t].sum(0).index(0, symbol)
        outputs = [tp.log(count + 1.0)[b, 0:n_t].sum(0)]
    program = ctx.compile({n_b: B, n_t: T}, outputs)
    bodies = [node.op.body for node in program.graph if isinstance(node.op, ops.Dataflow)]
    assert sum(len(groups(steered(body, dict(program.scheduled.bounds)))) for body in bodies) == 1
