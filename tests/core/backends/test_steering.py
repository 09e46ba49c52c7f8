"""What the passes for XLA's CPU compiler make of islands: texts before and after each pass, in a loop over t."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

from tempo_core.backends.island import Island
from tempo_core.backends.xla_cpu.kept import keep_apart, read_before_updates
from tempo_core.backends.xla_cpu.loops import compute_in_loops
from tempo_core.backends.xla_cpu.slices import take_slices
from tempo_core.ir.ops import Dataflow
from tests.core.backends.support import T, steered, t, text
from tests.graph_parser import parse

pytestmark = pytest.mark.cpu

Pass = Callable[[Island], None]
BODIES: dict[str, tuple[Pass, str]] = {
    "dear_in_padding": (
        keep_apart,
        """
        $0 : float32[50]
        $1 = Unary(fn="exp")($0) : float32[50]
        $2 = Slice(axis=0, start=1, stop=50)($1) : float32[49]
        $3 = Pad(axis=0, low=0, high=1)($2) : float32[50]
        $4 = Binary(fn="add")($1, $3) : float32[50]
        give $4
        """,
    ),
    "padding_in_dear": (
        keep_apart,
        """
        $0 : float32[50]
        $1 = Slice(axis=0, start=-1, stop=49)($0) : float32[50]
        $2 = Unary(fn="exp")($1) : float32[50]
        give $2
        """,
    ),
    "sum_of_paddings": (
        keep_apart,
        """
        $0 : float32[49]
        $1 = Pad(axis=0, low=0, high=1)($0) : float32[50]
        $2 = Pad(axis=0, low=1, high=0)($0) : float32[50]
        $3 = Binary(fn="add")($1, $2) : float32[50]
        give $3
        """,
    ),
    "read_before_update": (
        read_before_updates,
        """
        $0 : float32[400, 2]
        $1 : int32[]
        $2 = Gather(axis=0)($0, $1) : float32[2]
        $3 = Unary(fn="tanh")($2) : float32[2]
        $4 = Update(fn="set", axis=0)($0, $3, $1) : float32[400, 2]
        give $4, $2
        """,
    ),
    "read_for_the_update_alone": (
        read_before_updates,
        """
        $0 : float32[400, 2]
        $1 : int32[]
        $2 = Gather(axis=0)($0, $1) : float32[2]
        $3 = Update(fn="set", axis=0)($0, $2, $1) : float32[400, 2]
        give $3
        """,
    ),
    "window": (
        take_slices,
        """
        $0 : float32[60, 3]
        $1 : int32[]
        $2 = Iota(size=40)() : int32[40]
        $3 = Broadcast(shape=(40,), axes=())($1) : int32[40]
        $4 = Binary(fn="sub")($2, $3) : int32[40]
        $5 = Gather(axis=0)($0, $4) : float32[40, 3]
        $6 = Gather(axis=1)($0, $4) : float32[60, 40]
        give $5, $6
        """,
    ),
    "few_elements": (
        take_slices,
        """
        $0 : float32[5, 90]
        $1 : int32[5]
        $2 = Gather(axis=1, batch=1)($0, $1) : float32[5]
        give $2
        """,
    ),
    "product_in_parts": (
        take_slices,
        """
        $0 : float32[1001, 30000]
        $1 : float32[1000, 8]
        $2 = Slice(axis=0, start=1, stop=1001)($0) : float32[1000, 30000]
        $3 = Dot(left_contract=(0,), right_contract=(0,), left_batch=(), right_batch=())($2, $1) : float32[30000, 8]
        give $3
        """,
    ),
    "recurrence_of_repeated": (
        compute_in_loops,
        """
        $0 : float32[T, 8]
        $1 = Broadcast(shape=(T, 8, 16), axes=(0, 1))($0) : float32[T, 8, 16]
        $2 = Unary(fn="exp")($1) : float32[T, 8, 16]
        $3 = LinearScan(axis=0)($2, $1) : float32[T, 8, 16]
        give $3
        """,
    ),
    "picked_sum": (
        compute_in_loops,
        """
        $0 : float32[T, 16]
        $1 : int32[T]
        $2 = CumSum(axis=0)($0) : float32[T, 16]
        $3 = Slice(axis=0, start=-1, stop=T - 1)($2) : float32[T, 16]
        $4 = Gather(axis=1, batch=1)($3, $1) : float32[T]
        give $4
        """,
    ),
    "sum_of_a_mask": (
        compute_in_loops,
        """
        $0 : float32[T, 16]
        $1 = Slice(axis=0, start=-1, stop=T - 1)($0) : float32[T, 16]
        $2 = Compare(fn="eq")($0, $1) : bool[T, 16]
        $3 = Cast(dtype="float32")($2) : float32[T, 16]
        $4 = LinearScan(axis=0)($3, $0) : float32[T, 16]
        give $4
        """,
    ),
}


IN_LOOP = jnp.int32(3)


def island(body: str, at: Any = IN_LOOP) -> Island:
    """The island with this body at a point, which is an array in a loop."""
    lines = [line.strip() for line in body.strip().splitlines()]
    types = dict(re.match(r"(\$\d+)\b.* : (.*)", line).groups() for line in lines[:-1])
    inputs = [line.split()[0] for line in lines if " = " not in line][:-1]
    fed = [
        re.sub(r"(\w+)\[(.*)\]", r'= Input(name="NAME", dtype="\1", shape=(\2,))() : \1[\2] over ()', types[slot])
        for slot in inputs
    ]
    nodes = [f"%{k} {each.replace('NAME', str(k)).replace('(,)', '()')}" for k, each in enumerate(fed)]
    given = ", ".join(types[slot.strip()] for slot in lines[-1].removeprefix("give").split(","))
    operands = ", ".join(f"%{k}" for k in range(len(inputs)))
    flow = [f"%{len(inputs)} = Dataflow()({operands}) : {given} over () {{", *lines, "}"]
    (op,) = (node.op for node in parse("\n".join(["steps t<T", *nodes, *flow])) if isinstance(node.op, Dataflow))
    return steered(op.body, {T: 100, t: at})


@pytest.mark.parametrize("name", BODIES)
def test_texts(name: str, golden: Callable[[str, str], None]) -> None:
    rewrite, body = BODIES[name]
    rewritten = island(body)
    before = text(rewritten)
    rewrite(rewritten)
    golden(f"backends/{name}.txt", f"{before}\n{rewrite.__name__}:\n\n{text(rewritten)}")


def test_a_read_by_an_earlier_statement_comes_before_the_update() -> None:
    """The token of the earlier read is an operand: the update waits for it, and no read is kept again."""
    rewritten = island(BODIES["read_for_the_update_alone"][1])
    rewritten.tokens = {0: rewritten.slot(rewritten.types[1])}
    read_before_updates(rewritten)
    assert "$5, $6 = keep()($4, $2, $1)\n$3 = Update" in text(rewritten)
    assert rewritten.tokens == {0: 4}


@pytest.mark.parametrize("name", ["dear_in_padding", "padding_in_dear", "sum_of_paddings", "read_before_update", "few_elements"])
def test_outside_of_a_loop_nothing_is_kept(name: str) -> None:
    rewrite, body = BODIES[name]
    rewritten = island(body, at=3)
    before = text(rewritten)
    rewrite(rewritten)
    assert text(rewritten) == before
