"""Recurrences: tensors whose points are assigned by branches. A branch may read earlier or later points of the same tensor."""

from __future__ import annotations

from dataclasses import replace

from tempo_core.errors import DTypeError, IndexingError, ShapeError, user_location
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.base import as_index, of_node
from tempo_core.frontend.context import BaseContext
from tempo_core.frontend.functions import as_tensor, broadcast_to, cast, check_dtype, shape_of
from tempo_core.frontend.sources import domain_steps
from tempo_core.frontend.tensor import Tensor
from tempo_core.frontend.types import Domain, Key, Shape, Value
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
        steps = node.domain.steps
        keys = list(key) if isinstance(key, tuple) else [key]
        condition: Bool = TRUE
        key_condition = conjunction(*(as_bool(k) for k in keys if isinstance(k, (Bool, bool))))
        keys = [k for k in keys if not isinstance(k, (Bool, bool))]
        if len(keys) > len(steps):
            raise IndexingError(
                f"{len(keys)} indices assign {self!r}, whose domain has {len(steps)} steps",
                hint="the value at a point is assigned as a whole: x[t] = ...",
            )
        sources: dict[Symbol, Expr] = {}
        fixed_steps: list[Symbol] = []
        points: dict[Symbol, Expr] = {}
        for part, step in zip(keys, steps, strict=False):
            index = as_index(part, step, self)
            if isinstance(index, Range):
                raise IndexingError(f"{self!r} is assigned over a slice of {step}", hint=f"assign by point: x[{step}] = ...")
            points[step] = index.expr
            if step in index.expr.steps:
                sources[step], inside = _inverse(index, step, self)
                condition = condition & inside
            elif index.expr.steps:
                raise IndexingError(
                    f"step {step} of {self!r} is assigned at {index}, an expression of other steps",
                    hint=f"the key indexes the steps in the domain's order: [{', '.join(s.name for s in steps)}]",
                )
            else:
                condition = condition & (step.expr == index.expr)
                fixed_steps.append(step)
        condition = condition & key_condition.substitute(sources)
        type = node.outputs[0].substitute(points)  # at the point that is assigned, in the key's steps
        tensor = as_tensor(value, self)
        conflicts = [s for s in tensor.domain.steps if s in fixed_steps]
        if conflicts:
            raise IndexingError(
                f"the value assigned to {self!r} varies with {conflicts[0]}, which the key fixes",
                hint=f"index the value at one point of {conflicts[0]}",
            )
        foreign_steps = [s for s in tensor.domain.steps if s not in steps]
        if foreign_steps:
            raise IndexingError(
                f"the value assigned to {self!r} varies with {foreign_steps[0]}, which is not in its domain ({', '.join(s.name for s in steps)})",
                hint=f"reduce over {foreign_steps[0]} with a slice 0:{foreign_steps[0].bound}, or add {foreign_steps[0]} to the recurrence's domain",
            )
        if not _fits(tensor.dtype, type.dtype):
            raise DTypeError(
                f"a value of type {tensor.type} is assigned to {self!r}",
                hint=f'convert it: .astype("{type.dtype}"), or make the recurrence {tensor.dtype}',
            )
        try:
            tensor = broadcast_to(cast(tensor, type.dtype), type.shape)
        except ShapeError:
            varying = next((s for size in tensor.shape for s in size.steps), None)
            raise ShapeError(
                f"a value of type {tensor.type} is assigned to {self!r}",
                hint=f"its shape is ({', '.join(map(str, type.shape))}) at every point"
                + (
                    f"; reduce the dimension that varies with {varying}, or pad it to one size"
                    if varying
                    else ", and the value must broadcast to it"
                ),
            ) from None
        shifted = tensor[tuple(sources.get(s, s.expr) for s in tensor.domain.steps)] if tensor.domain.steps else tensor
        edge = replace(shifted.edge, condition=unless_obvious(condition) & shifted.user_condition)
        current = self.context.graph[node.id]
        self.context.graph.put(replace(current, inputs=(*current.inputs, edge)))
        self.context.branch_lines.setdefault(node.id, []).append(where)

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
                hint=f"assign at {step} + constant, at {step.bound} - 1 - {step}, or at a constant",
            )
        source = mirrored - step.expr
    return source, conjunction(source >= 0, source <= step.bound_expr - 1)


@checked
def recurrence(shape: Shape = (), dtype: str = "float32", domain: Domain = (), name: str = "") -> Recurrence:
    """A branching tensor over `domain`, whose branches are assigned by indexing: `h[0] = zero; h[t + 1] = f(h, x)`."""
    context = BaseContext.current()
    check_dtype(dtype)
    steps, sizes = domain_steps(domain), shape_of(shape)
    for foreign_step in (step for size in sizes for step in size.steps if step not in steps):
        raise ShapeError(
            f"the recurrence{f' `{name}`' if name else ''} has a size that varies with {foreign_step}, which is not in its domain",
            hint=f"add {foreign_step} to its domain, or take the largest size and slice it with .spatial",
        )
    node = context.graph.add(ops.Merge(TensorType(dtype, sizes)), domain=Points(steps), name=name, where=user_location())
    tensor = Recurrence(context, of_node(context, node).edge)
    context.recurrences.append(tensor)
    return tensor
