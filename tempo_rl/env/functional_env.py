"""Gymnasium's functional JAX environments: pure functions, so that a training iteration can be one device program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

import tempo_core as tp
from tempo_rl.env.check import check_functional
from tempo_rl.env.making import explained, takes
from tempo_rl.env.packing import Packing, example_of, is_key
from tempo_rl.env.program import Batch
from tempo_rl.env.source import JaxEnvironment, Source, named
from tempo_rl.env.spaces import EXACT, Actions, actions_of, observations_of
from tempo_rl.env.transition import Transition
from tempo_rl.env.vector import AT_FAULT, require_finite
from tempo_rl.errors import EnvError

Array: TypeAlias = jax.Array  # traced arrays too


class SingleEnvironment:
    """One functional environment with a time limit, as two pure functions of its packed state.

    The packed state is one vector: the environment's own state (`Packing`), then the steps and the return of the episode.
    """

    def __init__(self, function: JaxEnvironment, max_episode_steps: int, name: str, params: dict[str, Any]):
        from tempo_rl.env.watched import require_spaces

        require_spaces(function, name)
        if max_episode_steps < 1:
            raise EnvError(f"{name} has max_episode_steps={max_episode_steps}: an episode has at least 1 step")
        self.name, self.max_episode_steps, self.function = name, max_episode_steps, function
        try:
            defaults = getattr(function, "get_default_params", None)
            if defaults is None and params:
                raise TypeError("it has no get_default_params")
            self._params = None if defaults is None else defaults(**params)
        except TypeError as error:
            raise EnvError(
                f"{name} does not take {params}: {error}", hint="check the names in env.kwargs of the recipe"
            ) from error
        self.observations = observations_of(function.observation_space, name)
        self.actions: Actions = actions_of(function.action_space, name)
        with _standard_promotion():
            example = example_of(
                lambda data: function.initial(_key(data), params=self._params),
                [jax.ShapeDtypeStruct((2,), "uint32")],
                f"{name}.initial()",
            )
            taken = jax.eval_shape(
                lambda a: self.actions.outward(a, jnp), jax.ShapeDtypeStruct(self.actions.shape, self.actions.dtype)
            )
            check_functional(function, self._params, example, taken, name)
        self._packing = Packing(example, max_episode_steps >= EXACT)
        self.state_dtype = self._packing.dtype
        self.state_size: int = self._packing.size + 2
        truncated = getattr(function, "truncated", None)
        self._truncated: Callable[..., Array] | None = truncated if callable(truncated) else None
        self.ends_by_time_alone = bool(getattr(function, "ends_by_time_alone", False))

    def initial(self, key_data: Array) -> tuple[Array, Array]:
        """State and observation of a new episode. `key_data` is (2,) uint32."""
        with _standard_promotion():
            return self._initial(key_data)

    def step(self, packed: Array, action: Array, key_data: Array) -> tuple[Array, ...]:
        """The state after the step, then the parts of `Transition`. Where an episode ended, the state is that of a new one."""
        with _standard_promotion():
            return self._step(packed, action, key_data)

    def advance(self, packed: Array, action: Array, key_data: Array) -> tuple[Array, ...]:
        """The same without a new episode where one ended: the state and the observation are those at its end."""
        with _standard_promotion():
            return self._advance(packed, action, jax.random.split(_key(key_data))[0])

    def unpacked(self, packed: Array) -> object:
        """The environment's own state in a packed one: its arrays on the host, and its keys."""
        state = self._packing.unpack(jnp.asarray(packed)[:-2])
        return jax.tree.map(lambda leaf: leaf if is_key(leaf) else np.asarray(leaf), state)

    def observed(self, state: Any) -> np.ndarray:
        """The observation of a state of the environment. What is drawn at random in it is always the same."""
        with _standard_promotion():
            return np.asarray(self._observe(jax.tree.map(jnp.asarray, state), _key(jnp.zeros((2,), "uint32"))))

    def _initial(self, key_data: Array) -> tuple[Array, Array]:
        key = _key(key_data)
        state = self.function.initial(key, params=self._params)
        return self._pack(state, jnp.zeros((), "int32"), jnp.zeros((), "float32")), self._observe(state, key)

    def _step(self, packed: Array, action: Array, key_data: Array) -> tuple[Array, ...]:
        key, reset_key = jax.random.split(_key(key_data))
        packed, final, reward, terminated, truncated, *rest = self._advance(packed, action, key)
        fresh, first = self._initial(jax.random.key_data(reset_key))
        done = terminated | truncated
        return jnp.where(done, fresh, packed), jnp.where(done, first, final), reward, terminated, truncated, *rest

    def _advance(self, packed: Array, action: Array, key: Array) -> tuple[Array, ...]:
        function, params = self.function, self._params
        state, has_bits = self._packing.unpack(packed[:-2]), self._packing.has_bits
        steps = packed[-2].astype("int32")
        episode_return = jax.lax.bitcast_convert_type(packed[-1], "float32") if has_bits else packed[-1]
        action = self.actions.outward(action, jnp)
        following = function.transition(state, action, key, params=params)
        reward = jnp.asarray(function.reward(state, action, following, key, params=params), "float32").reshape(())
        terminated = jnp.asarray(function.terminal(following, key, params=params), bool).reshape(())
        steps, episode_return = steps + 1, episode_return + reward
        is_last = steps >= self.max_episode_steps
        if self._truncated is not None:
            is_last |= jnp.asarray(self._truncated(following, key, params=params), bool).reshape(())
        truncated = ~terminated & is_last
        final = self._observe(following, key)
        packed = self._pack(following, steps, episode_return)
        return packed, final, reward, terminated, truncated, final, episode_return, steps

    def _pack(self, state: Any, steps: Array, episode_return: Array) -> Array:
        if self._packing.has_bits:
            episode_return = jax.lax.bitcast_convert_type(episode_return, "int32")
        return jnp.concatenate([*self._packing.parts(state), steps.astype(self.state_dtype)[None], episode_return[None]])

    def _observe(self, state: Any, key: Array) -> Array:
        seen = self.function.observation(state, key, params=self._params)
        return jnp.asarray(self.observations.inward(seen, xp=jnp))


def _key(data: Array) -> Array:
    """A key of `jax.random` from its data, (2,) uint32."""
    return jax.random.wrap_key_data(data, impl="threefry2x32")


@contextmanager
def _standard_promotion() -> Iterator[None]:
    """Allow JAX's implicit conversions: an environment may rely on them, even if the program around it forbids them."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class FunctionalEnv:
    """Functional environments over the batch step, with the same methods as `GymnasiumEnv`.

    With `check_finite`, the host looks at each step for numbers that are not finite, and raises `EnvError` for them. That takes time.
    """

    takes_copies = True

    def __init__(self, single: SingleEnvironment, num_envs: int, batch: Batch, check_finite: bool = False):
        self.single, self.num_envs, self._batch, self._check_finite = single, num_envs, batch, check_finite
        self.observations, self.actions = single.observations, single.actions
        self._start: tp.Tensor | None = None

    def never_ends_within(self, num_steps: int) -> bool:
        """Whether no episode that begins with a rollout ends before its last step."""
        return self.single.ends_by_time_alone and self.single.max_episode_steps >= num_steps

    def reset(self, domain: Sequence[tp.Expr]) -> tp.Tensor:
        """First observations, over `domain`, which must hold the batch step."""
        key = tp.random.bits((2,), domain=tuple(domain))
        outputs = [
            tp.spec((self.single.state_size,), self.single.state_dtype),
            tp.spec(self.observations.shape, self.observations.dtype),
        ]
        self._start, observation = tp.udf(self.single.initial, key, outputs=outputs, kind="jax", name="reset")
        return observation

    def step(self, action: tp.Tensor, restarts: bool = True) -> Transition[tp.Tensor]:
        """One step with `action`, whose domain holds the batch step and the loops; without `restarts`, ended episodes end there."""
        if self._start is None:
            raise EnvError("step() was called before reset()", hint="call env.reset(domain) first")
        loops = tuple(step.expr for step in action.domain.steps)
        state = tp.recurrence((self.single.state_size,), self.single.state_dtype, domain=loops, name="env_state")
        key = tp.random.bits((2,), domain=loops)
        number, count, flag = (tp.spec((), dtype) for dtype in ("float32", "int32", "bool"))
        observation = tp.spec(self.observations.shape, self.observations.dtype)
        packed = tp.spec((self.single.state_size,), self.single.state_dtype)
        outputs = [packed, observation, number, flag, flag, observation, number, count]
        function = self.single.step if restarts else self.single.advance
        if self._check_finite:
            marked = [*outputs, tp.spec((), "int32")]
            following, *parts, mark = tp.udf(_marked(function), state, action, key, outputs=marked, kind="jax", name="step")
            self._hear(mark, parts[-1])
        else:
            following, *parts = tp.udf(function, state, action, key, outputs=outputs, kind="jax", name="step")
        tp.carry(state, self._start, following, kept=[step.expr for step in self._start.domain.steps])
        return Transition(*parts)

    def _hear(self, mark: tp.Tensor, length: tp.Tensor) -> None:
        """Have the marks of all environments, and the steps of their episodes, come to the host after each step."""
        b, size = self._batch
        together = tuple(slice(0, size) if step in b.steps else step.expr for step in mark.domain.steps)
        tp.sink(self._require_finite, mark[together], length[together], name="check_finite")

    def _require_finite(self, marks: np.ndarray, lengths: np.ndarray, **steps: int) -> None:
        marks, lengths = marks.reshape(-1), lengths.reshape(-1)  # those of all members
        for wrong in np.flatnonzero(marks)[:1].tolist():
            what, where = (
                "an observation" if marks[wrong] == 1 else "a reward",
                f"in environment {wrong} at step {lengths[wrong]}",
            )
            raise EnvError(f"{self.single.name} gave {what} that is not finite, {where} of its episode", hint=AT_FAULT)

    def close(self) -> None:
        """Nothing is held."""


def _marked(function: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """A step that also gives 0, or 1 for an observation that is not finite, or 2 for such a reward."""

    def step(packed: Array, action: Array, key_data: Array) -> tuple[Array, ...]:
        parts = function(packed, action, key_data)
        reward, final = parts[2], parts[5]
        mark = jnp.where(jnp.isfinite(final).all(), jnp.where(jnp.isfinite(reward), 0, 2), 1)
        return (*parts, mark.astype("int32"))

    return step


class FunctionalVectorEnvironment:
    """B functional environments stepped from the host, for evaluation."""

    def __init__(self, single: SingleEnvironment, num_envs: int, seed: int = 0):
        self.single, self.num_envs, self.observations, self.actions = single, num_envs, single.observations, single.actions
        self._seed = seed
        self._initial = jax.jit(jax.vmap(single.initial))
        self._step = jax.jit(jax.vmap(single.step))
        self._state: Array | None = None
        self._generator = np.random.default_rng(seed)

    def reset(self, clock: int = 0) -> np.ndarray:
        self._generator = np.random.default_rng([self._seed, clock])
        self._state, observation = self._initial(self._keys())
        return np.asarray(observation)

    def step(self, action: np.ndarray) -> Transition[np.ndarray]:
        self._state, *parts = self._step(self._state, np.asarray(action), self._keys())
        step = Transition(*(np.asarray(part) for part in parts))
        require_finite(self.single.name, step.final_observation, step.reward, step.episode_length)
        return step

    def state_of_first(self) -> object:
        """The state of the first environment, after the last reset or step."""
        assert self._state is not None, "not reset yet"
        return self.single.unpacked(self._state[0])

    def close(self) -> None:
        """Nothing is held."""

    def _keys(self) -> np.ndarray:
        return self._generator.integers(0, 2**32, (self.num_envs, 2), np.uint32)


def make_single(env_id: str, max_episode_steps: int | None = None, **params: Any) -> SingleEnvironment:
    """The environment in JAX with an id: one of Tempo's, of a library, or the `module:Class` of a `gymnasium.experimental.functional.FuncEnv`.

    `params` go to its class, if that takes them, or to its `get_default_params`. Raises `EnvError` if a package or the time limit is missing,
    or if it does not run in JAX.
    """
    return single_of(named(env_id, keywords=params), max_episode_steps, **params)


def single_of(source: Source, max_episode_steps: int | None = None, **params: Any) -> SingleEnvironment:
    """The environment in JAX of a source. Raises `EnvError` if the time limit is missing."""
    if source.kind != "jax":
        raise EnvError(
            f"{source.name} is an environment of Gymnasium, not one in JAX", hint="make it with tempo_rl.env.make_vector"
        )
    ours = {name: value for name, value in params.items() if takes(source.make, name)}
    with explained(source.name, ours):
        function = cast("JaxEnvironment", source.make(**ours))
    limits = (max_episode_steps, source.max_episode_steps, getattr(function, "max_episode_steps", None))
    limit = next((limit for limit in limits if limit is not None), None)
    if limit is None:
        raise EnvError(
            f"{source.name} has no time limit",
            hint="set one: env.kwargs.max_episode_steps=200, or an attribute of the class: max_episode_steps = 200",
        )
    return SingleEnvironment(function, limit, source.name, {name: params[name] for name in params if name not in ours})
