"""A check of every schedule: run the program point by point, with expressions only."""

import itertools

from tempo_core.ir.ops import Constant, Input, Merge, Sink, Udf
from tempo_core.ir.types import TensorType
from tempo_core.schedule import Dealloc, Execute, instances
from tempo_core.schedule.build import chosen_value
from tempo_core.schedule.storage import _Folding
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Expr

FLOAT = TensorType.of("float32")
MOST_RUNS = 12  # of a program whose runs choose bounds, so many are checked


def nothing(*arrays):
    raise AssertionError("schedules are not run here")


def op(name="f", outputs=1, stateful=False):
    """An operation with any operands."""
    return Udf(nothing, (FLOAT,) * outputs, name=name, stateful=stateful)


def points(domain, bounds, chosen):
    """The points of a domain, in lexicographic order, where a run takes the points `chosen` of some steps."""
    for point in itertools.product(*((chosen[s],) if s in chosen else range(bounds[s.bound_symbol]) for s in domain.steps)):
        if domain.condition.evaluate({**bounds, **dict(zip(domain.steps, point, strict=True))}):
            yield point


def branch_at(node, point, bounds):
    """The branch of a Merge that defines `point`; None if there is none."""
    env = {**bounds, **dict(zip(node.domain.steps, point, strict=True))}
    return next((k for k, edge in enumerate(node.inputs) if edge.condition.evaluate(env)), None)


def expected(graph, bounds, chosen):
    """All (node, branch, point) that must run."""
    pairs = set()
    for node in graph:
        if isinstance(node.op, (Input, Constant)):
            continue
        for point in points(node.domain, bounds, chosen):
            if not isinstance(node.op, Merge):
                pairs.add((node.id, None, point))
            elif (branch := branch_at(node, point, bounds)) is not None:
                pairs.add((node.id, branch, point))
    return pairs


def read_points(node, edge, point, bounds):
    """The points that an edge reads at a reader's point."""
    env = {**bounds, **dict(zip(node.domain.steps, point, strict=True))}
    along = []
    for index in edge.index:
        if isinstance(index, Point):
            along.append((index.expr.evaluate(env),))
        else:
            along.append(range(index.start.evaluate(env), index.stop.evaluate(env), index.stride))
    return itertools.product(*along)


def local_reads(scheduled):
    """The reads that are taken to be of the very loop iteration that computes the value, each of which needs one slot alone."""
    folding = _Folding(scheduled.schedule, scheduled.bounds)
    local = [read for read in scheduled.schedule.constraints.reads if folding._is_local(read)]
    for read in local:
        if read.edge.source in scheduled.schedule.constraints.of_node:
            together = folding._alive_together(read.edge.source, [read])
            assert together.is_empty() or together.lexmax().is_equal(together.lexmin()), "a later value is there when it is read"
    return local


def check_runs(program):
    """The checks of a compiled program's schedule, for some of the points that its runs can choose."""
    steps = program.graph.chosen
    runs = list(itertools.product(*(range(program.scheduled.bounds[step.bound_symbol]) for step in steps)))
    for run in runs[:: -max(1, len(runs) // MOST_RUNS)]:
        check(program.scheduled, strict=False, chosen=dict(zip(steps, run, strict=True)))


def check(scheduled, strict=True, dealloc=False, chosen=None):
    """Every instance runs exactly once, after the values that it reads; no slot is overwritten or freed before its last read.

    With `strict`, a read of a point that does not exist fails; otherwise it is ignored. `chosen` are the points of the steps that a
    run takes one point of.
    """
    graph, bounds, chosen = scheduled.graph, scheduled.bounds, chosen or {}
    todo = expected(graph, bounds, chosen)
    every = {(node, point) for node, _, point in todo}
    done, freed, slots, last_point = set(), set(), {}, {}

    def read(edge, source_point, text):
        source = graph[edge.source]
        if isinstance(source.op, (Input, Constant)):
            return
        if (source.id, source_point) not in every:
            assert not strict, f"{text} reads %{source.id}{source_point}, which does not exist"
            return
        assert (source.id, source_point) in done, f"{text} reads %{source.id}{source_point} before it is computed"
        assert (source.id, edge.output, source_point) not in freed, f"{text} reads %{source.id}{source_point}, which is freed"
        storage = scheduled.storage[source.id, edge.output]
        kept = slots[source.id, edge.output, tuple(storage.slot(k, p) for k, p in enumerate(source_point))]
        assert kept == source_point, f"{text} reads %{source.id}{source_point}, but its slot holds {kept}; {storage}"

    def visit(leaf, point):
        if isinstance(leaf, Execute):
            text = f"%{leaf.node}|{leaf.branch}{point}"
            assert (leaf.node, leaf.branch, point) in todo, f"{text} runs twice, or should not run"
            todo.remove((leaf.node, leaf.branch, point))
            node = graph[leaf.node]
            for edge in node.inputs if leaf.branch is None else (node.inputs[leaf.branch],):
                for source_point in read_points(node, edge, point, bounds):
                    read(edge, source_point, text)
            if isinstance(node.op, Sink) or getattr(node.op, "stateful", False):
                assert last_point.get(node.id, ()) < point or not point, f"{text} runs after {last_point[node.id]}"
                last_point[node.id] = point
            for output in range(len(node.outputs)):
                storage = scheduled.storage[node.id, output]
                slots[node.id, output, tuple(storage.slot(k, p) for k, p in enumerate(point))] = point
            done.add((node.id, point))
            return
        assert isinstance(leaf, Dealloc)
        for one in itertools.product(*((p,) if isinstance(p, int) else p for p in point)):
            assert (leaf.node, one) in done, f"%{leaf.node}{one} is freed before it is computed"
            assert (leaf.node, leaf.output, one) not in freed, f"%{leaf.node}{one} is freed twice"
            freed.add((leaf.node, leaf.output, one))

    for leaf, point in instances(scheduled.root, {chosen_value(step): at for step, at in chosen.items()}):
        visit(leaf, point)
    assert not todo, f"never run: {sorted(todo, key=str)[:5]}"
    if dealloc:
        stored = {key for key, storage in scheduled.storage.items() if storage.size > 1}  # a single slot is overwritten instead
        assert freed == {(n, o, p) for n, p in done for o in range(len(graph[n].outputs)) if (n, o) in stored}


def at(*parts):
    """An index: expressions and ints become points, other items stay."""
    return tuple(p if hasattr(p, "stride") else Point(Expr.of(p)) for p in parts)
