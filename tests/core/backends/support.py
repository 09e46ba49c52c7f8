"""The parts that tests of kernels share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from tempo_core.backends.base import Backend, Call, Setting, numpy_dtype
from tempo_core.backends.island import Instruction, Island
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir import ops
from tempo_core.ir.graph_text import op_text
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, Symbol

NUMPY, JAX = NumpyBackend(), JaxBackend()
BACKENDS = [NUMPY, JAX]

T = Symbol("T")
t = Symbol("t", "T")


def array(value: Any, dtype: str = "float32") -> np.ndarray:
    return np.asarray(value).astype(numpy_dtype(dtype))


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return array(np.random.default_rng(seed).normal(size=shape), dtype)


def type_of(value: np.ndarray) -> TensorType:
    return TensorType.of(value.dtype.name, *value.shape)


def run(
    backend: Backend,
    op: ops.Op,
    *args: np.ndarray,
    env: dict[Symbol, int] | None = None,
    jit: bool = False,
    seed: Any = 0,
    types: tuple[TensorType, ...] | None = None,
) -> tuple[np.ndarray, ...]:
    """The op's outputs on the host, after checking dtypes and shapes against `infer`; with `jit`, steps are traced.

    `types` are the operands' types where these have symbolic sizes.
    """
    env = env or {}
    steps = {s: np.int32(v) for s, v in env.items() if s.is_step}
    bounds = {s: v for s, v in env.items() if not s.is_step}
    operands = [backend.to_device(a) for a in args]
    if jit:
        names = list(steps)

        def traced(operands: Sequence[Any], values: Sequence[Any]) -> Any:
            return backend.kernel(op, operands, {**bounds, **dict(zip(names, values, strict=True))}, seed)

        results = jax.jit(traced)(operands, list(steps.values()))
    else:
        results = backend.kernel(op, operands, env, seed)
    assert isinstance(results, tuple)
    declared = op.infer(tuple(map(type_of, args)) if types is None else types)
    assert len(results) == len(declared)
    for result, type in zip(results, declared, strict=True):
        assert np.dtype(result.dtype) == numpy_dtype(type.dtype)
        assert tuple(result.shape) == tuple(Expr.of(s).evaluate(env) for s in type.shape)
    return tuple(map(backend.to_host, results))


def check(
    op: ops.Op,
    args: Sequence[np.ndarray],
    expected: Any,
    env: dict[Symbol, int] | None = None,
    rtol: float = 2e-6,
    types: tuple[TensorType, ...] | None = None,
) -> None:
    """All backends, traced and not, give `expected`."""
    for backend, jit in ((NUMPY, False), (JAX, False), (JAX, True)):
        (result,) = run(backend, op, *args, env=env, jit=jit, types=types)
        exact = result.dtype.kind in "iub"
        expected = np.asarray(expected)
        assert result.shape == expected.shape
        message = f"{op} on {backend.name}{' (jit)' if jit else ''}"
        if exact:
            np.testing.assert_array_equal(result, expected, err_msg=message)
        else:
            wide, right = result.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(wide, right, rtol=rtol, atol=rtol, err_msg=message)


def steered(body: ops.Dataflowed, env: dict[Symbol, Any] | None = None) -> Island:
    """An island, before any pass."""
    return Island(Setting(JAX, env or {}, 0), body)


def text(island: Island) -> str:
    """The instructions of an island, and of loops in it."""
    return "".join(_lines(island.instructions, "")) + f"give {_slots(island.results)}\n"


def _lines(instructions: Sequence[Instruction], indent: str) -> Iterator[str]:
    for _, op, sources, targets in instructions:
        parameters = list(op.parameters) if isinstance(op, Call) else []
        loops = [each for each in parameters if isinstance(each, tuple) and each and isinstance(each[0], Instruction)]
        shown = ", ".join(map(_parameter, (each for each in parameters if each not in loops)))
        name = f"{op.fn.__name__}({shown})" if isinstance(op, Call) else op_text(op)
        yield f"{indent}{_slots(targets)} = {name}({_slots(sources)})\n"
        for body in loops:
            yield from _lines(body, indent + "  ")


def _parameter(value: Any) -> str:
    return op_text(value) if isinstance(value, ops.Op) else str(value)


def _slots(slots: Sequence[int]) -> str:
    return ", ".join(f"${slot}" for slot in slots)
