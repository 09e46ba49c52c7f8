"""fig:rts: the uses of symbolic expressions for a recurrent tensor x with domain (t,).

They (i) index steps, (ii) express shapes, (iii) parameterize operations, (iv) say at which points something happens. The text
around the figure adds sequences (several steps indexed at once) and comparisons, logic, min and max.
"""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import OutOfDomainError
from tests.core.running import Case
from tests.paper.running import LOOPS, assert_agree, index_text, normal, rows


def shape_text(x: tp.Tensor) -> str:
    return ", ".join(map(str, x.shape))


def test_a_tensor_is_defined_at_every_point_from_zero_to_its_bound():
    """Each step has a current symbol and an upper bound; a read past the bound is refused, with a point that makes the read."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        y = x[t + 1] * 2.0
        assert (str(x.domain), str(y.domain)) == ("(t)", "(t) where T >= t + 2")
    with pytest.raises(OutOfDomainError, match=r"at t = 3. That is x\[4\], outside of 0 <= t < T = 4"):
        ctx.compile({T: 4}, outputs=[y])


def test_one_two_indexing_steps_and_dynamic_shapes():
    """(i) and (ii): points, and slices, which become a leading spatial dimension, whose size is an expression of the step."""
    data, ctx = normal(5, 2), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        before = x[tp.max(t - 1, 0)]
        past = x[0 : t + 1]
        future = x[t:T]
        doubled = past * 2.0
        total = past.sum(0) - future.mean(0)
    assert shape_text(before) == "2"
    assert (shape_text(past), str(past.domain)) == ("t + 1, 2", "(t)")
    assert (shape_text(future), str(future.domain)) == ("T - t, 2", "(t)")
    assert shape_text(doubled) == "t + 1, 2", "shapes that vary are passed on by operations"
    outputs = [before, total]
    expected = [
        rows([data[max(k - 1, 0)] for k in range(5)]),
        rows([data[: k + 1].sum(0) - data[k:].mean(0) for k in range(5)]),
    ]
    assert_agree(Case(ctx, {T: 5}, outputs, expected, {"x": data}))


def test_a_dynamic_shape_that_leaves_the_program_is_ragged():
    data, ctx = normal(3), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        past = x[0 : t + 1] + x
    expected = [[data[: k + 1] + data[k] for k in range(3)]]
    assert_agree(Case(ctx, {T: 3}, [past], expected, {"x": data}))


def test_three_operations_with_symbolic_parameters():
    """(iii): a dynamic expand, a spatial index and a spatial slice that move with the step, an arange of dynamic length."""
    data, ctx = normal(4, 4), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        expanded = tp.broadcast_to(x.sum(0), (t + 1,))
        chosen = x.index(0, t)
        head = x.spatial[0 : t + 1]
        positions = tp.arange(t + 1)
        weighted = (expanded * head * positions.astype("float32")).sum(0)
    assert shape_text(expanded) == shape_text(head) == shape_text(positions) == "t + 1"
    assert shape_text(chosen) == "" and str(chosen.domain) == "(t)"
    expected = [
        rows([data[k, k] for k in range(4)]),
        rows([(data[k].sum() * data[k, : k + 1] * np.arange(k + 1)).sum() for k in range(4)]),
    ]
    assert_agree(Case(ctx, {T: 4}, [chosen, weighted], expected, {"x": data}))


def test_four_conditions_decide_where_things_exist_and_run():
    """(iv): an index that is a condition: the value, and every value that depends on it, exists and runs only where it holds."""
    data, ctx, seen = normal(6), tp.Context("t"), []
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        third = x[(t + 1) % 3 == 0] * 2.0
        tp.sink(lambda value, t: seen.append((t, float(value))), third, name="kept")
        edge = tp.where((t == 0) | (t == T - 1), x, 0.0)
        inner = tp.where((t >= 1) & ~(t == T - 1), x, 0.0)
    assert str(third.domain) == "(t) where ((t + 1)%3) == 0"
    for config in (tp.Config(), LOOPS, tp.Config(backend="numpy"), tp.Config(executor="interpreted")):
        seen.clear()
        ctx.run({T: 6}, outputs=[], inputs={"x": data}, config=config)
        assert seen == [(2, float(data[2] * 2)), (5, float(data[5] * 2))]
    ends = np.isin(np.arange(6), (0, 5))
    expected = [np.where(ends, data, 0).astype("float32"), np.where(ends, 0, data).astype("float32")]
    assert_agree(Case(ctx, {T: 6}, [edge, inner], expected, {"x": data}))


def test_sequences_index_several_steps_at_once():
    data, ctx = normal(3, 4, 2), tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x = tp.input("x", (2,), domain=(b, t))
        mixed = x[B - 1 - b, tp.min(t + 2, T - 1)]
        block = x[0:B, 0 : t + 1]
        total = block.sum((0, 1, 2))
    assert index_text(block.edge.index) == "[0:B, 0:t + 1]"
    assert (shape_text(block), str(block.domain)) == ("B, t + 1, 2", "(t)")
    expected = [
        rows([[data[2 - j, min(k + 2, 3)] for k in range(4)] for j in range(3)]),
        rows([data[:, : k + 1].sum() for k in range(4)]),
    ]
    assert_agree(Case(ctx, {B: 3, T: 4}, [mixed, total], expected, {"x": data}))


def test_an_exact_number_of_dimensions_is_no_requirement():
    """A footnote: a program without steps is an ordinary program of tensors."""
    data, ctx = normal(2, 3), tp.Context()
    with ctx:
        x = tp.input("x", (2, 3))
        y = (x @ x.transpose(1, 0)).sum()
    assert str(y.domain) == "()"
    assert_agree(Case(ctx, {}, [y], [np.float32((data @ data.T).sum())], {"x": data}, tolerance=1e-4))
