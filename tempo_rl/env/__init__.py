"""Environments: `make` for programs (recurrent tensors), `make_vector` for the host (evaluation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tempo_rl.env.registry import FUNCTIONAL, is_functional
from tempo_rl.env.source import Source, named
from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    from tempo_rl.env.functional_env import SingleEnvironment
    from tempo_rl.env.program import Batch, ProgramEnvironment
    from tempo_rl.env.spaces import Actions
    from tempo_rl.env.vector import HostVectorEnvironment, VectorEnvironment
    from tempo_rl.recipe import Recipe

Keywords: TypeAlias = Mapping[str, Any]
"""An environment's arguments besides its id, by name: `env.kwargs` of a recipe."""

__all__ = ["is_functional", "make", "make_environment", "make_vector", "source_for", "vector_environment"]


def make(
    env_id: str,
    batch: Batch,
    num_envs: int,
    seed: int = 0,
    kwargs: Keywords | None = None,
    vectorization: str = "auto",
    wrappers: Sequence[str] = (),
    may_restart: bool = False,
) -> ProgramEnvironment:
    """`num_envs` environments over the batch step. `batch` is that step and its bound, which must be `num_envs` in a run.

    `env_id` is one of Gymnasium's ids ("CartPole-v1": runs on the host), the id of an environment in JAX ("phys2d/CartPole-v1",
    "brax/ant"), or `module:name` for a class, a function or an object of your own of either kind. With `may_restart`, a resumed run begins
    new episodes in environments that do not say what their state is; without it, such a run cannot be saved. Raises `EnvError`.
    """
    source = named(env_id, vectorization, kwargs)
    if source.is_functional:
        from tempo_rl.env.functional_env import FunctionalEnv, single_of

        _require_host_keys(source.name, vectorization, wrappers)
        return FunctionalEnv(single_of(source, **(kwargs or {})), num_envs, batch)
    from tempo_rl.env.gymnasium_env import GymnasiumEnv
    from tempo_rl.env.vector import host_of

    return GymnasiumEnv(host_of(source, num_envs, seed, vectorization, wrappers, **(kwargs or {})), batch, may_restart)


def make_vector(
    env_id: str, num_envs: int, seed: int = 0, kwargs: Keywords | None = None, wrappers: Sequence[str] = ()
) -> VectorEnvironment:
    """The same environments on the host, stepped with arrays."""
    source = named(env_id, keywords=kwargs)
    if source.is_functional:
        from tempo_rl.env.functional_env import FunctionalVectorEnvironment, single_of

        return FunctionalVectorEnvironment(single_of(source, **(kwargs or {})), num_envs, seed)
    from tempo_rl.env.vector import host_of

    return host_of(source, num_envs, seed, "auto", wrappers, **(kwargs or {}))


def make_environment(recipe: Recipe, batch: Batch) -> ProgramEnvironment:
    """The recipe's environments over the batch step. If they do not say their state, a resumed run begins new episodes."""
    from tempo_rl.env.stacked import StackedEnv

    env = _in_program(recipe, batch)
    return env if recipe.frames == 1 else StackedEnv(env, recipe.frames)


def source_for(recipe: Recipe) -> Source:
    """Where the recipe's environments come from: Python code, or the id. Raises `EnvError`."""
    env = recipe.env
    return named(env.id, env.vectorization, env.kwargs) if env.source is None else env.source


def _in_program(recipe: Recipe, batch: Batch) -> ProgramEnvironment:
    source = source_for(recipe)
    if source.is_functional:
        from tempo_rl.env.functional_env import FunctionalEnv

        return FunctionalEnv(_single(recipe, source), recipe.num_envs, batch, recipe.check_finite)
    from tempo_rl.env.gymnasium_env import GymnasiumEnv

    host = _host(recipe, source, recipe.count * recipe.num_envs, recipe.seed, recipe.env.vectorization)
    return GymnasiumEnv(host, batch, may_restart=True, members=recipe.count)


def vector_environment(recipe: Recipe, num_envs: int, seed: int = 0) -> VectorEnvironment:
    """The recipe's environments on the host, stepped with arrays: for evaluation.

    A vector environment that Python code gave as an object has its own number of environments, whatever `num_envs` is.
    """
    from tempo_rl.env.stacked import StackedVector

    env = _on_host(recipe, num_envs, seed)
    return env if recipe.frames == 1 else StackedVector(env, recipe.frames)


def _on_host(recipe: Recipe, num_envs: int, seed: int) -> VectorEnvironment:
    source = source_for(recipe)
    if source.is_functional:
        from tempo_rl.env.functional_env import FunctionalVectorEnvironment

        return FunctionalVectorEnvironment(_single(recipe, source), num_envs, seed)
    return _host(recipe, source, source.num_envs or num_envs, seed, "auto")


def _single(recipe: Recipe, source: Source) -> SingleEnvironment:
    """The recipe's environment in JAX."""
    from tempo_rl.env.functional_env import single_of

    _require_host_keys(source.name, recipe.env.vectorization, recipe.env.wrappers)
    single = single_of(source, **_keywords(recipe))
    single.actions = _mapped(single.actions, single.name, recipe)
    return single


def _host(recipe: Recipe, source: Source, num_envs: int, seed: int, vectorization: str) -> HostVectorEnvironment:
    """The recipe's environments on the host."""
    from tempo_rl.env.vector import host_of

    host = host_of(source, num_envs, seed, vectorization, recipe.env.wrappers, recipe.env_timeout, **_keywords(recipe))
    host.actions = _mapped(host.actions, host.name, recipe)
    return host


def _require_host_keys(name: str, vectorization: str, wrappers: Sequence[str]) -> None:
    for key, is_set in (("env.wrappers", wrappers), ("env.vectorization", vectorization not in ("auto", "sync"))):
        if is_set:
            raise EnvError(f"{key} is for environments on the host, but {name} runs in JAX", hint="leave it out")


def _mapped(actions: Actions, name: str, recipe: Recipe) -> Actions:
    """The actions with the way in which those of the recipe's policy come to their bounds."""
    from tempo_rl.env.spaces import scaled, squashed

    if recipe.scales_actions:
        return scaled(actions, name, recipe.algorithm)
    return squashed(actions, name) if recipe.squash_actions else actions


def _keywords(recipe: Recipe) -> Keywords:
    """The environment's arguments; a time limit that is that of a rollout."""
    _, limit = FUNCTIONAL.get(recipe.env.id, ("", 1))
    return recipe.env.kwargs if limit is not None else {"max_episode_steps": recipe.num_steps, **recipe.env.kwargs}
