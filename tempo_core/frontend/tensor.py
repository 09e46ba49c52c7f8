"""Recurrent tensors: views of graph nodes with temporal indices, and the operators on them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo_core.errors import (
    ArgumentError,
    ContextError,
    GradientError,
    IndexingError,
    MissingAttributeError,
    SymbolicValueError,
    user_location,
)
from tempo_core.frontend.context import Context
from tempo_core.ir.graph import Edge, Node, compose
from tempo_core.ir.ops import Identity, Op
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, as_bool, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, identity, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import unless_obvious, within


class Tensor:
    """A recurrent tensor: a value of type `dtype[shape]` at every point of its `domain`.

    Indexing with `[]` indexes the steps of the domain, in order: points (`t - 1`, `0`), slices (`t:T`), conditions
    (`i % 5 == 0`). A slice gives a leading spatial dimension. Spatial dimensions are indexed with `.index` and `.spatial`.
    """

    __array_priority__ = 1000  # NumPy arrays leave the operators to us

    if TYPE_CHECKING:  # defined as functions, and made methods, by functions/, spatial.py and autodiff.py
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
        broadcast_to: _Method
        moveaxis: _Method
        swapaxes: _Method
        repeat: _Method
        tile: _Method
        split: Callable[..., list[Tensor]]
        argmin: _Method
        count_nonzero: _Method
        cummax: _Method
        cummin: _Method
        cumprod: _Method
        logsumexp: _Method
        norm: _Method
        std: _Method
        var: _Method
        diagonal: _Method
        index_add: _Method
        median: _Method
        roll: _Method
        scatter: _Method
        sort: _Method
        take_along_axis: _Method
        top_k: Callable[..., tuple[Tensor, Tensor]]
        trace: _Method
        tril: _Method
        triu: _Method
        clip: _Method
        exp: _Method
        log: _Method
        sqrt: _Method
        tanh: _Method
        sigmoid: _Method
        relu: _Method
        abs: _Method
        ceil: _Method
        cos: _Method
        erf: _Method
        expm1: _Method
        floor: _Method
        gelu: _Method
        isfinite: _Method
        isinf: _Method
        isnan: _Method
        log1p: _Method
        reciprocal: _Method
        round: _Method
        rsqrt: _Method
        sign: _Method
        silu: _Method
        sin: _Method
        softplus: _Method
        square: _Method
        trunc: _Method
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
        for step, index in edge.by_step(source.domain).items():
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
        if not isinstance(name, str):
            raise ArgumentError(f"{name!r} cannot name a tensor", hint='x.named("x")')
        self.context.graph.put(replace(self.node, name=name))
        return self

    def __repr__(self) -> str:
        name = self.name or f"%{self.edge.source}"
        return f"<Tensor {name}[{', '.join(map(str, self.edge.index))}]: {self.type} over {self.domain}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            near = difflib.get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], 1)
            hint = _ELSEWHERE.get(name) or (f"did you mean .{near[0]}?" if near else "docs/language.md lists what tensors have")
            raise MissingAttributeError(f"{self!r} has no attribute `{name}`", hint=hint)

    def __len__(self) -> int:
        raise SymbolicValueError(f"the length of {self!r} may be symbolic", hint="read .shape")

    def _value(self, *_: Any, **__: Any) -> Any:
        raise SymbolicValueError(
            f"{self!r} has no value while the program is built",
            hint="run the program for it: ctx.run({T: 10}, outputs=[x]); hand it to code of your own with tp.udf or tp.sink",
        )

    __array__ = __float__ = __int__ = __index__ = __complex__ = _value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """`array + x`, where NumPy asks first; other functions of NumPy's are refused."""
        operator = _OPERATORS.get(ufunc.__name__)
        if method == "__call__" and operator is not None and not keywords and len(inputs) == 2:
            left, right = inputs
            if isinstance(left, Tensor):
                return getattr(left, f"__{operator}__")(right)
            return getattr(right, f"__{_MIRRORED.get(operator, 'r' + operator)}__")(left)
        return self._refuse(ufunc.__name__)

    def __array_function__(self, function: Any, *_: Any) -> Any:
        return self._refuse(function.__name__)

    def _refuse(self, function: str) -> Any:
        raise ArgumentError(
            f"np.{function} takes arrays, not {self!r}",
            hint=f"tp.{_TEMPO_NAMES.get(function, function)} or a method of the tensor",
        )

    def __pos__(self) -> Tensor:
        return self

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

    def __delitem__(self, key: Any) -> None:
        raise IndexingError(f"the points of {self!r} cannot be deleted", hint="index where it exists with a condition: x[t >= 3]")

    def _indices(self, key: Any) -> tuple[list[Index], Bool]:
        """A user's key as one index per step of the domain, and the conditions in it."""
        parts = list(key) if isinstance(key, tuple) else [key]
        condition: Bool = TRUE
        for part in [p for p in parts if isinstance(p, _TRUTHS)]:
            condition = condition & as_bool(part)
        parts = [p for p in parts if not isinstance(p, _TRUTHS)]
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
        return self if self.edge.is_own_point(source.domain) else self._copied()

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
        steps = self.edge.by_step(source.domain)
        return gradient[tuple(_as_key(steps[s]) for s in gradient.domain.steps)] if gradient.domain.steps else gradient

    def detach(self) -> Tensor:
        """The same values, through which no gradient flows."""
        return apply(Identity(stop_gradient=True), self)


def _as_key(index: Index) -> Any:
    return index.expr if isinstance(index, Point) else slice(index.start, index.stop, index.stride)


def as_index(part: Any, step: Symbol, of: Tensor) -> Index:
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


def _slice_part(part: Any, default: Expr, what: str, step: Symbol, of: Tensor) -> Expr:
    """An end, or the stride, of a slice of `step`."""
    if part is None:
        return default
    if isinstance(part, Tensor):
        raise IndexingError(
            f"the {what} of a slice of step {step} of {of!r} is a tensor; which timesteps are read would depend on data",
            hint="read the largest slice, such as x[0:T], and mask it with tp.where",
        )
    try:
        return Expr.of(part)
    except ArgumentError:
        raise IndexingError(
            f"{part!r} cannot be the {what} of a slice of step {step} of {of!r}",
            hint="use ints and expressions of steps and bounds",
        ) from None


def _source_condition(source: Node, edge: Edge) -> Bool:
    """Where the source exists, in the reader's steps. Ranges are checked at both ends where that is exact."""
    condition = source.domain.condition
    if condition is TRUE:
        return TRUE
    indices = edge.by_step(source.domain)
    first = {s: i.expr if isinstance(i, Point) else i.start for s, i in indices.items()}
    last = {s: i.expr if isinstance(i, Point) else i.last for s, i in indices.items()}
    kept: list[Bool] = []
    for part in condition.parts:
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
            raise ContextError(
                f"tensors of different contexts meet in one operation: {operands[0]!r} and {operand!r}",
                hint="a program is built in one context; hand values over by running: inputs={'x': result}",
            )
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


_TRUTHS = (Bool, bool, np.bool_)
_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "true_divide": "truediv", "floor_divide": "floordiv",
    "remainder": "mod", "power": "pow", "matmul": "matmul", "bitwise_and": "and", "bitwise_or": "or",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}  # a < x is x > a
_TEMPO_NAMES = {"absolute": "abs", "amax": "max", "amin": "min"}
_RUN = "values are known when the program runs: ctx.run({T: 10}, outputs=[x])"
_ELSEWHERE = {
    "numpy": _RUN, "item": _RUN, "tolist": _RUN, "cpu": _RUN, "data": _RUN, "T": "x.transpose()", "view": "x.reshape(...)",
    "permute": "x.transpose(1, 0)", "unsqueeze": "x.expand_dims(axis)", "size": "x.shape", "dim": "x.rank", "to": "x.astype(dtype)",
    "float": 'x.astype("float32")', "int": 'x.astype("int32")', "at": "index_add and scatter write at positions",
    "requires_grad": "tp.input(..., requires_grad=True); tp.grad(loss, [x]) differentiates with respect to any tensor",
    "clone": "tensors never change; there is nothing to copy", "copy": "tensors never change; there is nothing to copy",
}  # fmt: skip
