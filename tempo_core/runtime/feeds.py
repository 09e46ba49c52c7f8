"""The inputs of a run, checked and converted: arrays of any library, iterators with one value a point, functions of the steps."""

from __future__ import annotations

import difflib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from tempo_core.backends import aligned
from tempo_core.backends.base import numpy_dtype
from tempo_core.errors import InputError
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Input, Op, Udf
from tempo_core.ir.types import TensorType, is_float
from tempo_core.ir.udf import Fed
from tempo_core.symbolic.expr import Symbol

Coordinates = tuple[int, ...]
Array = Any  # numpy.ndarray or jax.Array


@dataclass(frozen=True)
class InputSpec:
    """The declaration of one input: a value `dtype[shape]` at each point of `steps`, whose bounds are the numbers `bounds`."""

    name: str
    declared: str  # the type of all values in one array, as it was written
    dtype: str
    steps: tuple[str, ...]
    bounds: tuple[int, ...]
    shape: tuple[int, ...]
    streamed: bool
    where: str  # the user's line
    in_parts: bool = False  # whether the device has a part of the points at a time

    @functools.cached_property
    def whole(self) -> tuple[int, ...]:
        """The shape of all values in one array."""
        return self.bounds + self.shape

    @functools.cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(numpy_dtype(self.dtype))

    def __str__(self) -> str:
        over = ", ".join(f"{step} < {bound}" for step, bound in zip(self.steps, self.bounds, strict=True))
        return f"{self.name}: {self.each}{f' over {over}' if over else ''}{', streamed' if self.streamed else ''}"

    @property
    def each(self) -> str:
        """The type of one value."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def at(self, point: Coordinates) -> str:
        """A point as errors write it: `t = 3`."""
        return ", ".join(f"{step} = {value}" for step, value in zip(self.steps, point, strict=True))

    def error(self, problem: str, hint: str | None = None) -> InputError:
        return InputError(f"the input `{self.name}` {problem}", where=self.where, hint=hint)


def is_fed_in_parts(op: Op) -> bool:
    """Whether an operation stands for an input of which the device has some points at a time."""
    return isinstance(op, Udf) and isinstance(op.fn, Fed) and op.fn.in_parts


def input_specs(graph: Graph, domains: Mapping[str, tuple[Symbol, ...]], bounds: Mapping[Symbol, int]) -> dict[str, InputSpec]:
    """The specs of a graph's inputs, by name. `domains` gives the steps of each: graphs do not hold the steps of arrays."""
    specs = {}
    for name, node in graph.fed().items():
        steps, streamed = domains.get(name, ()), not isinstance(node.op, Input)
        extent = tuple(step.bound_expr.evaluate(bounds) for step in steps)
        sizes = tuple(size.evaluate(bounds) for size in node.outputs[0].shape)
        shape = sizes if streamed else sizes[len(steps) :]
        type, names = node.outputs[0], tuple(step.name for step in steps)
        leading = tuple(step.bound_expr for step in steps) if streamed else ()
        declared = str(TensorType(type.dtype, (*leading, *type.shape)))
        in_parts = is_fed_in_parts(node.op)
        specs[name] = InputSpec(name, declared, type.dtype, names, extent, shape, streamed, node.where, in_parts)
    return specs


# -- arrays -----------------------------------------------------------------------------------------------------------


def as_array(value: Any) -> Array:
    """An array of any library (through `__array__`, or DLPack where that fails), a number, or nested lists of them.

    A JAX array stays on its device. Raises TypeError or ValueError for anything that is not an array.
    """
    if isinstance(value, jax.Array):
        return value
    try:
        array = np.asarray(value)
    except Exception:
        if not hasattr(value, "__dlpack__"):
            raise
        return jax.dlpack.from_dlpack(value)  # on an accelerator, or of a dtype that NumPy lacks
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} is not an array of numbers")
    return array


def is_array(value: Any) -> bool:
    """Whether a value is fed as a whole, not point by point."""
    has_numbers = any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__dlpack__"))
    return has_numbers or isinstance(value, (int, float, complex, list, tuple))


def fitted(spec: InputSpec, value: Any, shape: tuple[int, ...], at: str = "") -> Array:
    """`value` as an array of the declared dtype, and of `shape`. Raises InputError; `at` says where the value belongs."""
    here = f" at {at}" if at else ""
    try:
        array = as_array(value)
    except Exception as error:
        raise spec.error(
            f"is not an array{here}: {error}",
            f"give an array of shape {shape} and dtype {spec.dtype}: np.zeros({shape}, {spec.dtype!r})",
        ) from error
    if tuple(array.shape) != shape:
        if at:
            raise spec.error(
                f"has shape {tuple(array.shape)}{here}, but each value must be {spec.each}", f"give an array of shape {shape}"
            )
        steps = f"the steps {', '.join(spec.steps)} come first" if spec.steps else "it has no steps"
        raise spec.error(
            f"has shape {tuple(array.shape)}, but its declared type {spec.declared} needs the shape {shape}",
            f"give an array of shape {shape}: {steps}",
        )
    dtype = numpy_dtype(spec.dtype)
    if array.dtype != dtype:
        if not _converts(array.dtype, dtype):
            raise spec.error(
                f"has dtype {array.dtype}{here}, but its declared dtype is {spec.dtype}",
                f"convert it: array.astype({spec.dtype!r})",
            )
        _check_range(spec, array, dtype, here)
        array = aligned.copied(array, dtype) if isinstance(array, np.ndarray) else array.astype(dtype)
    return array


def _check_range(spec: InputSpec, array: Array, dtype: np.dtype[Any], here: str) -> None:
    """Raise InputError for integers that do not fit in a narrower dtype. Those of a traced array are not known."""
    if isinstance(array, jax.core.Tracer) or dtype.kind not in "iu" or array.dtype.kind not in "iu" or not array.size:
        return
    ends = [(int(array[part].min()), int(array[part].max())) for part in aligned.parts(array)]
    limits, low, high = np.iinfo(dtype), min(low for low, _ in ends), max(high for _, high in ends)
    if low < limits.min or high > limits.max:
        number = low if low < limits.min else high
        raise spec.error(
            f"holds {number}{here}, but {spec.dtype} goes from {limits.min} to {limits.max}",
            "declare a wider dtype: tp.input(name, shape, dtype)",
        )


def _converts(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether values may be converted: to the same kind, from bool to any, from integers to floats."""
    return np.can_cast(source, target, "same_kind") or (source.kind in "iub" and (target.kind in "iuf" or is_float(target.name)))


# -- point by point ---------------------------------------------------------------------------------------------------


class Feed:
    """The values of one input, one for each point: call `take(point)` for all points in their order."""

    def __init__(self, spec: InputSpec, value: Any):
        self.spec, self.count = spec, 0
        self.array: Array | None = None  # all values, if they were given as one array
        self._iterator: Iterator[Any] | None = None
        self._next = self._source(value)

    def wrap(self, wrap: Callable[[Callable[[Coordinates], Any]], Callable[[Coordinates], Any]]) -> None:
        """Let the user's iterator or function be called by another one, which `wrap` makes of it."""
        self._next = wrap(self._next)

    def take(self, at: Coordinates) -> Array:
        """The value at `at`, which is the next point: a NumPy or JAX array. Raises InputError."""
        spec = self.spec
        try:
            value = self._next(at)
        except StopIteration as error:
            needed = " x ".join(map(str, spec.bounds))
            raise spec.error(
                f"ended at {spec.at(at)}, after {self.count} of {needed} values", "give one value for each point of its domain"
            ) from error
        except InputError:
            raise
        except Exception as error:
            raise self._failure(spec.at(at), error) from error
        self.count += 1
        array = fitted(spec, value, spec.shape, spec.at(at))
        return array if isinstance(array, jax.Array) else np.array(array)  # its owner may write into it later

    def _failure(self, at: str, error: Exception) -> InputError:
        return self.spec.error(
            f"failed at {at}: {type(error).__name__}: {error}", "the exception above shows the line of your iterator or function"
        )

    def _source(self, value: Any) -> Callable[[Coordinates], Any]:
        """A function that gives the value at a point."""
        spec = self.spec
        if is_array(value):
            array = self.array = fitted(spec, value, spec.whole)
            return lambda at: array[at]
        if callable(value):
            return lambda at: value(**dict(zip(spec.steps, at, strict=True)))
        iterator = self._iterator = iter(value)
        return lambda at: next(iterator)

    def skip(self, count: int) -> None:
        """Go on after so many values, which an earlier run has taken: those of an iterator are taken and dropped."""
        self.count = count
        if self._iterator is not None:
            for _ in zip(range(count), self._iterator, strict=False):
                pass

    def collected(self) -> Array:
        """All values, as one array."""
        spec = self.spec
        whole = aligned.empty(spec.whole, numpy_dtype(spec.dtype))
        for at in itertools.product(*map(range, spec.bounds)):
            whole[at] = self.take(at)
        return whole


# -- part by part ------------------------------------------------------------------------------------------------------


def has_slices(value: Any) -> bool:
    """Whether a value has a shape and gives slices: arrays, memory maps, datasets of HDF5 and Zarr, slices of safetensors."""
    return hasattr(value, "__getitem__") and (hasattr(value, "shape") or hasattr(value, "get_shape"))


class PartFeed(Feed):
    """The values of an input, many at a time: `part(...)`. `alive` is for how many points an iterator's values may be read again."""

    def __init__(self, spec: InputSpec, value: Any):
        self.slices: Any = None
        self.latest: deque[np.ndarray[Any, Any]] = deque()  # of an iterator: the values at the latest points of the first step
        self.first = 0  # the first of these points
        super().__init__(spec, value)

    def _source(self, value: Any) -> Callable[[Coordinates], Any]:
        if not has_slices(value):
            return super()._source(value)
        shape = tuple(value.shape if hasattr(value, "shape") else value.get_shape())
        if shape != self.spec.whole:
            # Raises an error with both shapes.
            fitted(self.spec, np.broadcast_to(np.zeros((), self.spec.dtype), shape), self.spec.whole)
        self.slices = value
        self.array = value if isinstance(value, np.ndarray) else None
        return lambda at: value[at]

    def part(self, axis: int, shape: tuple[int, ...], span: tuple[int, int], alive: int) -> np.ndarray[Any, Any]:
        """The values at some points along one step, and all points of the others; with zeros up to this `shape` of all values.

        Raises InputError.
        """
        if self.slices is None and axis:
            self.slices = self.array = self.collected()
        if self.slices is None:
            values = self._of_iterator(span, alive)
        else:
            try:
                values = aligned.read(np.asarray(self.slices[(*(slice(None),) * axis, slice(*span))]))
            except Exception as error:
                raise self._failure(f"{span[0]}:{span[1]} of {self.spec.steps[axis]}", error) from error
        sizes = self.spec.whole
        stop = min(span[1], sizes[axis])
        values = fitted(self.spec, values, (*sizes[:axis], max(stop - span[0], 0), *sizes[axis + 1 :]), f"{span[0]}:{stop}")
        whole = (*shape[:axis], span[1] - span[0], *shape[axis + 1 :])
        if values.shape == whole:
            return values
        part = np.zeros(whole, values.dtype)
        part[tuple(map(slice, values.shape))] = values
        return part

    def _of_iterator(self, span: tuple[int, int], alive: int) -> np.ndarray[Any, Any]:
        """The values at some points of the first step, and of all points of the others."""
        inner = self.spec.bounds[1:]
        stop = min(span[1], self.spec.bounds[0])
        while self.first + len(self.latest) < stop:
            at = self.first + len(self.latest)
            values = [self.take((at, *rest)) for rest in itertools.product(*map(range, inner))]
            self.latest.append(np.stack(values).reshape(*inner, *self.spec.shape))
            while len(self.latest) > max(alive, stop - span[0]):
                self.latest.popleft()
                self.first += 1
        chosen = itertools.islice(self.latest, span[0] - self.first, stop - self.first)
        return np.stack(list(chosen)) if stop > span[0] else np.zeros((0, *inner, *self.spec.shape), self.spec.dtype)

    def skip(self, count: int) -> None:
        """Nothing: a part that was there before is read again, so an iterator begins with its first value."""


# -- all inputs of a run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feeds:
    """The inputs of one run, by name: whole arrays, and streams; and the points of the steps that a run takes one point of."""

    arrays: Mapping[str, Array]
    streams: Mapping[str, Feed]
    bound: Mapping[str, Any] = field(default_factory=dict)  # arrays of `arrays` in the form in which device programs take them
    chosen: Mapping[Symbol, int] = field(default_factory=dict)  # by the symbol that stands for the point in the program
    fit: Callable[[str, Array], Array] = lambda name, array: array  # an array as the compiled program takes it, by its name


NOTHING = Feeds({}, {})


def check_names(specs: Mapping[str, InputSpec], ignored: Iterable[str], inputs: Mapping[str, Any]) -> None:
    """Check that each of `inputs` is named as one of `specs`, or in `ignored`. Raises InputError."""
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs must be a dict from names to values, not {type(inputs).__name__}", hint="inputs={'x': array}")
    names = (*specs, *ignored)
    for name in inputs:
        if not isinstance(name, str):
            raise InputError(
                f"inputs are fed by name, not by {type(name).__name__}",
                hint="use the name that tp.input has: inputs={'x': array}",
            )
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean `{near[0]}`? " if near else ""
            raise InputError(f"the program has no input `{name}`", hint=f"{hint}its inputs are {', '.join(specs) or 'none'}")


def checked_inputs(specs: Mapping[str, InputSpec], ignored: Iterable[str], inputs: Mapping[str, Any]) -> Feeds:
    """The inputs of a run, checked and converted. Inputs named in `ignored` may be fed, and are left out. Raises InputError."""
    check_names(specs, ignored, inputs)
    arrays, streams = {}, {}
    for name, spec in specs.items():
        if name not in inputs:
            raise spec.error("is missing", f"give an array of shape {spec.whole}: inputs={{{name!r}: array}}")
        value = inputs[name]
        is_array_here = type(value) is np.ndarray or isinstance(value, jax.Array)
        if is_array_here and not spec.streamed and value.shape == spec.whole and value.dtype == spec.numpy_dtype:
            arrays[name] = value  # as below, in a tenth of the time
            continue
        pointwise = not (is_array(value) or (spec.in_parts and has_slices(value)))
        if pointwise and not _gives_values(value):
            raise spec.error(
                f"is {kind_of(value)}, not an array",
                f"give an array of shape {spec.whole}, an iterator, or a function of the steps",
            )
        if pointwise and not spec.steps:
            raise spec.error(
                f"has no domain, so it takes one array; this value is {kind_of(value)}", f"give an array of shape {spec.shape}"
            )
        if spec.streamed:
            streams[name] = (PartFeed if spec.in_parts else Feed)(spec, value)
        else:
            arrays[name] = Feed(spec, value).collected() if pointwise else fitted(spec, value, spec.whole)
    return Feeds(arrays, streams)


def kind_of(value: object) -> str:
    """What a value is, as errors say it without an article: `of type bytes`, or `None`."""
    return "None" if value is None else f"of type {type(value).__name__}"


def _gives_values(value: Any) -> bool:
    return callable(value) or (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, Set)))
