"""XLand-MiniGrid: `xminigrid/MiniGrid-Empty-5x5`, ..."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import gymnasium
import jax
import numpy as np

from tempo_rl.env.adapters.stepped import Outcome, Stepped, require_name


class XMiniGrid(Stepped):
    """An environment of XLand-MiniGrid. Keywords are its parameters (`EnvParams`), of which `max_steps` is the limit of steps.

    An observation is the kind and the colour of each tile in view, as choices. Raises EnvError for unknown names.
    """

    def __init__(self, xminigrid: ModuleType, name: str, **keywords: Any) -> None:
        require_name("XLand-MiniGrid", "xminigrid", name, xminigrid.registered_environments())
        self._env, params = xminigrid.make(name)
        unknown = keywords.keys() - {field.name for field in dataclasses.fields(params)}
        if unknown:
            raise TypeError(f"it has no parameters {', '.join(sorted(unknown))}")
        self._params: Any = params.replace(**keywords)
        self.max_episode_steps = int(self._params.max_steps)
        constants = xminigrid.core.constants
        shape = tuple(self._env.observation_shape(self._params))
        counts = np.broadcast_to(np.array([constants.NUM_TILES, constants.NUM_COLORS]), shape)
        self.observation_space = gymnasium.spaces.MultiDiscrete(counts)
        self.action_space = gymnasium.spaces.Discrete(int(self._env.num_actions(self._params)))

    def begin(self, key: jax.Array) -> Outcome:
        return _outcome(self._env.reset(self._params, key))

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        return _outcome(self._env.step(self._params, inner, action))


def _outcome(step: Any) -> Outcome:
    is_last, is_terminated = step.last(), step.discount == 0.0
    return Outcome(step, step.observation, step.reward, is_last & is_terminated, is_last & ~is_terminated)
