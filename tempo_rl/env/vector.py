"""Gymnasium environments on the host: B of them stepped together, with every end of an episode handled in one way."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from tempo_rl.env.blocked import TIMEOUT, within
from tempo_rl.env.making import explained, takes
from tempo_rl.env.source import Source, named, same_step
from tempo_rl.env.spaces import Actions, Observations, actions_of, observations_of
from tempo_rl.env.transition import Transition
from tempo_rl.errors import EnvError, own_line
from tempo_rl.references import load_reference

if TYPE_CHECKING:
    import gymnasium

    Environment: TypeAlias = gymnasium.Env[np.ndarray, np.ndarray]
    VectorEnv: TypeAlias = gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]

AnyEnv = TypeVar("AnyEnv", bound="Environment | VectorEnv")


STARTING = 60.0  # seconds that the start of one more process may take, on a machine with much to do
MOST_ENVIRONMENTS = 65_536  # on the host, in one vector


class VectorEnvironment(Protocol):
    """The interface of environments for evaluation, host or functional: B copies that restart by themselves."""

    num_envs: int
    observations: Observations
    actions: Actions

    def reset(self, clock: int = 0) -> np.ndarray: ...
    def step(self, action: np.ndarray) -> Transition[np.ndarray]: ...
    def close(self) -> None: ...


def env_seeds(seed: int, num_envs: int, clock: int = 0) -> list[int]:
    """One seed per environment, by its index. The streams are independent, also between runs with neighbouring seeds."""
    return [int(np.random.SeedSequence([seed, index, clock]).generate_state(1)[0]) >> 1 for index in range(num_envs)]


class HostVectorEnvironment:
    """Wraps a Gymnasium vector environment so that episodes restart within the step that ended them.

    Gymnasium has three autoreset modes. SAME_STEP already does this. With DISABLED, this class resets the environments whose
    episode ended; also with NEXT_STEP in Gymnasium's own vector environments, where a reset takes the place of the step that this mode
    inserts: a step that ignores the action, and from which nothing may be learned. Other vector environments with NEXT_STEP are refused.
    """

    def __init__(self, env: VectorEnv, seed: int = 0, name: str = "", remembering: bool = False, timeout: float = TIMEOUT):
        """`remembering`: each copy is inside `tempo_rl.env.state._Remembering`, which copies in other processes need to be saved.

        `timeout` is the most seconds for a call of copies in other processes, and for their state.
        """
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

        self.name = name or str(getattr(getattr(env, "spec", None), "id", type(env).__name__))
        self.env, self.seed, self.num_envs = env, seed, int(env.num_envs)
        self.observations = observations_of(env.single_observation_space, self.name)
        self.actions = actions_of(env.single_action_space, self.name)
        self._action_dtype = env.single_action_space.dtype
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode == AutoresetMode.NEXT_STEP and not isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)):
            raise EnvError(
                f"{self.name} restarts episodes in the next step (AutoresetMode.NEXT_STEP), which loses transitions",
                hint="make it with autoreset_mode=AutoresetMode.SAME_STEP. Or let Tempo make the environments: env.vectorization=sync, "
                "or in Python a class or function that makes one environment",
            )
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._remembering = remembering
        self.members = 1  # as many as the environments belong to, in equal shares; that of member k has the seed `seed + k`
        self.timeout = timeout
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths = np.zeros(self.num_envs, np.int32)

    def reset(self, clock: int = 0) -> np.ndarray:
        """First observations, (B, *shape). The seeds follow from (seed, environment index, `clock`)."""
        size = self.num_envs // self.members
        seeds: Any = [
            each for k in range(self.members) for each in env_seeds(self.seed + k, size, clock)
        ]  # the base class declares one seed; every subclass takes one per copy
        if self._remembering:
            env: Any = self.env
            observation, _ = self._answer("reset", lambda: env.reset_async(seed=seeds), env.reset_wait)
        else:
            observation, _ = self.env.reset(seed=seeds)
        self._returns[:], self._lengths[:] = 0.0, 0
        return self._observation(observation)

    def step(self, action: np.ndarray) -> Transition[np.ndarray]:
        """Step all environments. `action` is (B,) ints or (B, *shape) floats."""
        observation, *numbers, info = self._stepped(self._outward(np.asarray(action)))
        reward, terminated, truncated = (self._one_each(each, name) for each, name in zip(numbers, PARTS, strict=True))
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        done = terminated | truncated
        self._returns += reward
        self._lengths += 1
        if not self.observations.has_parts:  # before a number is converted
            require_finite(self.name, np.asarray(observation), np.asarray(reward), self._lengths)
        observation = self._observation(observation)
        if self.observations.has_parts:
            require_finite(self.name, observation, np.asarray(reward), self._lengths)
        episode_return, episode_length = self._returns.astype(np.float32), self._lengths.copy()
        self._returns[done], self._lengths[done] = 0.0, 0
        final = observation
        if done.any():
            if self._same_step:
                final = observation.copy()
                for index in np.flatnonzero(done):
                    final[index] = self.observations.inward(_row(info["final_obs"], int(index)))
            else:
                restarted, _ = self.env.reset(options={"reset_mask": done})
                observation = self._observation(restarted)
        reward = np.asarray(reward, np.float32)
        return Transition(observation, reward, terminated, truncated, final, episode_return, episode_length)

    def close(self) -> None:
        """End the environments; those in other processes at once, for one may be blocked."""
        self.env.close(**({"terminate": True} if self._remembering else {}))

    def running(self) -> dict[str, np.ndarray]:
        """The returns and lengths of the episodes that run now."""
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def state(self) -> dict[str, np.ndarray]:
        """All that later steps depend on, as arrays by name: of each copy, and the returns and lengths of running episodes.

        Raises EnvError for an environment, a wrapper or a vector environment that does not say what its state is.
        """
        from tempo_rl.env.state import state_of

        if self._says_its_state():
            return self.running() | {f"vector/{name}": np.array(array) for name, array in cast("Any", self.env).state().items()}
        copies, env = self._copies(), cast("Any", self.env)
        if copies is None:
            states = self._answer("state", lambda: env.call_async("saved_state"), env.call_wait)
        else:
            states = [within(self.timeout, f"{self.name}.state()", partial(state_of, copy)) for copy in copies]
        arrays = self.running()
        for index, state in enumerate(states):
            if isinstance(state, EnvError):
                raise state
            arrays |= {f"{index}/{name}": array for name, array in state.items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave, also in another process and without a reset. Raises EnvError if it is of other environments."""
        from tempo_rl.env.state import restore_state

        if len(arrays["returns"]) != self.num_envs:
            raise EnvError(
                f"the saved state is that of {len(arrays['returns'])} environments, but {self.name} has {self.num_envs}"
            )
        if self._says_its_state():
            whole = {name[len("vector/") :]: array for name, array in arrays.items() if name.startswith("vector/")}
            cast("Any", self.env).restore(whole)
            self._returns[:], self._lengths[:] = arrays["returns"], arrays["lengths"]
            return
        prefixes = [f"{index}/" for index in range(self.num_envs)]
        states = [{name[len(p) :]: array for name, array in arrays.items() if name.startswith(p)} for p in prefixes]
        copies = self._copies()
        what = f"{self.name}.restore()"
        if copies is None:
            within(self.timeout, what, lambda: cast("Any", self.env).set_attr("saved_state", states))
        else:
            for copy, state in zip(copies, states, strict=True):
                within(self.timeout, what, partial(restore_state, copy, state))
        self._returns[:], self._lengths[:] = arrays["returns"], arrays["lengths"]

    def _says_its_state(self) -> bool:
        """Whether the vector environment itself has `state` and `restore`."""
        return all(callable(getattr(type(self.env), name, None)) for name in ("state", "restore"))

    @property
    def first(self) -> Environment:
        """The first environment, where it runs in this process. Raises EnvError if it does not."""
        copies = self._copies()
        if copies is None:
            raise EnvError(f"{self.name} runs in other processes", hint="run it in this process: env.vectorization=sync")
        return copies[0]

    def _copies(self) -> Sequence[Environment] | None:
        """The environments in this process, or None for those in others. Raises EnvError if they cannot be reached."""
        from gymnasium.vector import SyncVectorEnv

        from tempo_rl.env.watched import Watched

        if isinstance(self.env, SyncVectorEnv):
            return [copy.env if isinstance(copy, Watched) else copy for copy in self.env.envs]
        if self._remembering:
            return None
        raise EnvError(
            f"the state of {self.name} inside {type(self.env).__name__} cannot be reached",
            hint="let Tempo make the environments: env.vectorization=sync or env.vectorization=async",
        )

    def _stepped(self, action: np.ndarray) -> Any:
        """A step of the vector environment."""
        if not self._remembering:
            return self.env.step(action)
        env: Any = self.env
        return self._answer("step", lambda: env.step_async(action), env.step_wait)

    def _answer(self, function: str, ask: Callable[[], None], wait: Callable[[float], Any]) -> Any:
        """The answer of the environments in other processes. Raises EnvError for processes that do not answer, or have ended."""
        try:
            with _errors_of_processes():
                ask()
                return wait(self.timeout)
        except multiprocessing.TimeoutError as error:
            raise EnvError(
                f"{self.name} has not answered a {function} within {self.timeout:g} s",
                hint=f"look for an endless loop or a lock in its {function}(). To allow more seconds: env_timeout=600",
            ) from error
        except (EOFError, ConnectionError) as error:
            from gymnasium.vector.async_vector_env import AsyncState

            env: Any = self.env
            env._state = AsyncState.DEFAULT  # or else closing it waits for the answer, and leaves the other processes behind
            raise EnvError(f"a process of {self.name} has ended: it was killed, or ran out of memory") from error

    def _one_each(self, values: Any, name: str) -> np.ndarray:
        """A number for each environment (B,), also from an array (B, 1)."""
        array = np.asarray(values)
        if array.shape not in ((self.num_envs,), (self.num_envs, 1)):
            raise EnvError(
                f"{self.name}.step() gives an array {array.shape} for {name}",
                hint=f"give one for each environment: ({self.num_envs},)",
            )
        return array.reshape(self.num_envs)

    def _observation(self, observation: Any) -> np.ndarray:
        inward = np.array(self.observations.inward(observation, (self.num_envs,)))  # a copy: environments reuse their buffers
        if (what := self.observations.wrong_choice(inward)) is not None:
            raise EnvError(f"{self.name} gave an observation that is not in its observation_space: {what}", hint=AT_FAULT)
        return inward

    def _outward(self, action: np.ndarray) -> np.ndarray:
        if action.shape[:1] != (self.num_envs,):
            raise EnvError(f"{self.name} has {self.num_envs} environments, but got actions of shape {action.shape}")
        return self.actions.outward(action).astype(self._action_dtype)


def _row(observation: Any, index: int) -> Any:
    """The observation of one environment, in an array of them, or in arrays in dicts and tuples."""
    if isinstance(observation, Mapping):
        return {name: _row(part, index) for name, part in observation.items()}
    return tuple(_row(part, index) for part in observation) if isinstance(observation, tuple) else observation[index]


PARTS = ("the reward", "terminated", "truncated")
AT_FAULT = "the environment is at fault, not the agent: check its step()"


def require_finite(name: str, observation: np.ndarray, reward: np.ndarray, lengths: np.ndarray) -> None:
    """Raise EnvError for numbers of environments (B, ...) that are not finite, and say whose they are. `lengths` (B,) are the steps of episodes."""
    for what, values in (("an observation", observation), ("a reward", reward)):
        if values.dtype.kind != "f":
            continue
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(values.astype(np.float32, copy=False))  # agents compute with float32
        if not is_finite.all():
            wrong = int(np.flatnonzero(~is_finite.reshape(len(values), -1).all(1))[0])
            what += " that is not finite" + (
                "" if np.isnan(values[wrong]).any() or np.isinf(values[wrong]).any() else " in float32"
            )
            raise EnvError(
                f"{name} gave {what}: {values[wrong]}, in environment {wrong} at step {int(lengths[wrong])} of its episode",
                hint=AT_FAULT,
            )


@contextmanager
def _errors_of_processes() -> Iterator[None]:
    """An error of an environment in another process is raised as it was there, and Gymnasium's report of it is left out."""
    from gymnasium import logger

    level = logger.min_level
    logger.min_level = logger.ERROR + 1
    try:
        yield
    except EnvError as error:
        if isinstance(error.message, EnvError):  # Gymnasium makes it anew, of itself
            raise error.message from None
        raise
    finally:
        logger.min_level = level


def make_host(
    env_id: str,
    num_envs: int,
    seed: int = 0,
    vectorization: str = "sync",
    wrappers: Sequence[str] = (),
    env_timeout: float = TIMEOUT,
    **kwargs: Any,
) -> HostVectorEnvironment:
    """`num_envs` Gymnasium environments `env_id`, stepped in this process ("sync") or one process each ("async").

    A call of an environment ends with an error after `env_timeout` seconds.
    """
    source = named(env_id, "sync", kwargs)
    return host_of(source, num_envs, seed, vectorization, wrappers, env_timeout, **kwargs)


def host_of(
    source: Source,
    num_envs: int,
    seed: int = 0,
    vectorization: str = "auto",
    wrappers: Sequence[str] = (),
    env_timeout: float = TIMEOUT,
    **kwargs: Any,
) -> HostVectorEnvironment:
    """`num_envs` environments of a source of the kind "host" or "vector", made with `kwargs`. Raises `EnvError`."""
    name = source.name
    if source.kind == "vector":
        if vectorization in ("sync", "async"):
            raise EnvError(
                f"{name} is a vector environment, used as it is: env.vectorization={vectorization} has no meaning for it"
            )
        make_vector = wrapped(partial(_made_vector, source, num_envs, kwargs), wrappers)
        env = within(env_timeout, f"the making of {name}", make_vector)
        return HostVectorEnvironment(env, seed, name, timeout=env_timeout)
    if vectorization == "vector_entry_point":
        raise EnvError(
            f"env.vectorization=vector_entry_point is for ids of Gymnasium, but {name} is a class or function",
            hint="leave it out, or name a class of gymnasium.vector.VectorEnv",
        )
    make_wrapped = wrapped(partial(_made, source, kwargs), wrappers)
    with explained(name, kwargs):
        return vectorized(make_wrapped, name, num_envs, seed, "sync" if vectorization == "auto" else vectorization, env_timeout)


def _made(source: Source, kwargs: Mapping[str, Any]) -> Environment:
    """One environment of Gymnasium. A class that takes no time limit gets one around it, if `kwargs` says so."""
    import gymnasium

    limit = None if takes(source.make, "max_episode_steps") else kwargs.get("max_episode_steps")
    arguments = {key: value for key, value in kwargs.items() if limit is None or key != "max_episode_steps"}
    with explained(source.name, arguments):
        env = cast("Environment", source.make(**arguments))
    if not isinstance(env, gymnasium.Env):
        raise EnvError(f"{source.name} gives {env!r}, which is not a gymnasium.Env")
    return env if limit is None else gymnasium.wrappers.TimeLimit(env, int(limit))


def _made_vector(source: Source, num_envs: int, kwargs: Mapping[str, Any]) -> VectorEnv:
    """A vector environment of a source."""
    amount = {} if source.num_envs is not None else {"num_envs": num_envs, **same_step(source.make, kwargs)}
    with explained(source.name, kwargs):
        env = cast("VectorEnv", source.make(**amount, **kwargs))
    if env.num_envs != num_envs:
        raise EnvError(
            f"{source.name} has {env.num_envs} environments, but the recipe asks for num_envs={num_envs}",
            hint=f"write num_envs={env.num_envs}",
        )
    return env


def wrapped(make: Callable[[], AnyEnv], wrappers: Sequence[str]) -> Callable[[], AnyEnv]:
    """A function that makes environments inside wrappers, which are `module:Class` references. Raises `EnvError`."""
    import gymnasium

    classes = [cast("Callable[[AnyEnv], AnyEnv]", load_reference(reference)) for reference in wrappers]

    def make_wrapped() -> AnyEnv:
        env = make()
        kind: Any = gymnasium.vector.VectorEnv if isinstance(env, gymnasium.vector.VectorEnv) else gymnasium.Env
        for reference, wrapper in zip(wrappers, classes, strict=True):
            try:
                env = wrapper(env)
            except EnvError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}{own_line(error)}"
                raise EnvError(
                    f"the wrapper {reference} raised {what}", hint="a wrapper is called with the environment only: Wrapper(env)"
                ) from error
            if not isinstance(env, kind):
                raise EnvError(
                    f"the wrapper {reference} gives {env!r}", hint=f"return an environment, such as {_wrapper_of(kind)}(env)"
                )
        return env

    return make_wrapped


def _wrapper_of(kind: type) -> str:
    return "gymnasium.Wrapper" if kind.__name__ == "Env" else "gymnasium.vector.VectorWrapper"


def vectorized(
    make_one: Callable[[], Environment],
    name: str,
    num_envs: int,
    seed: int = 0,
    vectorization: str = "sync",
    timeout: float = TIMEOUT,
) -> HostVectorEnvironment:
    """`num_envs` environments that `make_one` makes, stepped in this process ("sync") or one process each ("async").

    A call of an environment ends with an error after `timeout` seconds.
    """
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    from tempo_rl.env.state import _Remembering

    limit = timeout if vectorization == "sync" else None  # this process watches the others

    def make_watched() -> Environment:
        return _Remembering(within(limit, f"the making of {name}", make_one), name, limit)

    if vectorization not in ("sync", "async"):
        raise EnvError(f"env.vectorization is {vectorization!r}", hint="write env.vectorization=sync or env.vectorization=async")
    if num_envs > MOST_ENVIRONMENTS:
        raise EnvError(
            f"num_envs={num_envs:,} environments {name} on the host are too many: at most {MOST_ENVIRONMENTS:,}",
            hint="use fewer, num_envs=64, or an environment in JAX",
        )
    mode = AutoresetMode.SAME_STEP
    if vectorization == "sync":
        copies = SyncVectorEnv([make_watched] * num_envs, autoreset_mode=mode)
        if len({id(copy.unwrapped) for copy in copies.envs}) < num_envs:  # each would step the episode of the others
            hint = "make a new one in each call: lambda: MyEnv()"
            raise EnvError(f"the function that makes {name} gives the same environment more than once", hint=hint)
        env: VectorEnv = copies
    else:  # spawned, not forked: forking a process while JAX's threads run can deadlock
        env = within(
            timeout + STARTING * num_envs,
            f"the making of {name} in other processes",
            lambda: AsyncVectorEnv([make_watched] * num_envs, autoreset_mode=mode, context="spawn"),
        )
    return HostVectorEnvironment(env, seed, name, vectorization == "async", timeout)
