"""Checks of environments that Python code gives, before a program is made of them: each mistake is one error, with its function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from tempo_rl.env.packing import example_of, require_same
from tempo_rl.env.spaces import misfit
from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    import gymnasium

    from tempo_rl.env.source import JaxEnvironment

    Environment: TypeAlias = gymnasium.Env[Any, Any]


def check_host(env: Environment, name: str) -> None:
    """Reset an environment of Gymnasium's form and take one step. Raises `EnvError` for results of another form than it declares."""
    from tempo_rl.env.watched import require_spaces

    require_spaces(env, name)
    first = env.reset(seed=0)
    if not (isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)):
        raise EnvError(f"{name}.reset() gives {_shown(first)}", hint="return observation, {}")
    _check_observation(env, first[0], name, "reset")
    env.action_space.seed(0)
    step: Any = env.step(env.action_space.sample())
    if not (isinstance(step, tuple) and len(step) == 5):
        raise EnvError(f"{name}.step(action) gives {_shown(step)}", hint="return observation, reward, terminated, truncated, {}")
    observation, reward, terminated, truncated, _ = step
    _check_observation(env, observation, name, "step")
    if np.shape(reward) not in ((), (1,)) or not np.issubdtype(np.asarray(reward).dtype, np.number):
        raise EnvError(f"{name}.step(action) gives the reward {_shown(reward)}", hint="a reward is one number: float(reward)")
    for what, value in (("terminated", terminated), ("truncated", truncated)):
        if np.shape(value) not in ((), (1,)) or np.asarray(value).dtype != np.bool_:
            raise EnvError(f"{name}.step(action) gives {_shown(value)} for {what}", hint=f"write bool({what})")


def _check_observation(env: Environment, observation: object, name: str, function: str) -> None:
    from gymnasium.spaces import Box

    space = env.observation_space
    if not isinstance(space, Box):
        if not space.contains(observation):
            raise EnvError(f"{name}.{function}() gives {_shown(observation)}, which is not in its observation_space {space}")
        return
    array = np.asarray(observation)
    if array.shape != space.shape or not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise EnvError(
            f"{name}.{function}() gives an observation {array.dtype}{list(array.shape)}, but its observation_space is {space}",
            hint="make both the same: self.observation_space = gymnasium.spaces.Box(low, high, shape, dtype)",
        )


def check_functional(function: JaxEnvironment, params: Any, example: Any, action: jax.ShapeDtypeStruct, name: str) -> None:
    """The shapes that the functions of an environment in JAX give, found without running them. Raises `EnvError` for others than it declares.

    `example` has the shapes of a state.
    """
    key = jax.ShapeDtypeStruct((2,), "uint32")

    def called(which: str) -> Callable[..., Any]:
        def call(data: jax.Array, *values: Any) -> Any:
            rng = jax.random.wrap_key_data(data, impl="threefry2x32")
            return getattr(function, which)(*values, rng, params=params)

        return call

    def shape_of(which: str, *operands: Any) -> Any:
        result = jax.eval_shape(called(which), key, *operands)
        if not isinstance(result, jax.ShapeDtypeStruct):
            raise EnvError(
                f"{name}.{which}() gives {type(result).__name__}, not one array",
                hint="join its parts to one array: jnp.concatenate([a, b])",
            )
        return result

    following = example_of(called("transition"), (key, example, action), f"{name}.transition()")
    require_same(example, following, name)
    _check_observation_shapes(function.observation_space, jax.eval_shape(called("observation"), key, following), name)
    for which, operands in (("reward", (example, action, following)), ("terminal", (following,))):
        result = shape_of(which, *operands)
        if math.prod(result.shape) != 1:
            raise EnvError(f"{name}.{which}() gives an array {result.shape}, not one number")


def _check_observation_shapes(space: gymnasium.Space[Any], observation: Any, name: str) -> None:
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        what = misfit(space, observation)
        if what is not None:
            raise EnvError(f"{name}.observation() gives {what}, but its observation_space is {space}")
    elif not hasattr(observation, "shape"):
        raise EnvError(
            f"{name}.observation() gives {type(observation).__name__}, but its observation_space is {space}",
            hint="make the space a gymnasium.spaces.Dict or Tuple, or join the parts to one array",
        )
    elif tuple(observation.shape) != space.shape:
        raise EnvError(
            f"{name}.observation() gives an array {observation.shape}, but its observation_space has the shape {space.shape}"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
