"""The recurrent tensors that users hold: methods, operators, gradients, and errors where a tensor is used as an array."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

import tempo_core.frontend.functions as fn
from tempo_core.errors import ArgumentError, GradientError, MissingAttributeError, SymbolicValueError
from tempo_core.frontend.aliases import Axes, Shape, Value
from tempo_core.frontend.arguments import method
from tempo_core.frontend.autodiff import backward as autodiff
from tempo_core.frontend.base import BaseTensor, apply
from tempo_core.frontend.spatial import Spatial
from tempo_core.ir.ops import Identity
from tempo_core.symbolic.domain import Index, Point
from tempo_core.symbolic.expr import Expr, IntoExpr


class Tensor(BaseTensor, is_public=True):
    """A recurrent tensor: a value of type `dtype[shape]` at every point of its `domain`.

    Indexing with `[]` indexes the steps of the domain, in order: points (`t - 1`, `0`), slices (`t:T`), conditions
    (`i % 5 == 0`). A slice gives a leading spatial dimension. Spatial dimensions are indexed with `.index` and `.spatial`.
    Operands of operators broadcast; numbers take the tensor's dtype (`tp.promote`).
    """

    __array_priority__ = 1000  # with an array on the left, NumPy leaves the operator to the tensor

    def named(self, name: str) -> Tensor:
        """The same tensor under a name that plans, drawings and errors use."""
        if not isinstance(name, str):
            raise ArgumentError(f"{name!r} cannot name a tensor", hint='give a string: x.named("x")')
        self.context.graph.put(replace(self.node, name=name))
        return self

    @property
    def spatial(self) -> Spatial:
        """Indexes the dimensions, as NumPy does: `x.spatial[0]`, `x.spatial[:, 1:t]`, `x.spatial[..., None]`."""
        return Spatial(self)

    def materialized(self) -> Tensor:
        """This tensor as a node of its own, read at the node's own point."""
        source = self.node
        return self if self.edge.is_own_point(source.domain) else self._copy()

    # -- gradients ----------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor:
        """The gradient that `backward` computed. It has the tensor's shape, dtype and domain."""
        source = self.node
        key = (self.edge.source, self.edge.output)
        if key not in self.context.gradients:
            raise GradientError(
                f"{self!r} has no gradient",
                hint="call loss.backward() first: it gives gradients to inputs with requires_grad=True, and to recurrences without an "
                "update so far. For any other tensor: tp.grad(loss, [x])",
            )
        gradient = self.context.gradients[key]
        steps = self.edge.by_step(source.domain)
        return gradient[tuple(_as_key(steps[s]) for s in gradient.domain.steps)] if gradient.domain.steps else gradient

    @method
    def backward(self) -> None:
        """Differentiate the sum of this tensor over its points and elements. The gradients are then in `.grad` of the leaves; calls add up.

        Leaves are inputs with `requires_grad` and recurrences whose update is not assigned yet (parameters).
        """
        autodiff.backward(self)

    def detach(self) -> Tensor:
        """The same values, through which no gradient flows."""
        return apply(Identity(stop_gradient=True), self)

    # -- reductions and scans --------------------------------------------------------------------------------------------

    @method
    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`; narrow integers and bools are summed in 32 bits."""
        return fn.total(self, axis, keepdims)

    @method
    def prod(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The product over `axis`; narrow integers and bools are multiplied in 32 bits."""
        return fn.product(self, axis, keepdims)

    @method
    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The greatest element along `axis`; NaN if an element is NaN."""
        return fn.greatest(self, axis, keepdims)

    @method
    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The least element along `axis`; NaN if an element is NaN."""
        return fn.least(self, axis, keepdims)

    @method
    def any(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether any element along `axis` is not 0, as a bool."""
        return fn.any_of(self, axis, keepdims)

    @method
    def all(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether all elements along `axis` are not 0, as a bool."""
        return fn.all_of(self, axis, keepdims)

    @method
    def count_nonzero(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The number of elements that are not 0, as int32."""
        return fn.count_nonzero(self, axis, keepdims)

    @method
    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The mean over `axis`. A size that varies with a step is the divisor at each point."""
        return fn.mean(self, axis, keepdims)

    @method
    def var(self, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """The variance over `axis`: the mean squared distance from the mean; with `ddof=1`, the variance of a sample."""
        return fn.var(self, axis, keepdims, ddof)

    @method
    def std(self, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """The standard deviation over `axis`. Its gradient is 0 where it is 0."""
        return fn.std(self, axis, keepdims, ddof)

    @method
    def norm(self, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
        """The norm of vectors along `axis` (of all elements by default): `ord` 1, 2 or infinite. Its gradient is 0 at 0."""
        return fn.norm(self, axis, keepdims, ord)

    @method
    def argmax(self, axis: int = -1) -> Tensor:
        """The first position of the greatest element along `axis`, as int32. NaN counts as the greatest; without elements it is 0."""
        return fn.argmax(self, axis)

    @method
    def argmin(self, axis: int = -1) -> Tensor:
        """The first position of the least element along `axis`, as int32. NaN counts as the least; without elements it is 0."""
        return fn.argmin(self, axis)

    @method
    def argsort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """The positions that sort `x` along `axis`, as int32; equal elements stay in order, NaN comes last."""
        return fn.argsort(self, axis, descending)

    @method
    def softmax(self, axis: int = -1) -> Tensor:
        """`exp(x) / sum(exp(x))` along `axis`, without overflow."""
        return fn.softmax(self, axis)

    @method
    def log_softmax(self, axis: int = -1) -> Tensor:
        """`log(softmax(x))` along `axis`, without overflow."""
        return fn.log_softmax(self, axis)

    @method
    def logsumexp(self, axis: int = -1, keepdims: bool = False) -> Tensor:
        """`log(sum(exp(x)))` along `axis`, without overflow."""
        return fn.logsumexp(self, axis, keepdims)

    @method
    def cumsum(self, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative sum along `axis`; with `reverse`, of the suffixes."""
        return fn.cumsum(self, axis, reverse)

    @method
    def cumprod(self, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative product along `axis`; with `reverse`, of the suffixes. Once an element is 0, the products are 0, whatever the others are."""
        return fn.cumprod(self, axis, reverse)

    @method
    def cummax(self, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative maximum along `axis`; with `reverse`, of the suffixes. Of equal elements, the first has the gradient."""
        return fn.cummax(self, axis, reverse)

    @method
    def cummin(self, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative minimum along `axis`; with `reverse`, of the suffixes. Of equal elements, the first has the gradient."""
        return fn.cummin(self, axis, reverse)

    @method
    def discounted_sum(self, gamma: float, axis: int = 0) -> Tensor:
        """`x[0] + gamma * x[1] + gamma**2 * x[2] + ...` along `axis`."""
        return fn.discounted_sum(self, gamma, axis)

    # -- shapes ----------------------------------------------------------------------------------------------------------

    @method
    def reshape(self, *shape: Shape) -> Tensor:
        """The same elements in another shape; one size may be -1."""
        return fn.reshape(self, *shape)

    @method
    def flatten(self) -> Tensor:
        """All elements, in row-major order, along one axis."""
        return fn.flatten(self)

    @method
    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """`x` with its axes in the order of `axes`; reversed by default."""
        return fn.transpose(self, *axes)

    @method
    def swapaxes(self, first: int, second: int) -> Tensor:
        """`x` with two axes exchanged."""
        return fn.swapaxes(self, first, second)

    @method
    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """`x` with some axes moved to other places; the others keep their order."""
        return fn.moveaxis(self, source, destination)

    @method
    def expand_dims(self, axis: int) -> Tensor:
        """`x` with a new dimension of size 1 at `axis`."""
        return fn.expand_dims(self, axis)

    @method
    def squeeze(self, axis: Axes = None) -> Tensor:
        """`x` without the axes in `axis`, whose sizes are 1; by default without all axes of size 1."""
        return fn.squeeze(self, axis)

    @method
    def broadcast_to(self, shape: Shape) -> Tensor:
        """`x` repeated to `shape` by NumPy's rule."""
        return fn.broadcast_to(self, shape)

    @method
    def flip(self, axis: int | Sequence[int] = 0) -> Tensor:
        """The elements of an axis, or of several, in reverse order."""
        return fn.flip(self, axis)

    @method
    def split(self, parts: int | Sequence[IntoExpr], axis: int = 0) -> list[Tensor]:
        """`x` cut along `axis`: into `parts` equal parts, or at the positions in `parts`, which may be expressions."""
        return fn.split(self, parts, axis)

    @method
    def repeat(self, times: IntoExpr, axis: int | None = None) -> Tensor:
        """Each element `times` times in a row along `axis` (of all elements, flattened, by default)."""
        return fn.repeat(self, times, axis)

    @method
    def tile(self, times: Shape) -> Tensor:
        """The whole of `x` repeated along its last axes, with one number in `times` for each. More numbers than axes add axes in front."""
        return fn.tile(self, times)

    # -- elements --------------------------------------------------------------------------------------------------------

    @method
    def index(self, axis: int, position: Value) -> Tensor:
        """`x` at `position` along `axis`: an int, an expression of steps, or an int32 tensor (whose shape replaces the axis)."""
        return fn.index(self, axis, position)

    @method
    def take(self, indices: Value, axis: int = 0) -> Tensor:
        """`x[indices]` along `axis`: the shape of `indices` replaces the axis. A position outside of the axis reads its nearest end."""
        return fn.take(self, indices, axis)

    @method
    def take_along_axis(self, indices: Tensor, axis: int = -1) -> Tensor:
        """The elements at `indices` along `axis`, with separate positions for each place on the other axes.

        The other axes broadcast. `take_along_axis(x, argsort(x))` is `sort(x)`.
        """
        return fn.take_along_axis(self, indices, axis)

    @method
    def index_add(self, indices: Value, updates: Value, axis: int = 0) -> Tensor:
        """`x` with updates added at `indices` along `axis`.

        Updates for one position add up; an update outside of the axis is dropped. Updates broadcast to the shape of `take(x, indices, axis)`.
        """
        return fn.index_add(self, indices, updates, axis)

    @method
    def scatter(self, indices: Value, updates: Value, axis: int = 0) -> Tensor:
        """`x` with updates in place of the elements at `indices` along `axis`.

        The last update for a position counts; an update outside of the axis is dropped. Updates broadcast to the shape of `take(x, indices, axis)`.
        """
        return fn.scatter(self, indices, updates, axis)

    @method
    def one_hot(self, size: IntoExpr, dtype: str = "float32", axis: int = -1) -> Tensor:
        """Ones at the positions `x` along a new axis of `size` elements, the last by default. A position outside gives only zeros."""
        return fn.one_hot(self, size, dtype, axis)

    @method
    def roll(self, shift: IntoExpr, axis: int = 0) -> Tensor:
        """The elements of `axis` moved on by `shift` places (an int or an expression); those past the end come in at the start."""
        return fn.roll(self, shift, axis)

    @method
    def sort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """`x` sorted along `axis`, in ascending order by default; NaN comes last."""
        return fn.sort(self, axis, descending)

    @method
    def top_k(self, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
        """The `k` greatest elements along `axis`, greatest first, and their positions (int32). Equal elements keep their order."""
        return fn.top_k(self, k, axis)

    @method
    def median(self, axis: int = -1) -> Tensor:
        """The middle element along `axis` in sorted order, or the mean of the two middle elements. NaN counts as the greatest."""
        return fn.median(self, axis)

    @method
    def diagonal(self, offset: int = 0) -> Tensor:
        """The elements of the last two axes at which column - row is `offset`, as one last axis."""
        return fn.diagonal(self, offset)

    @method
    def trace(self, offset: int = 0) -> Tensor:
        """The sum of a diagonal of the last two axes."""
        return fn.trace(self, offset)

    @method
    def tril(self, offset: int = 0) -> Tensor:
        """The lower triangle of the last two axes, where column - row is at most `offset`; zeros above it."""
        return fn.tril(self, offset)

    @method
    def triu(self, offset: int = 0) -> Tensor:
        """The upper triangle of the last two axes, where column - row is at least `offset`; zeros below it."""
        return fn.triu(self, offset)

    # -- elementwise functions -------------------------------------------------------------------------------------------

    @method
    def astype(self, dtype: str) -> Tensor:
        """`x` converted to `dtype`.

        A float becomes an integer by rounding towards zero; a float out of range becomes the nearest integer in the range, NaN becomes
        0. Integers wrap around. A float becomes a narrower float by rounding to the nearest, or infinite. As bools, all numbers but 0
        are True, and so is NaN.
        """
        return fn.cast(self, dtype)

    @method
    def abs(self) -> Tensor:
        """`|x|`, elementwise."""
        return fn.absolute(self)

    @method
    def round(self) -> Tensor:
        """The nearest whole number, as a float; halfway between two, the even one."""
        return fn.rounded(self)

    @method
    def clip(self, low: Value | None = None, high: Value | None = None) -> Tensor:
        """`x` limited to the range from `low` to `high`; either end may be left out."""
        return fn.clip(self, low, high)

    @method
    def exp(self) -> Tensor:
        """`e ** x`, elementwise."""
        return fn.exp(self)

    @method
    def expm1(self) -> Tensor:
        """`exp(x) - 1`, precise near 0."""
        return fn.expm1(self)

    @method
    def log(self) -> Tensor:
        """The natural logarithm, elementwise."""
        return fn.log(self)

    @method
    def log1p(self) -> Tensor:
        """`log(1 + x)`, precise near 0."""
        return fn.log1p(self)

    @method
    def sqrt(self) -> Tensor:
        """The square root, elementwise."""
        return fn.sqrt(self)

    @method
    def rsqrt(self) -> Tensor:
        """`1 / sqrt(x)`, elementwise."""
        return fn.rsqrt(self)

    @method
    def square(self) -> Tensor:
        """`x * x`."""
        return fn.square(self)

    @method
    def reciprocal(self) -> Tensor:
        """`1 / x`."""
        return fn.reciprocal(self)

    @method
    def sigmoid(self) -> Tensor:
        """`1 / (1 + exp(-x))`, elementwise."""
        return fn.sigmoid(self)

    @method
    def tanh(self) -> Tensor:
        """The hyperbolic tangent, elementwise."""
        return fn.tanh(self)

    @method
    def erf(self) -> Tensor:
        """The error function, elementwise."""
        return fn.erf(self)

    @method
    def sin(self) -> Tensor:
        """The sine of radians, elementwise."""
        return fn.sin(self)

    @method
    def cos(self) -> Tensor:
        """The cosine of radians, elementwise."""
        return fn.cos(self)

    @method
    def sign(self) -> Tensor:
        """-1, 0 or 1, elementwise."""
        return fn.sign(self)

    @method
    def floor(self) -> Tensor:
        """The greatest whole number that is not above `x`, as a float."""
        return fn.floor(self)

    @method
    def ceil(self) -> Tensor:
        """The least whole number that is not below `x`, as a float."""
        return fn.ceil(self)

    @method
    def trunc(self) -> Tensor:
        """`x` without its fraction, as a float."""
        return fn.trunc(self)

    @method
    def isfinite(self) -> Tensor:
        """Whether each element is neither infinite nor NaN, as a bool."""
        return fn.isfinite(self)

    @method
    def isinf(self) -> Tensor:
        """Whether each element is infinite, as a bool."""
        return fn.isinf(self)

    @method
    def isnan(self) -> Tensor:
        """Whether each element is NaN, as a bool."""
        return fn.isnan(self)

    @method
    def relu(self) -> Tensor:
        """`max(x, 0)`. Its gradient at 0 is 0."""
        return fn.relu(self)

    @method
    def silu(self) -> Tensor:
        """`x * sigmoid(x)` (Elfwing et al., 2018)."""
        return fn.silu(self)

    @method
    def softplus(self) -> Tensor:
        """`log(1 + exp(x))`, without overflow."""
        return fn.softplus(self)

    @method
    def gelu(self, approximate: bool = False) -> Tensor:
        """GELU (Hendrycks and Gimpel, 2016): `x * Φ(x)`, exactly, or by the tanh formula of the paper."""
        return fn.gelu(self, approximate)

    # -- operators -------------------------------------------------------------------------------------------------------

    def __add__(self, other: Value) -> Tensor:
        return fn.add(self, other)

    def __radd__(self, other: Value) -> Tensor:
        return fn.add(other, self)

    def __sub__(self, other: Value) -> Tensor:
        return fn.sub(self, other)

    def __rsub__(self, other: Value) -> Tensor:
        return fn.sub(other, self)

    def __mul__(self, other: Value) -> Tensor:
        return fn.mul(self, other)

    def __rmul__(self, other: Value) -> Tensor:
        return fn.mul(other, self)

    def __truediv__(self, other: Value) -> Tensor:
        return fn.div(self, other)

    def __rtruediv__(self, other: Value) -> Tensor:
        return fn.div(other, self)

    def __floordiv__(self, other: Value) -> Tensor:
        return fn.floordiv(self, other)

    def __rfloordiv__(self, other: Value) -> Tensor:
        return fn.floordiv(other, self)

    def __mod__(self, other: Value) -> Tensor:
        return fn.mod(self, other)

    def __rmod__(self, other: Value) -> Tensor:
        return fn.mod(other, self)

    def __pow__(self, other: Value) -> Tensor:
        return fn.power(self, other)

    def __rpow__(self, other: Value) -> Tensor:
        return fn.power(other, self)

    def __matmul__(self, other: Value) -> Tensor:
        return fn.matmul(self, other)

    def __rmatmul__(self, other: Value) -> Tensor:
        return fn.matmul(other, self)

    def __and__(self, other: Value) -> Tensor:
        return fn.bitwise_and(self, other)

    def __rand__(self, other: Value) -> Tensor:
        return fn.bitwise_and(other, self)

    def __or__(self, other: Value) -> Tensor:
        return fn.bitwise_or(self, other)

    def __ror__(self, other: Value) -> Tensor:
        return fn.bitwise_or(other, self)

    def __xor__(self, other: Value) -> Tensor:
        return fn.bitwise_xor(self, other)

    def __rxor__(self, other: Value) -> Tensor:
        return fn.bitwise_xor(other, self)

    def __lt__(self, other: Value) -> Tensor:
        return fn.less(self, other)

    def __le__(self, other: Value) -> Tensor:
        return fn.less_equal(self, other)

    def __gt__(self, other: Value) -> Tensor:
        return fn.greater(self, other)

    def __ge__(self, other: Value) -> Tensor:
        return fn.greater_equal(self, other)

    def __eq__(self, other: Value) -> Tensor:  # type: ignore[override]
        return fn.equal(self, other)

    def __ne__(self, other: Value) -> Tensor:  # type: ignore[override]
        return fn.not_equal(self, other)

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Tensor:
        return fn.neg(self)

    def __abs__(self) -> Tensor:
        return fn.absolute(self)

    def __invert__(self) -> Tensor:
        return fn.bitwise_not(self)

    def __pos__(self) -> Tensor:
        return self

    # -- errors for uses as an array -------------------------------------------------------------------------------------

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            near = difflib.get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], 1)
            hint = _ELSEWHERE.get(name) or (f"did you mean .{near[0]}?" if near else "docs/language.md lists what tensors have")
            raise MissingAttributeError(f"{self!r} has no attribute `{name}`", hint=hint)

    def _value(self, *_: object, **__: object) -> NoReturn:
        raise SymbolicValueError(
            f"{self!r} has no value while the program is built",
            hint="to pass values to your own function: tp.udf, tp.sink. To get its values, run the program: ctx.run({T: 10}, outputs=[x])",
        )

    if not TYPE_CHECKING:  # for type checkers, a tensor is not a number, not an array, and not iterable
        __array__ = __float__ = __int__ = __index__ = __complex__ = _value

        def __iter__(self) -> NoReturn:
            raise SymbolicValueError(
                f"cannot iterate over {self!r}",
                hint="to read one timestep: x[0]. To read one element of a dimension: x.index(0, i)",
            )

        def __len__(self) -> NoReturn:
            raise SymbolicValueError(f"the length of {self!r} may be symbolic", hint="read the size of a dimension: x.shape[0]")

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **keywords: Any) -> Tensor:
        """Operators with an array on the left, such as `array + x`. Other functions of NumPy raise an ArgumentError."""
        operator = _OPERATORS.get(ufunc.__name__)
        if how == "__call__" and operator is not None and not keywords and len(inputs) == 2:
            left, right = inputs
            if isinstance(left, Tensor):
                return getattr(left, f"__{operator}__")(right)
            return getattr(right, f"__{_MIRRORED.get(operator, 'r' + operator)}__")(left)
        raise self._refusal(ufunc.__name__)

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        raise self._refusal(function.__name__)

    def _refusal(self, function: str) -> ArgumentError:
        return ArgumentError(
            f"np.{function} takes arrays, not {self!r}",
            hint=f"use the function of Tempo: tp.{_TEMPO_NAMES.get(function, function)}(x)",
        )

    def __bool__(self) -> NoReturn:
        raise SymbolicValueError(
            f"{self!r} has no truth value while the program is built",
            hint="to choose by value: tp.where(x > 0, a, b). To choose by timestep: x[t > 0]",
        )


def _as_key(index: Index) -> Expr | slice[Expr, Expr, int]:
    return index.expr if isinstance(index, Point) else slice(index.start, index.stop, index.stride)


_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "true_divide": "truediv", "floor_divide": "floordiv",
    "remainder": "mod", "power": "pow", "matmul": "matmul", "bitwise_and": "and", "bitwise_or": "or",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}  # a < x is x > a
_TEMPO_NAMES = {"absolute": "abs", "amax": "max", "amin": "min"}
_RUN = "a tensor has values only in a run: ctx.run({T: 10}, outputs=[x])"
_ELSEWHERE = {
    "numpy": _RUN, "item": _RUN, "tolist": _RUN, "cpu": _RUN, "data": _RUN, "T": "write x.transpose()", "view": "write x.reshape(...)",
    "permute": "write x.transpose(1, 0)", "unsqueeze": "write x.expand_dims(axis)", "size": "write x.shape", "dim": "write x.rank",
    "to": "write x.astype(dtype)",
    "float": 'write x.astype("float32")', "int": 'write x.astype("int32")',
    "at": "write x.index_add(positions, updates) or x.scatter(positions, updates)",
    "requires_grad": "mark an input: tp.input(..., requires_grad=True). For any other tensor: tp.grad(loss, [x])",
    "clone": "a tensor never changes, so a copy is not needed: y = x", "copy": "a tensor never changes, so a copy is not needed: y = x",
}  # fmt: skip
