"""Evaluation: the policy is a program without steps, compiled once and called once per environment step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import tempo_core as tp
from tempo_core.runs.stop import Stopped
from tempo_rl.env import vector_environment
from tempo_rl.env.closing import close_quietly
from tempo_rl.env.spaces import Actions, Continuous, Discrete, Observations
from tempo_rl.env.vector import VectorEnvironment
from tempo_rl.errors import EnvError, RLError
from tempo_rl.models import build_model
from tempo_rl.recipe import Recipe

MOST_STEPS = 100_000  # of an episode, unless the recipe says otherwise
MOST_STEPS_FOR_A_FAULT = 2_000  # of each environment


Show: TypeAlias = Callable[[int, int, int], None]
"""Called with the episodes that have ended, those to play, and the environment steps so far."""


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of whole episodes."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        return float(self.returns.std())


class Policy:
    """The policy of some parameters: actions (B, ...) for observations (B, ...). It is compiled once for each B.

    A policy with a memory remembers what it observed, one episode for each of the B, until `forget`, or until B changes.

    Raises `RLError` if parameters are missing or of other shapes than the recipe's model on these spaces.
    """

    def __init__(
        self,
        recipe: Recipe,
        observations: Observations,
        actions: Actions,
        parameters: Mapping[str, np.ndarray],
        cache: str | bool | None = None,
    ):
        self.recipe, self.observations, self.actions, self.parameters = recipe, observations, actions, parameters
        self._config = tp.Config(cache=cache)
        self._unbound: dict[tuple[int, bool], tp.Program[list[tp.typing.Array]]] = {}
        self._programs: dict[tuple[int, bool], tp.Program[list[tp.typing.Array]]] = {}
        self._memory: dict[str, np.ndarray] = {}
        self._widths: dict[str, int] = {}

    def __call__(self, observations: np.ndarray, deterministic: bool = True, seed: int = 0) -> np.ndarray:
        """The most likely actions, or, if not `deterministic`, actions drawn with `seed`."""
        key = (len(observations), deterministic)
        if key not in self._programs:
            self._programs[key] = self._compiled(*key)
        if any(len(state) != len(observations) for state in self._memory.values()) or not self._memory:
            self._memory = {name: np.zeros((len(observations), width), np.float32) for name, width in self._widths.items()}
        action, *after = self._programs[key].run({"observation": observations, **self._memory}, seed=seed)
        self._memory = {name: np.array(state) for name, state in zip(self._memory, after, strict=True)}
        return np.asarray(action)

    def forget(self, done: np.ndarray | None = None) -> None:
        """Begin new episodes where `done` (B,), or all of them."""
        for state in self._memory.values():
            state[slice(None) if done is None else done] = 0.0

    def use(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Play with other parameters, in the same compiled programs."""
        self.parameters = parameters
        self._programs.clear()
        self.forget()

    def _compiled(self, batch: int, deterministic: bool) -> tp.Program[list[tp.typing.Array]]:
        ctx = tp.Context()
        with ctx:
            model = build_model(self.recipe, self.observations, self.actions, critic=False, fed=True)
            observation = tp.input("observation", (batch, *self.observations.shape), self.observations.dtype)
            states = [tp.input(name, (batch, width)) for name, width in model.states.items()]
            after = model.remembered(model.features(observation), states) if states else ()
            policy = model.policy_of(after[0]) if states else model.policy(observation)
            action = policy.mode() if deterministic else policy.sample()
        weights = self._checked({name: tuple(map(int, w.shape)) for name, w in model.inputs().items()})
        self._widths, key = model.states, (batch, deterministic)
        if key not in self._unbound:
            self._unbound[key] = ctx.compile({}, (action, *after), self._config)
        return self._unbound[key].bind(weights)

    def _checked(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        missing = sorted(set(shapes) - set(self.parameters))
        if missing:
            raise RLError(f"the checkpoint lacks the parameters {', '.join(missing)}")
        for name, shape in shapes.items():
            if self.parameters[name].shape != shape:
                raise RLError(
                    f"the checkpoint's parameter {name} has the shape {self.parameters[name].shape}, but this environment needs {shape}",
                    hint="evaluate on the environment that the policy was trained on",
                )
        return {name: self.parameters[name] for name in shapes}


def play(
    env: VectorEnvironment,
    policy: Policy | Callable[[np.ndarray, bool, int], np.ndarray],
    episodes: int,
    deterministic: bool = True,
    most_steps: int = MOST_STEPS,
    stop: Callable[[], bool] = lambda: False,
    show: Show = lambda ended, episodes, steps: None,
    name: str = "the environment",
    seed: int = 0,
) -> Evaluation:
    """Play exactly `episodes` episodes, divided evenly between the environments in advance.

    To take the first episodes that finish would favour short ones. `policy` takes observations, whether it is deterministic, and a seed,
    another one in each step; `seed` determines them all.
    `show` is called after each step. Raises `EnvError`, which names the environment, for an episode with more than `most_steps` steps.
    When `stop` says so, it gives the episodes that have ended; at Ctrl-C too, if there are such.
    """
    quota = np.array([episodes // env.num_envs + (k < episodes % env.num_envs) for k in range(env.num_envs)])
    ended: list[list[tuple[float, int]]] = [[] for _ in range(env.num_envs)]  # return and length
    observation, at, draws = env.reset(), 0, np.random.default_rng(seed)
    try:
        while any(len(own) < count for own, count in zip(ended, quota, strict=True)) and not stop():
            step = env.step(policy(observation, deterministic, 0 if deterministic else next_seed(draws)))
            at += 1
            observation = step.observation
            done = step.terminated | step.truncated
            if isinstance(policy, Policy):
                policy.forget(done)
            for k in np.flatnonzero(done):
                if len(ended[k]) < quota[k]:
                    ended[k].append((float(step.episode_return[k]), int(step.episode_length[k])))
            count = sum(map(len, ended))
            show(count, episodes, at * env.num_envs)
            for k in np.flatnonzero(~done & (step.episode_length >= most_steps)):
                if len(ended[k]) < quota[k]:
                    raise _endless(name, int(k), most_steps, f"{count} of {episodes} episodes ended")
    except KeyboardInterrupt as signal:
        if isinstance(signal, Stopped) or not any(ended):
            raise
    pairs = [pair for own in ended for pair in own]
    return Evaluation(np.array([pair[0] for pair in pairs], np.float64), np.array([pair[1] for pair in pairs], np.int64))


def _endless(name: str, index: int, most_steps: int, done: str) -> EnvError:
    return EnvError(
        f"an episode of {name} (environment {index} of the evaluation) has not ended after {most_steps:,} steps; {done}",
        hint="give the environment a time limit: env.kwargs.max_episode_steps=1000. Or allow more steps: "
        f"eval_max_steps={10 * most_steps} in training, --max-steps {10 * most_steps} for tempo-rl eval",
    )


def evaluate(
    recipe: Recipe,
    parameters: Mapping[str, np.ndarray],
    episodes: int,
    seed: int,
    cache: str | bool | None = None,
    deterministic: bool = True,
    stop: Callable[[], bool] = lambda: False,
    show: Show = lambda ended, episodes, steps: None,
) -> Evaluation:
    """Play `episodes` episodes in fresh environments, with seeds that training does not use: greedy ones, if `deterministic`.

    `cache` is the directory of compiled programs, as in `tp.Config`; `stop` and `show` are as in `play`.
    """
    require_episodes(episodes, seed)
    env = vector_environment(recipe, min(episodes, 32), evaluation_seed(seed))
    try:
        policy = Policy(recipe, env.observations, env.actions, parameters, cache)
        return play(env, policy, episodes, deterministic, recipe.eval_max_steps, stop, show, recipe.env.name, seed)
    finally:
        close_quietly(env, f"the evaluation's environments {recipe.env.name}")


def require_episodes(episodes: int, seed: int) -> None:
    """Raise `RLError` unless this is a number of episodes that can be played, and a seed of theirs."""
    if not isinstance(episodes, (int, np.integer)) or episodes < 1:
        raise RLError(f"the number of episodes of an evaluation is an int of at least 1, not {episodes!r}")
    require_seed(seed, "an evaluation")


def require_seed(seed: int, of: str) -> None:
    """Raise `RLError` unless this is a seed. `of` says what it is for."""
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise RLError(f"the seed of {of} is an int of at least 0, not {seed!r}")


def next_seed(draws: np.random.Generator) -> int:
    """The seed of the next actions that a policy draws."""
    return int(draws.integers(2**32))


def fault_of_environment(recipe: Recipe, parameters: Mapping[str, np.ndarray] | None) -> EnvError | None:
    """The error of environments in JAX that give numbers which are not finite, if some steps find it, of the last good policy or at random.

    The program of training does not look for such numbers, unless `check_finite` is set: that costs time in each step.
    """
    env = vector_environment(recipe, min(recipe.num_envs, 64), recipe.seed)
    rng = np.random.default_rng(recipe.seed)
    try:
        policy = None if parameters is None else Policy(recipe, env.observations, env.actions, parameters)
        observation = env.reset()
        for at in range(steps_for_a_fault(recipe)):
            action = _random(env.actions, env.num_envs, rng) if policy is None else policy(observation, False, at)
            step = env.step(action)
            observation = step.observation
            if policy is not None:
                policy.forget(step.terminated | step.truncated)
    except EnvError as error:
        return error
    finally:
        close_quietly(env, f"the environments {recipe.env.name}")
    return None


def steps_for_a_fault(recipe: Recipe) -> int:
    """How many steps of each environment are played to find numbers that are not finite."""
    return min(4 * recipe.num_steps, MOST_STEPS_FOR_A_FAULT)


def _random(actions: Actions, count: int, rng: np.random.Generator) -> np.ndarray:
    """Actions (B, ...) of a policy that knows nothing."""
    if isinstance(actions, Continuous):
        return rng.normal(size=(count, *actions.shape)).astype(np.float32)
    counts = actions.count if isinstance(actions, Discrete) else np.array(actions.counts)
    return rng.integers(0, counts, (count, *actions.shape)).astype(np.int32)


class Evaluator:
    """Evaluations of several parameters, one after the other: the environments and the compiled policy are made once."""

    def __init__(self, recipe: Recipe, cache: str | bool | None = None):
        self.recipe = recipe
        self._env = vector_environment(recipe, min(recipe.eval_episodes, 32), evaluation_seed(recipe.seed))
        self._policy = Policy(recipe, self._env.observations, self._env.actions, {}, cache)

    def __call__(
        self,
        parameters: Mapping[str, np.ndarray],
        stop: Callable[[], bool] = lambda: False,
        show: Show = lambda ended, episodes, steps: None,
    ) -> Evaluation:
        """Greedy episodes, in the same environments for all parameters; `stop` and `show` are as in `play`."""
        self._policy.use(parameters)
        recipe = self.recipe
        return play(self._env, self._policy, recipe.eval_episodes, True, recipe.eval_max_steps, stop, show, recipe.env.name)

    def close(self, say: Callable[[str], None] | None = None) -> None:
        close_quietly(self._env, f"the evaluation's environments {self.recipe.env.name}", say)


def evaluation_seed(seed: int) -> int:
    """A seed for evaluation, far from the small numbers that are usual seeds of training."""
    return int(np.random.SeedSequence([seed, 0x5EED]).generate_state(1)[0])
