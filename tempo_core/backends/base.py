"""The thin interface between programs and arrays: a backend is a table of kernels, one an op class, and few helpers.

A kernel is a function `kernel(at, op, *operands)` that gives one array, or a tuple with one array an output. It is pure,
keeps to the dtypes and shapes of `op.infer`, and on the JAX backend can be traced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from tempo_core.errors import DTypeError, FunctionError, MissingRow, ShapeError
from tempo_core.ir import ops
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, StepValues

Array = Any  # numpy.ndarray, jax.Array, or a traced array
Seed = Any  # the run's seed: a Python int, or a (traced) uint32 scalar
Kernel = Callable[..., Any]

# What these do is a matter of stores and of the host, not of arrays: the runtime handles them.
RUNTIME_OPS: tuple[type[ops.Op], ...] = (ops.Input, ops.Output, ops.Sink, ops.Merge)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of one of `ir.types.DTYPES`; bfloat16 is the one of `ml_dtypes`."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@dataclass(frozen=True)
class Setting:
    """What a kernel may use beside its operands: array functions, the values of bounds and steps, and the run's seed."""

    backend: Backend
    env: StepValues
    seed: Seed

    @property
    def xp(self) -> Any:
        """`numpy` or `jax.numpy`."""
        return self.backend.xp

    def value(self, expression: Expr | Bool) -> Any:
        """The number of an expression or truth value of a condition: a Python number, or traced where a step in it is."""
        return expression.evaluate(self.env, self._minimum, self._maximum)

    def size(self, size: Expr) -> int:
        """The number of a size, which must not depend on traced steps."""
        return int(size.evaluate(self.env))

    def shape(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        """Numbers of elements. At points where nobody needs a value its size may be negative: it has none then."""
        return tuple(max(self.size(size), 0) for size in sizes)

    def _minimum(self, a: Any, b: Any) -> Any:
        return min(a, b) if is_static(a) and is_static(b) else self.xp.minimum(a, b)

    def _maximum(self, a: Any, b: Any) -> Any:
        return max(a, b) if is_static(a) and is_static(b) else self.xp.maximum(a, b)


def is_static(number: Any) -> bool:
    """Whether a value of `Setting.value` is a number now, not a traced array."""
    return isinstance(number, (bool, int, np.integer, np.bool_))


class Backend(ABC):
    """Kernels and array helpers of one array library."""

    name: ClassVar[str]
    xp: ModuleType
    kernels: Mapping[type[ops.Op], Kernel]

    def __init__(self) -> None:
        self.compiled: dict[Any, Callable[..., Any]] = {}  # for users of a backend to keep functions of `compile`
        self.executables: MutableMapping[Any, Any] = WeakValueDictionary()  # whole programs, while somebody uses them

    def kernel(self, op: ops.Op, args: Sequence[Array], env: StepValues, seed: Seed = 0) -> tuple[Array, ...]:
        """The outputs of `op` for operands `args` at the point given by `env`, which holds all bounds and the point's steps.

        Raises ShapeError or DTypeError where a user-defined function does not return what it declared.
        """
        kernel = self.kernels.get(type(op))
        if kernel is None:
            raise MissingRow(f"the {self.name} backend has no kernel for {type(op).__name__}")
        result = kernel(Setting(self, env, seed), op, *args)
        return result if isinstance(result, tuple) else (result,)

    @abstractmethod
    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` of arrays (nested in tuples and dicts), made fast where the library can."""

    @abstractmethod
    def to_device(self, array: Array) -> Array:
        """A NumPy (or any) array as this library's array. Never compiles anything."""

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """An array as a NumPy array, perhaps sharing memory with it and read-only; waits until it is computed."""
        return np.asarray(array)

    def zeros(self, shape: Sequence[int], dtype: str) -> Array:
        """A new array of zeros. Never compiles anything."""
        return self.to_device(np.zeros(tuple(shape), numpy_dtype(dtype)))


# -- user-defined functions -------------------------------------------------------------------------------------------


def call_host(what: str, fn: Callable[..., Any], where: str, operands: Sequence[Array], point: Mapping[str, int]) -> Any:
    """What a user's function returns. What it raises becomes a FunctionError at the line that declares it, with the user's own
    exception as its cause. `what` names the function; `point` gives its steps: of a sink, which takes them as arguments.
    """
    try:
        return fn(*operands, **point) if what.startswith("sink") else fn(*operands)
    except Exception as error:  # KeyboardInterrupt and its kind pass
        kind, text = type(error).__name__, next(iter(str(error).strip().splitlines()), "")
        got = ", ".join(f"{x.dtype}[{', '.join(map(str, x.shape))}]" for x in operands) or "nothing"
        named = "".join(f", {name}={value}" for name, value in point.items()) if what.startswith("sink") else ""
        raise FunctionError(
            f"the {what} raised {kind}{_at(point)}: {text}",
            where=where or None,
            hint=_TRACING.get(kind, f"it was called with {got}{named}; its own lines are in the exception above"),
        ) from error


_IF = 'jnp.where or jax.lax.cond instead of Python\'s if and while; or kind="host", which runs on NumPy arrays'
_NUMPY = 'jax.numpy instead of numpy; or kind="host", which runs on NumPy arrays'
_TRACING = {  # what JAX raises where a function cannot be traced
    "TracerBoolConversionError": _IF, "TracerIntegerConversionError": _IF, "ConcretizationTypeError": _IF,
    "TracerArrayConversionError": _NUMPY, "NonConcreteBooleanIndexError": _IF,
}  # fmt: skip


def _at(point: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{name} = {value}' for name, value in point.items())}" if point else ""


def checked_results(
    at: Setting, op: ops.Udf, results: Any, convert: Callable[[Any], Array], point: Mapping[str, int]
) -> tuple[Array, ...]:
    """What the function of a `Udf` returned, each through `convert`; raises where it is not what `op.types` declares."""
    who, where, here = f"the user-defined function `{op.name}` returned", op.where or None, f",{_at(point)}" if point else ""
    wanted = f"return a tuple with an array for each of the {len(op.types)} outputs that are declared: return (value,)"
    if not isinstance(results, Sequence) or isinstance(results, (str, bytes)):
        what = "an array" if hasattr(results, "shape") else type(results).__name__
        raise ShapeError(f"{who} {what}, not a tuple of arrays{here}", where=where, hint=wanted)
    if len(results) != len(op.types):
        raise ShapeError(f"{who} {len(results)} arrays and declares {len(op.types)}{here}", where=where, hint=wanted)
    found = []
    for position, (result, declared) in enumerate(zip(results, op.types, strict=True)):
        what = f"{who} as output {position}"
        try:
            array, shape = convert(result), at.shape(declared.shape)
        except (TypeError, ValueError):
            raise ShapeError(f"{what} {type(result).__name__}, which is no array{here}", where=where, hint=wanted) from None
        if tuple(array.shape) != shape:
            raise ShapeError(
                f"{what} an array of shape {tuple(array.shape)}, and declares {declared}, which is {shape} here{here}",
                where=where,
                hint=f"return the declared shape, or declare outputs=[tp.spec({tuple(array.shape)})]",
            )
        if np.dtype(array.dtype) != numpy_dtype(declared.dtype):
            raise DTypeError(
                f"{what} an array of dtype {array.dtype}, and declares {declared}{here}",
                where=where,
                hint=f"convert it in the function: np.asarray(value, dtype={declared.dtype!r})",
            )
        found.append(array)
    return tuple(found)


def traced_udf(at: Setting, op: ops.Udf, convert: Callable[[Any], Array], operands: Sequence[Array]) -> tuple[Array, ...]:
    """A `Udf` of kind "jax", on JAX's arrays, which may be traced."""
    results = call_host(f"user-defined function `{op.name}`", op.fn, op.where, operands, {})
    return checked_results(at, op, results, convert, {})


def host_udf(at: Setting, op: ops.Udf, *operands: Array) -> tuple[Array, ...]:
    """A `Udf` of kind "host": its results as the backend's arrays."""
    return tuple(map(at.backend.to_device, host_results(at, op, *operands)))


def host_results(at: Setting, op: ops.Udf, *operands: Array) -> tuple[np.ndarray[Any, Any], ...]:
    """What a `Udf` of kind "host" gives: NumPy arrays in and out. Both are copied, as either side may write into its own later."""
    point = {symbol.name: int(value) for symbol, value in at.env.items() if symbol.is_step}
    arrays = [np.array(x) for x in operands]
    results = call_host(f"user-defined function `{op.name}`", op.fn, op.where, arrays, point)
    return checked_results(at, op, results, np.array, point)
