"""Checks of the arguments of public functions by their annotations: a wrong tensor, axis, step or name is an error at the call.

`KINDS` has a row for each annotation: which values fit, and what to write instead of others. Numbers and arrays become tensors
where the annotation says so. A call with a tensor among its arguments runs in that tensor's context, so that operations on existing
tensors need no `with`. Users' functions, such as the `forward` of a module, are checked in the same way, whether their annotations
are texts or objects.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tempo_core.errors import ArgumentError
from tempo_core.frontend import aliases
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.base_context import BaseContext
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Symbol

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind:
    """The values that a parameter takes: in words, and as a test; and advice for other values."""

    what: str
    fits: Callable[[Any], bool]
    hint: str | None = None


def is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a Python or NumPy number, or an array that holds one number."""
    return (isinstance(value, (int, float, np.number)) and not isinstance(value, bool)) or (is_array(value) and value.ndim == 0)


def is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy, JAX, or any library that has their protocol."""
    return isinstance(value, (np.ndarray, np.generic)) or (
        not isinstance(value, (BaseTensor, type)) and hasattr(value, "__array__") and hasattr(value, "dtype")
    )


def is_value(value: Any) -> bool:
    """Whether a value is a tensor or becomes one: numbers, arrays, lists of them, steps, conditions."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(is_value(item) and not isinstance(item, (BaseTensor, Expr, Bool)) for item in value)
    return isinstance(value, (BaseTensor, Expr, Bool, bool, int, float)) or is_array(value)


def is_tree(value: Any) -> bool:
    """Whether a value is a tensor, or becomes one, or is a pytree of such values."""
    if is_value(value):
        return True
    import jax  # only users' functions take pytrees

    is_leaf = jax.tree_util.all_leaves([value])
    return value is not None and not is_leaf and all(map(is_value, jax.tree.leaves(value)))


def is_recurrence(value: Any) -> bool:
    """Whether a value is a tensor whose points can be assigned, as `tp.recurrence` makes them."""
    return isinstance(value, BaseTensor) and type(value).__setitem__ is not BaseTensor.__setitem__


def is_size(value: Any) -> bool:
    return isinstance(value, Expr) or is_int(value)


def is_shape(value: Any) -> bool:
    return is_size(value) or (isinstance(value, (tuple, list)) and all(map(is_size, value)))


def is_widths(value: Any) -> bool:
    return is_size(value) or (isinstance(value, (tuple, list)) and all(map(is_shape, value)))


def is_axes(value: Any) -> bool:
    return value is None or is_int(value) or (isinstance(value, (tuple, list)) and all(map(is_int, value)))


def is_domain(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, BaseTensor, Mapping))


def is_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_value, value))


_TENSOR = 'to make a tensor of an array: tp.constant(array). To feed an array to each run: tp.input("x", (3,))'
_SIZE = "a size is an int or an expression of steps and bounds, never of data: 3, T, t + 1"
_DOMAIN = "write a tuple of steps: domain=(i, t). One step needs a comma: domain=(t,)"

KINDS: dict[str, Kind] = {
    "Tensor": Kind("a tensor", is_value, _TENSOR),
    "Value": Kind("a tensor or number", is_value, _TENSOR),
    "Value | Sequence[Value]": Kind("a tensor or number, or one for each axis", lambda v: is_value(v) or is_tensors(v), _TENSOR),
    "Value | None": Kind("a tensor, a number or None", lambda v: v is None or is_value(v), _TENSOR),
    "Tree": Kind("a tensor, a number, or a pytree of them", is_tree, _TENSOR),
    "Tensor | None": Kind("a tensor or None", lambda v: v is None or is_value(v), _TENSOR),
    "Recurrence": Kind("a recurrence", is_recurrence, 'x = tp.recurrence((3,), domain=(t,), name="x")'),
    "Sequence[Tensor]": Kind("a list of tensors", is_tensors, "[x, y]"),
    "IntoExpr": Kind("an int or an expression of steps and bounds", is_size, _SIZE),
    "int": Kind("an int", is_int),
    "int | None": Kind("an int or None", lambda v: v is None or is_int(v)),
    "float": Kind("a number", is_number),
    "float | None": Kind("a number or None", lambda v: v is None or is_number(v)),
    "tuple[float, float]": Kind("two numbers", lambda v: isinstance(v, (tuple, list)) and len(v) == 2 and all(map(is_number, v))),
    "str | None": Kind("a string or None", lambda v: v is None or isinstance(v, str)),
    "bool": Kind("True or False", lambda v: isinstance(v, (bool, np.bool_))),
    "str | Path": Kind("a path", lambda v: isinstance(v, (str, os.PathLike)), 'program.draw("graph.svg")'),
    "str": Kind("a string", lambda v: isinstance(v, str)),
    "int | Sequence[int] | None": Kind("an axis, a tuple of axes or None", is_axes, "axis=0, axis=(0, 1), axis=None for all"),
    "Widths": Kind("a size, a pair (before, after), or such a pair for each axis", is_widths, "tp.pad(x, ((1, 1), (0, 2)))"),
    "Axes": Kind("an axis, a tuple of axes or None", is_axes, "axis=0, axis=(0, 1), axis=None for all"),
    "int | Sequence[int]": Kind("an int or a tuple of ints", lambda v: v is not None and is_axes(v)),
    "int | Sequence[IntoExpr]": Kind("an int or a tuple of sizes", is_shape, _SIZE),
    "IntoExpr | None": Kind("an int, an expression of steps and bounds, or None", lambda v: v is None or is_size(v), _SIZE),
    "Domain": Kind("a tuple of steps", is_domain, _DOMAIN),
    "Domain | None": Kind("a tuple of steps", lambda v: v is None or is_domain(v), _DOMAIN),
    "Iterable[Expr]": Kind("a tuple of steps", is_domain, _DOMAIN),
    "Callable[..., Any]": Kind("a function", callable, "a function of arrays"),
    "Callable[..., Any] | None": Kind("a function or None", lambda v: v is None or callable(v), "a function of arrays"),
    "tuple[IntoExpr, IntoExpr] | None": Kind(
        "two numbers or None", lambda v: v is None or (isinstance(v, (tuple, list)) and len(v) == 2 and all(map(is_size, v))),
        "give the pair (operations, bytes moved) of one call: cost=(2 * 3 * 4, 4 * (3 + 12 + 4))",
    ),
    "Sequence[str]": Kind(
        "a tuple of names", lambda v: isinstance(v, (list, tuple)) and all(isinstance(t, str) for t in v), 'donate=("x",), with a comma'
    ),
    "Sequence[TensorType]": Kind(
        "a list of types", lambda v: isinstance(v, (list, tuple)) and all(isinstance(t, TensorType) for t in v), "outputs=[tp.spec((3,))]"
    ),
    "Bool | bool": Kind("a condition on steps", lambda v: isinstance(v, (Bool, bool)), "a condition compares steps, not tensors: when=t % 5 == 0"),
}  # fmt: skip


_to_tensor: list[Callable[[Any], Any]] = []  # one function, which makes a tensor of a number or array
_may_hold_tensors: Callable[[type], bool] = functools.cache(lambda kind: issubclass(kind, (BaseTensor, list, tuple, Mapping)))


def converts(function: F) -> F:
    """Decorator of the function that makes tensors of numbers and arrays, where an annotation says `Tensor`."""
    _to_tensor[:] = [function]
    return function


def shown(value: Any) -> str:
    """A value as errors show it: short, and by its type where the value itself would not help."""
    if isinstance(value, (BaseTensor, Expr, Bool, Symbol)):
        return f"`{value}`" if not isinstance(value, BaseTensor) else repr(value)
    if is_array(value):
        return f"an array {value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)) and value:
        items = ", ".join(map(shown, value[:3])) + (
            ", ..." if len(value) > 3 else "," if len(value) == 1 and isinstance(value, tuple) else ""
        )
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if not (value is None or isinstance(value, (str, bytes, bool, int, float, complex, list, tuple, dict, set, slice, type))):
        name = type(value).__name__  # its text may contain an address
        return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def context_of(arguments: Iterable[Any]) -> BaseContext | None:
    """The context of the first tensor among arguments, lists and dicts of them included."""
    for argument in arguments:
        if not _may_hold_tensors(type(argument)):
            continue
        if isinstance(argument, BaseTensor):
            return argument.context
        if argument:
            context = context_of(argument.values() if isinstance(argument, Mapping) else argument)
            if context is not None:
                return context
    return None


@dataclass(frozen=True)
class _Row:
    """A parameter and its kind; None if any value fits, or if the function's own error says more."""

    name: str
    default: Any
    kind: Kind | None
    converts: bool

    @staticmethod
    def of(parameter: inspect.Parameter, function: Callable[..., Any]) -> _Row:
        text = annotation_text(parameter.annotation, function)
        kind = KINDS.get(text) if parameter.name != "dtype" else None  # `check_dtype` says more
        return _Row(parameter.name, parameter.default, kind, text == "Tensor")

    def checked(self, value: Any, call: Call) -> Any:
        kind = self.kind
        if kind is None or value is self.default:
            return value
        if not kind.fits(value):
            hint = _advice(kind, value) or call.usage()
            raise ArgumentError(f"the argument `{self.name}` of `{call.name}` must be {kind.what}, not {shown(value)}", hint=hint)
        return _to_tensor[0](value) if self.converts and not isinstance(value, BaseTensor) else value


class Call:
    """The parameters of a function, and the errors for calls with wrong arguments."""

    def __init__(self, function: Callable[..., Any], name: str):
        self.name = name or getattr(function, "__name__", "function").strip("_")
        parameters = list(inspect.signature(function).parameters.values())
        self.has_self = bool(parameters) and parameters[0].name == "self"
        self.parameters = parameters
        plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        rest = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self.plain, self.rest = [_Row.of(p, function) for p in plain], None if rest is None else _Row.of(rest, function)
        self.by_name = {p.name: _Row.of(p, function) for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
        by_name_alone = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
        least = sum(p.default is p.empty for p in plain)
        self.counts = range(0) if by_name_alone else range(least, len(plain) + 1)  # of arguments, where none is given by name

    def usage(self) -> str:
        """The function's call as text, without `self`."""
        parts = []
        for p in self.parameters[self.has_self :]:
            star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
            parts.append(f"{star}{p.name}" + ("" if p.default is p.empty else f"={p.default!r}"))
        return f"{self.name}({', '.join(parts)})"

    def check_count(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """`check_names`, where arguments are named, or are more or fewer than there are parameters."""
        if keywords or len(args) not in self.counts:
            self.check_names(args, keywords)

    def check_names(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Raises ArgumentError for too many, unknown and missing arguments."""
        if len(args) > len(self.plain) and self.rest is None:
            count = len(self.plain) - self.has_self
            raise ArgumentError(f"`{self.name}` takes {count} arguments, got {len(args) - self.has_self}", hint=self.usage())
        for key in keywords:
            if key not in self.by_name and not self.takes_any_name:
                near = difflib.get_close_matches({"dim": "axis", "keepdim": "keepdims"}.get(key, key), self.by_name, 1)
                hint = f"did you mean {near[0]}=...?" if near else self.usage()
                raise ArgumentError(f"`{self.name}` has no argument `{key}`", hint=hint)
        for k, p in enumerate(self.parameters):
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                is_positional = p.kind is not p.KEYWORD_ONLY and k < len(args)
                if is_positional == (p.name in keywords):
                    what = "is given twice" if is_positional else "is missing"
                    raise ArgumentError(f"the argument `{p.name}` of `{self.name}` {what}", hint=self.usage())

    def checked(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, with tensors in place of numbers where the annotation is a tensor."""
        plain, rest = self.plain, self.rest
        values = [(plain[k] if k < len(plain) else rest).checked(value, self) for k, value in enumerate(args)]  # type: ignore[union-attr]
        named = {k: self.by_name[k].checked(v, self) if k in self.by_name else v for k, v in keywords.items()}
        return values, named


def checked(function: F, name: str = "") -> F:
    """Decorator: `function`, which refuses arguments that its annotations do not allow, and runs in the context of its tensors.

    Raises ArgumentError: for a wrong kind of value, an unknown or missing argument. Errors call the function `name`.
    """
    call = Call(function, name)

    @functools.wraps(function)
    def checking(*args: Any, **keywords: Any) -> Any:
        context = context_of(args) or context_of(keywords.values())
        call.check_count(args, keywords)
        if context is None or context is BaseContext.innermost():
            values, named = call.checked(args, keywords)
            return function(*values, **named)
        with context:
            values, named = call.checked(args, keywords)
            return function(*values, **named)

    checking.__name__ = call.name
    return checking  # type: ignore[return-value]


def checked_as(name: str) -> Callable[[F], F]:
    """`checked` for a function that users know under another name."""
    return functools.partial(checked, name=name)


_ALIASES: dict[str, object] = {name: getattr(aliases, name) for name in ("Shape", "Axes", "Domain", "ArrayLike", "Numbers")}


def name_annotation(name: str, annotation: object) -> None:
    """Call an annotation `name` in `KINDS`, where users write it as an object."""
    _ALIASES[name] = annotation


def annotation_text(annotation: Any, function: Callable[..., Any] | None = None) -> str:
    """An annotation as a key of `KINDS`. In Tempo, a text is that key; in a user's function, the text is evaluated in its module."""
    if isinstance(annotation, str):
        if function is None or function.__module__.startswith("tempo_core."):
            return annotation
        try:
            while isinstance(annotation, str):  # a quoted annotation may be a text inside of a text
                annotation = eval(annotation, getattr(function, "__globals__", {}))
        except Exception:  # a name that only type checkers know
            return str(annotation)
    for name, alias in _ALIASES.items():
        if annotation == alias:
            return name
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, typing.ForwardRef):
        return annotation_text(annotation.__forward_arg__)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        if not isinstance(annotation, type):
            return str(annotation)
        is_ours = annotation.__module__ == "builtins" or annotation.__module__.startswith("tempo_core.")
        return annotation.__name__ if is_ours else f"{annotation.__module__}.{annotation.__name__}"
    if origin in (typing.Union, types.UnionType):
        parts = tuple(sorted(parts, key=lambda part: part is type(None)))  # as it is written: None last
        return " | ".join(map(annotation_text, parts))
    inside = ", ".join(
        "[" + ", ".join(map(annotation_text, p)) + "]" if isinstance(p, list) else annotation_text(p) for p in parts
    )
    return f"{origin.__name__}[{inside}]"


def _advice(kind: Kind, value: Any) -> str | None:
    if isinstance(value, (list, tuple)) and any(isinstance(v, BaseTensor) for v in value) and kind.fits is is_value:
        return "tp.stack([x, y]) makes one tensor of several"
    if isinstance(value, BaseTensor) and kind.fits not in (is_tensors, is_domain):
        return "a number is needed while the program is built; a tensor has values only when the program runs"
    return kind.hint
