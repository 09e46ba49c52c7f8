"""Each row of `ir/axes.py`: an op for tiles, for one position, and for one more dimension."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir import ops
from tempo_core.ir.axes import ROWS, Source, places_of, reduced, sources, tiled, with_leading, without, without_reduced
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Op
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr
from tests.core import every_op
from tests.core.every_op import each_op

NO_ROW: dict[type[Op], str] = {
    ops.Input: "is there as a whole",
    ops.Constant: "is there as a whole",
    ops.Eval: "has no dimension",
    ops.Iota: "has no operand: its elements are their positions",
    ops.Random: "its numbers follow from their places in the whole",
    ops.Merge: "is state: it is kept as a whole",
    ops.Udf: "is a function of whole arrays",
    ops.Output: "has no result",
    ops.Sink: "has no result",
    ops.End: "has no result",
    ops.Dataflow: "is made after the last rewrite along dimensions",
    ops.Update: "is made after the last rewrite along dimensions",
}

SIZE, TILE = 6, 2


def shaped(*sizes: int, dtype: str = "float32") -> TensorType:
    return TensorType.of(dtype, *sizes)


F = shaped(3, SIZE, 4)
EXAMPLES: list[tuple[Op, list[TensorType]]] = [
    *(row.sized(4) for row in every_op.ROWS if row.operands and Expr.of(SIZE) in row.result.shape and type(row.op) not in NO_ROW),
    (ops.Unary("tanh"), [F]),
    (ops.Binary("add"), [F, F]),
    (ops.Compare("lt"), [F, F]),
    (ops.Where(), [shaped(3, SIZE, 4, dtype="bool"), F, F]),
    (ops.Where(0, Expr.of(2)), [shaped(3, SIZE, 4, dtype="bool"), F, F]),
    (ops.Where(1, Expr.of(5)), [shaped(3, SIZE, 4, dtype="bool"), F, F]),
    (ops.Cast("int32"), [F]),
    (ops.Identity(), [F]),
    (ops.Reduce("sum", (0,)), [F]),
    (ops.Reduce("max", (2,)), [F]),
    (ops.Argmax(0), [F]),
    (ops.Argmax(2), [F]),
    (ops.DiscountedSum(0, 0.9), [F]),
    (ops.Argsort(2), [F]),
    (ops.Argsort(2, 1), [F]),
    (ops.CumSum(0), [F]),
    (ops.LinearScan(2), [F, F]),
    (ops.CumMax(0), [F]),
    (ops.Concat(0), [F, shaped(1, SIZE, 4)]),
    (ops.Flip(2), [F]),
    (ops.Pad(0, Expr.of(1), Expr.of(1)), [F]),
    (ops.Slice(2, Expr.of(1), Expr.of(3)), [F]),
    (ops.Broadcast(tuple(map(Expr.of, (2, 3, SIZE))), (1, 2)), [shaped(3, SIZE)]),
    (ops.Broadcast(tuple(map(Expr.of, (3, SIZE))), (0,)), [shaped(3)]),
    (ops.Permute((1, 2, 0)), [F]),
    (ops.Reshape(tuple(map(Expr.of, (3, SIZE, 2, 2)))), [F]),
    (ops.Dot((1,), (0,)), [shaped(SIZE, 3), shaped(3, 5)]),
    (ops.Dot((1,), (0,)), [shaped(4, 3), shaped(3, SIZE)]),
    (ops.Dot((2,), (1,), (0,), (0,)), [shaped(SIZE, 4, 3), shaped(SIZE, 3, 5)]),
    (ops.Dot((2,), (1,), (0,), (0,)), [shaped(2, SIZE, 3), shaped(2, 3, 5)]),
    (ops.Dot((2,), (1,), (0,), (0,)), [shaped(2, 4, 3), shaped(2, 3, SIZE)]),
    (ops.Conv((1,), (Expr.of(0),), (Expr.of(0),), (1,), (1,), Expr.of(1)), [shaped(SIZE, 5, 2), shaped(3, 2, 4)]),
    (ops.Conv((1,), (Expr.of(0),), (Expr.of(0),), (1,), (1,), Expr.of(1)), [shaped(3, 5, 2), shaped(3, 2, SIZE)]),
    (ops.Gather(0), [shaped(5, SIZE), shaped(2, dtype="int32")]),
    (ops.Gather(0), [shaped(5, 3), shaped(SIZE, dtype="int32")]),
    (ops.Gather(1), [shaped(SIZE, 3), shaped(4, 2, dtype="int32")]),
    (ops.Gather(1, 1), [shaped(SIZE, 3, 2), shaped(SIZE, 4, dtype="int32")]),
    (ops.Gather(1, 1), [shaped(2, 3, 5), shaped(2, SIZE, dtype="int32")]),
    (ops.Gather(1, 1), [shaped(2, 3, SIZE), shaped(2, 4, dtype="int32")]),
    (ops.Scatter(0, Expr.of(5)), [shaped(2, SIZE), shaped(2, dtype="int32")]),
    (ops.Scatter(1, Expr.of(3)), [shaped(SIZE, 4, 2), shaped(4, 2, dtype="int32")]),
    (ops.Scatter(1, Expr.of(3), 1), [shaped(SIZE, 4, 2), shaped(SIZE, 4, dtype="int32")]),
    (ops.Scatter(1, Expr.of(3), 1), [shaped(2, 4, SIZE), shaped(2, 4, dtype="int32")]),
]


def drawn(type: TensorType, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    shape = tuple(size.constant for size in type.shape)
    if type.dtype == "float32":
        return generator.normal(size=shape).astype("float32")
    return generator.integers(0, 2, shape).astype(type.dtype)


def run(op: Op, operands: list[np.ndarray]) -> np.ndarray:
    return np.asarray(NumpyBackend().kernel(op, operands, {}, np.uint32(0))[0])


def tile_of(array: np.ndarray, axis: int | None, number: int) -> np.ndarray:
    if axis is None:
        return array
    return np.take(array, range(number * TILE, number * TILE + TILE), axis)


@each_op
def test_every_op_has_a_row_or_a_reason(op: type[Op]):
    assert (op in ROWS) != (op in NO_ROW), f"give {op.__name__} a row in ir/axes.py, or say in NO_ROW why it has none"
    assert (op in ROWS) <= any(type(example) is op for example, _ in EXAMPLES), (
        f"give {op.__name__} a row in tests/core/every_op.py"
    )


def source_along(op: Op, types: list[TensorType], axis: int) -> Source | None:
    (result,) = op.infer(tuple(types))
    return sources(op, [type.shape for type in types], result.shape)[axis]


def examples_by_axis() -> Iterator[tuple[Op, list[TensorType], int]]:
    for op, types in EXAMPLES:
        yield from ((op, types, axis) for axis, size in enumerate(op.infer(tuple(types))[0].shape) if size == SIZE)


by_axis = pytest.mark.parametrize(
    ("op", "types", "axis"), list(examples_by_axis()), ids=[f"{op!s:.50}-{k}" for op, _, k in examples_by_axis()]
)


@by_axis
def test_tiles_of_the_result(op: Op, types: list[TensorType], axis: int):
    operands, source = [drawn(type, seed) for seed, type in enumerate(types)], source_along(op, types, axis)
    assert source is not None and (any(a is not None for a in source) or isinstance(op, ops.Broadcast))
    for number in range(SIZE // TILE):
        part = run(tiled(op, axis, Expr.of(TILE)), [tile_of(x, a, number) for x, a in zip(operands, source, strict=True)])
        np.testing.assert_allclose(part, tile_of(run(op, operands), axis, number), rtol=1e-6)


@by_axis
def test_one_position_of_the_result(op: Op, types: list[TensorType], axis: int):
    operands, source = [drawn(type, seed) for seed, type in enumerate(types)], source_along(op, types, axis)
    assert source is not None
    one = without(op, axis, source)
    if isinstance(op, ops.Conv) and source[0] is None:
        assert one is None, "a kernel has a dimension for its features"
        return
    assert one is not None
    for number in range(SIZE):
        parts = [x if a is None else np.take(x, number, a) for x, a in zip(operands, source, strict=True)]
        np.testing.assert_allclose(run(one, parts), np.take(run(op, operands), number, axis), rtol=1e-6)


@pytest.mark.parametrize(("op", "types"), [e for e in EXAMPLES if not isinstance(e[0], ops.Conv)], ids=lambda x: str(x)[:50])
def test_one_more_dimension_in_front(op: Op, types: list[TensorType]):
    operands = [[drawn(type, 10 * number + seed) for seed, type in enumerate(types)] for number in range(TILE)]
    both = run(with_leading(op, Expr.of(TILE)), [np.stack(each) for each in zip(*operands, strict=True)])
    np.testing.assert_allclose(both, np.stack([run(op, each) for each in operands]), rtol=1e-6)


def test_an_op_that_reduces_one_dimension_less():
    assert without_reduced(ops.Reduce("sum", (0, 2)), (0,)) == ops.Reduce("sum", (1,))
    assert without_reduced(ops.Dot((1, 2), (0, 3), (0,), (1,)), (1, 0)) == ops.Dot((1,), (2,), (0,), (0,))


def test_the_dimensions_that_operands_become():
    graph = Graph(())
    x, y = (Edge(graph.add(ops.Input("", "float32", tuple(map(Expr.of, shape)))).id) for shape in ((2, 3, 4), (4, 2, 5)))
    assert places_of(graph, graph.add(ops.Dot((2,), (0,), (0,), (1,)), [x, y])) == [{0: 0, 1: 1}, {1: 0, 2: 2}]
    assert places_of(graph, graph.add(ops.CumSum(1), [x])) == [{0: 0, 2: 2}]


@pytest.mark.parametrize("op", [ops.CumSum(1), ops.Flip(1), ops.Argsort(1), ops.Pad(1, Expr.of(0), Expr.of(0))], ids=str)
def test_what_works_along_the_dimension_has_no_source(op: Op):
    assert source_along(op, [F], 1) is None


@pytest.mark.parametrize(("axis", "groups"), [(1, 1), (1, 2), (2, 2)], ids=["space", "space, in groups", "features of groups"])
def test_windows_that_overlap_and_groups_have_no_source(axis: int, groups: int):
    op = ops.Conv((1,), (Expr.of(0),), (Expr.of(0),), (1,), (1,), Expr.of(groups))
    assert source_along(op, [shaped(3, 5, 2), shaped(3, 2 // groups, SIZE)], axis) is None


@pytest.mark.parametrize(
    ("before", "after", "axis"),
    [((3, SIZE, 4), (3 * SIZE, 4), 0), ((4, SIZE), (SIZE, 4), 0), ((1, 4), (1, 2, 2), 0)],
    ids=["joined", "with other elements in front", "of one element"],
)
def test_a_reshape_that_mixes_the_dimension_has_no_source(before: tuple[int, ...], after: tuple[int, ...], axis: int):
    assert source_along(ops.Reshape(tuple(map(Expr.of, after))), [shaped(*before)], axis) is None


def test_reduced_dimensions():
    assert reduced(ops.Reduce("sum", (0, 2))) == [(0,), (2,)]
    assert reduced(ops.Argmax(1)) == [(1,)]
    assert reduced(ops.Dot((1, 2), (0, 3), (0,), (1,))) == [(1, 0), (2, 3)]
    assert reduced(ops.Unary("exp")) == reduced(ops.Random("uniform", 0, ())) == []
