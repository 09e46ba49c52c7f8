"""The state of an environment in JAX, which is any pytree of arrays and keys, as one vector and back, without a change of a bit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tempo_rl.errors import EnvError

Array: TypeAlias = jax.Array
Shape: TypeAlias = jax.ShapeDtypeStruct
Pytree: TypeAlias = object  # arrays in tuples, dicts, dataclasses

# Their values are float32 values too. All others are held as bits.
FLOATS = ("bool", "int8", "uint8", "int16", "uint16", "bfloat16", "float16", "float32")

NARROW = ("bool", "int2", "uint2", "int4", "uint4")  # in a byte each


class Packing:
    """How the leaves of a state lie in one vector of `size` numbers of `dtype`.

    The vector is of float32 if float32 holds the values of all leaves, and bits do not need half the room or less. Otherwise it is of int32
    and holds the bits of the leaves: four bytes are one number. A key of `jax.random` is its data.
    """

    def __init__(self, example: Pytree, needs_integers: bool = False):
        leaves, self._structure = jax.tree.flatten(example)
        self._leaves: list[Shape] = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        self._datas = [jax.eval_shape(_data, leaf) if is_key(leaf) else leaf for leaf in self._leaves]
        floats = sum(math.prod(data.shape) for data in self._datas)
        words = sum(_words(data) for data in self._datas)
        are_floats = all(data.dtype.name in FLOATS for data in self._datas)
        self.has_bits: bool = needs_integers or not are_floats or floats > 2 * words
        self.dtype = "int32" if self.has_bits else "float32"
        self.size: int = words if self.has_bits else floats

    def pack(self, state: Pytree) -> Array:
        """The vector of a state. A leaf has the dtype of the example, or is converted to it."""
        parts = self.parts(state)
        return jnp.concatenate(parts) if parts else jnp.zeros((0,), self.dtype)

    def parts(self, state: Pytree) -> list[Array]:
        """The parts of that vector, one for each leaf."""
        parts = []
        for leaf, kind, data in zip(jax.tree.leaves(state), self._leaves, self._datas, strict=True):
            values = jax.random.key_data(leaf) if is_key(kind) else jnp.asarray(leaf, data.dtype)
            parts.append(_bits(values) if self.has_bits else values.astype("float32").reshape(-1))
        return parts

    def unpack(self, vector: Array) -> Pytree:
        """The state in a vector."""
        at, leaves = 0, []
        for kind, data in zip(self._leaves, self._datas, strict=True):
            size = _words(data) if self.has_bits else math.prod(data.shape)
            part = vector[at : at + size]
            values = _values(part, data) if self.has_bits else part.astype(data.dtype).reshape(data.shape)
            leaves.append(jax.random.wrap_key_data(values, impl=_generator(kind)) if is_key(kind) else values)
            at += size
        return jax.tree.unflatten(self._structure, leaves)


def is_key(leaf: Any) -> bool:
    """Whether a leaf holds keys of `jax.random.key`."""
    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _data(shape: Any) -> Array:
    return jax.random.key_data(shape)


def _generator(key: Any) -> str:
    """The random generator of a key: "threefry2x32" of the dtype key<fry>."""
    return str(key.dtype._impl.name)


def _words(data: Shape) -> int:
    """The int32 numbers that hold the bits of an array."""
    return -(-math.prod(data.shape) * _bytes(data.dtype) // 4)


def _bytes(dtype: Any) -> int:
    return np.dtype(dtype).itemsize


def _bits(values: Array) -> Array:
    """The bits of an array as a vector of int32."""
    if values.dtype.name in NARROW:
        values = values.astype("int8")
    if jnp.iscomplexobj(values):
        values = jnp.stack([values.real, values.imag], -1)
    size = _bytes(values.dtype)
    if size >= 4:
        return jax.lax.bitcast_convert_type(values, "int32").reshape(-1)
    flat = jax.lax.bitcast_convert_type(values, f"uint{8 * size}").reshape(
        -1
    )  # first: XLA may compute with narrow floats as wider ones
    together = 4 // size
    return jax.lax.bitcast_convert_type(jnp.pad(flat, (0, -flat.size % together)).reshape(-1, together), "int32")


def _values(words: Array, data: Shape) -> Array:
    """The array whose bits `_bits` gave."""
    dtype, size, count = np.dtype(data.dtype), _bytes(data.dtype), math.prod(data.shape)
    if dtype.kind == "c":
        real = jax.ShapeDtypeStruct((*data.shape, 2), f"float{4 * size}")
        parts = _values(words, real)
        return jax.lax.complex(parts[..., 0], parts[..., 1])
    if size == 8:
        return jax.lax.bitcast_convert_type(words.reshape(*data.shape, 2), dtype)
    flat = words if size == 4 else jax.lax.bitcast_convert_type(words, f"uint{8 * size}").reshape(-1)[:count]
    held = jnp.dtype("int8") if dtype.name in NARROW else dtype
    return jax.lax.bitcast_convert_type(flat.reshape(data.shape), held).astype(dtype)


def leaves_of(state: Pytree, name: str) -> list[tuple[str, object]]:
    """The leaves of a state with their places in it, such as `.agent.position`. Raises `EnvError` for a leaf that is not an array or a number."""
    leaves = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        place = jax.tree_util.keystr(path)
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, jax.Array):
            kind = type(leaf).__name__
            raise EnvError(
                f"{name} gives a state{_at(place)} of the dataclass {kind}, whose parts JAX does not know",
                hint=f"register it: write @jax.tree_util.register_dataclass above @dataclass of {kind}",
            )
        if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise EnvError(
                f"{name} gives a state{_at(place)} of {type(leaf).__name__}",
                hint="a state is arrays and numbers in tuples, dicts or dataclasses",
            )
        leaves.append((place, leaf))
    return leaves


def example_of(call: Callable[..., Pytree], operands: Sequence[Any], name: str) -> Pytree:
    """The shapes of the state that `call(*operands)` gives, found without running it. Raises `EnvError` for what is no state."""

    def checked(*values: Any) -> Pytree:
        state = call(*values)
        leaves_of(state, name)
        return jax.tree.map(jnp.asarray, state)

    return jax.eval_shape(checked, *operands)


def require_same(example: Pytree, following: Pytree, name: str) -> None:
    """Raise `EnvError` unless the states of `transition` and `initial` have one form."""
    (first, structure), (second, other) = (jax.tree_util.tree_flatten_with_path(state) for state in (example, following))
    if structure != other:
        places, others = ({jax.tree_util.keystr(path) for path, _ in leaves} for leaves in (first, second))
        missing, added = (sorted(group) for group in (places - others, others - places))
        what = [f"lacks {', '.join(map(_part, missing))}"] if missing else []
        what += [f"also has {', '.join(map(_part, added))}"] if added else []
        raise EnvError(
            f"{name}.transition() gives a state that {' and '.join(what) or 'is built in another way'}, unlike that of initial()",
            hint=f"give the same structure in both: {structure}, not {other}" if not what else "give the same parts in both",
        )
    for (path, leaf), (_, later) in zip(first, second, strict=True):
        at = _at(jax.tree_util.keystr(path))
        if later.shape != leaf.shape:
            raise EnvError(
                f"{name}.transition() gives a state{at} of shape {later.shape}, but initial() gives one of shape {leaf.shape}"
            )
        if later.dtype != leaf.dtype:
            raise EnvError(
                f"{name}.transition() gives a state{at} of {later.dtype.name}, but initial() gives one of {leaf.dtype.name}",
                hint="make both the same, such as jnp.zeros(3, jnp.float32) in initial()",
            )


def _at(place: str) -> str:
    return f" with the part {place}" if place else ""


def _part(place: str) -> str:
    return place or "one array"
