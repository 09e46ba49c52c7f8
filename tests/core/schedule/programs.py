"""Graphs built by hand, in the form in which the frontend builds them."""

from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Merge, Output
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range, identity
from tempo_core.symbolic.expr import Expr, Symbol, minimum
from tests.core.schedule.checker import FLOAT, at, op

i, e, m, t = Symbol("i", "I"), Symbol("e", "E"), Symbol("m", "M"), Symbol("t", "T")
E, M, T = (s.bound_expr for s in (e, m, t))
ORDER = (i, e, m, t)


def merge(graph, domain, name):
    """A branching tensor without branches; `define` sets them later, because of cycles."""
    return graph.add(Merge(FLOAT), domain=domain, name=name)


def define(graph, node, *branches):
    """Set the (source node, index, condition) branches of a merge."""
    edges = tuple(Edge(source.id, index, condition=condition) for source, index, condition in branches)
    return graph.put(type(node)(node.id, node.op, node.domain, edges, node.outputs, node.name, node.where))


def run(graph, name, domain, *reads, outputs=1, stateful=False):
    """An operation over `domain` that reads (node, index) pairs; index None is the identity."""
    edges = [Edge(source.id, identity(source.domain) if index is None else index) for source, index in reads]
    return graph.add(op(name, outputs, stateful), edges, domain=domain, name=name)


def reinforce(window):
    """REINFORCE over (i, t): `window` is the range of rewards that a return reads."""
    graph = Graph(ORDER)
    di, dit = Domain((i,)), Domain((i, t))
    params = merge(graph, di, "params")
    reset = run(graph, "reset", di)
    obs = merge(graph, dit, "obs")
    act = run(graph, "act", dit, (obs, None), (params, at(i.expr)))
    step = run(graph, "step", dit, (act, None), (obs, None))
    ret = run(graph, "ret", dit, (step, (*at(i.expr), window)))
    grad = run(graph, "grad", dit, (ret, None), (act, None), (obs, None), (params, at(i.expr)))
    total = run(graph, "gsum", di, (grad, (*at(i.expr), Range(Expr.of(0), T))))
    opt = run(graph, "opt", di, (total, None), (params, None))
    first = run(graph, "init", Domain(()))
    define(graph, params, (first, (), i.expr == 0), (opt, at(i.expr - 1), TRUE))
    define(graph, obs, (reset, at(i.expr), t.expr == 0), (step, at(i.expr, t.expr - 1), TRUE))
    graph.add(Output(0), [Edge(opt.id, identity(di))], domain=di, name="out")
    return graph


MONTE_CARLO = Range(t.expr, T)
FIVE_STEPS = Range(t.expr, minimum(t.expr + 5, T))


def nested_carry():
    """Parameters carried over iterations, epochs and minibatches, and a simulation that uses the last of each iteration."""
    graph = Graph(ORDER)
    diem, di, dit = Domain((i, e, m)), Domain((i,)), Domain((i, t))
    init = run(graph, "init", Domain(()))
    w = merge(graph, diem, "w")
    x = merge(graph, dit, "x")
    x_next = run(graph, "simulate", dit, (x, None), (w, at(i.expr, 0, 0)))
    define(
        graph,
        x,
        (init, (), (t.expr == 0) & (i.expr == 0)),
        (x_next, at(i.expr - 1, T - 1), t.expr == 0),
        (x_next, at(i.expr, t.expr - 1), TRUE),
    )
    batch = run(graph, "batch", di, (x_next, (*at(i.expr), Range(Expr.of(0), T))))
    update = run(graph, "update", diem, (w, None), (batch, at(i.expr)))
    define(
        graph, w,
        (init, (), (i.expr == 0) & (e.expr == 0) & (m.expr == 0)),
        (update, at(i.expr - 1, E - 1, M - 1), (e.expr == 0) & (m.expr == 0)),
        (update, at(i.expr, e.expr - 1, M - 1), m.expr == 0),
        (update, at(i.expr, e.expr, m.expr - 1), TRUE),
    )  # fmt: skip
    graph.add(Output(0), [Edge(update.id, at(i.expr, E - 1, M - 1))], domain=di, name="out")
    return graph
