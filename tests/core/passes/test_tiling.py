"""Each row of `passes/tiles/tiling.py`: an op on tiles of its operands gives tiles of its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir import ops
from tempo_core.ir.ops import Op
from tempo_core.ir.types import TensorType
from tempo_core.passes.tiles.tiling import RULES, contracted, tiled
from tempo_core.symbolic.expr import Expr
from tests.core.every_op import each_op

NEVER_TILED: dict[type[Op], str] = {
    ops.Input: "is there as a whole",
    ops.Constant: "is there as a whole",
    ops.Eval: "has no dimension",
    ops.Iota: "is made anew by passes/tiles/tile.py itself",
    ops.Random: "its numbers follow from their places: tiles are taken from the whole",
    ops.Merge: "is state: it is kept as a whole",
    ops.Udf: "is a function of whole arrays",
    ops.ScatterAdd: "any element may come from any update",
    ops.Output: "has no result",
    ops.Sink: "has no result",
    ops.End: "has no result",
    ops.Dataflow: "is made after tiling",
}

SIZE, TILE = 6, 2


def shaped(*sizes: int, dtype: str = "float32") -> TensorType:
    return TensorType.of(dtype, *sizes)


F = shaped(3, SIZE, 4)
EXAMPLES: list[tuple[Op, list[TensorType]]] = [
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
    assert (op in RULES) != (op in NEVER_TILED), (
        f"give {op.__name__} a row in passes/tiles/tiling.py, or say in NEVER_TILED why it has none"
    )
    assert (op in RULES) <= any(type(example) is op for example, _ in EXAMPLES), f"give the row of {op.__name__} an example"


@pytest.mark.parametrize(("op", "types"), EXAMPLES, ids=[str(op)[:50] for op, _ in EXAMPLES])
def test_tiles_of_the_result(op: Any, types: list[TensorType]):
    (result,) = op.infer(tuple(types))
    operands = [drawn(type, seed) for seed, type in enumerate(types)]
    whole = run(op, operands)
    axes = [k for k, size in enumerate(result.shape) if size == SIZE]
    assert axes, "the example has a dimension to tile"
    for axis in axes:
        rule = tiled(op, types, result, axis, TILE)
        assert rule is not None
        assert any(a is not None for a in rule.operands) or isinstance(op, ops.Broadcast)
        for number in range(SIZE // TILE):
            part = run(rule.op, [tile_of(x, a, number) for x, a in zip(operands, rule.operands, strict=True)])
            np.testing.assert_allclose(part, tile_of(whole, axis, number), rtol=1e-6)


@pytest.mark.parametrize("op", [ops.CumSum(1), ops.Flip(1), ops.Argsort(1), ops.Pad(1, Expr.of(0), Expr.of(0))], ids=str)
def test_what_works_along_the_dimension_is_not_tiled(op: Any):
    assert tiled(op, [F], op.infer((F,))[0], 1, TILE) is None


@pytest.mark.parametrize(("axis", "groups"), [(1, 1), (1, 2), (2, 2)], ids=["space", "space, in groups", "features of groups"])
def test_windows_that_overlap_and_groups_are_not_tiled(axis: int, groups: int):
    op = ops.Conv((1,), (Expr.of(0),), (Expr.of(0),), (1,), (1,), Expr.of(groups))
    types = [shaped(3, 5, 2), shaped(3, 2 // groups, SIZE)]
    assert tiled(op, types, op.infer(tuple(types))[0], axis, TILE) is None


@pytest.mark.parametrize(
    ("before", "after", "axis"),
    [((3, SIZE, 4), (3 * SIZE, 4), 0), ((4, SIZE), (SIZE, 4), 0), ((1, 4), (1, 2, 2), 0)],
    ids=["joined", "with other elements in front", "of one element"],
)
def test_a_reshape_that_mixes_the_dimension_is_not_tiled(before: tuple[int, ...], after: tuple[int, ...], axis: int):
    op, type = ops.Reshape(tuple(map(Expr.of, after))), shaped(*before)
    assert tiled(op, [type], op.infer((type,))[0], axis, TILE) is None


def test_contracted_dimensions():
    assert contracted(ops.Reduce("sum", (0, 2))) == [(0,), (2,)]
    assert contracted(ops.Dot((1, 2), (0, 3), (0,), (1,))) == [(1, 0), (2, 3)]
    assert contracted(ops.Unary("exp")) == []
