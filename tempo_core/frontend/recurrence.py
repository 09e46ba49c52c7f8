"""Recurrences: tensors whose points are assigned by branches. A branch may read earlier or later points of the same tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tempo_core.errors import DTypeError, IndexingError, ShapeError, user_location
from tempo_core.frontend.aliases import Domain, Key, Shape
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.base import as_index
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.inputs import domain_steps
from tempo_core.frontend.methods.operands import check_dtype, shape_of
from tempo_core.frontend.tensor import Tensor, Value, as_tensor, of_node
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.condition import TRUE, Bool, as_bool, conjunction
from tempo_core.symbolic.domain import Domain as Points
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import unless_obvious


class Recurrence(Tensor):
    """A branching tensor: `x[0] = ...; x[t + 1] = ...`. Branches are tried in the order in which they were assigned."""

    def __setitem__(self, key: Key, value: Value) -> None:
        """Define the points that `key` covers. A key indexes each step by the step plus a constant, reversed, or by a constant.

        The value and the conditions in the key use the steps as the key does: `x[t + 1, t >= 3] = f(t)` defines x[4] first.
        """
        where = user_location()
        with self.context:  # so that numbers become tensors of this context
            self._assign(key, value, where)

    def _assign(self, key: Key, value: Value, where: str) -> None:
        node = self.node
        points, sources, condition = self._assigned(key)
        type = node.outputs[0].substitute(points)  # at the point that is assigned, in the key's steps
        tensor = as_tensor(value, self)
        self._check_steps(tensor, [step for step, point in points.items() if step not in point.steps])
        tensor = self._converted(tensor, type)
        shifted = tensor._read([Point(sources.get(s, s.expr)) for s in tensor.domain.steps]) if tensor.domain.steps else tensor
        edge = replace(shifted.edge, condition=unless_obvious(condition) & shifted.user_condition)
        current = self.context.graph[node.id]
        self.context.graph.put(replace(current, inputs=(*current.inputs, edge)))
        self.context.branch_lines.setdefault(node.id, []).append(where)

    def _assigned(self, key: Key) -> tuple[dict[Symbol, Expr], dict[Symbol, Expr], Bool]:
        """The points that a key covers: the index of each step, each step of the key at the assigned point, and the condition of it all."""
        steps = self.node.domain.steps
        keys = list(key) if isinstance(key, tuple) else [key]
        key_condition = conjunction(*(as_bool(k) for k in keys if isinstance(k, (Bool, bool))))
        keys = [k for k in keys if not isinstance(k, (Bool, bool))]
        if len(keys) > len(steps):
            raise IndexingError(
                f"{self!r} is assigned with {len(keys)} indices, but it has {len(steps)} step{'' if len(steps) == 1 else 's'}",
                hint="give one index for each step; all elements are assigned at once: x[t] = ...",
            )
        condition: Bool = TRUE
        sources: dict[Symbol, Expr] = {}
        points: dict[Symbol, Expr] = {}
        for part, step in zip(keys, steps, strict=False):
            index = as_index(part, step, self)
            if isinstance(index, Range):
                raise IndexingError(
                    f"a slice of {step} cannot be assigned in {self!r}",
                    hint=f"one assignment is for every point: x[{step}] = ...",
                )
            points[step] = index.expr
            if step in index.expr.steps:
                sources[step], inside = _inverse(index, step, self)
                condition = condition & inside
            elif index.expr.steps:
                raise IndexingError(
                    f"step {step} of {self!r} is assigned at {index}, which contains another step",
                    hint=f"write the indices in the order of its steps: x[{', '.join(s.name for s in steps)}] = ...",
                )
            else:
                condition = condition & (step.expr == index.expr)
        return points, sources, condition & key_condition.substitute(sources)

    def _check_steps(self, tensor: Tensor, fixed: Sequence[Symbol]) -> None:
        """Raise IndexingError for a value that varies with a step of one assigned point (`fixed`), or with a step that is not here."""
        steps = self.node.domain.steps
        for step in (s for s in tensor.domain.steps if s in fixed):
            raise IndexingError(
                f"the value assigned to {self!r} varies with {step}, but this assignment is for one point of {step}",
                hint=f"read the value at one point of {step}, such as y[0]",
            )
        for step in (s for s in tensor.domain.steps if s not in steps):
            raise IndexingError(
                f"the value assigned to {self!r} varies with {step}, but the recurrence has only the steps ({', '.join(s.name for s in steps)})",
                hint=f"add {step} to its domain, or reduce over {step}: y[0:{step.bound}].sum(0)",
            )

    def _converted(self, tensor: Tensor, type: TensorType) -> Tensor:
        """The value with the dtype and the shape of the assigned point."""
        if not _fits(tensor.dtype, type.dtype):
            raise DTypeError(
                f"cannot assign a value of type {tensor.type} to {self!r}: the dtypes differ",
                hint=f'make the recurrence {tensor.dtype}, or convert the value: y.astype("{type.dtype}")',
            )
        try:
            return tensor.astype(type.dtype).broadcast_to(type.shape)
        except ShapeError:
            varying = next((s for size in tensor.type.shape for s in size.steps), None)
            advice = (
                f"Pad the dimension that varies with {varying}, or reduce it: y.sum(0)"
                if varying
                else "print(y) shows its own shape"
            )
            raise ShapeError(
                f"cannot assign a value of type {tensor.type} to {self!r}: the shapes differ",
                hint=f"the value must broadcast to the shape ({', '.join(map(str, type.shape))}). {advice}",
            ) from None

    def __repr__(self) -> str:
        return super().__repr__().replace("<Tensor", "<Recurrence")


def _fits(source: str, target: str) -> bool:
    """Whether a value is converted without an explicit cast: within a kind, and from bool to integers to floats."""
    ranks = [0 if d == "bool" else 2 if is_float(d) else 1 for d in (source, target)]
    return ranks[0] <= ranks[1]


def _inverse(index: Point, step: Symbol, of: Tensor) -> tuple[Expr, Bool]:
    """For an assignment at `index(step)`: the step as an expression of the assigned point, and the condition that it is in range."""
    offset = index.expr - step.expr
    if step not in offset.steps and not offset.steps:  # t + c is assigned: at point p, t = p - c
        source = step.expr - offset
    else:
        mirrored = index.expr + step.expr  # T - 1 - t
        if step in mirrored.steps or mirrored.steps:
            raise IndexingError(
                f"step {step} of {of!r} is assigned at {index}",
                hint=f"assign at a constant or at a shifted step: x[0] = ..., x[{step} + 1] = ..., x[{step.bound} - 1 - {step}] = ...",
            )
        source = mirrored - step.expr
    return source, conjunction(source >= 0, source <= step.bound_expr - 1)


@checked
def recurrence(
    shape: Shape = (), dtype: str = "float32", domain: Domain = (), name: str = "", before: Value | None = None
) -> Recurrence:
    """A branching tensor over `domain`, whose branches are assigned by indexing: `h[0] = zero; h[t + 1] = f(h, x)`.

    `before` is its value before the start of a step (`Tensor.before`): `h[t] = f(h[t - 1])` then defines all points.
    """
    context = BaseContext.current()
    check_dtype(dtype)
    steps, sizes = domain_steps(domain), shape_of(shape)
    for foreign_step in (step for size in sizes for step in size.steps if step not in steps):
        raise ShapeError(
            f"the recurrence{f' `{name}`' if name else ''} has a size that varies with {foreign_step}, but {foreign_step} is not in its domain",
            hint=f"add {foreign_step} to its domain. Or declare the largest size, and slice it: x.spatial[0:{foreign_step} + 1]",
        )
    node = context.graph.add(ops.Merge(TensorType(dtype, sizes)), domain=Points(steps), name=name, where=user_location())
    tensor = Recurrence(context, of_node(context, node).edge)
    context.recurrences.append(node.id)
    if before is not None:
        tensor.earlier = tensor.before(before).earlier
    return tensor
