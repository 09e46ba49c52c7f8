"""Observations as an environment's space declares them (arrays, choices, Dict, Tuple), as the arrays that a policy takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from tempo_rl.env.spaces import Observations
from tempo_rl.errors import RLError

Space: TypeAlias = gymnasium.Space[object]


def as_batch(value: object, observations: Observations, name: str, frames: int = 1) -> tuple[np.ndarray, bool]:
    """One observation of an environment, or a batch, as an array (B, *shape) of the policy's `observations`; and whether it was one.

    A batch is what a vector environment gives: each array in a Dict or Tuple has the dimension B first. With `frames` > 1, the
    dimension of the frames comes next. Raises `RLError` for other keys, shapes, dtypes and values, and for numbers that are not finite.
    """
    label, dtype = f"an observation of {name}", np.dtype(observations.dtype)
    if observations.space is None or not observations.has_parts:
        box = _Box(label, observations.shape, dtype, dtype)
        array = box.array(value, f"give one observation {observations.shape}, or a batch {('B', *observations.shape)}")
        count, is_one = _count([box], [array], label)
        return array.reshape(count, *observations.shape), is_one
    stack = () if frames == 1 else (frames,)
    leaves: list[_Box | _Choice] = []
    arrays = []
    for part, inner, part_value in _parts(value, observations.space, label, f"observation of {name}"):
        shape = (*stack, *(inner.shape or ()))
        is_box = isinstance(inner, spaces.Box)
        leaves.append(_Box(part, shape, np.dtype(inner.dtype), dtype) if is_box else _Choice(part, shape, inner))
        arrays.append(leaves[-1].array(part_value, ""))
    count, is_one = _count(leaves, arrays, label)
    rows = [array.reshape(count, *leaf.shape) for leaf, array in zip(leaves, arrays, strict=True)]
    joined = observations.inward(_as_space(observations.space, iter(rows)), (count, *stack))
    return np.asarray(joined).reshape(count, *observations.shape), is_one


def _count(leaves: Sequence[_Box | _Choice], arrays: Sequence[np.ndarray], label: str) -> tuple[int, bool]:
    """How many observations the arrays of all parts hold, and whether they are one without the dimension of a batch."""
    batches = [array.shape[: array.ndim - len(leaf.shape)] for leaf, array in zip(leaves, arrays, strict=True)]
    for leaf, batch in zip(leaves, batches, strict=True):
        if batch != batches[0]:
            raise RLError(
                f"{leaf.label} is {_of_batch(batch)}, but {leaves[0].label} is {_of_batch(batches[0])}",
                hint="give every part for one observation, or every part for the same batch",
            )
    count = batches[0][0] if batches[0] else 1
    if count == 0:
        raise RLError(f"{label} is missing: the batch is empty", hint="give at least one observation")
    return count, not batches[0]


def _as_space(space: Space, values: Iterator[np.ndarray]) -> object:
    """The parts of an observation, in the order of `_parts`, in the form of a space."""
    if isinstance(space, spaces.Dict):
        return {name: _as_space(part, values) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_as_space(part, values) for part in space.spaces)
    return next(values)


def _parts(value: object, space: Space, label: str, path: str) -> Iterator[tuple[str, Space, object]]:
    """The arrays in an observation, in the order in which the policy takes them: a label for errors, the space, and the value."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            raise RLError(f"{label} is a dict, not {_shown(value)}", hint=f"its keys are {_listed(space.spaces)}")
        _check_keys(value, space.spaces, label)
        inner: list[tuple[object, Space]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            count = f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
            raise RLError(f"{label} is a tuple of {len(space.spaces)} parts, not a {type(value).__name__}{count}")
        inner = list(enumerate(space.spaces))
    else:
        yield label, space, value
        return
    for key, part in inner:
        name, _, of = path.partition(" of ")
        at = f"{name}[{key!r}] of {of}"
        yield from _parts(value[key], part, at, at)  # type: ignore[call-overload]


def _check_keys(value: Mapping[object, object], keys: Mapping[str, Space], label: str) -> None:
    """Raise `RLError` unless the keys are those of the space."""
    missing, others = [key for key in keys if key not in value], [key for key in value if key not in keys]
    if not missing and not others:
        return
    near = difflib.get_close_matches(str(others[0]), missing, 1) if others else []
    problems = [f"lacks {_listed(missing)}"] if missing else []
    problems += [f"has {_listed(others)}, which the environment does not have"] if others else []
    raise RLError(
        f"{label} {' and '.join(problems)}", hint=f"did you mean {near[0]!r}?" if near else f"its keys are {_listed(keys)}"
    )


@dataclass(frozen=True)
class _Box:
    """Numbers of a shape and dtype. The policy computes with `target`."""

    label: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    target: np.dtype[Any]

    def array(self, value: object, hint: str) -> np.ndarray:
        """`value` in the dtype, of `shape` or (B, *shape)."""
        array = _numbers(value)
        if array.dtype.kind not in "biuf":
            raise RLError(f"{self.label} must be numbers, not {value!r}")
        _check_shape(array, self.shape, self.label, hint)
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(self.dtype)
            if not np.isfinite(converted.astype(self.target)).all():
                raise RLError(f"{self.label} must be finite in {self.target}, not {value!r}")
            if self.dtype.kind in "iub" and not np.array_equal(converted, array):
                raise RLError(f"{self.label} must be {_range(self.dtype)}, not {value!r}", hint=f"its dtype is {self.dtype}")
        return converted


@dataclass(frozen=True)
class _Choice:
    """Values of a space that is not of numbers: choices."""

    label: str
    shape: tuple[int, ...]
    space: Space

    def array(self, value: object, hint: str) -> np.ndarray:
        """`value` of `shape` or (B, *shape), each row of it in the space."""
        array = _numbers(value)
        _check_shape(array, self.shape, self.label, hint)
        rows = array.reshape(-1, *(self.space.shape or ()))
        for row in rows:
            if not self.space.contains(_item(row)):
                whole = f"; its dtype is {row.dtype}, but choices are whole numbers" if row.dtype.kind == "f" else ""
                raise RLError(f"{self.label} is {_item(row)!r}, which is not in {self.space}{whole}")
        return array


def _item(row: np.ndarray) -> object:
    return row.item() if row.shape == () else row


def _numbers(value: object) -> np.ndarray:
    """`value` as an array; of objects, if it has no one shape."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return np.array(None)


def _check_shape(array: np.ndarray, shape: tuple[int, ...], label: str, hint: str) -> None:
    if (array.shape != shape and array.shape[1:] != shape) or array.ndim > len(shape) + 1:
        one = shape or "()"
        hint = hint or f"give one of shape {one}, or a batch {('B', *shape)}"
        raise RLError(f"{label} has the shape {shape}, but this one has {array.shape}", hint=hint)


def _range(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return "True or False"
    return f"whole numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"


def _of_batch(batch: tuple[int, ...]) -> str:
    return f"a batch of {batch[0]}" if batch else "one"


def _listed(keys: Mapping[Any, object] | Sequence[object]) -> str:
    return ", ".join(map(repr, keys))


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r}"
