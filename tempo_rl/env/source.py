"""Environments that Python code gives in place of an id: an object, a function that makes one, or functions in JAX."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from tempo_rl.env.blocked import TIMEOUT, within
from tempo_rl.env.closing import close_quietly
from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    import gymnasium
    import jax

    Environment: TypeAlias = gymnasium.Env[Any, Any]
    Space: TypeAlias = gymnasium.Space[object]


@runtime_checkable
class JaxEnvironment(Protocol):
    """An environment as pure functions of JAX, in the form of `gymnasium.experimental.functional.FuncEnv`.

    A state is one array. `rng` is a key of `jax.random`. `params` is what `get_default_params` returns; both may be ignored. An attribute
    `max_episode_steps` says after how many steps an episode is truncated.
    """

    @property
    def observation_space(self) -> Space: ...
    @property
    def action_space(self) -> Space: ...
    def initial(self, rng: jax.Array, params: Any = None) -> jax.Array: ...
    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array: ...
    def observation(self, state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array: ...
    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: Any = None
    ) -> jax.Array: ...
    def terminal(self, state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array: ...


AnyEnvironment: TypeAlias = "str | Environment | JaxEnvironment | Callable[[], Environment] | Callable[[], JaxEnvironment]"
"""An id of Gymnasium's, an environment, a function (or class) that makes one, or an environment in JAX."""


@dataclass(frozen=True)
class Source:
    """An environment by its name, with the function that makes one. A functional one has a time limit."""

    name: str
    make: Callable[[], object]
    is_functional: bool = False
    max_episode_steps: int | None = None


def source_of(env: AnyEnvironment) -> Source | None:
    """Where copies of an environment come from; None for an id. Raises EnvError for what is no environment."""
    import gymnasium

    if isinstance(env, str):
        return None
    if isinstance(env, gymnasium.Env):
        make = _copies_of(env)
        _check(make(), _name(env))
        return Source(_name(env), make)
    if not isinstance(env, type) and isinstance(env, JaxEnvironment):
        return Source(type(env).__name__, lambda: env, True, getattr(env, "max_episode_steps", None))
    if not callable(env):
        raise EnvError(
            f"{env!r} is not an environment",
            hint='give an id ("CartPole-v1"), a gymnasium.Env, a function that makes one, or an environment in JAX',
        )
    example: object = within(TIMEOUT, f"{getattr(env, '__name__', env)}()", env)
    if isinstance(example, gymnasium.Env):
        name = _name(example)
        _check(example, name)
        return Source(name, env)
    if isinstance(example, JaxEnvironment):
        return source_of(example)
    raise EnvError(
        f"{getattr(env, '__name__', env)}() gives {example!r}, which is not an environment", hint="return a gymnasium.Env"
    )


def _check(example: Environment, name: str) -> None:
    """Check an example, and close it."""
    from tempo_rl.env.check import check_host

    try:
        within(TIMEOUT, f"a reset or step of {name}", lambda: check_host(example, name))
    finally:
        close_quietly(example, f"the environment {name}")


def _copies_of(env: Environment) -> Callable[[], Environment]:
    """A function that makes copies of an environment as it is now: what was changed after it was made is in them too."""
    try:
        original = _copy(env)
    except Exception as error:
        raise EnvError(
            f"{_name(env)} cannot be copied: {error}", hint="give a function that makes one: PPO(lambda: MyEnv(...))"
        ) from error
    return lambda: _copy(original)


def _copy(env: Environment) -> Environment:
    """A deep copy. Gymnasium's `EzPickle` would make layers anew from their arguments; their attributes are copied instead."""
    from gymnasium.utils import EzPickle

    layers, memo = [env], dict[int, Any]()
    while hasattr(layers[-1], "env"):
        layers.append(layers[-1].env)
    made_anew = [layer for layer in layers if isinstance(layer, EzPickle)]
    for layer in made_anew:
        memo[id(layer)] = object.__new__(type(layer))
    for layer in made_anew:
        vars(memo[id(layer)]).update(copy.deepcopy(vars(layer), memo))
    return copy.deepcopy(env, memo)


def _name(env: Environment) -> str:
    return str(env.spec.id) if env.spec is not None else type(env.unwrapped).__name__
