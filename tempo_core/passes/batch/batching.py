"""Vectorization: how to compute an op for all points of a step at once, by its row of `ir/axes.py`, or of `RULES`.

The points are a new leading dimension, whose size is the step's bound. Some operands have it. A rule takes the op, its
operands as pairs (edge, whether it has the leading dimension), and their types without that dimension. The rule builds the
edge of the result, which has the leading dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tempo_core.errors import MissingRow
from tempo_core.ir import ops
from tempo_core.ir.axes import ROWS, with_leading
from tempo_core.ir.builder import Builder, literal, zeros_outside
from tempo_core.ir.graph import Edge
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Vmapped
from tempo_core.symbolic.condition import Bool, Comparison, Conjunction, Disjunction
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol
from tempo_core.symbolic.proof import provably_nonnegative

Operand = tuple[Edge, bool]


@dataclass(frozen=True)
class Batch:
    """The input of a rule. `types` and `results` are without the leading dimension, whose size is `size`."""

    op: Any
    operands: Sequence[Operand]
    types: Sequence[TensorType]
    results: Sequence[TensorType]
    step: Symbol
    build: Builder
    innermost: bool = False  # where elements are gathered one by one, those of all points for one position lie together

    @property
    def size(self) -> Expr:
        return self.step.bound_expr

    def wide(self, slot: int) -> Edge:
        """An operand with the leading dimension. An operand without it is repeated along it."""
        edge, has = self.operands[slot]
        if has:
            return edge
        shape = (self.size, *self.types[slot].shape)
        return self.build.add(ops.Broadcast(shape, tuple(range(1, len(shape)))), edge)

    def all_wide(self) -> list[Edge]:
        return [self.wide(slot) for slot in range(len(self.operands))]

    def front(self, edge: Edge, axis: int) -> Edge:
        """`edge` with `axis` moved to the front."""
        return self.build.permuted(edge, sorted(range(self.build.type(edge).rank), key=lambda k: k != axis))


def batched(
    op: ops.Op,
    operands: Sequence[Operand],
    types: Sequence[TensorType],
    results: Sequence[TensorType],
    step: Symbol,
    build: Builder,
    innermost: bool = False,
) -> Edge | None:
    """The edge of the vectorized op's result. None where the op may have several outputs: the rule has then replaced the node itself."""
    batch = Batch(op, operands, types, results, step, build, innermost)
    if not any(has for _, has in operands) and step not in op.symbols and not isinstance(op, ops.Udf):
        # Nothing varies with the step, but the domain has it: compute the value once, and repeat it.
        value = build.add(op, *(edge for edge, _ in operands))
        shape = (batch.size, *results[0].shape)
        return build.add(ops.Broadcast(shape, tuple(range(1, len(shape)))), value)
    if type(op) not in RULES and type(op) not in ROWS:
        raise MissingRow(f"no row of ir/axes.py or passes/batch/batching.py says how to vectorize {type(op).__name__}")
    return RULES.get(type(op), _all_wide)(batch)


def _all_wide(batch: Batch) -> Edge:
    """One more dimension of all operands and of the result: see `ir/axes.py`."""
    return batch.build.add(with_leading(batch.op, batch.size), *batch.all_wide())


def _random(batch: Batch) -> Edge:
    """Coordinates become vectors; the numbers at a point do not change."""
    return batch.build.add(batch.op, *batch.all_wide())


def _where(batch: Batch) -> Edge:
    """A mask stays a mask along its axis, unless its length differs from point to point."""
    op: ops.Where = batch.op
    varies = op.length is not None and batch.step in op.length.steps
    return _all_wide(replace(batch, op=ops.Where()) if varies else batch)


def _dot(batch: Batch) -> Edge:
    """Both operands vary: the leading dimension becomes a batch dimension.

    One operand varies: its leading dimension becomes a free dimension of the product, and is moved to the front.
    """
    (left, left_has), (right, right_has) = batch.operands
    op: ops.Dot = batch.op
    if left_has and right_has:
        return _all_wide(batch)
    if left_has:
        product = batch.build.add(
            ops.Dot(_up(op.left_contract), op.right_contract, _up(op.left_batch), op.right_batch), left, right
        )
        return batch.front(product, len(op.left_batch))
    product = batch.build.add(ops.Dot(op.left_contract, _up(op.right_contract), op.left_batch, _up(op.right_batch)), left, right)
    return batch.front(product, len(op.left_batch) + len(op.left_free(batch.types[0].rank)))


def _conv(batch: Batch) -> Edge:
    """x may have any number of leading dimensions.

    If only the kernel varies, the kernels of all points become features of one kernel. If x varies too, or has groups, they
    become groups.
    """
    (x, x_has), (w, w_has) = batch.operands
    op: ops.Conv = batch.op
    build, n = batch.build, op.spatial
    if not w_has:
        return build.add(op, x, w)
    grouped = x_has or op.groups != 1
    kernel = batch.types[1].shape
    kernels = build.add(ops.Permute((*(k + 1 for k in range(n + 1)), 0, n + 2)), w)
    kernels = build.add(ops.Reshape((*kernel[:-1], batch.size * kernel[-1])), kernels)
    if grouped:
        shape, rank = batch.types[0].shape, batch.types[0].rank
        x = build.add(ops.Permute((*range(1, rank), 0, rank)), batch.wide(0))
        x = build.add(ops.Reshape((*shape[:-1], batch.size * shape[-1])), x)
        op = replace(op, groups=op.groups * batch.size)
    out = batch.results[0].shape
    result = build.add(ops.Reshape((*out[:-1], batch.size, out[-1])), build.add(op, x, kernels))
    return batch.front(result, len(out) - 1)


def _up(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + 1 for a in axes)


def _gather(batch: Batch) -> Edge:
    (x, x_has), (index, index_has) = batch.operands
    op: ops.Gather = batch.op
    if (x_has and index_has) or op.batch:
        return _all_wide(batch)
    if x_has:
        return batch.build.add(ops.Gather(op.axis + 1), x, index)
    rank = batch.types[1].rank
    if batch.innermost and batch.types[0].rank == 1 and rank:
        last = batch.build.permuted(index, (*range(1, rank + 1), 0))
        return batch.front(batch.build.add(op, x, last), rank)
    return batch.front(batch.build.add(op, x, index), op.axis)


def _scatter(batch: Batch) -> Edge:
    (_, updates_have), (index, index_has) = batch.operands
    op: ops.Scatter = batch.op
    if updates_have and not index_has and not op.batch:
        return batch.build.add(replace(op, axis=op.axis + 1), batch.wide(0), index)
    return _all_wide(batch)


def _slice(batch: Batch) -> Edge:
    """A slice whose start varies with the step becomes a gather. Its length does not vary (`pad` ran before)."""
    op: ops.Slice = batch.op
    if batch.step not in op.symbols:
        return batch.build.add(replace(op, axis=op.axis + 1), batch.wide(0))
    fits = provably_nonnegative(op.start) and provably_nonnegative(batch.types[0].shape[op.axis] - op.stop)
    return _window(batch, op.start, op.stride, fits)


def _pad(batch: Batch) -> Edge:
    """As for slices: where the amounts vary with the step, a gather. Their sum does not vary."""
    op: ops.Pad = batch.op
    if batch.step not in op.symbols:
        return _all_wide(batch)
    return _window(batch, -op.low, 1, False)


def _window(batch: Batch, start: Expr, stride: int, fits: bool) -> Edge:
    """For each point, the elements `start, start + stride, ...` of the op's axis; zeros outside of it. If all `fits`, none is outside."""
    build, axis = batch.build, batch.op.axis
    places = grid(start, batch.results[0].shape[axis], stride, batch.step, build)
    elements = build.add(ops.Gather(axis + 1, 1), batch.wide(0), places)
    return elements if fits else zeros_outside(build, elements, build.within(places, batch.types[0].shape[axis]), (0, axis + 1))


def _eval(batch: Batch) -> Edge:
    return evaluated(batch.op.value, batch.step, batch.build)


def _udf(batch: Batch) -> None:
    """Map the function over the operands that vary. The node keeps its outputs."""
    build, op = batch.build, batch.op
    axes = tuple(0 if has else None for _, has in batch.operands)
    edges = [edge for edge, _ in batch.operands]
    if not any(has for _, has in batch.operands):
        edges, axes = batch.all_wide(), tuple(0 for _ in edges)
    types = tuple(replace(t, shape=(batch.size, *t.shape)) for t in op.types)
    node = build.graph[build.like.id]
    cost = tuple(each * batch.size for each in op.cost)
    build.graph.put(replace(node, op=replace(op, fn=Vmapped(op.fn, axes), types=types, cost=cost), inputs=tuple(edges)))


RULES: dict[type[ops.Op], Callable[[Batch], Any]] = {  # of ops that need more than their row of `ir/axes.py`
    ops.Where: _where, ops.Random: _random, ops.Pad: _pad, ops.Slice: _slice, ops.Dot: _dot, ops.Conv: _conv,
    ops.Gather: _gather, ops.Scatter: _scatter, ops.Eval: _eval, ops.Udf: _udf,
}  # fmt: skip


def grid(start: Expr, length: Expr, stride: int, step: Symbol, build: Builder, axis: int = 0) -> Edge:
    """The `length` numbers `start, start + stride, ...` at all points of a step. The points are the dimension `axis`."""
    shape = (length, step.bound_expr) if axis else (step.bound_expr, length)
    starts = evaluated(start, step, build)
    along = build.add(ops.Iota(length))
    if stride != 1:
        along = build.add(ops.Binary("mul"), along, build.add(ops.Broadcast((length,), ()), literal(build, "int32", stride)))
    return build.add(
        ops.Binary("add"), build.add(ops.Broadcast(shape, (axis,)), starts), build.add(ops.Broadcast(shape, (1 - axis,)), along)
    )


def evaluated(value: Expr | Bool, step: Symbol, build: Builder) -> Edge:
    """An expression or condition at all points of the step, as a vector; other steps keep their value."""

    def repeated(value: Expr | Bool) -> Edge:
        return build.filled((step.bound_expr,), value)

    def combine(fn: str, parts: list[Edge]) -> Edge:
        return functools.reduce(lambda left, right: build.add(ops.Binary(fn), left, right), parts)

    def of_expr(expression: Expr) -> Edge:
        if step not in expression.symbols:
            return repeated(expression)
        varying = _varying(expression, step)
        rest = Expr.of_terms({monomial: c for monomial, c in expression.terms if monomial not in varying})
        parts = [repeated(rest)] if rest.terms else []
        for monomial, coefficient in varying.items():
            factors = [of_atom(atom) for atom, power in monomial for _ in range(power)]
            if coefficient != 1:
                factors.append(repeated(Expr.of(coefficient)))
            parts.append(combine("mul", factors))
        return combine("add", parts)

    def of_atom(atom: Any) -> Edge:
        if isinstance(atom, Symbol):
            return build.add(ops.Iota(step.bound_expr)) if atom == step else repeated(atom.expr)
        if isinstance(atom, (Minimum, Maximum)):
            return combine("minimum" if isinstance(atom, Minimum) else "maximum", [of_expr(a) for a in atom.args])
        assert isinstance(atom, (FloorDivide, Modulo))
        fn = "floordiv" if isinstance(atom, FloorDivide) else "mod"
        return build.add(ops.Binary(fn), of_expr(atom.numerator), of_expr(atom.denominator))

    def of_condition(condition: Bool) -> Edge:
        if step not in condition.symbols:
            return repeated(condition)
        if isinstance(condition, Comparison):
            fn = {">=": "ge", "==": "eq", "!=": "ne"}[condition.kind]
            return build.add(ops.Compare(fn), *map(of_expr, _sides(condition.expr, step)))
        assert isinstance(condition, (Conjunction, Disjunction))
        return combine("and" if isinstance(condition, Conjunction) else "or", [of_condition(a) for a in condition.args])

    return of_condition(value) if isinstance(value, Bool) else of_expr(value)


def _varying(expression: Expr, step: Symbol) -> dict[Any, int]:
    """The terms of an expression that vary with a step."""
    return {m: c for m, c in expression.terms if any(step in Expr.of_atom(atom).symbols for atom, _ in m)}


def _sides(difference: Expr, step: Symbol) -> tuple[Expr, Expr]:
    """Two expressions with this difference: the vectors alone on one side. XLA knows where `i == n` holds, not `i - n == 0`."""
    terms = _varying(difference, step).items()
    positive, negative = (Expr.of_terms({m: sign * c for m, c in terms if sign * c > 0}) for sign in (1, -1))
    rest = difference - positive + negative
    return (positive, negative - rest) if not negative.terms else (positive + rest, negative)
