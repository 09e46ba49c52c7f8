"""Tables without holes, islands of ops, helpers, and user-defined functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_core.backends import jax_backend, numpy_backend, shared
from tempo_core.backends.base import RUNTIME_OPS
from tempo_core.errors import DTypeError, FunctionError, MissingRow, ShapeError
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Vmapped
from tests.core.backends.support import BACKENDS, JAX, NUMPY, T, array, check, normal, run, t
from tests.core.every_op import each_op

each_backend = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)


@each_backend
@each_op
def test_every_op_has_a_kernel(op, backend):
    assert (op in backend.kernels) != (op in RUNTIME_OPS), f"give {op.__name__} a kernel in the {backend.name} backend"


FUNCTIONS = [
    ("numpy", "Unary", numpy_backend.UNARY, ops.UNARY),
    ("jax", "Unary", jax_backend.UNARY, ops.UNARY),
    ("both", "Binary", shared.BINARY, ops.BINARY),
    ("both", "Compare", shared.COMPARE, ops.COMPARE),
    ("both", "Reduce", shared.REDUCE, ops.REDUCE),
]


@pytest.mark.parametrize(
    ("table", "fn"),
    [pytest.param(table, fn, id=f"{backend}-{kind}-{fn}") for backend, kind, table, names in FUNCTIONS for fn in names],
)
def test_every_function_has_a_kernel(table, fn):
    assert fn in table, f"give {fn} a row in the table of kernels"


def test_kernels_are_of_functions_that_exist():
    for _, _, table, names in FUNCTIONS:
        assert set(table) <= set(names)


@each_backend
def test_an_op_without_kernel_says_so(backend):
    with pytest.raises(MissingRow, match=f"the {backend.name} backend has no kernel for Output"):
        backend.kernel(ops.Output(0), [], {})
    with pytest.raises(MissingRow, match=f"the {backend.name} backend has no kernel for Binary hypot"):
        backend.kernel(ops.Binary("hypot"), [np.zeros(2), np.zeros(2)], {})


def island() -> ops.Dataflow:
    """(x, y) -> (x * y + t, x * y)."""
    f, i = TensorType.of("float32", 3), TensorType.of("int32")
    instructions = (
        (ops.Binary("mul"), (0, 1), (2,)),
        (ops.Eval(t.expr), (), (3,)),
        (ops.Cast("float32"), (3,), (4,)),
        (ops.Broadcast(f.shape, ()), (4,), (5,)),
        (ops.Binary("add"), (2, 5), (6,)),
    )
    types = (f, f, f, i, TensorType.of("float32"), f, f)
    return ops.Dataflow(ops.Dataflowed((f, f), instructions, (6, 2), types))


@pytest.mark.parametrize("backend, jit", [(NUMPY, False), (JAX, False), (JAX, True)])
def test_dataflow(backend, jit):
    x, y = normal(3), normal(3, seed=1)
    first, second = run(backend, island(), x, y, env={T: 9, t: 4}, jit=jit)
    np.testing.assert_allclose(first, x * y + 4, rtol=1e-6)
    np.testing.assert_allclose(second, x * y, rtol=1e-6)


@each_backend
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_helpers(backend, dtype):
    zeros = backend.zeros((2, 3), dtype)
    assert backend.to_host(zeros).dtype.name == dtype
    np.testing.assert_array_equal(backend.to_host(zeros), array(np.zeros((2, 3)), dtype))
    values = array([[1, 0]], dtype)
    np.testing.assert_array_equal(backend.to_host(backend.to_device(values)), values)
    assert float(backend.compile(lambda x: x + x)(backend.to_device(array(2.0)))) == 4.0


def test_jax_helpers_compile_nothing():
    before = jax_compilations()
    JAX.to_host(JAX.zeros((3, 17, 5), "float32"))
    JAX.to_host(JAX.to_device(np.ones((3, 17, 5), np.int32)))
    assert jax_compilations() == before
    jax.jit(lambda x: x * 3 - 1)(JAX.zeros((3, 17, 5), "float32"))
    assert jax_compilations() > before  # the counter counts


_compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: _compiled.append(event) if event.endswith("backend_compile_duration") else None
)


def jax_compilations() -> int:
    return len(_compiled)


# -- user-defined functions -------------------------------------------------------------------------------------------


def udf(fn, *types, kind="jax", name="f"):
    return ops.Udf(fn, tuple(types), kind, name=name)


def test_jax_udf_runs_on_both_backends():
    def both(x):
        return jnp.sin(x) * 2.0, jnp.sum(x) > 0.0

    op = udf(both, TensorType("float32", (T.expr,)), TensorType.of("bool"))
    x = normal(3)
    for backend, jit in ((NUMPY, False), (JAX, False), (JAX, True)):
        doubled, positive = run(backend, op, x, env={T: 3}, jit=jit)
        np.testing.assert_allclose(doubled, 2 * np.sin(x), rtol=1e-6)
        assert positive == (x.sum() > 0)


@each_backend
def test_host_udf_gets_and_gives_numpy(backend):
    seen, kept = [], np.zeros(2, np.float32)

    def host(x):
        seen.append(type(x))
        kept[:] = x
        x += 100  # its own copy
        return [kept]  # a buffer that it writes into again

    op = udf(host, TensorType.of("float32", 2), kind="host")
    operand = backend.to_device(array([1.0, 2.0]))
    (first,) = backend.kernel(op, [operand], {})
    (second,) = backend.kernel(op, [backend.to_device(array([3.0, 4.0]))], {})
    assert seen == [np.ndarray, np.ndarray]
    assert backend.to_host(first).tolist() == [1.0, 2.0] and backend.to_host(second).tolist() == [3.0, 4.0]
    assert backend.to_host(operand).tolist() == [1.0, 2.0]
    assert isinstance(first, jax.Array if backend is JAX else np.ndarray)


@each_backend
@pytest.mark.parametrize("kind", ["host", "jax"])
def test_what_a_udf_returns_is_checked(backend, kind):
    declared = TensorType("float32", (T.expr,))

    def call(returned):
        return backend.kernel(udf(lambda: returned, declared, kind=kind, name="noise"), [], {T: 2})

    good = np.zeros(2, np.float32)
    np.testing.assert_array_equal(backend.to_host(call((good,))[0]), good)
    with pytest.raises(ShapeError, match="`noise` returned 2 arrays, but is declared with 1"):
        call((good, good))
    with pytest.raises(ShapeError, match=r"`noise` returned an array, not a tuple[\s\S]*return \(value,\)"):
        call(good)
    with pytest.raises(
        ShapeError,
        match=r"`noise` returned as output 0 an array of shape \(3,\), but its declared type float32\[T\] needs the shape",
    ):
        call((np.zeros(3, np.float32),))
    with pytest.raises(DTypeError, match=r"`noise` returned as output 0 an array of dtype int32[\s\S]*dtype='float32'"):
        call((np.zeros(2, np.int32),))


def test_errors_inside_a_udf_are_the_users():
    with pytest.raises(
        FunctionError, match="raised RuntimeWarning: divide by zero"
    ) as raised:  # warnings of a user's function are not silenced, unlike those of Tempo's kernels
        NUMPY.kernel(udf(lambda x: (1 / x,), TensorType.of("float32"), kind="host"), [array(0.0)], {})
    assert isinstance(raised.value.__cause__, RuntimeWarning)


def test_vmapped():
    def scaled(x, y):
        return x * y[0], jnp.sum(y)

    inner = Vmapped(scaled, (0, None))
    outer = Vmapped(inner, (0, 0))
    x, y = normal(2, 3, 4), normal(2, 5)
    op = udf(outer, TensorType.of("float32", 2, 3, 4), TensorType.of("float32", 2, 3))
    for backend in BACKENDS:
        product, total = run(backend, op, x, y)
        np.testing.assert_allclose(product, x * y[:, 0, None, None], rtol=1e-6)
        np.testing.assert_allclose(total, np.repeat(y.sum(1)[:, None], 3, 1), rtol=1e-5)
    assert inner == Vmapped(scaled, (0, None)) and hash(inner) == hash(Vmapped(scaled, (0, None)))
    assert inner != Vmapped(scaled, (0, 0))
    assert outer.__name__ == "vmap(vmap(scaled))"


def test_traced_seeds_and_numbers_give_the_same():
    op = ops.Random("bits", 3, (T.expr,))
    (fixed,) = run(JAX, op, env={T: 4}, seed=7)
    (traced,) = jax.jit(lambda seed: JAX.kernel(op, [], {T: 4}, seed))(np.uint32(7))
    np.testing.assert_array_equal(fixed, np.asarray(traced))
    check(op, [], run(NUMPY, op, env={T: 4})[0], env={T: 4})
