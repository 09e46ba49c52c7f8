"""Environments: `make` for programs (recurrent tensors), `make_vector` for the host (evaluation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tempo_rl.env.registry import is_functional

if TYPE_CHECKING:
    from tempo_rl.env.program import Batch, ProgramEnvironment
    from tempo_rl.env.vector import VectorEnvironment

Keywords: TypeAlias = Mapping[str, Any]
"""An environment's arguments besides its id, by name: `env.kwargs` of a recipe."""

__all__ = ["is_functional", "make", "make_vector"]


def make(
    env_id: str,
    batch: Batch,
    num_envs: int,
    seed: int = 0,
    kwargs: Keywords | None = None,
    vectorization: str = "sync",
    wrappers: Sequence[str] = (),
    may_restart: bool = False,
) -> ProgramEnvironment:
    """`num_envs` environments over the batch step. `batch` is that step and its bound, which must be `num_envs` in a run.

    `env_id` is one of Gymnasium's ids ("CartPole-v1": runs on the host), the id of a functional environment
    ("phys2d/CartPole-v1": runs in JAX), or the `module:Class` of a functional environment. With `may_restart`, a resumed run begins new
    episodes in environments that do not say what their state is; without it, such a run cannot be saved. Raises `EnvError`.
    """
    if is_functional(env_id):
        from tempo_rl.env.functional_env import FunctionalEnv, make_single

        return FunctionalEnv(make_single(env_id, **(kwargs or {})), num_envs, batch)
    from tempo_rl.env.gymnasium_env import GymnasiumEnv
    from tempo_rl.env.vector import make_host

    return GymnasiumEnv(make_host(env_id, num_envs, seed, vectorization, wrappers, **(kwargs or {})), batch, may_restart)


def make_vector(
    env_id: str, num_envs: int, seed: int = 0, kwargs: Keywords | None = None, wrappers: Sequence[str] = ()
) -> VectorEnvironment:
    """The same environments on the host, stepped with arrays."""
    if is_functional(env_id):
        from tempo_rl.env.functional_env import FunctionalVectorEnvironment, make_single

        return FunctionalVectorEnvironment(make_single(env_id, **(kwargs or {})), num_envs, seed)
    from tempo_rl.env.vector import make_host

    return make_host(env_id, num_envs, seed, "sync", wrappers, **(kwargs or {}))
