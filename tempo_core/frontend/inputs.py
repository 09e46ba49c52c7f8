"""Inputs, user-defined functions and sinks: how values come into a program and go out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tempo_core.errors import ArgumentError, ContextError, DTypeError, ShapeError, user_location
from tempo_core.frontend.aliases import Domain, Shape, Tree
from tempo_core.frontend.arguments import checked, is_value, shown
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.methods.operands import check_dtype, shape_of
from tempo_core.frontend.tensor import Tensor, Value, apply, as_tensor, evaluate, of_node
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType, is_float
from tempo_core.ir.udf import Custom, Fed
from tempo_core.symbolic.condition import Bool, conjunction
from tempo_core.symbolic.domain import Domain as Points
from tempo_core.symbolic.domain import step_order
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol


def domain_steps(domain: Iterable[Expr | Symbol]) -> tuple[Symbol, ...]:
    """The user's steps, checked, in the context's order."""
    context = BaseContext.current()
    distinct_steps: list[Symbol] = []
    for item in domain:
        step = item if isinstance(item, Symbol) else item.single_atom if isinstance(item, Expr) else None
        if not isinstance(step, Symbol) or step not in context.steps:
            raise ContextError(
                f"{shown(item)} is not a step of this context",
                hint=f"its steps are {', '.join(s.name for s in context.steps) or 'none'}, as `{context.usage}` names them: domain=(t,)",
            )
        if step in distinct_steps:
            raise ContextError(f"the domain names the step {step} twice", hint=f"name each step once: domain=({step},)")
        distinct_steps.append(step)
    return step_order(distinct_steps, context.steps)


@checked
def input(
    name: str,
    shape: Shape = (),
    dtype: str = "float32",
    domain: Domain = (),
    requires_grad: bool = False,
    streamed: bool = False,
    before: Value | None = None,
) -> Tensor:
    """A tensor that gets its values when the program runs, under `name`: `inputs={name: value}`.

    `value` is an array `[*bounds of the domain, *shape]`, or an iterator with one array `[*shape]` for each point of the domain, in
    the order of the points, or a function of the steps, `fn(t=3) -> array`, which is called in that order. The values of iterators
    and functions are collected into an array before the program runs. With `streamed=True`, the program instead asks for each value
    when its loop reaches the point, and keeps it for as long as it is needed.

    `before` is the value before the start of a step, for reads such as `x[t - 1]` at t = 0 (`Tensor.before`).
    """
    context = BaseContext.current()
    check_dtype(dtype)
    if not name:
        raise ArgumentError("an input needs a name", hint='write tp.input("x", (3,), domain=(t,))')
    if name in context.inputs:
        raise ArgumentError(
            f"this context has an input `{name}` already", hint='give each input a name of its own: tp.input("y", (3,))'
        )
    if requires_grad and not is_float(dtype):
        raise DTypeError(f"the input `{name}` has dtype {dtype}; gradients exist for floats only")
    steps, sizes = domain_steps(domain), shape_of(shape)
    for varying_size in (size for size in sizes if size.steps):
        raise ShapeError(
            f"the input `{name}` has the size {varying_size}, but the size of an input must not vary with a step",
            hint="declare the largest size, and slice it: x.spatial[0:t + 1]",
        )
    if streamed:
        if not steps:
            raise ArgumentError(
                f"the streamed input `{name}` has no domain",
                hint="a stream gives one value at each point of a domain: domain=(t,)",
            )
        source = ops.Udf(Fed(name), (TensorType(dtype, sizes),), "host", stateful=True, name=name)
        tensor = apply(source, domain=Points(steps), name=name)
    else:
        tensor = apply(ops.Input(name, dtype, (*(s.bound_expr for s in steps), *sizes)), name=name)
        for step in steps:  # each step indexes the leading dimension, and so removes it
            tensor = apply(ops.Gather(0), tensor, evaluate(step.expr), name=name)
    context.inputs[name] = steps
    if requires_grad:
        tensor = apply(ops.Identity(), tensor, name=name)
        context.leaves.append(tensor.edge.source)
    return tensor if before is None else tensor.before(before)


@checked
def spec(shape: Shape = (), dtype: str = "float32") -> TensorType:
    """The type of one output of a user-defined function."""
    check_dtype(dtype)
    return TensorType(dtype, shape_of(shape))


@checked
def udf(
    fn: Callable[..., Any],
    *inputs: Tree,
    outputs: Sequence[TensorType],
    kind: str = "jax",
    stateful: bool = False,
    domain: Domain = (),
    name: str = "",
    batch: Callable[..., Any] | None = None,
    slope: Callable[..., Any] | None = None,
    cost: tuple[IntoExpr, IntoExpr] | None = None,
) -> tuple[Tensor, ...]:
    """The results of `fn`, a function of arrays, at every point: one tensor for each entry of `outputs`.

    `fn` returns a tuple of arrays. Each of `inputs` is a tensor, or a pytree of tensors (a dict, the parameters of a Flax module), which
    `fn` gets as a pytree of arrays. A list of numbers is one array, as everywhere.
    `kind="jax"`: `fn` is pure, and JAX can trace it. It becomes part of the device program; `jax.vmap` vectorizes it and `jax.vjp`
    differentiates it. Other functions are constants to differentiation.
    `kind="host"`: `fn` is called with NumPy arrays on the host. A `stateful` one is called once for each point, in their order.
    `domain` adds steps to those of the inputs.

    Rules for functions of kind "jax", in place of JAX's:
    `batch(size, batched, *operands)` gives the results for `size` points at once, each with a leading dimension. `batched` has the
    structure of the operands: True for an array that has the leading dimension, False for one that all points share.
    `slope(operands, results, gradients)` gives, for each operand, its gradient or None. `gradients` has one array for each output, or None
    for an integer one.
    `cost=(operations, bytes)` is what a call does and moves in all, for `program.cost()`: numbers, or expressions of bounds.
    """
    if kind not in ("jax", "host"):
        raise ArgumentError(f"unknown kind {kind!r} of user-defined function", hint='write kind="jax" or kind="host"')
    if (batch is not None or slope is not None) and (kind == "host" or stateful):
        raise ArgumentError(
            f"a function on the host, or with state, takes no {'batch' if batch is not None else 'slope'} rule: it runs at one point "
            "after the other, and has no gradient",
            hint='leave the rule out, or write a function without state in JAX: kind="jax"',
        )
    costs = tuple(Expr.of(each) for each in cost or ())
    for each in costs:
        if each.steps:
            raise ArgumentError(f"the cost {each} varies with a step", hint="give an expression of bounds: cost=(2 * T, 8 * T)")
    context = BaseContext.current()
    flat = [_flattened(x) for x in inputs]
    operands = [operand for each, _ in flat for operand in each]
    steps = frozenset(domain_steps(domain)).union(*(o.domain.steps for o in operands))
    condition = conjunction(*(o.domain.condition for o in operands))
    label = name or getattr(fn, "__name__", "udf")
    if batch is not None or slope is not None or any(is_tree for _, is_tree in flat):
        fn = Custom(fn, tuple(_structure(x) for x in inputs), batch, slope, label, user_location())
    op = ops.Udf(fn, tuple(outputs), kind, stateful, label, user_location(), context.graph.next_id, cost=costs)
    node = apply(op, *operands, domain=Points(step_order(steps, context.steps), condition), name=label).node
    return tuple(of_node(context, node, k) for k in range(len(outputs)))


def _flattened(value: Tree) -> tuple[list[Tensor], bool]:
    """The tensors of an operand, and whether it is a pytree of them."""
    if is_value(value):
        return [as_tensor(value)], False  # type: ignore[arg-type]
    import jax  # other programs are built without it

    return [as_tensor(leaf) for leaf in jax.tree.leaves(value)], True


def _structure(value: Tree) -> Any:
    """JAX's description of a pytree; that of an operand which is one tensor is a leaf."""
    import jax

    return jax.tree.structure(0 if is_value(value) else value)


@checked
def sink(fn: Callable[..., Any], *tensors: Value, when: Bool | bool = True, name: str = "") -> None:
    """Call `fn(*arrays, **steps)` on the host with the tensors' values at each point of their domain where `when` holds, in order.

    A call may come late (after later work has started), but never out of order, and all calls come before `run` returns.
    """
    operands = [as_tensor(x) for x in tensors]
    condition = conjunction(*(o.domain.condition for o in operands)) & when
    steps = condition.steps.union(*(o.domain.steps for o in operands))
    op = ops.Sink(fn, name or getattr(fn, "__name__", "sink"))
    apply(op, *operands, domain=Points(step_order(steps, BaseContext.current().steps), condition), name=name)
