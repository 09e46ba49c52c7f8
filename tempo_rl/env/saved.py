"""The spaces of an environment as plain data, which a checkpoint holds: a policy needs no more of its environment to choose actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tempo_rl.env.spaces import Actions, Continuous, Discrete, MultiDiscrete, Observations, observations_of

if TYPE_CHECKING:
    import gymnasium

    Space: TypeAlias = gymnasium.Space[Any]

Plain: TypeAlias = Mapping[str, object]
ACTIONS = {kind.__name__: kind for kind in (Discrete, MultiDiscrete, Continuous)}


def saved_spaces(observations: Observations, actions: Actions) -> Plain | None:
    """What `restored_spaces` needs. None for observations that no space of Gymnasium describes."""
    if observations.space is None:
        return None
    return {"observation": _saved(observations.space), "actions": {"kind": type(actions).__name__, **asdict(actions)}}


def restored_spaces(data: Plain, name: str, frames: int) -> tuple[Observations, Actions]:
    """The observations and actions of the environment `name`, as it would give them. Observations are stacks of `frames`, if more than one."""
    from tempo_rl.env.stacked import StackedVector

    saved_actions: Any = data["actions"]
    observations = observations_of(_restored(data["observation"]), name)
    kind: Any = ACTIONS[saved_actions["kind"]]
    fields = {key: value for key, value in saved_actions.items() if key != "kind"}
    actions: Actions = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
    return (observations if frames == 1 else StackedVector(_Absent(observations, actions), frames).observations), actions


class _Absent:
    """An environment that is not there."""

    num_envs = 1

    def __init__(self, observations: Observations, actions: Actions):
        self.observations, self.actions = observations, actions

    def reset(self, clock: int = 0) -> Any:
        raise NotImplementedError

    def step(self, action: np.ndarray) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


def _saved(space: Space) -> Plain:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[name, _saved(part)] for name, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [_saved(part) for part in space.spaces]}
    if isinstance(space, spaces.Box):
        ends = {"low": _ends(space.low), "high": _ends(space.high)}
        return {"kind": "Box", **ends, "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.MultiDiscrete):
        whole = {"nvec": np.asarray(space.nvec).tolist(), "start": np.asarray(space.start).tolist()}
        return {"kind": "MultiDiscrete", **whole, "dtype": np.dtype(space.dtype).name}
    assert isinstance(space, spaces.MultiBinary), "`observations_of` takes no other space"
    return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}


def _ends(ends: np.ndarray) -> Any:
    """The bounds of a Box: one number, if all are the same."""
    is_one = ends.size > 0 and bool((ends == ends.flat[0]).all())
    return ends.flat[0].item() if is_one else ends.tolist()


def _restored(data: Any) -> Space:
    from gymnasium import spaces

    kind = data["kind"]
    if kind == "Dict":
        return spaces.Dict([(name, _restored(part)) for name, part in data["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([_restored(part) for part in data["spaces"]])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    dtype: Any = np.dtype(data["dtype"])
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]), dtype=dtype.type)
    low, high = (np.broadcast_to(np.array(data[end], dtype), data["shape"]) for end in ("low", "high"))
    return spaces.Box(low, high, tuple(data["shape"]), dtype.type)
