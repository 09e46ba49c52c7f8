"""Recurrent tensors: views of graph nodes with temporal indices, and the operators on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo_core.errors import GradientError, IndexingError, SymbolicValueError, TempoError, user_location
from tempo_core.frontend.context import Context
from tempo_core.ir.graph import Edge, Node, compose
from tempo_core.ir.ops import Identity, Op
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, Conjunction, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, identity, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import unless_obvious, within


class Tensor:
    """A recurrent tensor: a value of type `dtype[shape]` at every point of its `domain`.

    Indexing with `[]` indexes the steps of the domain, in order: points (`t - 1`, `0`), slices (`t:T`), conditions
    (`i % 5 == 0`). A slice gives a leading spatial dimension. Spatial dimensions are indexed with `.index` and `.spatial`.
    """

    __array_priority__ = 1000  # NumPy arrays leave the operators to us

    if TYPE_CHECKING:  # defined as functions, and made methods, by functions.py, spatial.py and autodiff.py
        spatial: Any
        backward: Callable[[], None]
        _Method = Callable[..., "Tensor"]
        sum: _Method
        mean: _Method
        max: _Method
        min: _Method
        prod: _Method
        any: _Method
        all: _Method
        argmax: _Method
        argsort: _Method
        softmax: _Method
        log_softmax: _Method
        cumsum: _Method
        discounted_sum: _Method
        reshape: _Method
        transpose: _Method
        expand_dims: _Method
        squeeze: _Method
        astype: _Method
        index: _Method
        take: _Method
        flip: _Method
        one_hot: _Method
        flatten: _Method
        exp: _Method
        log: _Method
        sqrt: _Method
        tanh: _Method
        sigmoid: _Method
        relu: _Method
        abs: _Method
        __add__: _Method
        __radd__: _Method
        __sub__: _Method
        __rsub__: _Method
        __mul__: _Method
        __rmul__: _Method
        __truediv__: _Method
        __rtruediv__: _Method
        __pow__: _Method
        __rpow__: _Method
        __matmul__: _Method
        __neg__: _Method
        __mod__: _Method
        __floordiv__: _Method
        __and__: _Method
        __or__: _Method
        __invert__: _Method
        __lt__: _Method
        __le__: _Method
        __gt__: _Method
        __ge__: _Method

    def __init__(self, context: Context, edge: Edge, condition: Bool = TRUE):
        self.context = context
        self.edge = edge
        self.user_condition = condition  # what the user indexed with; the rest of the domain's condition follows from the reads
        source = context.graph[edge.source]
        for step, index in zip(source.domain.steps, edge.index, strict=True):
            condition = condition & within(index, step)
        condition = condition & _source_condition(source, edge)
        self.domain = Domain(step_order(edge.steps | condition.steps, context.steps), unless_obvious(condition))

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def type(self) -> TensorType:
        return self.context.graph.edge_type(self.edge)

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    ndim = rank

    @property
    def node(self) -> Node:
        return self.context.graph[self.edge.source]

    @property
    def name(self) -> str:
        return self.node.name

    def named(self, name: str) -> Tensor:
        """The same tensor under a name that plans, drawings and errors use."""
        self.context.graph.put(replace(self.node, name=name))
        return self

    def __repr__(self) -> str:
        name = self.name or f"%{self.edge.source}"
        return f"<Tensor {name}[{', '.join(map(str, self.edge.index))}]: {self.type} over {self.domain}>"

    def __len__(self) -> int:
        raise SymbolicValueError(f"the length of {self!r} may be symbolic", hint="read .shape")

    def __iter__(self) -> Any:
        raise SymbolicValueError(f"cannot iterate over {self!r}", hint="index its steps with [] and its dimensions with .index")

    def __bool__(self) -> bool:
        raise SymbolicValueError(
            f"{self!r} has no truth value while the program is built", hint="use tp.where, or index with a condition on steps"
        )

    # -- temporal indexing --------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        indices, condition = self._indices(key)
        view = compose(self.edge, self.domain.steps, indices)
        base = self
        if view is None:  # not expressible on the edge: read a copy of this tensor instead
            base = self._copied()
            view = replace(base.edge, index=tuple(indices))
        ragged = self._ragged_step(base, indices)
        if ragged is not None:
            raise IndexingError(
                f"{self!r} has a shape that varies with {ragged}; a slice over {ragged} would stack tensors of different shapes",
                hint="reduce the varying dimension first, for example with .sum(0)",
            )
        points = {s: i.expr for s, i in zip(self.domain.steps, indices, strict=True) if isinstance(i, Point)}
        carried = self.user_condition
        if any(s not in points for s in carried.steps):
            raise IndexingError(
                f"{self!r} exists only where {carried}; a slice over it would have holes",
                hint="slice first, then index with the condition",
            )
        carried = carried.substitute(points)
        return Tensor(self.context, view, conjunction(condition, carried))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise IndexingError(
            f"{self!r} cannot be assigned to: only tensors made by tp.recurrence have branches",
            hint="x = tp.recurrence(shape, dtype, domain=(t,)); x[0] = ...; x[t + 1] = ...",
        )

    def _indices(self, key: Any) -> tuple[list[Index], Bool]:
        """A user's key as one index per step of the domain, and the conditions in it."""
        parts = list(key) if isinstance(key, tuple) else [key]
        condition: Bool = TRUE
        for part in [p for p in parts if isinstance(p, (Bool, bool))]:
            condition = condition & part
        parts = [p for p in parts if not isinstance(p, (Bool, bool))]
        steps = self.domain.steps
        if len(parts) > len(steps):
            raise IndexingError(
                f"{len(parts)} temporal indices for {self!r}, whose domain has {len(steps)} steps",
                hint="[] indexes steps only; index spatial dimensions with x.spatial[...] or x.index(dim, i)",
            )
        indices = [as_index(part, step, self) for part, step in zip(parts, steps, strict=False)]
        indices += [Point(step.expr) for step in steps[len(parts) :]]
        return indices, condition

    def _ragged_step(self, base: Tensor, indices: Sequence[Index]) -> Symbol | None:
        for step, index in zip(self.domain.steps, indices, strict=True):
            if isinstance(index, Range) and any(step in size.steps for size in self.shape):
                return step
        return None

    def _copied(self) -> Tensor:
        return apply(Identity(), self)

    def materialized(self) -> Tensor:
        """This tensor as a node of its own, read at the identity."""
        source = self.node
        plain = len(self.edge.index) == len(source.domain.steps) and all(
            isinstance(i, Point) and i.expr.single_atom == s for i, s in zip(self.edge.index, source.domain.steps, strict=True)
        )
        return self if plain else self._copied()

    # -- gradients ----------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor:
        """The gradient that `backward` left here: same shape, dtype and domain as the tensor."""
        source = self.node
        key = (self.edge.source, self.edge.output)
        if key not in self.context.gradients:
            raise GradientError(
                f"{self!r} has no gradient",
                hint="call loss.backward() first; only recurrences without an assigned update and inputs with requires_grad get one "
                "(tp.grad(loss, wrt=[x]) differentiates with respect to any tensor)",
            )
        gradient = self.context.gradients[key]
        steps = dict(zip(source.domain.steps, self.edge.index, strict=True))
        return gradient[tuple(_as_key(steps[s]) for s in gradient.domain.steps)] if gradient.domain.steps else gradient

    def detach(self) -> Tensor:
        """The same values, through which no gradient flows."""
        return apply(Identity(stop_gradient=True), self)


def _as_key(index: Index) -> Any:
    return index.expr if isinstance(index, Point) else slice(index.start, index.stop, index.stride)


def as_index(part: Any, step: Symbol, of: Tensor) -> Index:
    """One item of a temporal key as an index of `step`."""
    if isinstance(part, slice):
        start = Expr.of(0 if part.start is None else part.start)
        stop = Expr.of(step.bound_expr if part.stop is None else part.stop)
        stride = 1 if part.step is None else int(part.step)
        for end in (start, stop):
            if end.is_constant and end.constant < 0:
                raise IndexingError(
                    f"negative end {end} in a slice of step {step} of {of!r}",
                    hint=f"count from the bound: {step.bound} - {-end.constant}",
                )
        if stride < 1:
            raise IndexingError(
                f"stride {stride} in a slice of step {step}", hint="strides are positive; .flip(0) reverses a slice"
            )
        return Range(start, stop, stride)
    if isinstance(part, Tensor):
        raise IndexingError(
            f"step {step} of {of!r} is indexed by a tensor; which timestep is read would depend on data",
            hint="read a slice such as x[0:T], then .index(0, tensor)",
        )
    try:
        point = Expr.of(part)
    except TypeError:
        raise IndexingError(
            f"{part!r} cannot index step {step} of {of!r}", hint="use expressions of steps and bounds, or slices"
        ) from None
    if point.is_constant and point.constant < 0:
        raise IndexingError(
            f"negative index {point} for step {step} of {of!r}", hint=f"count from the bound: {step.bound} - {-point.constant}"
        )
    return Point(point)


def _source_condition(source: Node, edge: Edge) -> Bool:
    """Where the source exists, in the reader's steps. Ranges are checked at both ends where that is exact."""
    condition = source.domain.condition
    if condition is TRUE:
        return TRUE
    indices = dict(zip(source.domain.steps, edge.index, strict=True))
    first = {s: i.expr if isinstance(i, Point) else i.start for s, i in indices.items()}
    last = {s: i.expr if isinstance(i, Point) else i.last for s, i in indices.items()}
    kept: list[Bool] = []
    for part in condition.args if isinstance(condition, Conjunction) else (condition,):
        ranged = any(isinstance(indices[s], Range) for s in part.steps)
        if not ranged:
            kept.append(part.substitute(first))
        elif isinstance(part, Comparison) and part.kind == ">=":
            kept += [part.substitute(first), part.substitute(last)]
    return conjunction(*kept)


def apply(op: Op, *operands: Tensor, domain: Domain | None = None, name: str = "", where: str | None = None) -> Tensor:
    """The first output of a new node that applies `op` to the operands; its domain is the union of theirs."""
    context = operands[0].context if operands else Context.current()
    for operand in operands:
        if operand.context is not context:
            raise TempoError("tensors of different contexts meet in one operation")
    if domain is None:
        steps: frozenset[Symbol] = frozenset(s for s in op.symbols if s.is_step)
        condition: Bool = TRUE
        for operand in operands:
            steps = steps | frozenset(operand.domain.steps)
            condition = condition & operand.domain.condition
        domain = Domain(step_order(steps, context.steps), condition)
    node = context.graph.add(op, [o.edge for o in operands], domain=domain, name=name, where=where or user_location())
    return of_node(context, node)


def of_node(context: Context, node: Node, output: int = 0) -> Tensor:
    """Output `output` of a node, at the node's own points."""
    return Tensor(context, Edge(node.id, identity(node.domain), output))


def is_array(value: Any) -> bool:
    return isinstance(value, (int, float, bool, np.ndarray, np.generic, list, tuple))
