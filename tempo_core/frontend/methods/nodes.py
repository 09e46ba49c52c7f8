"""Tensors as nodes of the graph, and what makes new ones: an op, a read, a number, an expression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar, Union

import numpy as np

from tempo_core import errors
from tempo_core.frontend.aliases import ArrayLike
from tempo_core.frontend.arguments import checked, converts
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.methods.operands import check_dtype, constant_op
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.types import is_float
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Domain, identity, step_order
from tempo_core.symbolic.expr import Expr, Symbol, makes_tensors

C = TypeVar("C", bound=type[Any])
Tensor = TypeVar("Tensor", bound="Nodes[Any]")  # the class of tensors, which stands above the classes that it is made of
_class_of_tensors: list[Any] = []

Value: TypeAlias = Union[BaseTensor, Expr, Bool, ArrayLike]
"""A tensor, or a value that becomes one: a number, an array, an expression of steps and bounds, a condition on steps."""


def is_class_of_tensors(cls: C) -> C:
    """Decorator of the class that is made of these classes: all tensors are of it."""
    _class_of_tensors[:] = [cls]
    return cls


class Nodes(BaseTensor, Generic[Tensor]):
    """A tensor as a node of the graph. Functions of the library call what has a `_` here by names without it."""

    @staticmethod
    def _apply(
        op: ops.Op, *operands: BaseTensor, domain: Domain | None = None, name: str = "", where: str | None = None
    ) -> Tensor:
        """The first output of a new node that applies `op` to the operands; its domain is the union of theirs."""
        context = operands[0].context if operands else BaseContext.current()
        for operand in operands:
            if operand.context is not context:
                raise errors.ContextError(
                    f"one operation cannot combine tensors of two contexts: {operands[0]!r} and {operand!r}",
                    hint="build both in one context. Or run the first program, and feed its result to the second: inputs={'x': result}",
                )
        if domain is None:
            steps: frozenset[Symbol] = frozenset(s for s in op.symbols if s.is_step)
            if not isinstance(op, ops.Input):  # a fed array is as large as the bound may be
                steps = steps | context.around(op.symbols)
            condition: Bool = TRUE
            for operand in operands:
                steps = steps | frozenset(operand.domain.steps)
                condition = condition & operand.domain.condition
            domain = Domain(step_order(steps, context.steps), condition)
        node = context.graph.add(op, [o.edge for o in operands], domain=domain, name=name, where=where or errors.user_location())
        return of_node(context, node)

    @staticmethod
    def _of_node(context: BaseContext, node: Node, output: int = 0) -> Tensor:
        """Output `output` of a node, at the node's own points."""
        return view(context, Edge(node.id, identity(node.domain), output))

    @staticmethod
    def _view(context: BaseContext, edge: Edge, condition: Bool = TRUE) -> Tensor:
        """The tensor that reads `edge`, where `condition` holds."""
        return _class_of_tensors[0](context, edge, condition)

    @staticmethod
    @makes_tensors
    def _evaluate(value: Expr | Bool) -> Tensor:
        """A step, bound or symbolic expression used as a number: an int32 (or bool) scalar whose domain is its steps."""
        return apply(ops.Eval(value.plain if isinstance(value, Expr) else value))

    @staticmethod
    @converts
    def _as_tensor(value: Value, like: BaseTensor | None = None) -> Tensor:
        """`value` as a tensor; a Python number takes the dtype of `like`, unless the number is a float and `like` an integer."""
        if isinstance(value, Nodes):
            return value  # type: ignore[return-value]
        if isinstance(value, (Expr, Bool)):
            number = evaluate(value)
            return number.astype(like.dtype) if like is not None and isinstance(value, Expr) and is_float(like.dtype) else number
        if like is None or isinstance(value, (np.ndarray, np.generic, list, tuple)):
            return apply(constant_op(value))
        if isinstance(value, bool):
            return apply(constant_op(value, "bool"))
        if isinstance(value, float) and not is_float(like.dtype):
            return apply(constant_op(value, "float32"))
        return apply(constant_op(value, "int32" if like.dtype == "bool" else like.dtype))

    @checked
    def astype(x: Tensor, dtype: str) -> Tensor:
        """`x` converted to `dtype`.

        A float becomes an integer by rounding towards zero; a float out of range becomes the nearest integer in the range, NaN becomes
        0. Integers wrap around. A float becomes a narrower float by rounding to the nearest, or infinite. As bools, all numbers but 0
        are True, and so is NaN.
        """
        check_dtype(dtype)
        return x if x.dtype == dtype else apply(ops.Cast(dtype), x)

    def named(self: Tensor, name: str) -> Tensor:
        """The same tensor under a name that plans, drawings and errors use."""
        if not isinstance(name, str):
            raise errors.ArgumentError(f"{name!r} cannot name a tensor", hint='give a string: x.named("x")')
        self.context.graph.put(replace(self.node, name=name))
        return self

    def materialized(self: Tensor) -> Tensor:
        """This tensor as a node of its own, read at the node's own point."""
        return self if self.edge.is_own_point(self.node.domain) else apply(ops.Identity(), self)

    def detach(self) -> Tensor:
        """The same values, through which no gradient flows."""
        return apply(ops.Identity(stop_gradient=True), self)


_nodes = Nodes[Any]
apply, of_node, view, evaluate, as_tensor = _nodes._apply, _nodes._of_node, _nodes._view, _nodes._evaluate, _nodes._as_tensor
