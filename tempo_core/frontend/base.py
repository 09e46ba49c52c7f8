"""The base of tensors: a view of a graph node with a temporal index; indexing; new nodes. `Tensor` adds methods and operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo_core.errors import ArgumentError, IndexingError, NonAffineError
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.variables import named
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.names.source_lines import targets
from tempo_core.ir.ops import Binary, Merge
from tempo_core.ir.types import TensorType
from tempo_core.report.pages.formulas import Formula
from tempo_core.report.pages.html import Shown
from tempo_core.report.pages.page import Page, place
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, as_bool, at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.relation import never
from tempo_core.symbolic.proof import unless_obvious, within


class BaseTensor(Shown):
    """A value of type `dtype[shape]` at every point of its `domain`. Every tensor of a program is a `Tensor`, a class derived from this one."""

    def __init__(self, context: BaseContext, edge: Edge, condition: Bool = TRUE):
        self.context = context
        self.edge = edge
        self.user_condition = condition  # of the user's index; the rest of the domain's condition follows from the reads
        source = context.graph[edge.source]
        for step, index in edge.by_step(source.domain).items():
            condition = condition & within(index, step)
        condition = condition & _source_condition(source, edge)
        condition = condition & _in_order(edge, condition)
        if context.outer:  # a condition on an inner end alone holds, or `check_program` says that it does not
            condition = conjunction(*(p for p in condition.parts if p.steps or not p.symbols & context.outer.keys()))
        varying = context.around(edge.symbols | condition.symbols)
        self.domain = Domain(step_order(edge.steps | condition.steps | varying, context.steps), unless_obvious(condition))

    # -- properties ---------------------------------------------------------------------------------------------------

    @property
    def type(self) -> TensorType:
        """The dtype and the shape, such as `float32[3, T]`."""
        return self.context.graph.edge_type(self.edge)

    @property
    def dtype(self) -> str:
        """The name of the elements' type, such as `"float32"`."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.type.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.type.shape)

    @property
    def node(self) -> Node:
        """The node of the graph that computes the tensor."""
        return self.context.graph[self.edge.source]

    @property
    def name(self) -> str:
        """The name in plans, drawings and errors; empty if the tensor has none."""
        return self.node.name

    def __repr__(self) -> str:
        name = self.name or f"%{self.edge.source}"
        return f"<Tensor {name}[{', '.join(map(str, self.edge.index))}]: {self.type} over {self.domain}>"

    # -- in notebooks -------------------------------------------------------------------------------------------------

    def _repr_latex_(self) -> str:
        """The equation of the tensor, up to the next tensors with names."""
        return f"$\\displaystyle {self._equation().latex}$"

    def _page(self) -> Page:
        where, code = place(self.node.where)
        name = named(self.context.graph, self.context)[self.edge.source].name
        index = f"[{', '.join(map(str, self.edge.index))}]" if self.edge.index else ""
        facts = [("type", str(self.type)), ("domain", str(self.domain)), ("line", f"{where}  {code}" if code else where)]
        return Page(f"{name or f'%{self.edge.source}'}{index}", tuple(facts), formula=self._equation())

    def _equation(self) -> Formula:
        from tempo_core.report.pages.equations import equation

        graph = named(self.context.graph, self.context)
        slopes = {
            gradient.source: (_differentiated(graph[gradient.source]), graph[leaf].name or f"%{leaf}")
            for (leaf, _), gradient in self.context.gradients.items()
        }
        return equation(graph, self.edge, slopes)

    # -- temporal indexing --------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        raise IndexingError(
            f"cannot assign to {self!r}: only a recurrence can be assigned",
            hint="make a recurrence: x = tp.recurrence(shape, dtype, domain=(t,)); x[0] = ...; x[t + 1] = ...",
        )

    def __delitem__(self, key: Any) -> None:
        raise IndexingError(
            f"the points of {self!r} cannot be deleted", hint="to leave points out, index with a condition: x[t >= 3]"
        )

    def _indices(self, key: Any) -> tuple[list[Index], Bool]:
        """A user's key as one index per step of the domain, and the conditions in it."""
        parts = list(key) if isinstance(key, tuple) else [key]
        condition: Bool = TRUE
        for part in [p for p in parts if isinstance(p, _CONDITIONS)]:
            condition = condition & as_bool(part)
        parts = [p for p in parts if not isinstance(p, _CONDITIONS)]
        steps = self.domain.steps
        if len(parts) > len(steps):
            raise IndexingError(
                f"{self!r} is indexed with {len(parts)} indices, but it has {len(steps)} step{'' if len(steps) == 1 else 's'}",
                hint="[] indexes steps only. To index a dimension: x.spatial[0] or x.index(0, i)",
            )
        indices = [as_index(part, step, self) for part, step in zip(parts, steps, strict=False)]
        indices += [Point(step.expr) for step in steps[len(parts) :]]
        return indices, condition

    def _ragged_step(self, indices: Sequence[Index]) -> Symbol | None:
        for step, index in zip(self.domain.steps, indices, strict=True):
            if isinstance(index, Range) and any(step in size.steps for size in self.type.shape):
                return step
        return None


def _differentiated(gradient: Node) -> str:
    """The name of the tensor whose `backward()` made a gradient; "" if its line does not say."""
    calls = [call for call in targets(gradient.where) if call.endswith(".backward")]
    return calls[0].removesuffix(".backward") if calls else ""


def as_index(part: Any, step: Symbol, of: BaseTensor) -> Index:
    """One item of a temporal key as an index of `step`."""
    if isinstance(part, slice):
        start = _slice_part(part.start, Expr.of(0), "start", step, of)
        stop = _slice_part(part.stop, step.bound_expr, "end", step, of)
        stride = int(_slice_part(part.step, Expr.of(1), "stride", step, of))
        for end in (start, stop):
            if end.is_constant and end.constant < 0:
                raise IndexingError(
                    f"negative end {end} in a slice of step {step} of {of!r}",
                    hint=f"count from the bound: {step.bound} - {-end.constant}",
                )
        if stride < 1:
            raise IndexingError(
                f"the stride {stride} of a slice of step {step} is not positive", hint="to reverse a slice: x[0:T].flip(0)"
            )
        return Range(start, stop, stride)
    if isinstance(part, BaseTensor):
        raise IndexingError(
            f"a tensor cannot index step {step} of {of!r}: data must not decide which timestep is read",
            hint=unless_power(part, "read all timesteps, then pick one by data: x[0:T].index(0, tensor)"),
        )
    try:
        point = Expr.of(part)
    except TypeError:
        raise IndexingError(
            f"{part!r} cannot index step {step} of {of!r}",
            hint="use an int, an expression of steps, or a slice: x[0], x[t - 1], x[0:T]",
        ) from None
    if point.is_constant and point.constant < 0:
        raise IndexingError(
            f"negative index {point} for step {step} of {of!r}", hint=f"count from the bound: {step.bound} - {-point.constant}"
        )
    return Point(point)


def unless_power(value: Any, hint: str) -> str:
    """A hint for a value that should be an expression; another one if it is computed from a power of a step, such as `t - 2**l`."""
    if not isinstance(value, BaseTensor):
        return hint
    graph, nodes = value.context.graph, [value.node]
    for node in nodes:  # it grows
        if isinstance(node.op, Binary) and node.op.fn == "pow" and not any(graph[edge.source].inputs for edge in node.inputs):
            return "a power of a step is no expression of steps. Write its stages in Python, where it is an int: for l in range(3): x = f(x, 2**l)"
        sources = (graph[edge.source] for edge in node.inputs if not isinstance(node.op, Merge))
        nodes += [source for source in sources if source not in nodes]
    return hint


def _slice_part(part: Any, default: Expr, what: str, step: Symbol, of: BaseTensor) -> Expr:
    """An end, or the stride, of a slice of `step`."""
    if part is None:
        return default
    if isinstance(part, BaseTensor):
        raise IndexingError(
            f"a tensor cannot be the {what} of a slice of step {step} of {of!r}: data must not decide which timesteps are read",
            hint=unless_power(part, "read the largest slice, then mask it by data: tp.where(mask, x[0:T], 0)"),
        )
    try:
        return Expr.of(part)
    except ArgumentError:
        raise IndexingError(
            f"{part!r} cannot be the {what} of a slice of step {step} of {of!r}",
            hint="use an int or an expression of steps and bounds: x[t : t + 3]",
        ) from None


def _in_order(edge: Edge, condition: Bool) -> Bool:
    """The condition under which no slice of an edge stops before it starts, as far as `condition` leaves such points."""
    spans = (index for index in edge.index if isinstance(index, Range))
    ordered = unless_obvious(conjunction(*(at_least_zero(span.stop - span.start) for span in spans)))
    if ordered is TRUE:
        return TRUE
    steps = sorted(edge.steps | condition.steps | ordered.steps, key=str)
    try:
        return TRUE if never(Domain(tuple(steps), condition), ~ordered) else ordered
    except NonAffineError:  # the check of the whole program says so
        return TRUE


def _source_condition(source: Node, edge: Edge) -> Bool:
    """The condition under which the source exists, in the reader's steps. A range is checked at both ends, if that is exact."""
    condition = source.domain.condition
    if condition is TRUE:
        return TRUE
    indices = edge.by_step(source.domain)
    first = {s: i.expr if isinstance(i, Point) else i.start for s, i in indices.items()}
    last = {s: i.expr if isinstance(i, Point) else i.last for s, i in indices.items()}
    conditions: list[Bool] = []
    for part in condition.parts:
        has_range = any(isinstance(indices[s], Range) for s in part.steps)
        if not has_range:
            conditions.append(part.substitute(first))
        elif isinstance(part, Comparison) and part.kind == ">=":
            conditions += [part.substitute(first), part.substitute(last)]
    return conjunction(*conditions)


_CONDITIONS = (Bool, bool, np.bool_)
