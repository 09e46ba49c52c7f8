"""Craftax: `craftax/Craftax-Symbolic-v1`, `craftax/Craftax-Classic-Pixels-v1`, ..."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax

from tempo_rl.env.adapters.stepped import Outcome, Stepped, space_of


class Craftax(Stepped):
    """An environment of Craftax. Keywords are its parameters (`EnvParams`), of which `max_timesteps` is the limit of steps.

    Raises ValueError for unknown names.
    """

    def __init__(self, craftax_env: ModuleType, name: str, **keywords: Any) -> None:
        self._env: Any = craftax_env.make_craftax_env_from_name(name, auto_reset=False)
        params = self._env.default_params.replace(**keywords)
        self.max_episode_steps = int(params.max_timesteps)
        self._params: Any = params.replace(
            max_timesteps=self.max_episode_steps + 1
        )  # or its limit would count as the end of a game
        self.observation_space = space_of(self._env.observation_space(self._params))
        self.action_space = space_of(self._env.action_space(self._params))

    def begin(self, key: jax.Array) -> Outcome:
        observation, state = self._env.reset_env(key, self._params)
        return Outcome(state, observation)

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        observation, state, reward, terminated, _ = self._env.step_env(key, inner, action, self._params)
        return Outcome(state, observation, reward, terminated)
