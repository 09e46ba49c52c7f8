"""Jumanji: `jumanji/Snake-v1`, `jumanji/Game2048-v1`, ..."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from tempo_rl.env.adapters.stepped import ENDLESS, Outcome, Stepped, require_name


class Jumanji(Stepped):
    """An environment of Jumanji for one agent. Keywords are arguments of its class. Observations of several parts become a Dict.

    Raises EnvError for unknown names.
    """

    def __init__(self, jumanji: ModuleType, name: str, **keywords: Any) -> None:
        require_name("Jumanji", "jumanji", name, jumanji.registered_environments())
        self._env: Any = jumanji.make(name, **keywords)
        self.max_episode_steps = int(getattr(self._env, "time_limit", None) or ENDLESS)
        self._spec: Any = self._env.observation_spec
        self.observation_space = _space(self._spec)
        self.action_space = _space(self._env.action_spec)

    def begin(self, key: jax.Array) -> Outcome:
        return self._outcome(*self._env.reset(key))

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        return self._outcome(*self._env.step(inner, action))

    def _outcome(self, state: Any, step: Any) -> Outcome:
        is_last, is_terminated = step.last(), jnp.all(step.discount == 0.0)
        return Outcome(
            state, _parts(self._spec, step.observation), step.reward, is_last & is_terminated, is_last & ~is_terminated
        )


def _space(spec: Any) -> gymnasium.Space[object]:
    """The space of a specification."""
    count = getattr(spec, "num_values", None)
    if count is not None:
        return gymnasium.spaces.Discrete(int(count)) if np.ndim(count) == 0 else gymnasium.spaces.MultiDiscrete(np.asarray(count))
    if getattr(spec, "_specs", None):
        return gymnasium.spaces.Dict({name: _space(part) for name, part in spec._specs.items()})
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "b":
        return gymnasium.spaces.Box(0, 1, spec.shape, np.int8)
    infinite = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = getattr(spec, "minimum", infinite[0]), getattr(spec, "maximum", infinite[1])
    low, high = (np.broadcast_to(np.asarray(end, dtype), spec.shape) for end in (low, high))
    return gymnasium.spaces.Box(low, high, dtype=dtype.type)


def _parts(spec: Any, observation: Any) -> Any:
    """An observation in the form of its space."""
    parts = getattr(spec, "_specs", None)
    return {name: _parts(part, getattr(observation, name)) for name, part in parts.items()} if parts else observation
