"""gymnax: `gymnax/CartPole-v1`, `gymnax/Breakout-MinAtar`, ..."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import jax

from tempo_rl.env.adapters.stepped import Outcome, Stepped, require_name, space_of
from tempo_rl.errors import EnvError


class Gymnax(Stepped):
    """An environment of gymnax. Keywords are parameters of the environment (`EnvParams`), or arguments of its class.

    The limit of steps is its parameter `max_steps_in_episode`. Raises EnvError for unknown names.
    """

    def __init__(self, gymnax: ModuleType, name: str, **keywords: Any) -> None:
        require_name("gymnax", "gymnax", name, gymnax.registered_envs)
        fields = {field.name for field in dataclasses.fields(gymnax.make(name)[1])}
        self._env, params = gymnax.make(name, **{key: value for key, value in keywords.items() if key not in fields})
        if not hasattr(self._env, "is_terminated"):
            raise EnvError("this version of gymnax does not tell termination from truncation", hint="pip install 'gymnax>=1.0'")
        self._params: Any = params.replace(**{key: value for key, value in keywords.items() if key in fields})
        self.max_episode_steps = int(self._params.max_steps_in_episode)
        self.observation_space = space_of(self._env.observation_space(self._params))
        self.action_space = space_of(self._env.action_space(self._params))

    def begin(self, key: jax.Array) -> Outcome:
        observation, state = self._env.reset_env(key, self._params)
        return Outcome(state, observation)

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        observation, state, reward, terminated, _ = self._env.step_env(key, inner, action, self._params)
        return Outcome(state, observation, reward, terminated)
