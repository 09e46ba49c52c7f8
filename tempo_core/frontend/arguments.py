"""Arguments of public functions, checked by their annotations: what is no tensor, axis, step or name is refused where it is given.

A function's annotations say what each parameter takes; `KINDS` says, for each annotation, which values fit and what to write
instead. Numbers and arrays become tensors where tensors are meant. A call with a tensor among its arguments runs in that
tensor's context, so that operations on what exists need no `with`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tempo_core.errors import ArgumentError
from tempo_core.frontend.context import Context
from tempo_core.frontend.tensor import Tensor
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Symbol

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind:
    """What a parameter takes: in words, as a test, and as advice."""

    what: str
    fits: Callable[[Any], bool]
    hint: str | None = None


def is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A Python or NumPy number, or an array of one."""
    return (isinstance(value, (int, float, np.number)) and not isinstance(value, bool)) or (is_array(value) and value.ndim == 0)


def is_array(value: Any) -> bool:
    """An array of NumPy, JAX, or any library that has their protocol."""
    return isinstance(value, (np.ndarray, np.generic)) or (
        not isinstance(value, (Tensor, type)) and hasattr(value, "__array__") and hasattr(value, "dtype")
    )


def is_value(value: Any) -> bool:
    """What becomes a tensor: numbers, arrays, lists of them, steps, conditions."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(is_value(item) and not isinstance(item, (Tensor, Expr, Bool)) for item in value)
    return isinstance(value, (Tensor, Expr, Bool, bool, int, float)) or is_array(value)


def is_recurrence(value: Any) -> bool:
    """A tensor whose points can be assigned, as `tp.recurrence` makes them."""
    return isinstance(value, Tensor) and type(value).__setitem__ is not Tensor.__setitem__


def is_size(value: Any) -> bool:
    return isinstance(value, Expr) or is_int(value)


def is_shape(value: Any) -> bool:
    return is_size(value) or (isinstance(value, (tuple, list)) and all(map(is_size, value)))


def is_axes(value: Any) -> bool:
    return value is None or is_int(value) or (isinstance(value, (tuple, list)) and all(map(is_int, value)))


def is_domain(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, Tensor, Mapping))


def is_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_value, value))


_TENSOR = "tp.constant(array) makes a tensor of an array; tp.input one that is fed"
_SIZE = "sizes are ints or expressions of bounds and steps; a number that data decides cannot be one"
_DOMAIN = "domain=(i, t) takes the steps that the context gave; domain=(t,) has a comma"

KINDS: dict[str, Kind] = {
    "Tensor": Kind("a tensor", is_value, _TENSOR),
    "Value": Kind("a tensor or number", is_value, _TENSOR),
    "Value | None": Kind("a tensor, a number or None", lambda v: v is None or is_value(v), _TENSOR),
    "Tensor | None": Kind("a tensor or None", lambda v: v is None or is_value(v), _TENSOR),
    "Recurrence": Kind("a recurrence", is_recurrence, 'x = tp.recurrence((3,), domain=(t,), name="x")'),
    "Sequence[Tensor]": Kind("a list of tensors", is_tensors, "[x, y]"),
    "Shape": Kind("a shape", is_shape, "a shape is a tuple of ints and expressions of bounds, such as (3, T)"),
    "IntoExpr": Kind("an int or an expression of steps and bounds", is_size, _SIZE),
    "int": Kind("an int", is_int),
    "int | None": Kind("an int or None", lambda v: v is None or is_int(v)),
    "float": Kind("a number", is_number),
    "float | None": Kind("a number or None", lambda v: v is None or is_number(v)),
    "tuple[float, float]": Kind("two numbers", lambda v: isinstance(v, (tuple, list)) and len(v) == 2 and all(map(is_number, v))),
    "str | None": Kind("a text or None", lambda v: v is None or isinstance(v, str)),
    "bool": Kind("True or False", lambda v: isinstance(v, (bool, np.bool_))),
    "str | Path": Kind("a path", lambda v: isinstance(v, (str, os.PathLike)), 'program.draw("graph.svg")'),
    "str": Kind("a text", lambda v: isinstance(v, str)),
    "int | Sequence[int] | None": Kind("an axis, a tuple of axes or None", is_axes, "axis=0, axis=(0, 1), axis=None for all"),
    "int | Sequence[int]": Kind("an int or a tuple of ints", lambda v: v is not None and is_axes(v)),
    "int | Sequence[IntoExpr]": Kind("an int or a tuple of sizes", is_shape, _SIZE),
    "IntoExpr | None": Kind("an int, an expression of steps and bounds, or None", lambda v: v is None or is_size(v), _SIZE),
    "Domain": Kind("a tuple of steps", is_domain, _DOMAIN),
    "Domain | None": Kind("a tuple of steps", lambda v: v is None or is_domain(v), _DOMAIN),
    "Iterable[Expr]": Kind("a tuple of steps", is_domain, _DOMAIN),
    "Callable[..., Any]": Kind("a function", callable, "a function of arrays"),
    "Sequence[TensorType]": Kind(
        "a list of types", lambda v: isinstance(v, (list, tuple)) and all(isinstance(t, TensorType) for t in v), "outputs=[tp.spec((3,))]"
    ),
    "Bool | bool": Kind("a condition on steps", lambda v: isinstance(v, (Bool, bool)), "when=t % 5 == 0; what data decides is not known"),
}  # fmt: skip


CONVERSIONS: dict[str, Callable[[Any], Tensor]] = {}  # "Tensor": what makes one of a number or array; `functions` puts it here


def shown(value: Any) -> str:
    """A value in an error: short, and with its type where that is what is wrong."""
    if isinstance(value, (Tensor, Expr, Bool, Symbol)):
        return f"`{value}`" if not isinstance(value, Tensor) else repr(value)
    if is_array(value):
        return f"an array {value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)) and value:
        items = ", ".join(map(shown, value[:3])) + (
            ", ..." if len(value) > 3 else "," if len(value) == 1 and isinstance(value, tuple) else ""
        )
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if not (value is None or isinstance(value, (str, bool, int, float, complex, list, tuple, dict, set, slice, type))):
        return f"a {type(value).__name__}"  # whose text may hold an address
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def context_of(arguments: Iterable[Any]) -> Context | None:
    """The context of the first tensor among arguments, lists and dicts of them included."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            return argument.context
        if isinstance(argument, (list, tuple, Mapping)) and argument:
            found = context_of(argument.values() if isinstance(argument, Mapping) else argument)
            if found is not None:
                return found
    return None


def checked(function: F, name: str = "") -> F:
    """`function`, refusing arguments that its annotations do not allow, and run in the context of its tensors.

    Raises ArgumentError: for a wrong kind of value, an unknown or missing argument.
    """
    signature = inspect.signature(function)
    called = name or getattr(function, "__name__", "function").strip("_")
    parameters = list(signature.parameters.values())
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def argument(parameter: inspect.Parameter, value: Any) -> Any:
        kind = KINDS.get(str(parameter.annotation))
        if parameter.name == "dtype":  # `check_dtype` says more
            return value
        if kind is None or value is parameter.default or (isinstance(value, Tensor) and kind.fits(value)):
            return value
        if not kind.fits(value):
            hint = _advice(kind, value) or _usage(called, signature)
            raise ArgumentError(f"`{called}` takes {kind.what} as {parameter.name}, got {shown(value)}", hint=hint)
        return CONVERSIONS["Tensor"](value) if parameter.annotation == "Tensor" else value

    def bound(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if len(args) > len(plain) and rest is None:
            raise ArgumentError(f"`{called}` takes {len(plain)} arguments, got {len(args)}", hint=_usage(called, signature))
        given = [argument(plain[k] if k < len(plain) else rest, value) for k, value in enumerate(args)]  # type: ignore[arg-type]
        named: dict[str, Any] = {}
        for key, value in keywords.items():
            if key not in by_name and not open_ended:
                near = difflib.get_close_matches({"dim": "axis", "keepdim": "keepdims"}.get(key, key), by_name, 1)
                hint = f"did you mean {near[0]}=...?" if near else _usage(called, signature)
                raise ArgumentError(f"`{called}` has no argument `{key}`", hint=hint)
            named[key] = argument(by_name[key], value) if key in by_name else value
        for k, parameter in enumerate(parameters):
            if parameter.default is parameter.empty and parameter.kind in (
                parameter.POSITIONAL_ONLY,
                parameter.POSITIONAL_OR_KEYWORD,
                parameter.KEYWORD_ONLY,
            ):
                positional = parameter.kind is not parameter.KEYWORD_ONLY and k < len(args)
                if positional == (parameter.name in named):
                    what = "is given twice" if positional else "is missing"
                    raise ArgumentError(f"the argument `{parameter.name}` of `{called}` {what}", hint=_usage(called, signature))
        return given, named

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        context = context_of(args) or context_of(keywords.values())
        if context is None or context is Context.innermost():
            given, named = bound(args, keywords)
            return function(*given, **named)
        with context:
            given, named = bound(args, keywords)
            return function(*given, **named)

    return call  # type: ignore[return-value]


def _advice(kind: Kind, value: Any) -> str | None:
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value) and kind.fits is is_value:
        return "tp.stack([x, y]) makes one tensor of several"
    if isinstance(value, Tensor) and kind.fits not in (is_tensors, is_domain):
        return "a tensor's values are known when the program runs; here the program is built, and a number is needed"
    return kind.hint


def _usage(called: str, signature: inspect.Signature) -> str:
    parts = []
    for p in signature.parameters.values():
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        parts.append(f"{star}{p.name}" + ("" if p.default is p.empty else f"={p.default!r}"))
    return f"{called}({', '.join(parts)})"


def checked_module(namespace: dict[str, Any], names: Sequence[str]) -> None:
    """Check the arguments of a module's public functions (classes and modules among `names` are left as they are)."""
    for name in names:
        if inspect.isfunction(namespace[name]):
            namespace[name] = checked(namespace[name], name)
