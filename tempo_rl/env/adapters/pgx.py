"""Pgx, games for one player: `pgx/2048`, `pgx/minatar-breakout`, ..."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium
import jax

from tempo_rl.env.adapters.stepped import ENDLESS, Outcome, Stepped, require_name, space_like
from tempo_rl.errors import EnvError


class Pgx(Stepped):
    """A game of Pgx for one player. An illegal action ends it, with Pgx's own penalty: agents do not see `legal_action_mask`.

    Raises EnvError for unknown names, and for games of several players.
    """

    max_episode_steps = ENDLESS

    def __init__(self, pgx: ModuleType, name: str, **keywords: Any) -> None:
        require_name("Pgx", "pgx", name, pgx.available_envs())
        self._env: Any = pgx.make(name, **keywords)
        if self._env.num_players != 1:
            raise EnvError(
                f"pgx/{name} is a game of {self._env.num_players} players, but an agent plays alone",
                hint="take a game for one player, such as pgx/2048 or pgx/minatar-breakout",
            )
        example = jax.eval_shape(self._env.init, jax.ShapeDtypeStruct((2,), "uint32"))
        self.observation_space = space_like(example.observation)
        self.action_space = gymnasium.spaces.Discrete(int(self._env.num_actions))

    def begin(self, key: jax.Array) -> Outcome:
        return _outcome(self._env.init(key))

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        return _outcome(self._env.step(inner, action, key))


def _outcome(state: Any) -> Outcome:
    return Outcome(state, state.observation, state.rewards[0], state.terminated, state.truncated)
