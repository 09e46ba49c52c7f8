"""What a user's program can get wrong that only the whole program shows: reads outside of domains, uncovered points.

Runs once, on the program as it was written (`ir/verify.py` is for the compiler's own mistakes, after every pass).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo_core.errors import BoundsError, EmptyBranchError, IndexingError, NonAffineError, OutOfDomainError, UncoveredPointError
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge, Output, Slice
from tempo_core.symbolic.condition import FALSE, TRUE, Bool
from tempo_core.symbolic.domain import Domain, Index, Point, Range, is_own_point
from tempo_core.symbolic.expr import Bounds, Symbol
from tempo_core.symbolic.proof import provably_nonnegative, within
from tempo_core.symbolic.relation import never, outside, uncovered


def check_program(graph: Graph, bounds: Bounds, branch_lines: Mapping[int, Sequence[str]]) -> None:
    """Raise an error of the user's, with the user's line, at the first rule that the program breaks for these bounds.

    UncoveredPointError: a point of a recurrence that no branch defines. EmptyBranchError: a branch that defines none.
    OutOfDomainError: a read of a point where its source does not exist. IndexingError: a spatial slice of negative length.
    """
    for node in graph:
        if isinstance(node.op, Merge):
            _check_coverage(node, bounds, branch_lines.get(node.id, ()))
    for node in graph:
        if isinstance(node.op, Output) and node.op.partial:
            continue
        _check_reads(graph, node, bounds, branch_lines.get(node.id, ()))
        if isinstance(node.op, Slice) and (node.op.stop - node.op.start).steps:
            _check_slice(node, node.op, bounds)


def _check_coverage(node: Node, bounds: Bounds, lines: Sequence[str]) -> None:
    if not node.inputs:
        raise UncoveredPointError(
            f"{_called(node)} is read but never assigned", where=node.where, hint="x[0] = ...; x[t + 1] = ..."
        )
    taken: Bool = FALSE
    for number, edge in enumerate(node.inputs):
        exact = edge.condition & ~taken
        if number < len(lines) and never(node.domain, exact):
            outside_of_all = never(node.domain, edge.condition)
            steps = ", ".join(f"0 <= {s} < {s.bound}" for s in node.domain.steps)
            why = f"it lies outside the domain, {steps}" if outside_of_all else "earlier branches cover all of its points"
            raise EmptyBranchError(
                f"branch {number} of {_called(node)} never applies: {why}",
                where=lines[number],
                hint="assign points of the domain"
                if outside_of_all
                else "branches are tried in the order in which they are assigned; assign the narrower one first",
            )
        taken = taken | edge.condition
    if taken is TRUE:
        return
    sample = uncovered(node.domain, [e.condition for e in node.inputs], bounds)
    if sample is not None:
        raise UncoveredPointError(
            f"no branch of {_called(node)} defines the point {_point(node.domain, sample)} (with {_bounds_text(sample, bounds)})",
            where=lines[-1] if lines else node.where,
            hint=f"assign it: {node.name or 'x'}[{', '.join(str(sample[s.name]) for s in node.domain.steps)}] = ...",
        )


def _check_reads(graph: Graph, node: Node, bounds: Bounds, lines: Sequence[str]) -> None:
    taken: Bool = FALSE
    for number, edge in enumerate(node.inputs):
        exact = edge.condition & ~taken if isinstance(node.op, Merge) else TRUE
        taken = taken | edge.condition
        source = graph[edge.source]
        if source.domain.condition is TRUE and all(_obviously_inside(i, s) for s, i in edge.by_step(source.domain).items()):
            continue
        where = lines[number] if number < len(lines) else node.where
        try:
            sample = outside(node.domain, exact, edge.index, source.domain, bounds)
        except NonAffineError as error:
            raise NonAffineError(error.message, where=where, hint=error.hint) from None
        if sample is not None:
            raise _blamed(graph, node.domain, edge, sample, bounds, where)


def _check_slice(node: Node, op: Slice, bounds: Bounds) -> None:
    """A spatial slice may leave its axis, where it holds zeros, but not stop before it starts."""
    if provably_nonnegative(op.stop - op.start):
        return
    try:
        sample = uncovered(node.domain, [op.stop >= op.start], bounds)
    except NonAffineError:  # spatial ends may be any expression; this one is not checked
        return
    if sample is not None:
        raise IndexingError(
            f"the spatial slice {op.start}:{op.stop} stops before it starts at {_point(node.domain, sample)}",
            where=node.where,
            hint="keep its ends in order with tp.min and tp.max",
        )


def _obviously_inside(index: Index, step: Symbol) -> bool:
    return within(index, step) is TRUE and (isinstance(index, Point) or provably_nonnegative(index.stop - index.start))


def _blamed(
    graph: Graph, domain: Domain, edge: Edge, sample: dict[str, int], bounds: Bounds, where: str
) -> OutOfDomainError | BoundsError:
    """The error at the read that is really at fault: a value may be missing because a read of its own leaves a domain."""
    at = {s: sample[s.name] for s in domain.steps}
    values = {**bounds, **at}
    source = graph[edge.source]
    point: dict[Symbol, int] = {}
    for step, index in edge.by_step(source.domain).items():
        ends = _ends(index, values)
        bound = values[step.bound_symbol]
        if isinstance(index, Range) and index.stop.evaluate(values) < index.start.evaluate(values):
            problem = f"the slice {index} of step {step} stops before it starts{_at(domain, sample)}"
            return OutOfDomainError(problem, where=where, hint="keep its ends in order: x[0:tp.max(t - 3, 0)]; x[0:0] is empty")
        wrong = [end for end in ends if not 0 <= end < bound]
        if wrong:
            return _read_outside(source, edge, step, wrong[0], domain, sample, bounds, where)
        whole = source.domain.condition is TRUE or not ends
        point[step] = (ends or (0,))[0] if whole else _missing(source, step, index, values, point)
    inner_values = {**bounds, **point}
    for inner in source.inputs:
        read = graph[inner.source]
        for step, index in inner.by_step(read.domain).items():
            if not index.steps <= set(source.domain.steps):
                continue
            ends = _ends(index, inner_values)
            bound = bounds[step.bound_symbol]
            inside = all(0 <= end < bound for end in ends)
            if not inside or (read.domain.condition is not TRUE and not _exists(read, inner, inner_values, bounds)):
                return _blamed(
                    graph, source.domain, inner, {**sample, **{s.name: v for s, v in point.items()}}, bounds, source.where
                )
    there = ", ".join(f"{s} = {n}" for s, n in point.items())
    problem = f"reads {_read_text(source, edge)}{_at(domain, sample)}, which does not exist at {there}"
    return OutOfDomainError(
        f"{problem}: it exists where {source.domain.condition}",
        where=where,
        hint="index with the same condition, x[condition], or read it in a branch of a recurrence that applies only there",
    )


def _read_outside(
    source: Node, edge: Edge, step: Symbol, position: int, domain: Domain, sample: Mapping[str, int], bounds: Bounds, where: str
) -> OutOfDomainError | BoundsError:
    """The error of a read at `position` of `step`, which is negative or not below the bound."""
    bound, index = bounds[step.bound_symbol], edge.index[source.domain.steps.index(step)]
    limits = f"outside of 0 <= {step} < {step.bound} = {bound}"
    ends = (index.expr,) if isinstance(index, Point) else (index.start, index.stop)
    if position >= bound and all(end.is_constant for end in ends):
        return BoundsError(
            f"the bound {step.bound} = {bound} is too small: {_read_text(source, edge)} is read",
            where=where,
            hint=f"{step.bound} is at least {position + 1}, or the index moves with it: {step.bound} - 1, tp.min({position}, {step.bound} - 1)",
        )
    along = edge.by_step(source.domain).items()
    at = f"{source.name or 'a tensor at '}[{', '.join(str(position) if s == step else str(i) for s, i in along)}]"
    named = _read_text(source, edge)
    which = "" if named == at else f", which is {at}"
    swapped = {i.expr.single_atom for i in edge.index if isinstance(i, Point)} == set(source.domain.steps)
    if swapped and not any(is_own_point(index, step) for step, index in edge.by_step(source.domain).items()):
        order = ", ".join(s.name for s in source.domain.steps)
        return OutOfDomainError(
            f"reads {named}{_at(domain, sample)}{which}: {limits}", where=where, hint=f"its steps are in the order [{order}]"
        )
    return OutOfDomainError(
        f"reads {named}{_at(domain, sample)}{which}: {limits}",
        where=where,
        hint="read it in a branch of a recurrence that applies only where the point exists, or keep the index inside with tp.min and tp.max",
    )


def _read_text(source: Node, edge: Edge) -> str:
    return f"{source.name or 'a tensor at '}[{', '.join(map(str, edge.index))}]"


def _at(domain: Domain, sample: Mapping[str, int]) -> str:
    point = _point(domain, sample)
    return f" at {point}" if point else ""


def _ends(index: Index, values: Mapping[Symbol, int]) -> tuple[int, ...]:
    """The first and last timestep that are read; none for an empty range."""
    if isinstance(index, Point):
        return (index.expr.evaluate(values),)
    start, stop = index.start.evaluate(values), index.stop.evaluate(values)
    return () if start == stop else (start, index.last.evaluate(values))


def _exists(read: Node, edge: Edge, values: Mapping[Symbol, int], bounds: Bounds) -> bool:
    at = {step: point.evaluate(values) for step, point in edge.points(read.domain).items()}
    if len(at) != len(read.domain.steps):
        return True
    return bool(read.domain.condition.evaluate({**bounds, **at}))


def _missing(source: Node, step: Symbol, index: Index, values: Mapping[Symbol, int], point: Mapping[Symbol, int]) -> int:
    """The first position of a read along `step` at which the source does not exist."""
    if isinstance(index, Point):
        return int(index.expr.evaluate(values))
    start, stop = index.start.evaluate(values), index.stop.evaluate(values)
    for position in range(start, stop, index.stride):
        known = {**values, **point, step: position}
        if all(s in known for s in source.domain.steps) and not source.domain.condition.evaluate(known):
            return int(position)
    return int(start)


def _called(node: Node) -> str:
    return f"the recurrence `{node.name}`" if node.name else "a recurrence"


def _point(domain: Domain, sample: Mapping[str, int]) -> str:
    return ", ".join(f"{s.name} = {sample[s.name]}" for s in domain.steps if s.name in sample)


def _bounds_text(sample: Mapping[str, int], bounds: Bounds) -> str:
    return ", ".join(f"{b} = {n}" for b, n in bounds.items() if b.name in sample)
