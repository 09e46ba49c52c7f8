"""Brax: `brax/ant`, `brax/hopper`, ..."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium
import jax
import numpy as np

from tempo_rl.env.adapters.stepped import Outcome, Stepped, require_name, space_like
from tempo_rl.errors import EnvError

BACKENDS = ("generalized", "spring", "positional", "mjx")


class Brax(Stepped):
    """An environment of Brax by its name, such as "inverted_pendulum"; `backend` is one of its physics engines.

    Brax's own `AutoResetWrapper`, which goes back to the first state of each row, is not used. Actions are between -1 and 1. Other keywords
    go to the environment's class. Raises EnvError if Brax has no such environment or backend.
    """

    max_episode_steps = 1000  # as in Brax's own training

    def __init__(self, envs: ModuleType, name: str, backend: str = "generalized", **keywords: Any) -> None:
        require_name("Brax", "brax", name, sorted(envs._envs))
        if backend not in BACKENDS:
            raise EnvError(f"Brax has no backend {backend!r}", hint=f"env.kwargs.backend is one of {', '.join(BACKENDS)}")
        try:
            self._env: Any = envs.get_environment(name, backend=backend, **keywords)
            example = jax.eval_shape(self._env.reset, jax.ShapeDtypeStruct((2,), "uint32"))
        except (TypeError, NotImplementedError, ValueError) as error:
            raise EnvError(f"Brax cannot make {name} with backend={backend} and {keywords}: {error}") from error
        self.observation_space = space_like(example.obs)  # `observation_size` would run a reset
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (int(self._env.action_size),), np.float32)

    def begin(self, key: jax.Array) -> Outcome:
        state = self._env.reset(key)
        return Outcome(state, state.obs, state.reward, state.done > 0)

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        state = self._env.step(inner, action)
        return Outcome(state, state.obs, state.reward, state.done > 0)
