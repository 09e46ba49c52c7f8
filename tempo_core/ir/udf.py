"""User-defined functions as values: the functions that passes derive from them stay hashable and comparable."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tempo_core.errors import DTypeError, ShapeError


@dataclass(frozen=True)
class Fed:
    """The function of a streamed input: the values under `name` in a run's inputs, one per point, in the order of the points.

    It cannot be called: the runtime takes the values from the run's inputs. If they are fed `in_parts`, many points at a time go to the
    device, in any order (`runtime/staged/swapping.py`).
    """

    name: str
    in_parts: bool = False

    def __call__(self, *operands: Any) -> Any:
        raise AssertionError(f"the runtime feeds the streamed input `{self.name}`")

    @property
    def __name__(self) -> str:
        return f"fed({self.name})"


@dataclass(frozen=True)
class Library:
    """A function of arrays of a library, by its name (`jax.numpy.linalg.solve`), with options. It returns a tuple of arrays.

    A function of complex numbers, which `is_complex`, takes the real and the imaginary part, or the real one alone, and returns both, or one.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    is_complex: bool = False

    def __call__(self, *operands: Any) -> Any:
        import jax  # the IR itself needs no JAX

        module, _, name = self.name.rpartition(".")
        function = getattr(importlib.import_module(module), name)
        results = function(
            *([jax.lax.complex(*operands)] if self.is_complex and len(operands) == 2 else operands), **dict(self.options)
        )
        if isinstance(results, tuple):
            return tuple(results)
        return (results.real, results.imag) if jax.numpy.iscomplexobj(results) else (results,)

    @property
    def __name__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Vmapped:
    """`fn` over a new leading dimension. Operand k has it if `in_axes[k]` is 0; if that is None, all elements share operand k.

    Two are equal if their functions and axes are equal, so that common subexpressions stay common. They nest, for several
    dimensions. At least one operand must have the dimension; results have it first.
    """

    fn: Callable[..., Any]
    in_axes: tuple[int | None, ...]

    def __call__(self, *operands: Any) -> Any:
        import jax  # the IR itself needs no JAX

        return jax.vmap(self.fn, in_axes=self.in_axes)(*operands)

    @property
    def __name__(self) -> str:
        return f"vmap({getattr(self.fn, '__name__', type(self.fn).__name__)})"


def innermost(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function without the leading dimensions that vectorization gave it."""
    return innermost(fn.fn) if isinstance(fn, Vmapped) else fn


def mapped_dimensions(fn: Callable[..., Any]) -> int:
    """The number of leading dimensions that vectorization gave the results of a user's function."""
    count = 0
    while isinstance(fn, Vmapped):
        count, fn = count + 1, fn.fn
    return count


@dataclass(frozen=True)
class Trimmed:
    """`fn` of padded arrays, cut to their true shapes: the axes `axes[k]` of operand k are cut to given lengths.

    The lengths are operands too, after the arrays.
    """

    fn: Callable[..., Any]
    axes: tuple[tuple[int, ...], ...]

    def __call__(self, *operands: Any, **point: int) -> Any:
        lengths = iter(operands[len(self.axes) :])
        arrays = []
        for array, axes in zip(operands, self.axes, strict=False):
            cut = {axis: slice(int(next(lengths))) for axis in axes}
            arrays.append(array[tuple(cut.get(k, slice(None)) for k in range(array.ndim))])
        return self.fn(*arrays, **point)

    @property
    def __name__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)


@dataclass(frozen=True)
class Pullback:
    """The vector-Jacobian product of a function of arrays, by JAX. It takes the operands, then the gradients of the `results`.

    `operands` and `results` are the positions that gradients flow through. It returns one gradient for each entry of `operands`.
    """

    fn: Callable[..., Any]
    count: int  # of the function's operands
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def __call__(self, *arguments: Any) -> Any:
        import jax

        inputs, gradients = arguments[: self.count], arguments[self.count :]

        def of_floats(*floats: Any) -> tuple[Any, ...]:
            everything = list(inputs)
            for position, value in zip(self.operands, floats, strict=True):
                everything[position] = value
            outputs = self.fn(*everything)
            return tuple(outputs[k] for k in self.results)

        _, pull = jax.vjp(of_floats, *(inputs[k] for k in self.operands))
        return pull(tuple(gradients))

    @property
    def __name__(self) -> str:
        return f"pullback({getattr(self.fn, '__name__', type(self.fn).__name__)})"


@dataclass(frozen=True)
class Custom:
    """A user's function of pytrees of arrays, perhaps with rules of its own, as a function of all their leaves.

    `trees` are the structures of the operands (JAX's `PyTreeDef`). `batch(size, batched, *operands)` maps it over a leading dimension of
    those leaves that are `batched`, in place of `jax.vmap`; `slope(operands, results, gradients)` differentiates it, in place of
    `jax.vjp`. JAX's own transformations follow both rules too.
    """

    fn: Callable[..., Any]
    trees: tuple[Any, ...]
    batch: Callable[..., Any] | None = None
    slope: Callable[..., Any] | None = None
    name: str = field(default="", compare=False)
    where: str = field(default="", compare=False)  # the user's line

    def __call__(self, *leaves: Any, **point: int) -> Any:
        if self.batch is None and self.slope is None:
            return self._plain(*leaves, **point)
        import jax  # the IR itself needs no JAX

        function: Any = self._plain
        if self.batch is not None:
            function = jax.custom_batching.custom_vmap(self._plain)
            function.def_vmap(self._mapped)
        ruled = jax.custom_vjp(function)

        def forward(*leaves: Any) -> Any:
            results = ruled(*leaves)  # which a second derivative goes through by the same rule: JAX has none for `custom_vmap`
            return results, (leaves, results)

        ruled.defvjp(forward, self._pulled_back)
        return ruled(*leaves)

    @property
    def __name__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def _plain(self, *leaves: Any, **point: int) -> Any:
        results = self.fn(*self._operands(leaves), **point)
        return tuple(results) if isinstance(results, list) else results

    def _operands(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        rest = iter(leaves)
        return tuple(tree.unflatten([next(rest) for _ in range(tree.num_leaves)]) for tree in self.trees)

    def _mapped(self, size: int, batched: Sequence[bool], *leaves: Any) -> tuple[Any, Any]:
        """The batch rule, as `jax.custom_batching.custom_vmap` calls it."""
        import jax

        assert self.batch is not None
        results = self.batch(size, self._operands(batched), *self._operands(leaves))
        results = tuple(results) if isinstance(results, list) else results
        each = jax.eval_shape(self._plain, *(x[0] if has else x for x, has in zip(leaves, batched, strict=True)))
        self._check_structure("the batch rule", results, each)
        for k, (result, one) in enumerate(zip(jax.tree.leaves(results), jax.tree.leaves(each), strict=True)):
            self._check(f"the batch rule of `{self.name}` returned as output {k}", result, (size, *one.shape), one.dtype)
        return results, jax.tree.map(lambda _: True, results)

    def _check_structure(self, what: str, results: Any, expected: Any) -> None:
        import jax

        if jax.tree.structure(results) != jax.tree.structure(expected):
            raise ShapeError(
                f"{what} of `{self.name}` returned {jax.tree.structure(results)}, but the function {jax.tree.structure(expected)}",
                where=self.where or None,
                hint="return what the function returns, each array with a leading dimension",
            )

    def _pulled_back(self, kept: Any, gradients: Any) -> tuple[Any, ...]:
        """The gradients by the leaves, from those of the results: by the user's rule, else by JAX."""
        import jax

        leaves, results = kept
        if self.slope is None:
            return jax.vjp(self._plain, *leaves)[1](gradients)
        given = tuple(None if g.dtype == jax.dtypes.float0 else g for g in jax.tree.leaves(gradients))
        returned = self.slope(self._operands(leaves), results, given)
        usage = "return a tuple with one gradient for each operand, of its structure, or None: return (gradient,)"
        if not isinstance(returned, (list, tuple)) or len(returned) != len(self.trees):
            what = (
                f"{len(returned)} gradients"
                if isinstance(returned, (list, tuple))
                else "None"
                if returned is None
                else f"one {type(returned).__name__}"
            )
            raise ShapeError(
                f"the slope of `{self.name}` returned {what} for {len(self.trees)} operands", where=self.where or None, hint=usage
            )
        flat: list[Any] = []
        for k, (tree, part) in enumerate(zip(self.trees, returned, strict=True)):
            try:
                flat += [None] * tree.num_leaves if part is None else tree.flatten_up_to(part)
            except ValueError as error:
                raise ShapeError(
                    f"the slope of `{self.name}` returned for operand {k} another structure: {error}",
                    where=self.where or None,
                    hint=usage,
                ) from error
        owners = [k for k, tree in enumerate(self.trees) for _ in range(tree.num_leaves)]
        for k, gradient, leaf in zip(owners, flat, leaves, strict=True):
            if gradient is not None:
                self._check(f"the slope of `{self.name}` returned for operand {k}", gradient, leaf.shape, leaf.dtype)
        return tuple(flat)

    def _check(self, what: str, array: Any, shape: tuple[int, ...], dtype: Any) -> None:
        if tuple(array.shape) != tuple(shape):
            raise ShapeError(
                f"{what} an array of shape {tuple(array.shape)}; it must have the shape {tuple(shape)}",
                where=self.where or None,
                hint="a batch rule returns arrays with a leading dimension, a slope arrays of the operands' shapes",
            )
        if array.dtype != dtype:
            raise DTypeError(
                f"{what} an array of dtype {array.dtype}; it must have the dtype {dtype}",
                where=self.where or None,
                hint=f"convert it: value.astype({str(dtype)!r})",
            )
