"""A classical program: in Tempo's language, by hand in JAX, and its sizes."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import tempo_core as tp

Array = Any
Sizes = Mapping[str, int]
ByHand = Callable[..., Sequence[Array]]
Run = Callable[[], Sequence[Array]]  # the results, on the host


@dataclass(frozen=True)
class Traced:
    """A program in Tempo's language, before it is compiled."""

    context: tp.Context
    bounds: Mapping[Any, Any]  # a number each, or `tp.upto(...)`: then the inputs have the length
    outputs: Sequence[tp.Tensor]

    def compile(self) -> tp.Program[list[Any]]:
        return self.context.compile(self.bounds, self.outputs)


@dataclass(frozen=True)
class Sides:
    """The compiled sides of a classic at one size: what runs each, and the seconds of its tracing, compiling and first run."""

    tempo: Run
    by_hand: Mapping[str, Run]
    first_seconds: Mapping[str, float]  # "tempo", and each form by hand


@dataclass(frozen=True)
class Classic:
    """One row of the table.

    `program(**sizes)` is the program in Tempo's language. `inputs(random, **sizes)` are its inputs. `by_hand` are one or more forms
    in JAX: functions of the inputs by name, and of the sizes that they name. Their results are those of the program, in its order.

    `sizes` has the rows "tiny" (for tests), "small" and "full" (5 ms or more by hand); and "long", 100,000 points of time, if the
    program has a step of time. Results agree within `tolerance`, relative to the greatest element; `reason` says why not closer.
    """

    name: str
    program: Callable[..., Traced]
    by_hand: Mapping[str, ByHand]
    inputs: Callable[..., dict[str, Array]]
    sizes: Mapping[str, Sizes]
    tolerance: float = 1e-4
    reason: str = "sums of float32 in another order"

    def fed(self, size: str, seed: int = 0) -> dict[str, Array]:
        """The inputs of a size, on the device."""
        random = np.random.default_rng(seed)
        return {name: jax.device_put(_narrow(value)) for name, value in self.inputs(random, **self.sizes[size]).items()}

    def sides(self, size: str) -> Sides:
        """Both sides, compiled. The inputs of both are on the device, and the results of both come to the host."""
        inputs, seconds = self.fed(size), {}
        start = time.perf_counter()
        program = self.program(**self.sizes[size]).compile()
        program.run(inputs)  # compiles
        seconds["tempo"] = time.perf_counter() - start
        by_hand = {}
        for form in self.by_hand:
            start = time.perf_counter()
            executable = self.jitted(form, size).lower(inputs).compile()
            by_hand[form] = lambda executable=executable: [np.asarray(value) for value in executable(inputs)]
            by_hand[form]()
            seconds[form] = time.perf_counter() - start
        return Sides(lambda: program.run(inputs), by_hand, seconds)

    def jitted(self, form: str, size: str) -> Any:
        """A form by hand as a jitted function of a dict of inputs."""
        function, sizes = self.by_hand[form], self.sizes[size]
        named = {name: sizes[name] for name in inspect.signature(function).parameters if name in sizes}
        return jax.jit(lambda inputs: tuple(function(**inputs, **named)))


def _narrow(value: Any) -> Any:
    """float64 as float32, int64 as int32."""
    array = np.asarray(value)
    return array.astype({"float64": "float32", "int64": "int32"}.get(str(array.dtype), array.dtype))


def difference(results: Sequence[Array], expected: Sequence[Array]) -> float:
    """The greatest difference of two lists of arrays, each relative to its greatest finite element.

    It is infinite if shapes differ, or if one is not finite where the other one is.
    """
    if len(results) != len(expected):
        return float("inf")
    return max((_difference(np.asarray(r), np.asarray(e)) for r, e in zip(results, expected, strict=True)), default=0.0)


def _difference(result: Any, expected: Any) -> float:
    if result.shape != expected.shape:
        return float("inf")
    result, expected = result.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(result[~finite], expected[~finite], equal_nan=True) or not np.isfinite(result[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(result[finite] - expected[finite]).max() / max(1e-6, np.abs(expected[finite]).max()))
