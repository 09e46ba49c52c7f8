"""A function of JAX arrays in two parts: what needs only some of its operands, and the rest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr


@dataclass(frozen=True, eq=False)
class Division:
    """What a function was divided by: its operands and results, and the operands that are `outside`. `between` was the outcome."""

    fn: Callable[..., Any]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    outside: tuple[int, ...]
    between: tuple[TensorType, ...]

    @functools.cached_property
    def parts(self) -> Parts | None:
        """The parts again. None if the function has changed, and has no parts of the same form any more."""
        divided = parts(self.fn, self.operands, self.results, self.outside)
        return divided if divided is not None and divided.between == self.between else None


@dataclass(frozen=True, eq=False)
class Traced:
    """A function as JAX's program of it (a `ClosedJaxpr`): one of the parts of a division."""

    program: Any
    name: str
    division: Division
    is_early: bool

    def __call__(self, *operands: Any) -> Any:
        import jax.extend.core  # the IR itself needs no JAX

        return jax.extend.core.jaxpr_as_fun(self.program)(*operands)

    @property
    def __name__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Parts:
    """`early` takes some of a function's operands, and gives intermediate values of the types `between`.

    `late` takes all operands and then these values, and gives the function's results. `operations` is the size of `early`.
    """

    early: Traced
    late: Traced
    between: tuple[TensorType, ...]
    operations: int


def parts(
    fn: Callable[..., Any], operands: Sequence[TensorType], results: Sequence[TensorType], outside: Sequence[int]
) -> Parts | None:
    """The parts of a function, of which `early` takes the operands at the positions `outside`.

    None if it has no such parts, or cannot be traced: the run then explains why. All shapes are numbers.
    """
    import jax

    try:
        program = jax.make_jaxpr(fn)(*(jax.ShapeDtypeStruct(_sizes(type), type.dtype) for type in operands))
    except Exception:  # a user's function may raise anything
        return None
    inner = program.jaxpr
    declared = [(_sizes(type), type.dtype) for type in results]
    if inner.effects or [(tuple(v.aval.shape), str(v.aval.dtype)) for v in inner.outvars] != declared:
        return None
    early_values = {*inner.constvars, *(inner.invars[k] for k in outside)}
    early = []
    for equation in inner.eqns:
        if all(_is_literal(v) or v in early_values for v in equation.invars):
            early.append(equation)
            early_values.update(equation.outvars)
    late = [equation for equation in inner.eqns if not any(equation is other for other in early)]
    origins = {v: equation for equation in early for v in equation.outvars}
    between: dict[Any, None] = {}
    copied: list[Any] = []  # early equations whose values cannot be stored, such as keys of random numbers
    waiting = [v for equation in late for v in equation.invars if not _is_literal(v)]
    waiting += [v for v in inner.outvars if not _is_literal(v)]
    while waiting:
        value = waiting.pop()
        if value not in origins:
            continue
        if not jax.dtypes.issubdtype(value.aval.dtype, jax.dtypes.extended):
            between[value] = None
        elif not any(origins[value] is other for other in copied):
            copied.append(origins[value])
            waiting += [v for v in origins[value].invars if not _is_literal(v)]
    if not between:
        return None
    rest = [equation for equation in inner.eqns if any(equation is other for other in (*late, *copied))]
    name = getattr(fn, "__name__", type(fn).__name__)
    types = tuple(TensorType(str(v.aval.dtype), tuple(map(Expr.of, v.aval.shape))) for v in between)
    division = Division(fn, tuple(operands), tuple(results), tuple(outside), types)
    first = _program(program, [inner.invars[k] for k in outside], early, list(between))
    second = _program(program, [*inner.invars, *between], rest, list(inner.outvars))
    return Parts(
        Traced(first, f"{name}: early part", division, is_early=True),
        Traced(second, name, division, is_early=False),
        types,
        sum(map(_operations, early)) - sum(map(_operations, copied)),
    )


def traced_again(division: Division, is_early: bool) -> Traced:
    """A part of a function, traced anew. Raises ValueError if the function has changed, and has no such parts."""
    if division.parts is None:
        raise ValueError(f"the function {division.fn!r} is divided in another way now")
    return division.parts.early if is_early else division.parts.late


def _sizes(type: TensorType) -> tuple[int, ...]:
    return tuple(size.constant for size in type.shape)


def _is_literal(value: Any) -> bool:
    return hasattr(value, "val")


def _program(program: Any, operands: list[Any], equations: list[Any], results: list[Any]) -> Any:
    import jax.extend.core

    inner = jax.extend.core.Jaxpr(program.jaxpr.constvars, operands, results, equations, program.jaxpr.effects)
    return jax.extend.core.ClosedJaxpr(inner, program.consts)


def _operations(equation: Any) -> int:
    """The number of operations of an equation, with those of the functions that it calls."""
    import jax.extend.core

    inner = list(jax.extend.core.jaxprs_in_params(equation.params))
    return sum(_operations(e) for each in inner for e in each.eqns) if inner else 1
