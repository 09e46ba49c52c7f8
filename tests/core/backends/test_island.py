"""Islands: slices and padding one after the other, with the numbers of each on its own."""

from __future__ import annotations

import numpy as np
import pytest

from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir import ops
from tempo_core.ir.ops.structure_ops import Dataflowed
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr

NUMBER = np.float32(3).tobytes()


def number(value: int) -> Expr:
    return Expr.of(value)


def island(shape: tuple[int, ...], *chain: ops.Op) -> ops.Dataflow:
    """Operations one after the other; a product takes 3 as its second operand."""
    slots = [TensorType("float32", tuple(map(number, shape)))]
    instructions, last = [], 0
    for op in chain:
        operands = [last]
        if isinstance(op, ops.Binary):
            for constant in (ops.Constant("float32", (), NUMBER), ops.Broadcast(slots[last].shape, ())):
                sources = () if isinstance(constant, ops.Constant) else (len(slots) - 1,)
                instructions.append((constant, sources, (len(slots),)))
                slots += constant.infer(tuple(slots[s] for s in sources))
            operands.append(len(slots) - 1)
        instructions.append((op, tuple(operands), (len(slots),)))
        last = len(slots)
        slots += op.infer(tuple(slots[s] for s in operands))
    return ops.Dataflow(Dataflowed(tuple(slots[:1]), tuple(instructions), (last,), tuple(slots)))


def cut(axis: int, start: int, stop: int, stride: int = 1) -> ops.Op:
    return ops.Slice(axis, number(start), number(stop), stride)


def pad(axis: int, low: int, high: int) -> ops.Op:
    return ops.Pad(axis, number(low), number(high))


CHAINS = {
    "shifted twice": (cut(0, -1, 3), cut(0, 1, 5)),
    "two axes": (pad(0, 1, 1), cut(1, 1, 4), pad(0, -1, 2), pad(1, 2, 0)),
    "scaled between": (cut(0, 1, 4), pad(0, 1, 0), ops.Unary("neg"), ops.Binary("mul"), cut(0, 1, 4), pad(0, 0, 1)),
    "nothing left": (cut(0, 4, 6), pad(0, 2, 2), cut(0, -3, 1)),
    "cut by padding": (pad(0, -2, -1), pad(0, 2, 1), pad(1, -5, 3)),
    "outside": (cut(0, 7, 9), cut(1, -4, -1)),
    "with a stride": (pad(0, 1, 1), cut(0, 0, 6, 2), pad(0, 1, 0)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_numbers_of_each_on_its_own(name: str) -> None:
    x = np.arange(1, 21, dtype="float32").reshape(4, 5)
    flow = island(x.shape, *CHAINS[name])
    (expected,) = NumpyBackend().kernel(flow, [x], {})
    (result,) = JaxBackend().kernel(flow, [x], {})
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_an_infinite_factor_is_multiplied_after_padding() -> None:
    body = island((3,), pad(0, 1, 1), ops.Binary("mul")).body
    infinite = ops.Constant("float32", (), np.float32(np.inf).tobytes())
    instructions = tuple((infinite if isinstance(op, ops.Constant) else op, *slots) for op, *slots in body.instructions)
    flow = ops.Dataflow(Dataflowed(body.input_types, instructions, body.results, body.slot_types))
    (result,) = JaxBackend().kernel(flow, [np.ones(3, "float32")], {})
    assert np.isnan(np.asarray(result)[[0, 4]]).all()
