"""MuJoCo Playground: `playground/CartpoleBalance`, `playground/Go1JoystickFlatTerrain`, ..."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium
import jax
import numpy as np

from tempo_rl.env.adapters.stepped import Outcome, Stepped, require_name, space_like


class Playground(Stepped):
    """An environment of MuJoCo Playground. Keywords are overrides of its configuration; `impl` is "jax", unless one of them says otherwise.

    Where observations have several parts, agents see the part "state". Actions are between -1 and 1. Raises EnvError for unknown names.
    """

    def __init__(self, playground: ModuleType, name: str, **keywords: Any) -> None:
        registry: Any = playground.registry
        require_name("MuJoCo Playground", "playground", name, registry.ALL_ENVS)
        config = registry.get_default_config(name)
        overrides = ({"impl": "jax"} if "impl" in config else {}) | keywords
        self._env: Any = registry.load(name, config_overrides=overrides)
        self.max_episode_steps = int(overrides.get("episode_length", config.episode_length))
        example = jax.eval_shape(self._env.reset, jax.ShapeDtypeStruct((2,), "uint32"))
        self.observation_space = space_like(_seen(example.obs))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (int(self._env.action_size),), np.float32)

    def begin(self, key: jax.Array) -> Outcome:
        state = self._env.reset(key)
        return Outcome(state, _seen(state.obs), state.reward, state.done > 0)

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        state = self._env.step(inner, action)
        return Outcome(state, _seen(state.obs), state.reward, state.done > 0)


def _seen(observation: Any) -> Any:
    return observation["state"] if isinstance(observation, dict) and "state" in observation else observation
