"""The table of functions of floats: JAX's function of the same meaning, the special points, the operand that the fuzzer draws.

`SMOOTH` has a row for each public function of floats. At the special points (0, ties, the ends of the domain, infinities, very large and very
small numbers) the value and the first three derivatives are compared with JAX's (`test_points.py`). If JAX is wrong at a point, the point
has the right value and the reason. From the same row come the comparison over a step, compiled (`test_functions.py`), that of the kernels in every
float dtype (`backends/test_elementwise.py`), and the programs of the fuzzer. A new function needs a row, or a reason in `NOT_SMOOTH`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

import tempo_core as tp
from tempo_core.ir import ops

INF, R2 = float("inf"), 2**0.5
ANY = None  # an element of a derivative that is not compared


@dataclass(frozen=True)
class Point:
    """A point of a comparison: a number for each operand, or the elements of a reduction's operand.

    If JAX is wrong, `right` has the right derivatives by order (0 is the value), flattened, and `why` the reason. Orders in `nowhere` are
    not compared: these derivatives do not exist, and there is no convention for them.
    """

    at: tuple[float, ...]
    right: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    why: str = ""
    nowhere: tuple[int, ...] = ()


@dataclass(frozen=True)
class Smooth:
    """A function of one tensor or two, elementwise, or of vectors along the last axis; and JAX's function of the same meaning.

    `of` is an operand from which a function of one number gives moderate numbers with moderate slopes, for all numbers `{x}`: for the fuzzer.
    """

    name: str
    ours: Callable[..., tp.Tensor]
    jax: Callable[..., Any]
    points: tuple[Point, ...]
    vector: bool = False
    of: str = "{x}"

    @property
    def operands(self) -> int:
        return 1 if self.vector else len(self.points[0].at)

    @functools.cached_property
    def op(self) -> ops.Op | None:
        """The op of an elementwise function that is one op."""
        with tp.Context("t"):
            operands = [tp.input(f"x{k}", ()) for k in range(self.operands)]
            node = None if self.vector else self.ours(*operands).node
        is_one = node is not None and [edge.source for edge in node.inputs] == [x.edge.source for x in operands]
        return node.op if node is not None and is_one else None


def at(*values: float, right: dict[int, Any] | None = None, why: str = "", nowhere: tuple[int, ...] = ()) -> Point:
    lists = {order: tuple(v) if isinstance(v, (tuple, list)) else (v,) for order, v in (right or {}).items()}
    return Point(values, lists, why, nowhere)


def each(*values: float) -> tuple[Point, ...]:
    return tuple(Point((v,)) for v in values)


def row(name: str, ours: Callable[..., tp.Tensor], theirs: Callable[..., Any], *points: Point, **options: Any) -> Smooth:
    return Smooth(name, ours, theirs, points, **options)


def vector(name: str, ours: Callable[..., tp.Tensor], theirs: Callable[..., Any], *points: Point, **options: Any) -> Smooth:
    return Smooth(name, ours, theirs, points, vector=True, **options)


NOWHERE_SMOOTH = (
    "it has no derivative there: 0 is within the slopes on all sides, and where a minimum lies it is what a user wants"
)
NOUGHT = "JAX multiplies 0 by a power of 0 that is infinite; a whole power of x has whole derivatives, and 0 to any power does not vary with it"
NEGATIVE = "a negative base has whole powers only, which do not vary: their derivative by the exponent is 0 here, NaN in JAX"
VANISHES = "0 times infinity in JAX: the derivative has the limit 0"
GATED = "0 times infinity in JAX: the function is 0 on the left and x on the right, up to what no float holds"
CONSTANT = "infinite whatever changes a little: NaN in JAX"
SHARED = "of equals, each has the same share; the shares sum to 1, as they do elsewhere"
REPLACED = "JAX takes 0 for inf in its derivative, so that the other operand has e**y; the derivatives are 1 and 0"
POLE = "0 times infinity in JAX"
KINK = "it has no derivative there: the slope on the left here, as relu has in both; the one on the right in JAX"
ANGLE = "an angle has no derivative at 0, nor a limit of it: 0 here, as hypot has, NaN in JAX"
EITHER = "a larger and a smaller one are told apart in JAX by functions with a kink at ties and at 0; the function itself is smooth there"

FLAT, NIL_OF_TWO = {2: (0,) * 3, 3: (0,) * 3}, {2: (0,) * 4, 3: (0,) * 4}  # of vectors; of functions of two operands
NIL = {1: (0,) * 3, **FLAT}

NONZERO = each(1.0, -1.0, 0.3, -2.5, 1e-20, -1e-20)
USUAL = (*each(0.0, -0.0), *NONZERO)
ENDS = each(INF, -INF)
FLAT_ENDS = (at(INF, right={2: 0, 3: 0}, why=VANISHES), at(-INF, right={2: 0, 3: 0}, why=VANISHES))
GATED_ENDS = (at(INF, right={1: 1, 2: 0, 3: 0}, why=GATED), at(-INF, right={0: 0, 1: 0, 2: 0, 3: 0}, why=GATED))
NEAR_ONE = each(1 - 2.0**-20, 2.0**-20 - 1)
FAR = each(30.0, -30.0, 1e4, -1e4)
HUGE = each(1e15, -1e15)
AROUND = (
    at(0.0, 0.0),
    at(1.0, 1.0),
    at(-2.0, -2.0),
    at(3.0, 0.0),
    at(0.0, 3.0),
    at(-3.0, 0.0),
    at(0.0, -3.0),
    at(0.5, -1.5),
    at(2.0, 1e-10),
)

ROWS: tuple[Smooth, ...] = (
    # -- arithmetic ---------------------------------------------------------------------------------------------------
    row("abs", tp.abs, jnp.abs, at(0.0, right={1: 0}, why=NOWHERE_SMOOTH), at(-0.0, right={1: 0}, why=NOWHERE_SMOOTH), *NONZERO, *FAR,
        *ENDS),
    row("negative", tp.negative, jnp.negative, *USUAL, *ENDS),
    row("square", tp.square, jnp.square, *USUAL, *FAR, *ENDS),
    row("reciprocal", tp.reciprocal, jnp.reciprocal, *USUAL, *FAR, *ENDS, of="{x} * {x} + 1"),
    row("sqrt", tp.sqrt, jnp.sqrt, *each(0.0, 1.0, 4.0, 1e-10, 1e15, -1.0, INF), of="{x} * {x} + 1"),
    row("rsqrt", tp.rsqrt, jax.lax.rsqrt, *each(1.0, 4.0, 1e-5, 1e10, -1.0, 0.0, INF), of="tp.square({x}) + 0.5"),
    row("sign", tp.sign, jnp.sign, *USUAL, *ENDS),
    row("floor", tp.floor, jnp.floor, *USUAL, *ENDS, of="{x} * 1.7"),
    row("ceil", tp.ceil, jnp.ceil, *USUAL, *ENDS, of="{x} * 1.3"),
    row("round", tp.round, jnp.round, *USUAL, *each(0.5, 1.5, -0.5), *ENDS, of="{x} * 1.3"),
    row("trunc", tp.trunc, jnp.trunc, *USUAL, *ENDS, of="{x} * 2"),
    row("nan_to_num", tp.nan_to_num, jnp.nan_to_num, *USUAL, *FAR, of="{x} / {x}"),
    row("clip", lambda x: tp.clip(x, -1, 1), lambda x: jnp.clip(x, -1, 1), *USUAL, *ENDS),
    row("add", tp.add, jnp.add, *AROUND, at(INF, 1.0)),
    row("subtract", tp.subtract, jnp.subtract, *AROUND, at(INF, 1.0)),
    row("multiply", tp.multiply, jnp.multiply, *AROUND, at(1e10, 1e10), at(1e-10, 1e-10)),
    row("divide", tp.divide, jnp.divide, at(1.0, 2.0), at(0.0, 3.0), at(-3.0, -1.0), at(1.0, 0.0), at(0.0, 0.0), at(1e8, 1e8),
        at(1e-8, 1e-8)),
    row("power", tp.power, jnp.power, at(2.0, 3.0), at(2.0, 0.5), at(0.5, -1.5), at(2.0, 0.0), at(2.0, 1.0), at(2.0, 2.0), at(1.0, 1.0),
        at(1e-10, 2.0), at(1e10, 0.5), at(INF, 0.0, nowhere=(2, 3)),
        at(0.0, 3.0), at(0.0, 2.0, right={3: (0, 3, 0, 0)}, why=NOUGHT),
        at(0.0, 1.0, right={2: (0, 1, 0, 0), 3: (0, ANY, 0, 0)}, why=NOUGHT),
        at(0.0, 0.0, right={1: (0, 0), 2: (0, ANY, ANY, 0), 3: (0, ANY, ANY, 0)}, why=NOUGHT),
        at(0.0, 0.5, right={2: (-INF, ANY, ANY, 0), 3: (INF, ANY, ANY, 0)}, why=NOUGHT),
        at(0.0, -1.0, right={1: (-INF, 0), 2: (INF, ANY, ANY, 0), 3: (-INF, ANY, ANY, 0)}, why=NOUGHT),
        at(-2.0, 2.0, right={1: (-4, 0), 2: (2, ANY, ANY, 0), 3: (0, ANY, ANY, 0)}, why=NEGATIVE),
        at(-2.0, 3.0, right={1: (12, 0), 2: (-12, ANY, ANY, 0), 3: (6, ANY, ANY, 0)}, why=NEGATIVE)),
    *(row(f"power of {n}", lambda x, n=n: x**n, lambda x, n=n: x**n, *USUAL) for n in (0, 1, 2, 3, -1)),
    row("power of 0.5", lambda x: x**0.5, lambda x: x**0.5, *each(0.0, 1.0, 4.0, 1e-10, 1e15)),
    row("maximum", tp.maximum, jnp.maximum, *AROUND, at(INF, 1.0), at(-INF, 1.0)),
    row("minimum", tp.minimum, jnp.minimum, *AROUND, at(INF, 1.0), at(-INF, 1.0)),
    row("remainder", tp.remainder, jnp.remainder, at(5.0, 3.0), at(-5.0, 3.0), at(5.5, -2.0), at(0.0, 3.0)),
    row("floor_divide", tp.floor_divide, jnp.floor_divide, at(5.0, 3.0), at(-5.0, 3.0), at(5.5, -2.0), at(0.0, 3.0)),
    row("hypot", tp.hypot, jnp.hypot, at(0.0, 0.0, right={1: (0, 0), **NIL_OF_TWO}, why=NOWHERE_SMOOTH), at(0.5, -1.5), at(2.0, 1e-10),
        at(1.0, 1.0, right={2: (1 / R2**3, -1 / R2**3, -1 / R2**3, 1 / R2**3), 3: (-3 / R2**5, 1 / R2**5, 1 / R2**5, -3 / R2**5)}, why=EITHER),
        at(3.0, 0.0, right={2: (0, 0, 0, 1 / 3), 3: (0, 0, -1 / 9, 0)}, why=EITHER),
        at(0.0, 3.0, right={2: (1 / 3, 0, 0, 0), 3: (0, -1 / 9, 0, 0)}, why=EITHER),
        at(-3.0, 0.0, right={2: (0, 0, 0, 1 / 3), 3: (0, 0, 1 / 9, 0)}, why=EITHER),
        at(2.0, -0.0, right={2: (0, 0, 0, 0.5), 3: (0, 0, -0.25, 0)}, why=EITHER),
        at(1e15, 1e15),
        at(1e-10, 1e-10, right={2: (1e10 / R2**3, -1e10 / R2**3, -1e10 / R2**3, 1e10 / R2**3),
        3: (-3e20 / R2**5, 1e20 / R2**5, 1e20 / R2**5, -3e20 / R2**5)}, why=EITHER),
        at(INF, 1.0, right={1: (1, 0), **NIL_OF_TWO}, why=VANISHES), at(1.0, -INF, right={1: (0, -1), **NIL_OF_TWO}, why=VANISHES),
        at(INF, INF, nowhere=(1, 2, 3))),
    row("where", lambda x, y: tp.where(x > y, x * x, y * y * y), lambda x, y: jnp.where(x > y, x * x, y * y * y), *AROUND),
    # -- exponentials -------------------------------------------------------------------------------------------------
    row("exp", tp.exp, jnp.exp, *USUAL, *FAR, *ENDS, of="-{x} * {x}"),
    row("exp2", tp.exp2, jnp.exp2, *USUAL, *FAR, *ENDS, of="tp.sin({x})"),
    row("expm1", tp.expm1, jnp.expm1, *USUAL, *FAR, *ENDS, of="tp.tanh({x})"),
    row("log", tp.log, jnp.log, *each(0.0, 1.0, 0.5, 1e-10, 1e10, INF), of="{x} * {x} + 0.5"),
    row("log1p", tp.log1p, jnp.log1p, *each(0.0, -0.0, 1e-20, -1.0, -0.5, 3.0, 1e10, INF), of="{x} * {x}"),
    row("log2", tp.log2, jnp.log2, *each(0.0, 1.0, 0.5, 1e-10, 1e10, INF), of="{x} * {x} + 1"),
    row("log10", tp.log10, jnp.log10, *each(0.0, 1.0, 0.5, 1e-10, 1e10, INF), of="{x} * {x} + 0.5"),
    row("logaddexp", tp.logaddexp, jnp.logaddexp, *AROUND, at(100.0, -100.0), at(1e4, 1e4), at(-1e15, 1e15), at(-INF, 1.0),
        at(1.0, -INF), at(INF, -INF),
        at(INF, 1.0, right={1: (1, 0), **NIL_OF_TWO}, why=REPLACED), at(1.0, INF, right={1: (0, 1), **NIL_OF_TWO}, why=REPLACED),
        at(-INF, -INF, right={1: (0.5, 0.5), **NIL_OF_TWO}, why=SHARED), at(INF, INF, right={1: (0.5, 0.5)}, why=SHARED)),
    row("erf", tp.erf, jax.lax.erf, *USUAL, *FAR, *FLAT_ENDS),
    # -- trigonometry -------------------------------------------------------------------------------------------------
    row("sin", tp.sin, jnp.sin, *USUAL),
    row("cos", tp.cos, jnp.cos, *USUAL),
    row("tan", tp.tan, jnp.tan, *USUAL, of="tp.tanh({x})"),
    row("arcsin", tp.arcsin, jnp.arcsin, *USUAL, *NEAR_ONE, of="tp.tanh({x}) * 0.9"),
    row("arccos", tp.arccos, jnp.arccos, *USUAL, *NEAR_ONE, of="tp.sin({x}) * 0.9"),
    row("arctan", tp.arctan, jnp.arctan, *USUAL, *FAR, *HUGE, *FLAT_ENDS),
    row("arctan2", tp.arctan2, jnp.arctan2, *AROUND[1:],
        at(0.0, 0.0, right={1: (0, 0), **NIL_OF_TWO}, why=ANGLE),
        at(1e15, 1e15), at(1e-12, 1e-12), at(0.0, -1.0), at(-0.0, -1.0), at(INF, 1.0, right={1: (0, 0), **NIL_OF_TWO}, why=VANISHES),
        at(1.0, INF, right={1: (0, 0), **NIL_OF_TWO}, why=VANISHES)),
    row("sinh", tp.sinh, jnp.sinh, *USUAL, *FAR, *ENDS, of="tp.tanh({x})"),
    row("cosh", tp.cosh, jnp.cosh, *USUAL, *FAR, *ENDS, of="tp.sin({x})"),
    row("tanh", tp.tanh, jnp.tanh, *USUAL, *FAR, *ENDS),
    row("arcsinh", tp.arcsinh, jnp.arcsinh, *USUAL, *FAR, *HUGE, *FLAT_ENDS),
    row("arccosh", tp.arccosh, jnp.arccosh, at(1.0, right={3: INF}, why="infinity less infinity in JAX"),
        *each(1 + 2.0**-20, 1.5, 3.0, 1e10, 1e15), FLAT_ENDS[0], of="{x} * {x} + 1.5"),
    row("arctanh", tp.arctanh, jnp.arctanh, *each(0.0, -0.0, 0.3, -0.5, 1e-20), *NEAR_ONE, at(1.0, right={2: INF, 3: INF}, why=POLE),
        at(-1.0, right={2: -INF, 3: INF}, why=POLE), of="tp.sin({x}) * 0.8"),
    # -- activations --------------------------------------------------------------------------------------------------
    row("relu", tp.relu, jax.nn.relu, *USUAL, *FAR, *ENDS),
    row("leaky_relu", tp.leaky_relu, jax.nn.leaky_relu, at(0.0, right={1: 0.01}, why=KINK), at(-0.0, right={1: 0.01}, why=KINK),
        *NONZERO, *FAR, *ENDS),
    row("elu", tp.elu, jax.nn.elu, *USUAL, *FAR, *ENDS),
    row("silu", tp.silu, jax.nn.silu, *USUAL, *FAR, *HUGE, *GATED_ENDS),
    row("sigmoid", tp.sigmoid, jax.nn.sigmoid, *USUAL, *FAR, *ENDS),
    row("softplus", tp.softplus, jax.nn.softplus, *USUAL, *FAR, *ENDS),
    row("log_sigmoid", tp.log_sigmoid, jax.nn.log_sigmoid, *USUAL, *FAR, *ENDS),
    row("gelu", tp.gelu, lambda x: jax.nn.gelu(x, approximate=False), *USUAL, *FAR, *HUGE, *GATED_ENDS),
    row("gelu, approximate", lambda x: tp.gelu(x, approximate=True), lambda x: jax.nn.gelu(x, approximate=True), *USUAL, *FAR, *HUGE, *GATED_ENDS),
    # -- reductions and scans of three elements ---------------------------------------------------------------------------
    *(
        vector(name, ours, theirs, at(1.0, 2.0, -3.0), at(0.0, 0.0, 0.0), at(2.0, 2.0, 2.0), at(0.0, 1.0, 0.0), at(1e10, -1e10, 1.0),
        at(1e-10, 0.0, -1e-10))
        for name, ours, theirs in (
            ("sum", lambda x: x.sum(-1), lambda x: x.sum(-1)),
            ("mean", lambda x: tp.mean(x, -1), lambda x: x.mean(-1)),
            ("var", lambda x: tp.var(x, -1), lambda x: x.var(-1)),
            ("prod", lambda x: tp.prod(x, -1), lambda x: x.prod(-1)),
            ("cumsum", lambda x: tp.cumsum(x, -1), lambda x: x.cumsum(-1)),
            ("cumprod", lambda x: tp.cumprod(x, -1), lambda x: x.cumprod(-1)),
            ("discounted_sum", lambda x: tp.discounted_sum(x, 0.5, -1), lambda x: x @ jnp.asarray([1, 0.5, 0.25], x.dtype)),
        )
    ),
    vector("std", lambda x: tp.std(x, -1), lambda x: x.std(-1), at(1.0, 2.0, -3.0), at(0.0, 1.0, 0.0),
        at(2.0, 2.0, 2.0, right=NIL, why=NOWHERE_SMOOTH), at(0.0, 0.0, 0.0, right=NIL, why=NOWHERE_SMOOTH)),
    vector("norm", lambda x: tp.norm(x, -1), lambda x: jnp.linalg.norm(x, axis=-1), at(1.0, 2.0, -3.0), at(0.0, 1.0, 0.0),
        at(0.0, 0.0, 0.0, right=NIL, why=NOWHERE_SMOOTH), at(1e8, 1.0, -1e8), at(1e-8, 0.0, 1e-8)),
    vector("norm of order 1", lambda x: tp.norm(x, -1, ord=1), lambda x: jnp.linalg.norm(x, ord=1, axis=-1), at(1.0, 2.0, -3.0),
        at(0.0, 1.0, 0.0, right={1: (0, 1, 0)}, why=NOWHERE_SMOOTH)),
    vector("max", lambda x: x.max(-1), lambda x: x.max(-1), at(1.0, 2.0, -3.0), at(0.0, 1.0, 1.0), at(2.0, 2.0, 2.0), at(1.0, INF, 0.0),
        at(-INF, -INF, 0.0)),
    vector("min", lambda x: x.min(-1), lambda x: x.min(-1), at(1.0, 2.0, -3.0), at(0.0, 0.0, 1.0), at(2.0, 2.0, 2.0), at(1.0, INF, 0.0),
        at(-INF, 2.0, 0.0)),
    vector("median", lambda x: tp.median(x, -1), lambda x: jnp.median(x, axis=-1), at(1.0, 2.0, -3.0), at(0.5, 0.25, 1e10)),
    vector("cummax", lambda x: tp.cummax(x, -1), lambda x: jax.lax.cummax(x, x.ndim - 1), at(1.0, 2.0, -3.0), at(0.0, 0.5, 1.0)),
    vector("cummin", lambda x: tp.cummin(x, -1), lambda x: jax.lax.cummin(x, x.ndim - 1), at(1.0, 2.0, -3.0), at(0.0, -0.5, -1.0)),
    vector("linear_scan", lambda x: tp.linear_scan(x, x * x, -1), lambda x: _scanned(x, x * x), at(1.0, 2.0, -3.0), at(0.0, 0.0, 0.0),
        at(0.0, 1.0, 0.0)),
    vector("softmax", lambda x: tp.softmax(x, -1), lambda x: jax.nn.softmax(x, -1), at(1.0, 2.0, -3.0), at(2.0, 2.0, 2.0),
        at(1e4, 0.0, -1e4), at(1.0, -INF, 0.0), at(-INF, -INF, 0.0), at(-INF, -INF, -INF), at(INF, 0.0, 1.0)),
    vector("log_softmax", lambda x: tp.log_softmax(x, -1), lambda x: jax.nn.log_softmax(x, -1), at(1.0, 2.0, -3.0), at(2.0, 2.0, 2.0),
        at(1e4, 0.0, -1e4), at(1.0, -INF, 0.0), at(-INF, -INF, 0.0), at(-INF, -INF, -INF), at(INF, 0.0, 1.0)),
    vector("logsumexp", lambda x: tp.logsumexp(x, -1), lambda x: jax.nn.logsumexp(x, -1), at(1.0, 2.0, -3.0), at(2.0, 2.0, 2.0),
        at(1e4, 0.0, -1e4), at(1.0, -INF, 0.0), at(-INF, -INF, 0.0),
        *(at(*x, right=NIL, why=CONSTANT) for x in ((-INF, -INF, -INF), (INF, 0.0, 1.0), (INF, INF, 0.0), (INF, -INF, 0.0)))),
)  # fmt: skip


def _scanned(c: Any, b: Any) -> Any:
    parts: list[Any] = []
    for k in range(c.shape[-1]):
        parts.append(b[..., k] + (c[..., k] * parts[-1] if parts else 0))
    return jnp.stack(parts, -1)


SMOOTH: dict[str, Smooth] = {each_row.name: each_row for each_row in ROWS}
OF_ONE_NUMBER = {
    name: each_row for name, each_row in SMOOTH.items() if each_row.operands == 1 and not each_row.vector and name.isidentifier()
}

NOT_SMOOTH: dict[str, str] = {  # public functions without a row, and why
    **dict.fromkeys(
        (
            "arange", "broadcast_to", "concatenate", "constant", "diagonal", "expand_dims", "eye", "flatten", "flip", "full", "full_like",
            "index_add", "moveaxis", "one_hot", "ones", "ones_like", "pad", "repeat", "reshape", "roll", "scatter", "scatter_add", "segment_max",
            "segment_min", "segment_prod", "segment_sum", "sort", "split", "squeeze", "stack", "swapaxes", "take", "take_along_axis",
            "take_along_last", "tile", "top_k", "trace", "transpose", "tril", "triu",
            "zeros", "zeros_like",
        ),
        "it moves elements, or adds them up: its derivative is the same everywhere (test_op_gradients.py)",
    ),
    "carry": "it declares a recurrence: what it carries has its derivative (test_carry.py)",
    **dict.fromkeys(
        ("conv", "einsum", "inner", "matmul", "outer", "tensordot"),
        "it is linear in each operand: its derivative has no special points (test_op_gradients.py)",
    ),
    **dict.fromkeys(
        (
            "all", "any", "argmax", "argmin", "argsort", "bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "count_nonzero",
            "equal", "greater", "greater_equal", "histogram", "isclose", "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and", "logical_not",
            "logical_or", "logical_xor", "not_equal", "searchsorted",
        ),
        "its results are bools or integers",
    ),
    **dict.fromkeys(("grad", "input", "promote", "recurrence", "sink", "spec", "stop_gradient", "udf", "upto", "use_cpu_devices"),
        "it is not a function of numbers"),
}  # fmt: skip
