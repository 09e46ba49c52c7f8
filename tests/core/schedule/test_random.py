"""Random graphs: a scheduled graph runs in a right order, and a refused graph has a cycle."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_core.errors import CausalityError
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Merge
from tempo_core.schedule import schedule
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tests.core.schedule.checker import FLOAT, check, expected, local_reads, op, read_points
from tests.core.schedule.programs import ORDER, i, t


@st.composite
def indices(draw, step, inside):
    here, bound = step.expr, step.bound_expr
    fixed = [Point(Expr.of(0)), Point(bound - 1), Range(Expr.of(0), bound)]
    if not inside:
        return draw(st.sampled_from(fixed))
    moving = [
        Point(here), Point(here - 1), Point(here + 1),
        Range(Expr.of(0), here + 1), Range(Expr.of(0), here), Range(here, bound),
        Range(maximum(0, here - 2), here + 1), Range(here, minimum(here + 3, bound)),
        Point(here // 2 * 2), Point(here // 3), Range(here // 3 * 3, here + 1), Range(Expr.of(0), here + 1, 2),
    ]  # fmt: skip
    return draw(st.one_of(st.just(Point(here)), st.sampled_from(moving + fixed)))


@st.composite
def graphs(draw):
    """Graphs of operations and two-branch merges over i and t; reads outside of a domain are ignored."""
    graph = Graph(ORDER)
    domains = draw(st.lists(st.sampled_from([(), (i,), (t,), (i, t), (i, t)]).map(Domain), min_size=2, max_size=6))
    merges = [draw(st.booleans()) for _ in domains]
    for k, domain in enumerate(domains):
        kind = Merge(FLOAT) if merges[k] else op(f"f{k}", stateful=draw(st.integers(0, 9)) == 0)
        graph.add(kind, domain=domain, name=f"x{k}")
    for k, domain in enumerate(domains):
        edges = []
        for branch in range(2 if merges[k] else draw(st.integers(0, 2))):
            source = draw(st.integers(0, len(domains) - 1 if merges[k] else k))
            if source == k and not merges[k]:
                continue
            index = tuple(draw(indices(step, step in domain)) for step in domains[source].steps)
            condition = TRUE
            if merges[k] and branch == 0 and domain.steps:
                step = draw(st.sampled_from(domain.steps))
                condition = draw(st.sampled_from([step.expr == 0, step.expr + 1 == step.bound_expr, step.expr < 2]))
            edges.append(Edge(source, index, condition=condition))
        graph.put(replace(graph[k], inputs=tuple(edges)))
    return graph


def has_cycle(graph, bounds):
    """Whether some value depends on itself, point by point."""
    branches = {(node, point): branch for node, branch, point in expected(graph, bounds, {})}
    needs = {}
    for (node_id, point), branch in branches.items():
        node = graph[node_id]
        edges = node.inputs if branch is None else (node.inputs[branch],)
        sources = {(e.source, p) for e in edges for p in read_points(node, e, point, bounds)}
        if getattr(node.op, "stateful", False):
            sources |= {(node_id, earlier) for other, earlier in branches if other == node_id and earlier < point}
        needs[node_id, point] = sources & branches.keys()
    done = set()
    while ready := [key for key, sources in needs.items() if key not in done and sources <= done]:
        done.update(ready)
    return len(done) < len(needs)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 3), st.integers(1, 7), st.booleans())
def test_random_graphs(graph, iterations, length, dealloc):
    bounds = {Symbol("I"): iterations, Symbol("T"): length}
    try:
        scheduled = schedule(graph, bounds, dealloc)
    except CausalityError as error:
        assert has_cycle(graph, bounds), error
        return
    assert not has_cycle(graph, bounds)
    check(scheduled, strict=False, dealloc=dealloc)
    local_reads(scheduled)
