"""ended: recurrences that decide where a step ends wait for the condition at the point before."""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tempo_core.ir import ops
from tempo_core.ir.dependence import feeding
from tempo_core.ir.graph_text import to_text
from tempo_core.ir.verify import verify
from tempo_core.passes.base import renumbered
from tempo_core.passes.shapes.ended import Ended, after
from tests.core.passes.support import Golden


def test_recurrences_wait(golden: Golden) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        x = tp.input("x", domain=(t,))
        h, other = tp.recurrence((), domain=(t,), name="h"), tp.recurrence((), domain=(t,), name="other")
        h[0] = x[0]
        h[t + 1] = h * 0.5
        other[0] = x[0]
        other[t + 1] = other + h
        ctx.ends(t, when=tp.tanh(h) < 0.1)
    source = with_outputs(ctx, [h, other])
    waiting = Ended().apply(source)
    verify(waiting, after="ended")
    golden("passes/ended.txt", "\n".join(part.split(' @ "')[0] for part in to_text(renumbered(waiting)).splitlines()))
    udfs = [node for node in waiting if isinstance(node.op, ops.Udf)]
    assert len(udfs) == 2 and {node.op.fn for node in udfs} == {after}  # the branches of h; the other one decides nothing


def test_what_an_end_depends_on() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        x = tp.input("x", domain=(t,))
        doubled = x * 2.0
        ctx.ends(t, when=x > 1.0)
    graph = with_outputs(ctx, [doubled])
    deciding = feeding(graph, list(graph.ends().values()))
    assert doubled.node.id not in deciding and len(deciding) >= 2


def test_without_an_end_the_graph_stays() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        y = tp.input("x", domain=(t,)) * 2.0
    graph = with_outputs(ctx, [y])
    assert Ended().apply(graph) is graph
    np.testing.assert_array_equal(after(np.ones(2), np.zeros(()))[0], np.ones(2))
