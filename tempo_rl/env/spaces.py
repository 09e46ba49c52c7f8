"""Descriptions of an environment's observations and actions, for agents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    import gymnasium
    import jax

Array = TypeVar("Array", bound="np.ndarray | jax.Array")


KEPT = ("bool", "int8", "uint8", "int32", "uint32", "float16", "float32")  # dtypes of observations in programs


Ends: TypeAlias = "np.float32 | np.ndarray"  # of the range of bytes: one number, or one for each
RARE = 0.05  # a probability
EXACT = 2**24  # float32 holds the whole numbers below it


@dataclass(frozen=True)
class Observations:
    """Arrays of one shape and dtype. The dtype is that of the environment if it is one of `KEPT` (images stay uint8), or else float32.

    Observations of another space than Box become one vector: all numbers, then all choices (Discrete, MultiDiscrete), of which choice k is
    a whole number from 0 to `counts[k]` - 1. `space` is the environment's own, without frames.
    """

    shape: tuple[int, ...]
    dtype: str
    counts: tuple[int, ...] = ()
    space: gymnasium.Space[object] | None = field(default=None, compare=False, repr=False)
    frames: int = field(
        default=1, compare=False
    )  # that are stacked; if more than one, the first dimension of `shape` counts them
    channels: Literal["first", "last"] | None = field(
        default=None, compare=False
    )  # the place of pictures' channels, if someone says it

    @property
    def has_parts(self) -> bool:
        """Whether an observation of the environment is not an array, but choices, or parts in a Dict or Tuple."""
        from gymnasium.spaces import Box

        return not (self.space is None or isinstance(self.space, Box))

    @property
    def are_pictures(self) -> bool:
        """Whether they are bytes in rows and columns."""
        return self.dtype == "uint8" and len(self.shape) - (self.frames > 1) > 1

    @property
    def byte_range(self) -> tuple[Ends, Ends]:
        """The least value of bytes, and the factor that scales them to numbers from 0 to 1, as `byte_range_of` their space."""
        return byte_range_of(self.space) if self.space is not None else (np.float32(0.0), np.float32(1.0 / 255.0))

    def inward(self, observation: Any, batch: tuple[int, ...] = (), xp: ModuleType = np) -> object:
        """Observations of the environment (*batch, ...) as agents take them: (*batch, *shape). `xp` is numpy or jax.numpy."""
        if self.space is None or not self.has_parts:
            return xp.asarray(observation).astype(self.dtype)
        numbers, choices = [], []
        space: Any
        for (_, space), value in zip(parts_of(self.space), values_of(self.space, observation), strict=True):
            part = xp.asarray(value).reshape(*batch, -1)
            if (counts := counts_of(space)) is not None:
                whole = "int64" if xp is np else "int32"
                start = np.broadcast_to(np.asarray(space.start, whole).reshape(-1), (len(counts),))
                choices.append((part.astype(whole) - xp.broadcast_to(xp.asarray(start), part.shape)).astype(self.dtype))
            else:
                numbers.append(_in_range(part.astype(self.dtype), space, xp))
        return xp.concatenate([*numbers, *choices], -1)

    def wrong_choice(self, observation: np.ndarray) -> str | None:
        """What is wrong with observations (B, n), which `inward` gave, if a choice is not in its range."""
        if not self.counts:
            return None
        choices = observation[..., -len(self.counts) :]
        wrong = (choices < 0) | (choices >= np.asarray(self.counts, self.dtype))
        if not wrong.any():
            return None
        row, k = (int(at) for at in np.argwhere(wrong)[0])
        return f"choice {k} of row {row} is number {int(choices[row, k])} of {self.counts[k]}, counted from 0, but the space is {self.space}"


@dataclass(frozen=True)
class Discrete:
    """Actions `0, ..., count - 1`; the environment receives `start` + action."""

    count: int
    start: int = 0

    dtype = "int32"
    shape: tuple[int, ...] = ()

    def outward(self, actions: Array, xp: ModuleType = np) -> Array:
        """The policy's actions as the environment takes them."""
        return actions + xp.asarray(self.start, actions.dtype)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, choice k among `counts[k]`: MultiDiscrete, and MultiBinary with two each. `starts` are added."""

    counts: tuple[int, ...]
    starts: tuple[int, ...]
    space_shape: tuple[int, ...]

    dtype = "int32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.counts),)

    def outward(self, actions: Array, xp: ModuleType = np) -> Array:
        """The policy's actions (..., k) as the environment takes them: (..., *space_shape)."""
        starts = xp.broadcast_to(xp.asarray(self.starts, actions.dtype), actions.shape)
        return _reshaped(actions + starts, (*actions.shape[:-1], *self.space_shape))


@dataclass(frozen=True)
class Continuous:
    """Numbers, row by row in one dimension; the environment receives them in `space_shape`, between `low` and `high`.

    They are clipped, or, with `is_squashed`, mapped by tanh: -∞ to `low`, ∞ to `high`. With `is_scaled`, they are numbers from -1 to 1,
    which are mapped in a line: -1 to `low`, 1 to `high`.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    space_shape: tuple[int, ...] | None = None  # None: `shape`
    is_squashed: bool = False
    is_scaled: bool = False

    dtype = "float32"

    def outward(self, actions: Array, xp: ModuleType = np) -> Array:
        """The policy's actions (..., n) as the environment takes them: (..., *space_shape)."""
        bounded = self._between(actions, xp) if self.is_scaled else actions
        bounded = self.squash(actions, xp) if self.is_squashed else self.clip(bounded, xp)
        shape = self.shape if self.space_shape is None else self.space_shape
        return _reshaped(bounded, (*actions.shape[:-1], *shape))

    def clip(self, actions: Array, xp: ModuleType = np) -> Array:
        """`actions` of shape (..., n), clipped. `xp` is numpy or jax.numpy."""
        low, high = self._bounds(actions, xp)
        return xp.minimum(xp.maximum(actions, low), high)

    def squash(self, actions: Array, xp: ModuleType = np) -> Array:
        """`actions` of shape (..., n), mapped by tanh."""
        return self._between(xp.tanh(actions), xp)

    def _between(self, actions: Array, xp: ModuleType) -> Array:
        """Numbers from -1 to 1, mapped in a line to the bounds."""
        low, high = self._bounds(actions, xp)
        return low + (high - low) * (actions + xp.asarray(1.0, "float32")) * xp.asarray(0.5, "float32")

    def _bounds(self, actions: Array, xp: ModuleType) -> tuple[Array, Array]:
        low, high = (xp.asarray(ends, "float32").reshape(self.shape) for ends in (self.low, self.high))
        return xp.broadcast_to(low, actions.shape), xp.broadcast_to(high, actions.shape)


def _reshaped(actions: Any, shape: tuple[int, ...]) -> Any:
    return actions.reshape(shape)


Actions = Discrete | MultiDiscrete | Continuous


def squashed(actions: Actions, env_id: str) -> Continuous:
    """Continuous actions that tanh maps to their bounds. Raises `EnvError` for others, and for bounds that are not finite."""
    return replace(_bounded(actions, env_id, "squash_actions=true"), is_squashed=True)


def scaled(actions: Actions, env_id: str, algorithm: str) -> Continuous:
    """Continuous actions from -1 to 1, which are mapped in a line to their bounds. Raises `EnvError` as `squashed` does."""
    return replace(_bounded(actions, env_id, f"algorithm={algorithm}"), is_scaled=True)


def _bounded(actions: Actions, env_id: str, key: str) -> Continuous:
    if not isinstance(actions, Continuous):
        raise EnvError(f"{key} is for continuous actions, but those of {env_id} are choices")
    if not np.isfinite([*actions.low, *actions.high]).all():
        raise EnvError(f"{key} needs finite bounds, but actions of {env_id} lie between {actions.low} and {actions.high}")
    return actions


def out_of_reach(actions: Actions) -> tuple[float, float] | None:
    """The bounds of the first number that a new policy's actions, normal around 0 with the deviation 1, hardly ever lie between.

    Most of its actions are clipped then, so that all of them do the same. None if there is no such number, or nothing is clipped.
    """
    if not isinstance(actions, Continuous) or actions.is_squashed or actions.is_scaled:
        return None
    for low, high in zip(actions.low, actions.high, strict=True):
        if 0.5 * (math.erf(high / math.sqrt(2.0)) - math.erf(low / math.sqrt(2.0))) < RARE:
            return low, high
    return None


def observations_of(space: gymnasium.Space[Any], env_id: str) -> Observations:
    """The description of a Gymnasium observation space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of such.

    Raises `EnvError` for others.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        dtype = np.dtype(space.dtype).name
        return Observations(tuple(space.shape), dtype if dtype in KEPT else "float32", space=space)
    numbers, counts, are_whole = 0, list[int](), True
    for place, part in parts_of(space):
        choices = counts_of(part)
        if choices is not None:
            counts += choices
        elif isinstance(part, (spaces.Box, spaces.MultiBinary)):
            numbers += math.prod(part.shape)
            are_whole &= np.dtype(part.dtype).kind in "biu" and np.dtype(part.dtype).itemsize <= 4 and not _is_scaled(part)
        else:
            raise EnvError(
                f"{env_id} has observations {space}{f' with {place}' if place else ''}, but agents take Box, Discrete, "
                "MultiDiscrete, MultiBinary, and a Dict or Tuple of them",
                hint='write a wrapper that changes them: env.wrappers=["module:Wrapper"]',
            )
    if numbers + len(counts) == 0:
        raise EnvError(f"{env_id} has observations {space}, which hold nothing")
    dtype = "int32" if are_whole else "float32"
    if counts and max(counts) > (2**31 - 1 if are_whole else EXACT):
        raise EnvError(f"{env_id} has observations with a choice among {max(counts):,}, too many for a table")
    return Observations((numbers + len(counts),), dtype, tuple(counts), space)


def counts_of(space: gymnasium.Space[Any]) -> list[int] | None:
    """The number of values of each choice in a Discrete or MultiDiscrete space; None for another space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(count) for count in np.asarray(space.nvec).reshape(-1)]
    return None


def parts_of(space: gymnasium.Space[Any], place: str = "") -> Iterator[tuple[str, gymnasium.Space[object]]]:
    """The spaces inside of Dict and Tuple spaces, with their places, such as `["board"][0]`; or the space itself."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from parts_of(part, f"{place}[{name!r}]")
    elif isinstance(space, spaces.Tuple):
        for at, part in enumerate(space.spaces):
            yield from parts_of(part, f"{place}[{at}]")
    else:
        yield place, space


def values_of(space: gymnasium.Space[Any], observation: Any) -> Iterator[object]:
    """The parts of an observation, in the order of `parts_of`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from values_of(part, observation[name])
    elif isinstance(space, spaces.Tuple):
        for value, part in zip(observation, space.spaces, strict=True):
            yield from values_of(part, value)
    else:
        yield observation


def misfit(space: gymnasium.Space[Any], observation: Any, place: str = "") -> str | None:
    """Why an observation, or the shapes of one in JAX, is not of the form of a space; None if it is. Values are not looked at."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping):
            return f"{_place(place)} {type(observation).__name__}, not a dict"
        if observation.keys() != space.spaces.keys():
            return f"{_place(place)} a dict with {_names(observation)}, not with {_names(space.spaces)}"
        return _first(misfit(part, observation[name], f"{place}[{name!r}]") for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        if not isinstance(observation, Sequence) or len(observation) != len(space.spaces):
            return f"{_place(place)} {type(observation).__name__}, not a tuple of {len(space.spaces)}"
        parts = enumerate(zip(space.spaces, observation, strict=True))
        return _first(misfit(part, value, f"{place}[{at}]") for at, (part, value) in parts)
    try:
        array = observation if hasattr(observation, "dtype") else np.asarray(observation)
    except ValueError:  # lists of different lengths
        return f"{_place(place)} lists of different lengths"
    kinds = "iu" if counts_of(space) is not None else "biuf"
    if tuple(array.shape) == tuple(space.shape or ()) and _kind(array.dtype) in kinds:
        return None
    if array.size == 1 == math.prod(space.shape or ()) and _kind(array.dtype) in kinds and not isinstance(space, spaces.Box):
        return None
    return f"{_place(place)} {array.dtype}{list(array.shape)}"


def _kind(dtype: Any) -> str:
    return "f" if "float" in str(dtype) else str(np.dtype(dtype).kind)


def _first(texts: Iterator[str | None]) -> str | None:
    return next((text for text in texts if text is not None), None)


def _place(place: str) -> str:
    return f"an observation with the part {place}:" if place else "an observation"


def _names(parts: Mapping[Any, object]) -> str:
    return ", ".join(map(repr, parts)) or "nothing"


def byte_range_of(space: gymnasium.Space[Any]) -> tuple[Ends, Ends]:
    """The least value, and the factor that scales to numbers from 0 to 1, as a Box of bytes declares its range; 0 and 1 for another space.

    They are float32: numbers if they are the same for all elements, or else of the shape of the space.
    """
    from gymnasium.spaces import Box

    if not isinstance(space, Box) or space.dtype != np.uint8:
        return np.float32(0.0), np.float32(1.0)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    scale = 1.0 / np.maximum(high - low, 1.0)
    return _as_one(low.astype(np.float32)), _as_one(scale.astype(np.float32))


def _as_one(array: np.ndarray) -> Ends:
    """A number, if all elements are the same one."""
    return np.float32(array.flat[0]) if array.size and (array == array.flat[0]).all() else array


def _is_scaled(space: gymnasium.Space[Any]) -> bool:
    low, scale = byte_range_of(space)
    return bool(np.any(low != 0.0) or np.any(scale != 1.0))


def _in_range(part: Any, space: gymnasium.Space[Any], xp: ModuleType) -> Any:
    """The numbers (*batch, n) of a part; bytes are scaled by the range that its space declares."""
    if not _is_scaled(space):
        return part
    low, scale = (xp.asarray(np.broadcast_to(np.reshape(end, -1), part.shape), part.dtype) for end in byte_range_of(space))
    return (part - low) * scale


def channels_of(shape: tuple[int, ...]) -> Literal["first", "last"] | None:
    """Where the channels of pictures are, whose shape has three dimensions: the one that is smaller than both others, unless it is the middle one."""
    first, middle, last = shape
    if first < min(middle, last):
        return "first"
    return "last" if last < min(first, middle) else None


def actions_of(space: gymnasium.Space[Any], env_id: str) -> Actions:
    """The description of a Gymnasium action space. Raises `EnvError` unless it is of choices, or a Box of floats."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(int(v) for v in np.asarray(numbers).reshape(-1)) for numbers in (space.nvec, space.start))
        return MultiDiscrete(counts, starts, tuple(space.shape))
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return MultiDiscrete((2,) * size, (0,) * size, tuple(space.shape))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(float(v) for v in np.asarray(end).reshape(-1)) for end in (space.low, space.high))
        return Continuous((len(low),), low, high, tuple(space.shape))
    raise EnvError(
        f"{env_id} has actions {space}, but agents take Discrete, MultiDiscrete, MultiBinary, or Box of floats",
        hint='write a wrapper that changes the actions: env.wrappers=["module:Wrapper"]',
    )
