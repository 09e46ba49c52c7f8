"""Where tensors come from: inputs, recurrences (branching tensors), user-defined functions; and sinks, where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tempo_core.errors import ArgumentError, ContextError, DTypeError, IndexingError, ShapeError, user_location
from tempo_core.frontend.arguments import shown
from tempo_core.frontend.context import Context
from tempo_core.frontend.functions import as_tensor, broadcast_to, cast, check_dtype, evaluate, shape_of
from tempo_core.frontend.tensor import Tensor, apply, as_index, of_node
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType, is_float
from tempo_core.ir.udf import Fed
from tempo_core.symbolic.condition import TRUE, Bool, as_bool, conjunction
from tempo_core.symbolic.domain import Domain, Point, Range, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import unless_obvious


def domain_steps(domain: Iterable[Expr | Symbol]) -> tuple[Symbol, ...]:
    """Steps given by the user, checked and in the context's order."""
    context = Context.current()
    found: list[Symbol] = []
    for item in domain:
        step = item if isinstance(item, Symbol) else item.single_atom if isinstance(item, Expr) else None
        if not isinstance(step, Symbol) or step not in context.steps:
            raise ContextError(
                f"{shown(item)} is not a step of this context",
                hint=f"steps are {', '.join(s.name for s in context.steps) or 'none'}; domain=(t,) takes them as the context gave them",
            )
        if step in found:
            raise ContextError(f"the domain names the step {step} twice", hint="a tensor varies with each of its steps once")
        found.append(step)
    return step_order(found, context.steps)


def input(
    name: str,
    shape: Any = (),
    dtype: str = "float32",
    domain: Iterable[Expr] = (),
    requires_grad: bool = False,
    streamed: bool = False,
) -> Tensor:
    """A tensor that is fed when the program runs, under `name`: `inputs={name: value}`.

    `value` is an array `[*bounds of the domain, *shape]`, an iterator of one array `[*shape]` a point of the domain in the order
    of the points, or a function of the steps, `fn(t=3) -> array`, called in that order. Iterators and functions are collected into
    an array before the program runs; with `streamed=True`, the program asks for each value when its loop reaches the point, and
    keeps it for as long as it is needed.
    """
    context = Context.current()
    check_dtype(dtype)
    if not name:
        raise ArgumentError("an input needs a name, to be fed by", hint='tp.input("x", (3,), domain=(t,))')
    if name in context.inputs:
        raise ArgumentError(f"there is an input `{name}` already", hint="give each input a name of its own")
    if requires_grad and not is_float(dtype):
        raise DTypeError(f"the input `{name}` has dtype {dtype}; gradients exist for floats only")
    steps, sizes = domain_steps(domain), shape_of(shape)
    for varying in (size for size in sizes if size.steps):
        raise ShapeError(
            f"the input `{name}` has a size {varying}, which varies with a step",
            hint="feed the largest size, and slice: x.spatial[0:t + 1]",
        )
    if streamed:
        if not steps:
            raise ArgumentError(
                f"the streamed input `{name}` has no domain", hint="domain=(t,): one value is fed at each point of it"
            )
        source = ops.Udf(Fed(name), (TensorType(dtype, sizes),), "host", stateful=True, name=name)
        fed = apply(source, domain=Domain(steps), name=name)
    else:
        fed = apply(ops.Input(name, dtype, (*(s.bound_expr for s in steps), *sizes)), name=name)
        for step in steps:  # the leading dimension is indexed away, one step after the other
            fed = apply(ops.Gather(0), fed, evaluate(step.expr), name=name)
    context.inputs[name] = steps
    if requires_grad:
        fed = apply(ops.Identity(), fed, name=name)
        context.leaves.append(fed)
    return fed


class Recurrence(Tensor):
    """A branching tensor: `x[0] = ...; x[t + 1] = ...`. Branches are tried in the order in which they were assigned."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Define the points that `key` covers. A key indexes each step by itself plus a constant, reversed, or by a constant.

        Conditions in the key are in terms of the key's own steps, as the value is: `x[t + 1, t >= 3] = f(t)` defines x[4] first.
        """
        where = user_location()
        with self.context:  # numbers become tensors of it
            self._assign(key, value, where)

    def _assign(self, key: Any, value: Any, where: str) -> None:
        node = self.node
        steps = node.domain.steps
        keys = list(key) if isinstance(key, tuple) else [key]
        condition: Bool = TRUE
        wanted = conjunction(*(as_bool(k) for k in keys if isinstance(k, (Bool, bool))))
        keys = [k for k in keys if not isinstance(k, (Bool, bool))]
        if len(keys) > len(steps):
            raise IndexingError(
                f"{len(keys)} indices assign {self!r}, whose domain has {len(steps)} steps",
                hint="values are assigned as a whole, at each point; index an element of a value with .spatial",
            )
        back: dict[Symbol, Expr] = {}
        fixed: list[Symbol] = []
        places: dict[Symbol, Expr] = {}
        for part, step in zip(keys, steps, strict=False):
            index = as_index(part, step, self)
            if isinstance(index, Range):
                raise IndexingError(f"{self!r} is assigned over a slice of {step}", hint=f"assign by point: x[{step}] = ...")
            places[step] = index.expr
            if step in index.expr.steps:
                back[step], inside = _inverse(index, step, self)
                condition = condition & inside
            elif index.expr.steps:
                raise IndexingError(
                    f"step {step} of {self!r} is assigned at {index}, an expression of other steps",
                    hint=f"the key indexes the steps in the domain's order: [{', '.join(s.name for s in steps)}]",
                )
            else:
                condition = condition & (step.expr == index.expr)
                fixed.append(step)
        condition = condition & wanted.substitute(back)
        type = node.outputs[0].substitute(places)  # at the point that is assigned, in the key's steps
        given = as_tensor(value, self)
        loose = [s for s in given.domain.steps if s in fixed]
        if loose:
            raise IndexingError(
                f"the value assigned to {self!r} varies with {loose[0]}, which the key fixes",
                hint=f"index the value at one point of {loose[0]}",
            )
        stray = [s for s in given.domain.steps if s not in steps]
        if stray:
            raise IndexingError(
                f"the value assigned to {self!r} varies with {stray[0]}, which is not in its domain ({', '.join(s.name for s in steps)})",
                hint=f"reduce over {stray[0]} with a slice 0:{stray[0].bound}, or add {stray[0]} to the recurrence's domain",
            )
        if not _fits(given.dtype, type.dtype):
            raise DTypeError(
                f"a value of type {given.type} is assigned to {self!r}",
                hint=f'convert it: .astype("{type.dtype}"), or make the recurrence {given.dtype}',
            )
        try:
            given = broadcast_to(cast(given, type.dtype), type.shape)
        except ShapeError:
            varying = next((s for size in given.shape for s in size.steps), None)
            raise ShapeError(
                f"a value of type {given.type} is assigned to {self!r}",
                hint=f"its shape is ({', '.join(map(str, type.shape))}) at every point"
                + (
                    f"; reduce what varies with {varying}, or pad it to one size"
                    if varying
                    else ", and the value must broadcast to it"
                ),
            ) from None
        shifted = given[tuple(back.get(s, s.expr) for s in given.domain.steps)] if given.domain.steps else given
        edge = replace(shifted.edge, condition=unless_obvious(condition) & shifted.user_condition)
        current = self.context.graph[node.id]
        self.context.graph.put(replace(current, inputs=(*current.inputs, edge)))
        self.context.branch_lines.setdefault(node.id, []).append(where)

    def __repr__(self) -> str:
        return super().__repr__().replace("<Tensor", "<Recurrence")


def _fits(given: str, wanted: str) -> bool:
    """Whether values may be converted without being asked to: within a kind, and from bool to integers to floats."""
    ranks = [0 if d == "bool" else 2 if is_float(d) else 1 for d in (given, wanted)]
    return ranks[0] <= ranks[1]


def _inverse(index: Point, step: Symbol, of: Tensor) -> tuple[Expr, Bool]:
    """For an assignment at `index(step)`: the step's value in terms of the assigned point, and where that is in range."""
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


def recurrence(shape: Any = (), dtype: str = "float32", domain: Iterable[Expr] = (), name: str = "") -> Recurrence:
    """A branching tensor over `domain`, whose branches are assigned by indexing: `h[0] = zero; h[t + 1] = f(h, x)`."""
    context = Context.current()
    check_dtype(dtype)
    steps, sizes = domain_steps(domain), shape_of(shape)
    for stray in (step for size in sizes for step in size.steps if step not in steps):
        raise ShapeError(
            f"the recurrence{f' `{name}`' if name else ''} has a size that varies with {stray}, which is not in its domain",
            hint=f"add {stray} to its domain, or take the largest size and slice it with .spatial",
        )
    node = context.graph.add(ops.Merge(TensorType(dtype, sizes)), domain=Domain(steps), name=name, where=user_location())
    made = Recurrence(context, of_node(context, node).edge)
    context.recurrences.append(made)
    return made


def spec(shape: Any = (), dtype: str = "float32") -> TensorType:
    """The type of one output of a user-defined function."""
    check_dtype(dtype)
    return TensorType(dtype, shape_of(shape))


def udf(
    fn: Callable[..., Any],
    *inputs: Any,
    outputs: Sequence[TensorType],
    kind: str = "jax",
    stateful: bool = False,
    domain: Iterable[Expr] = (),
    name: str = "",
) -> tuple[Tensor, ...]:
    """`fn` of arrays at every point: one tensor an entry of `outputs`.

    `kind="jax"`: traceable by JAX, pure; it becomes part of the device program, is vectorized by `jax.vmap` and differentiated
    by `jax.vjp`. Other functions are constants for differentiation.
    `kind="host"`: called with NumPy arrays on the host. A `stateful` one is called once a point, in the order of the points.
    `domain` adds steps to those of the inputs.
    """
    if kind not in ("jax", "host"):
        raise ArgumentError(f"unknown kind {kind!r} of user-defined function", hint='"jax" or "host"')
    context = Context.current()
    operands = [as_tensor(x) for x in inputs]
    steps = frozenset(domain_steps(domain)).union(*(o.domain.steps for o in operands))
    condition = conjunction(*(o.domain.condition for o in operands))
    label = name or getattr(fn, "__name__", "udf")
    op = ops.Udf(fn, tuple(outputs), kind, stateful, label, user_location(), context.graph.next_id)
    node = context.graph.add(
        op,
        [o.edge for o in operands],
        domain=Domain(step_order(steps, context.steps), condition),
        name=label,
        where=user_location(),
    )
    return tuple(Tensor(context, replace(of_node(context, node).edge, output=k)) for k in range(len(outputs)))


def sink(fn: Callable[..., Any], *tensors: Any, when: Bool | bool = True, name: str = "") -> None:
    """Hand tensors to `fn(*arrays, **steps)` on the host at each point of their domain where `when` holds, in order.

    Values may arrive late (after later work was started), never out of order, and all of them before `run` returns.
    """
    context = Context.current()
    operands = [as_tensor(x) for x in tensors]
    condition = conjunction(*(o.domain.condition for o in operands)) & when
    steps = condition.steps.union(*(o.domain.steps for o in operands))
    context.graph.add(
        ops.Sink(fn, name or getattr(fn, "__name__", "sink")),
        [o.edge for o in operands],
        domain=Domain(step_order(steps, context.steps), condition),
        name=name,
        where=user_location(),
    )
