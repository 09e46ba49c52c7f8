"""The interface between programs and arrays. A backend is a table of kernels, one for each op class, and a few helpers.

A kernel is a function `kernel(at, op, *operands)`. It gives one array, or a tuple with one array for each output. It is pure,
its results have the dtypes and shapes of `op.infer`, and on the JAX backend it can be traced.
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
from tempo_core.ir.ops.work import CALL, MEMORY, Work, nothing
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import mapped_dimensions
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, StepValues

Array = Any  # numpy.ndarray, jax.Array, or a traced array
Seed = Any  # the run's seed: a Python int, or a (traced) uint32 scalar
Kernel = Callable[..., Any]

# These ops concern stores and the host, not arrays: the runtime handles them.
RUNTIME_OPS: tuple[type[ops.Op], ...] = (ops.Input, ops.Output, ops.Sink, ops.End, ops.Merge)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name in `ir.types.DTYPES`; bfloat16 comes from `ml_dtypes`."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@dataclass(frozen=True)
class Setting:
    """The setting of a kernel, besides its operands: array functions, the values of bounds and steps, and the run's seed."""

    backend: Backend
    env: StepValues
    seed: Seed

    @property
    def xp(self) -> Any:
        """`numpy` or `jax.numpy`."""
        return self.backend.xp

    def value(self, expression: Expr | Bool) -> Any:
        """The value of an expression or a condition: a Python number or bool, or a traced value if a step in it is traced."""
        return expression.evaluate(self.env, self._minimum, self._maximum)

    def size(self, size: Expr) -> int:
        """The value of a size, which must not depend on traced steps."""
        return int(size.evaluate(self.env))

    def shape(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        """The values of sizes. At points where nobody needs a value, its size may be negative; it then has no elements."""
        return tuple(max(self.size(size), 0) for size in sizes)

    def _minimum(self, a: Any, b: Any) -> Any:
        return min(a, b) if is_static(a) and is_static(b) else self.xp.minimum(a, b)

    def _maximum(self, a: Any, b: Any) -> Any:
        return max(a, b) if is_static(a) and is_static(b) else self.xp.maximum(a, b)


def is_static(number: Any) -> bool:
    """Whether a value of `Setting.value` is a number, and not a traced array."""
    return isinstance(number, (bool, int, np.integer, np.bool_))


class Parts(ABC):
    """An operand of which every reader takes one element along one axis: nobody needs the whole."""

    @abstractmethod
    def element(self, axis: int, index: Array) -> Array:
        """The element at `index`, clamped to the ends as by `ops.Gather`."""


@dataclass(frozen=True)
class Split(Parts):
    """An operand as one array for each element, taken with an index that is a number, or an array that is not traced."""

    arrays: Sequence[Array]

    def element(self, axis: int, index: Array) -> Array:
        return self.arrays[min(max(int(index), 0), len(self.arrays) - 1)]


@dataclass(frozen=True)
class Call(ops.Op):
    """The function `fn(at, *parameters, *operands)`, which passes put into islands before they are traced. No graph has it."""

    work = Work(nothing, MEMORY, CALL)
    fn: Callable[..., Any]
    parameters: tuple[Any, ...] = ()


class Backend(ABC):
    """Kernels and array helpers of one array library."""

    name: ClassVar[str]
    xp: ModuleType
    kernels: Mapping[type[ops.Op], Kernel]
    passes: Sequence[Callable[..., None]] = ()  # they rewrite islands before these are traced

    def __init__(self) -> None:
        self.compiled: dict[Any, Callable[..., Any]] = {}  # functions of `compile`, by a key of the executor that keeps them here
        self.executables: MutableMapping[Any, Any] = WeakValueDictionary()  # compiled XLA programs, as long as somebody uses them

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
        """`function` of arrays (nested in tuples and dicts), compiled if the library can do so."""

    @abstractmethod
    def to_device(self, array: Array) -> Array:
        """A NumPy (or any) array as this library's array. Never compiles anything."""

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """An array as a NumPy array, which may share memory with it and be read-only. Waits until the array is computed."""
        return np.asarray(array)

    def zeros(self, shape: Sequence[int], dtype: str) -> Array:
        """A new array of zeros. Never compiles anything."""
        return self.to_device(np.zeros(tuple(shape), numpy_dtype(dtype)))


# -- user-defined functions -------------------------------------------------------------------------------------------


def call_host(
    what: str, fn: Callable[..., Any], where: str, operands: Sequence[Array], point: Mapping[str, int], takes_point: bool = False
) -> Any:
    """Call a user's function, and return its results. `what` names the function.

    An exception in the function becomes a FunctionError at the line that declares the function; its cause is the user's own
    exception. `point` is where it is called; a sink takes the steps as arguments (`takes_point`).
    """
    try:
        return fn(*operands, **point) if takes_point else fn(*operands)
    except Exception as error:  # KeyboardInterrupt and similar exceptions pass
        raise call_error(what, where, operands, point, error, takes_point) from error


def call_error(
    what: str, where: str, operands: Sequence[Array], point: Mapping[str, int], error: Exception, takes_point: bool = False
) -> FunctionError:
    """The error for an exception in a user's function."""
    kind, text = type(error).__name__, next(iter(str(error).strip().splitlines()), "")
    arguments = ", ".join(f"{x.dtype}[{', '.join(map(str, x.shape))}]" for x in operands) or "nothing"
    named = "".join(f", {name}={value}" for name, value in point.items()) if takes_point else ""
    return FunctionError(
        f"the {what} raised {kind}{_at(point)}: {text}",
        where=where or None,
        hint=_TRACING.get(kind, f"the exception above shows the line of your function; its arguments were {arguments}{named}"),
    )


_IF = 'write jnp.where or jax.lax.cond instead of `if` and `while`. To run plain Python on NumPy arrays: kind="host"'
_NUMPY = 'write jax.numpy instead of numpy. To run plain NumPy: kind="host"'
_TRACING = {  # JAX's exceptions for functions that cannot be traced
    "TracerBoolConversionError": _IF, "TracerIntegerConversionError": _IF, "ConcretizationTypeError": _IF,
    "TracerArrayConversionError": _NUMPY, "NonConcreteBooleanIndexError": _IF,
}  # fmt: skip


def _at(point: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{name} = {value}' for name, value in point.items())}" if point else ""


def checked_results(
    at: Setting, op: ops.Udf, results: Any, convert: Callable[[Any], Array], point: Mapping[str, int]
) -> tuple[Array, ...]:
    """The results of a `Udf`'s function, each converted by `convert`. Raises if they do not fit the declaration `op.types`."""
    who, where, here = (
        f"the user-defined function `{op.name}` returned",
        op.where or None,
        f" ({_at(point).strip()})" if point else "",
    )
    usage = f"return a tuple with one array for each of the {len(op.types)} declared outputs: return (value,)"
    if not isinstance(results, Sequence) or isinstance(results, (str, bytes)):
        what = "an array" if hasattr(results, "shape") else type(results).__name__
        raise ShapeError(f"{who} {what}, not a tuple of arrays{here}", where=where, hint=usage)
    if len(results) != len(op.types):
        raise ShapeError(f"{who} {len(results)} arrays, but is declared with {len(op.types)}{here}", where=where, hint=usage)
    arrays = []
    for position, (result, declared) in enumerate(zip(results, op.types, strict=True)):
        what = f"{who} as output {position}"
        try:
            array, shape = convert(result), at.shape(declared.shape)
        except (TypeError, ValueError):
            raise ShapeError(f"{what} {type(result).__name__}, not an array{here}", where=where, hint=usage) from None
        if tuple(array.shape) != shape:
            more = mapped_dimensions(op.fn)  # the user's function knows nothing of them
            own, returned, each = shape[more:], tuple(array.shape)[more:], TensorType(declared.dtype, declared.shape[more:])
            raise ShapeError(
                f"{what} an array of shape {returned}, but its declared type {each} needs the shape {own}{here}",
                where=where,
                hint=f"return an array of the declared shape, or declare the other one: outputs=[tp.spec({returned})]",
            )
        if np.dtype(array.dtype) != numpy_dtype(declared.dtype):
            raise DTypeError(
                f"{what} an array of dtype {array.dtype}, but its declared type is {declared}{here}",
                where=where,
                hint=f"convert it in the function: {'jnp' if op.kind == 'jax' else 'np'}.asarray(value, dtype={declared.dtype!r})",
            )
        arrays.append(array)
    return tuple(arrays)


def traced_udf(at: Setting, op: ops.Udf, convert: Callable[[Any], Array], operands: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a `Udf` of kind "jax", on JAX arrays, which may be traced."""
    results = call_host(f"user-defined function `{op.name}`", op.fn, op.where, operands, {})
    return checked_results(at, op, results, convert, {})


def host_udf(at: Setting, op: ops.Udf, *operands: Array) -> tuple[Array, ...]:
    """The results of a `Udf` of kind "host", as the backend's arrays."""
    return tuple(map(at.backend.to_device, host_results(at, op, *operands)))


def host_results(at: Setting, op: ops.Udf, *operands: Array) -> tuple[np.ndarray[Any, Any], ...]:
    """The results of a `Udf` of kind "host", as NumPy arrays. Operands and results are copied: both sides may write into theirs."""
    point = {symbol.name: int(value) for symbol, value in at.env.items() if symbol.is_step}
    arrays = [np.array(x) for x in operands]
    results = call_host(f"user-defined function `{op.name}`", op.fn, op.where, arrays, point)
    return checked_results(at, op, results, np.array, point)
