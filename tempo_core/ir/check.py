"""Checks of a user's whole program: no read leaves a domain, and every point of a recurrence is defined.

They run once, on the program as it was written (`ir/verify.py` finds the compiler's own mistakes, after the passes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo_core.errors import BoundsError, EmptyBranchError, IndexingError, NonAffineError, OutOfDomainError, UncoveredPointError
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge, Output, Slice
from tempo_core.symbolic.condition import FALSE, TRUE, Bool
from tempo_core.symbolic.domain import Domain, Index, Point, Range, is_own_point
from tempo_core.symbolic.expr import Bounds, Symbol
from tempo_core.symbolic.isl.relation import never, outside, uncovered
from tempo_core.symbolic.proof import provably_nonnegative, within


def check_program(graph: Graph, bounds: Bounds, branch_lines: Mapping[int, Sequence[str]]) -> None:
    """Raise an error with the user's line at the first rule that the program breaks for these bounds.

    UncoveredPointError: a point of a recurrence that no branch defines. EmptyBranchError: a branch that defines no point.
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
            f"{_recurrence_text(node)} is read but never assigned", where=node.where, hint="assign it: x[0] = ...; x[t + 1] = ..."
        )
    covered: Bool = FALSE
    for number, edge in enumerate(node.inputs):
        applies = edge.condition & ~covered
        if number < len(lines) and never(node.domain, applies):
            outside_of_all = never(node.domain, edge.condition)
            steps = ", ".join(f"0 <= {s} < {s.bound}" for s in node.domain.steps)
            why = f"it lies outside the domain, {steps}" if outside_of_all else "earlier branches cover all of its points"
            raise EmptyBranchError(
                f"branch {number} of {_recurrence_text(node)} never applies: {why}",
                where=lines[number],
                hint="assign points inside the domain: x[0] = ...; x[t + 1] = ..."
                if outside_of_all
                else "the first assignment that fits a point defines it. Assign the special case first: x[0] = ...; x[t] = ...",
            )
        covered = covered | edge.condition
    if covered is TRUE:
        return
    sample = uncovered(node.domain, [e.condition for e in node.inputs], bounds)
    if sample is not None:
        raise UncoveredPointError(
            f"no branch of {_recurrence_text(node)} defines the point {_point(node.domain, sample)} (with {_bounds_text(sample, bounds)})",
            where=lines[-1] if lines else node.where,
            hint=f"assign it: {node.name or 'x'}[{', '.join(str(sample[s.name]) for s in node.domain.steps)}] = ...",
        )


def _check_reads(graph: Graph, node: Node, bounds: Bounds, lines: Sequence[str]) -> None:
    covered: Bool = FALSE
    for number, edge in enumerate(node.inputs):
        applies = edge.condition & ~covered if isinstance(node.op, Merge) else TRUE
        covered = covered | edge.condition
        source = graph[edge.source]
        if source.domain.condition is TRUE and all(_obviously_inside(i, s) for s, i in edge.by_step(source.domain).items()):
            continue
        where = lines[number] if number < len(lines) else node.where
        try:
            sample = outside(node.domain, applies, edge.index, source.domain, bounds)
        except NonAffineError as error:
            raise NonAffineError(error.message, where=where, hint=error.hint) from None
        if sample is not None:
            raise _error_at_fault(graph, node.domain, edge, sample, bounds, where)


def _check_slice(node: Node, op: Slice, bounds: Bounds) -> None:
    """A spatial slice may leave its axis (it is zero there), but it may not stop before it starts."""
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
            hint=f"keep its ends in order: x.spatial[{op.start}:tp.max({op.start}, {op.stop})]",
        )


def _obviously_inside(index: Index, step: Symbol) -> bool:
    return within(index, step) is TRUE and (isinstance(index, Point) or provably_nonnegative(index.stop - index.start))


def _error_at_fault(
    graph: Graph, domain: Domain, edge: Edge, sample: dict[str, int], bounds: Bounds, where: str
) -> OutOfDomainError | BoundsError:
    """The error at the read that is at fault. A value may be missing because one of its own reads leaves a domain."""
    at = {s: sample[s.name] for s in domain.steps}
    values = {**bounds, **at}
    source = graph[edge.source]
    point: dict[Symbol, int] = {}
    for step, index in edge.by_step(source.domain).items():
        ends = _ends(index, values)
        bound = values[step.bound_symbol]
        if isinstance(index, Range) and index.stop.evaluate(values) < index.start.evaluate(values):
            problem = f"the slice {index} of step {step} stops before it starts{_at(domain, sample)}"
            return OutOfDomainError(
                problem, where=where, hint="a slice may be empty, but it must not end before its start: x[0:tp.max(t - 3, 0)]"
            )
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
            is_reversed = isinstance(index, Range) and bool(ends) and ends[-1] < ends[0]
            inside = all(0 <= end < bound for end in ends) and not is_reversed
            if not inside or (read.domain.condition is not TRUE and not _exists(read, inner, inner_values, bounds)):
                return _error_at_fault(
                    graph, source.domain, inner, {**sample, **{s.name: v for s, v in point.items()}}, bounds, source.where
                )
    there = ", ".join(f"{s} = {n}" for s, n in point.items())
    problem = f"reads {_read_text(source, edge)}{_at(domain, sample)}, but there is no value at {there}"
    return OutOfDomainError(
        f"{problem}: it exists only where {source.domain.condition}",
        where=where,
        hint="read it in a branch of a recurrence that applies only there. Or index both with the condition: x[condition]",
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
            f"the bound {step.bound} = {bound} is too small: the program reads {_read_text(source, edge)}",
            where=where,
            hint=f"run with {step.bound} of at least {position + 1}. Or keep the index below {step.bound}: x[tp.min({position}, {step.bound} - 1)]",
        )
    along = edge.by_step(source.domain).items()
    point_text = f"{source.name or 'a tensor at '}[{', '.join(str(position) if s == step else str(i) for s, i in along)}]"
    read_text = _read_text(source, edge)
    which = "" if read_text == point_text else f". That is {point_text}"
    swapped = {i.expr.single_atom for i in edge.index if isinstance(i, Point)} == set(source.domain.steps)
    if swapped and not any(is_own_point(index, step) for step, index in edge.by_step(source.domain).items()):
        order = ", ".join(s.name for s in source.domain.steps)
        return OutOfDomainError(
            f"reads {read_text}{_at(domain, sample)}{which}, {limits}",
            where=where,
            hint=f"write the indices in the order of its steps: x[{order}]",
        )
    return OutOfDomainError(
        f"reads {read_text}{_at(domain, sample)}{which}, {limits}",
        where=where,
        hint="define the first point of a recurrence on its own (x[0] = ...), or keep the index inside: "
        "x[tp.max(t - 1, 0)], x[tp.min(t + 1, T - 1)]"
        + (". Or say what is before the start: x.before(0.0)[t - 1]" if position < 0 else ""),
    )


def _read_text(source: Node, edge: Edge) -> str:
    return f"{source.name or 'a tensor at '}[{', '.join(map(str, edge.index))}]"


def _at(domain: Domain, sample: Mapping[str, int]) -> str:
    point = _point(domain, sample)
    return f" at {point}" if point else ""


def _ends(index: Index, values: Mapping[Symbol, int]) -> tuple[int, ...]:
    """The first and last timestep that are read; empty for an empty range."""
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
        numbers = {**values, **point, step: position}
        if all(s in numbers for s in source.domain.steps) and not source.domain.condition.evaluate(numbers):
            return int(position)
    return int(start)


def _recurrence_text(node: Node) -> str:
    return f"the recurrence `{node.name}`" if node.name else "a recurrence"


def _point(domain: Domain, sample: Mapping[str, int]) -> str:
    return ", ".join(f"{s.name} = {sample[s.name]}" for s in domain.steps if s.name in sample)


def _bounds_text(sample: Mapping[str, int], bounds: Bounds) -> str:
    return ", ".join(f"{b} = {n}" for b, n in bounds.items() if b.name in sample)
