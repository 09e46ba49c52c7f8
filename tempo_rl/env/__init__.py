"""Environments: `make` for programs (recurrent tensors), `make_vector` for the host (evaluation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tempo_rl.env.registry import FUNCTIONAL, is_functional

if TYPE_CHECKING:
    from tempo_rl.env.functional_env import SingleEnvironment
    from tempo_rl.env.program import Batch, ProgramEnvironment
    from tempo_rl.env.vector import Environment, HostVectorEnvironment, VectorEnvironment
    from tempo_rl.recipe import Recipe

Keywords: TypeAlias = Mapping[str, Any]
"""An environment's arguments besides its id, by name: `env.kwargs` of a recipe."""

__all__ = ["is_functional", "make", "make_environment", "make_vector", "vector_environment"]


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


def make_environment(recipe: Recipe, batch: Batch) -> ProgramEnvironment:
    """The recipe's environments over the batch step. If they do not say their state, a resumed run begins new episodes."""
    from tempo_rl.env.stacked import StackedEnv

    env = _in_program(recipe, batch)
    return env if recipe.frames == 1 else StackedEnv(env, recipe.frames)


def _in_program(recipe: Recipe, batch: Batch) -> ProgramEnvironment:
    env, source = recipe.env, recipe.env.source
    if is_functional(env.id) if source is None else source.is_functional:
        from tempo_rl.env.functional_env import FunctionalEnv

        return FunctionalEnv(_single(recipe), recipe.num_envs, batch, recipe.check_finite)
    from tempo_rl.env.gymnasium_env import GymnasiumEnv

    host = _host(recipe, recipe.count * recipe.num_envs, recipe.seed, env.vectorization)
    return GymnasiumEnv(host, batch, may_restart=True, members=recipe.count)


def vector_environment(recipe: Recipe, num_envs: int, seed: int = 0) -> VectorEnvironment:
    """The recipe's environments on the host, stepped with arrays: for evaluation."""
    from tempo_rl.env.stacked import StackedVector

    env = _on_host(recipe, num_envs, seed)
    return env if recipe.frames == 1 else StackedVector(env, recipe.frames)


def _on_host(recipe: Recipe, num_envs: int, seed: int) -> VectorEnvironment:
    source = recipe.env.source
    if is_functional(recipe.env.id) if source is None else source.is_functional:
        from tempo_rl.env.functional_env import FunctionalVectorEnvironment

        return FunctionalVectorEnvironment(_single(recipe), num_envs, seed)
    return _host(recipe, num_envs, seed, "sync")


def _single(recipe: Recipe) -> SingleEnvironment:
    """The recipe's environment in JAX."""
    from tempo_rl.env.functional_env import make_single, single_of
    from tempo_rl.env.spaces import squashed

    env = recipe.env
    single = make_single(env.id, **_keywords(recipe)) if env.source is None else single_of(env.source, **_keywords(recipe))
    single.actions = squashed(single.actions, single.name) if recipe.squash_actions else single.actions
    return single


def _host(recipe: Recipe, num_envs: int, seed: int, vectorization: str) -> HostVectorEnvironment:
    """The recipe's environments on the host."""
    from tempo_rl.env.spaces import squashed
    from tempo_rl.env.vector import make_host, vectorized, wrapped

    env, source = recipe.env, recipe.env.source
    if source is None:
        host = make_host(env.id, num_envs, seed, vectorization, env.wrappers, recipe.env_timeout, **_keywords(recipe))
    else:
        make_one = cast("Callable[[], Environment]", source.make)
        make_wrapped = wrapped(make_one, env.wrappers)
        host = vectorized(make_wrapped, source.name, num_envs, seed, vectorization, recipe.env_timeout)
    host.actions = squashed(host.actions, host.name) if recipe.squash_actions else host.actions
    return host


def _keywords(recipe: Recipe) -> Keywords:
    """The environment's arguments; a time limit that is that of a rollout."""
    _, limit = FUNCTIONAL.get(recipe.env.id, ("", 1))
    return recipe.env.kwargs if limit is not None else {"max_episode_steps": recipe.num_steps, **recipe.env.kwargs}
