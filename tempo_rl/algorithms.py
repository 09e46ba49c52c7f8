"""Agents in Python: `PPO("CartPole-v1", num_envs=8).train()`, and `.evaluate()`, `.predict(observation)`, `.save(path)`, `.load(path)`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

import numpy as np

from tempo_rl.checkpoint import Checkpoint, for_member, load_checkpoint, require_trust, save_checkpoint
from tempo_rl.elsewhere import KnowsOtherNames
from tempo_rl.env import vector_environment
from tempo_rl.env.closing import close_quietly
from tempo_rl.env.making import MissingEnvironment
from tempo_rl.env.saved import restored_spaces
from tempo_rl.env.source import AnyEnvironment, source_of
from tempo_rl.errors import CheckpointError, EnvError, RecipeError, RLError, RunError
from tempo_rl.evaluate import Evaluation, Policy, evaluate, next_seed, require_seed
from tempo_rl.monitor import Callback
from tempo_rl.own import known, remember
from tempo_rl.recipe import PLAIN, EnvRecipe, Recipe, make_recipe
from tempo_rl.references import foreign_references
from tempo_rl.resume import chosen_run
from tempo_rl.rundir import create_run, find_checkpoint
from tempo_rl.train import Result, train
from tempo_rl.video import watch

if TYPE_CHECKING:  # the keys of recipes, as `tests/rl/agents/test_keys.py` writes them down for type checkers and editors
    from tempo_rl.keys import A2CKeys, DQNKeys, Keys, PPOKeys, ReinforceKeys, SACKeys, TD3Keys

AnyObservation: TypeAlias = (
    "np.ndarray | np.number | int | Sequence[float] | Mapping[str, AnyObservation] | tuple[AnyObservation, ...]"
)
"""An observation, or a batch: an array or numbers, a choice, a dict for a Dict, a tuple for a Tuple."""


class Algorithm(KnowsOtherNames):
    """An agent on an environment. `recipe` holds all its keys; `parameters` are None before it is trained."""

    name: str

    def __init__(self, env: AnyEnvironment | EnvRecipe, keys: Keys):
        if "algorithm" in keys:
            raise RecipeError(
                f"{type(self).__name__} always trains with the algorithm {self.name}",
                hint="leave algorithm= out, or use another class",
            )
        chosen = env if isinstance(env, EnvRecipe) else _environment(env)
        given: dict[str, object] = {"algorithm": self.name, "env": chosen.model_dump(), **keys}
        if chosen.source is not None and chosen.source.num_envs is not None:
            given.setdefault("num_envs", chosen.source.num_envs)
        recipe = make_recipe(given, where=type(self).__name__)
        self._begin(recipe if chosen.source is None else recipe.on(chosen.source))

    def _begin(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.parameters: dict[str, np.ndarray] | None = None
        self.result: Result | None = None
        self._policy: Policy | None = None
        self._player = recipe  # of the policy: in a run with many members, that of one of them
        self._checkpoint: Checkpoint | None = None  # from which it goes on
        self._draws = np.random.default_rng(recipe.seed)  # seeds of what `predict` draws
        self._file = Path()  # from which it was loaded
        self._untrusted: tuple[str, ...] = ()  # what its environment may not import

    def train(
        self,
        out: str | Path | None = None,
        *,
        total_timesteps: int | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
        cache: str | bool = True,
    ) -> Self:
        """Train for `total_timesteps` in all, by default those of the recipe. Returns the agent itself, with `parameters` and `result`.

        An agent that was trained or loaded goes on from where it is, with its optimizer, its statistics and its random numbers; one that
        has its `total_timesteps` needs more of them. `out` is the run directory (metrics.csv, checkpoints, result.json); without it, these
        files are not kept. With `resume`, a run in `out` that ended goes on. `callbacks` are called after each iteration. `cache` is where
        compiled programs are kept.
        Raises `RunError` for a directory that holds other files, and `TrainingError` if training fails.
        """
        show = sys.stderr.isatty() if progress is None else progress
        if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
            raise RunError(f"callbacks is {callbacks!r}, not a list of functions", hint="write callbacks=[function]")
        if resume and out is None:
            raise RunError(
                "resume=True needs `out`, the directory of the run to go on with", hint="name it: agent.train(out, resume=True)"
            )
        if total_timesteps is not None:
            changed = self.recipe.model_dump(mode="json") | {"total_timesteps": total_timesteps}
            recipe = make_recipe(changed, where=f"{type(self).__name__}.train")
            source = self.recipe.env.source
            self.recipe = recipe if source is None else recipe.on(source)
        require_trust(self._file, self._untrusted)
        start = None if resume else self._start()
        with tempfile.TemporaryDirectory() as unnamed:
            path = Path(unnamed) / "run" if out is None else Path(out).absolute()
            if resume:
                run, checkpoint = chosen_run(self.recipe, self.name, path, overwrite, "auto", _say_notes)
            else:
                run, checkpoint = create_run(path, overwrite), start
            if run is not None:
                outcome = train(self.recipe, run, show, _say_notes, cache=cache, resume=checkpoint, callbacks=callbacks)
                self.result = outcome.result
            own = foreign_references(self.recipe.model_dump(mode="json"), True)
            self._take(load_checkpoint(find_checkpoint(path), False, own))
        return self

    def _start(self) -> Checkpoint | None:
        """What training goes on from; None for an agent that begins. Raises `RunError` for one that has its steps, or only a policy."""
        if self._checkpoint is None:
            return None
        name, done = type(self).__name__, self._checkpoint.env_steps
        if self.recipe.iterations <= self._checkpoint.iterations:
            raise RunError(
                f"this {name} has been trained for {done:,} steps, and total_timesteps={self.recipe.total_timesteps:,} is not more",
                hint=f"go on: agent.train(total_timesteps={2 * done}). To begin anew: {name}(env, ...).train()",
            )
        return self._checkpoint

    def evaluate(
        self,
        episodes: int = 20,
        seed: int = 0,
        deterministic: bool = True,
        video: str | Path | None = None,
        render: bool = False,
    ) -> Evaluation:
        """Returns and lengths of whole episodes in fresh environments, played by the most likely actions if `deterministic`.

        With `video`, the first episode is written to that file, .gif, .webp, .png (animated) or .mp4; with `render`, all are
        shown in a window.
        Raises `RLError` if the agent is not trained, or the environment cannot be drawn.
        """
        parameters = self._trained()
        with self._naming_env():
            if video is None and not render:
                return evaluate(self._player, parameters, episodes, seed, deterministic=deterministic)
            return watch(self._player, parameters, episodes, seed, video, render, deterministic=deterministic)

    def predict(self, observation: AnyObservation, deterministic: bool = True, seed: int | None = None) -> np.ndarray:
        """The action for one observation of the environment's space, or the actions (B, ...) for a batch.

        The observation of a Dict is a dict, and that of a Tuple a tuple. In a batch, each of their arrays has the dimension B first, as
        vector environments give it. With `frames` in the recipe, the dimension of the frames comes next.

        The actions are the most likely ones if `deterministic`, or else drawn; in the environment's own numbers and bounds. Each call
        draws anew. A `seed` begins the sequence of draws that belongs to it: later calls without one go on in it. The first sequence of
        an agent is that of the recipe's seed.
        A policy with a memory (network gru or lstm) goes on with the episodes of the last call, until `forget`.
        Raises `RLError` if the agent is not trained, for other keys, shapes and dtypes, for what is not a finite number, and for a seed
        that is not a whole number from 0.
        """
        from tempo_rl.env.structured import as_batch

        policy = self._opened_policy()
        name = self.recipe.env.name
        batch, is_one = as_batch(observation, policy.observations, name, self.recipe.frames)
        if seed is not None:
            require_seed(seed, "a draw")
            self._draws = np.random.default_rng(seed)
        action = policy.actions.outward(policy(batch, deterministic, 0 if deterministic else next_seed(self._draws)))
        return action[0] if is_one else action

    def forget(self, done: np.ndarray | None = None) -> None:
        """Begin new episodes for `predict`, where `done` (B,) of a batch, or everywhere. It matters for policies with a memory alone."""
        self._opened_policy().forget(done)

    def save(self, path: str | Path) -> Path:
        """Write the agent to a file, for `load` and `tempo-rl eval`: its policy, its recipe, and the state from which training goes on.

        Its directory must exist.

        Raises `CheckpointError`, and `RLError` if not trained.
        """
        self._trained()
        assert self._checkpoint is not None, "it is trained"
        checkpoint, file = replace(self._checkpoint, recipe=self._player), Path(path)
        if not file.parent.is_dir():
            raise CheckpointError(f"the checkpoint {file} cannot be written: there is no directory {file.parent}")
        saved = save_checkpoint(file, checkpoint)
        remember(saved, foreign_references({"env": self._player.env.model_dump(mode="json")}, True))
        return saved

    @classmethod
    def load(
        cls, path: str | Path, env: AnyEnvironment | EnvRecipe | None = None, trust: bool = False, member: int | None = None
    ) -> Self:
        """The agent in a file of `save`, a checkpoint, or a run directory. `env` replaces the environment of the recipe and its arguments.

        An `EnvRecipe` replaces the wrappers too.

        Of a run with many members, it is the policy of `member`, by default of the one with the best recent returns.

        Raises `CheckpointError` for another algorithm, and for a file that names code which Tempo does not know, unless you `trust` it.
        The environment's code is needed for `evaluate` and `train` alone: `predict` works without it.
        """
        file, other = find_checkpoint(Path(path)), _other_environment(env)
        checkpoint = load_checkpoint(file, trust, known(file), _keys_of(env, other), without_env=True)
        recipe = checkpoint.recipe
        if recipe.algorithm != getattr(cls, "name", recipe.algorithm):
            raise CheckpointError(f"{file} holds an agent of the algorithm {recipe.algorithm}, not of {cls.name}")
        agent = cls.__new__(cls)
        agent.name = recipe.algorithm
        agent._begin(recipe if other is None or other.source is None else recipe.on(other.source))
        agent._take(checkpoint, member)
        agent._file, agent._untrusted = file, checkpoint.untrusted
        return agent

    def _take(self, checkpoint: Checkpoint, member: int | None = None) -> None:
        checkpoint = for_member(checkpoint, member)
        self._player = checkpoint.recipe if self.recipe.count > 1 else self.recipe
        if self.recipe.count > 1 and self.recipe.env.source is not None:
            self._player = self._player.on(self.recipe.env.source)
        self.parameters, self._policy, self._checkpoint = checkpoint.parameters, None, checkpoint

    def _trained(self) -> dict[str, np.ndarray]:
        if self.parameters is None:
            name = type(self).__name__
            raise RLError(f"this {name} is not trained yet", hint=f"agent.train(), or {name}.load(path)")
        return self.parameters

    def _opened_policy(self) -> Policy:
        if self._policy is None:
            parameters = self._trained()
            spaces = None if self._checkpoint is None else self._checkpoint.spaces
            if spaces is not None:
                observations, actions = restored_spaces(spaces, self.recipe.env.id, self.recipe.frames)
            else:
                with self._naming_env():
                    env = vector_environment(self._player, 1)
                close_quietly(env, f"the environment {self.recipe.env.name}")
                observations, actions = env.observations, env.actions
            self._policy = Policy(self._player, observations, actions, parameters)
        return self._policy

    @contextmanager
    def _naming_env(self) -> Iterator[None]:
        """Inside, an environment is made. The error for one that cannot be found says how a loaded agent gets it.

        Raises `CheckpointError` for code that is not trusted.
        """
        require_trust(self._file, self._untrusted)
        try:
            yield
        except MissingEnvironment as error:
            if self.recipe.env.source is not None:
                raise
            name = self.recipe.env.id.rpartition(":")[2]
            shown = name if name.isidentifier() else "MyEnv"
            raise EnvError(error.message, hint=f"give the environment to load: load(path, env={shown})") from error


class PPO(Algorithm):
    """Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347)."""

    name = "ppo"

    def __init__(self, env: AnyEnvironment | EnvRecipe, **keys: Unpack[PPOKeys]):
        """`env` is an id, an environment, a function that makes one, or an environment in JAX. Raises `RecipeError` and `EnvError`."""
        super().__init__(env, keys)


class A2C(Algorithm):
    """N-step advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783), synchronous; n is `n_step`, or the rest of the rollout."""

    name = "actor_critic"

    def __init__(self, env: AnyEnvironment | EnvRecipe, **keys: Unpack[A2CKeys]):
        """`env` is an id, an environment, a function that makes one, or an environment in JAX. Raises `RecipeError` and `EnvError`."""
        super().__init__(env, keys)


class REINFORCE(Algorithm):
    """REINFORCE (Williams, 1992) on rollouts of `num_steps` in fresh episodes."""

    name = "reinforce"

    def __init__(self, env: AnyEnvironment | EnvRecipe, **keys: Unpack[ReinforceKeys]):
        """`env` is an id, an environment, a function that makes one, or an environment in JAX. Raises `RecipeError` and `EnvError`."""
        super().__init__(env, keys)


class DQN(Algorithm):
    """Deep Q-learning (Mnih et al., 2015) with double Q-learning, for one choice among some actions (Discrete)."""

    name = "dqn"

    def __init__(self, env: AnyEnvironment | EnvRecipe, **keys: Unpack[DQNKeys]):
        """`env` is an id, an environment, a function that makes one, or an environment in JAX. Raises `RecipeError` and `EnvError`."""
        super().__init__(env, keys)


def _other_environment(env: AnyEnvironment | EnvRecipe | None) -> EnvRecipe | None:
    """The environment that `load` gets in place of that of the checkpoint."""
    return env if env is None or isinstance(env, EnvRecipe) else _environment(env)


def _keys_of(env: AnyEnvironment | EnvRecipe | None, other: EnvRecipe | None) -> dict[str, Any] | None:
    """The keys that it replaces: all of them, but an object or a class is wrapped as the one before."""
    kept = set[str]() if isinstance(env, (str, EnvRecipe)) else {"wrappers", "vectorization"}
    return None if other is None else other.model_dump(mode="json", exclude=kept)


def _environment(env: AnyEnvironment) -> EnvRecipe:
    """The recipe of an environment. Raises `EnvError` for what is none."""
    if not isinstance(env, str) and isinstance(env, PLAIN):  # which a file would get an error of its own for
        source_of(env)
    return EnvRecipe(env)


class SAC(Algorithm):
    """Soft actor-critic (Haarnoja et al., 2018b, arXiv:1812.05905), for continuous actions (Box)."""

    name = "sac"

    def __init__(self, env: AnyEnvironment | EnvRecipe, **keys: Unpack[SACKeys]):
        """`env` is an id, an environment, a function that makes one, or an environment in JAX. Raises `RecipeError` and `EnvError`."""
        super().__init__(env, keys)


class TD3(Algorithm):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al., 2018, arXiv:1802.09477), for continuous actions (Box)."""

    name = "td3"

    def __init__(self, env: AnyEnvironment | EnvRecipe, **keys: Unpack[TD3Keys]):
        """`env` is an id, an environment, a function that makes one, or an environment in JAX. Raises `RecipeError` and `EnvError`."""
        super().__init__(env, keys)


def load(
    path: str | Path, env: AnyEnvironment | EnvRecipe | None = None, trust: bool = False, member: int | None = None
) -> Algorithm:
    """The agent in a file or run directory, of whichever algorithm, also one of your own. Raises as `Algorithm.load` does."""
    file = find_checkpoint(Path(path))
    other = _keys_of(env, _other_environment(env))
    name = load_checkpoint(file, trust, known(file), other, without_env=True).recipe.algorithm
    kind = next((kind for kind in (PPO, A2C, REINFORCE, DQN, SAC, TD3) if kind.name == name), Algorithm)
    return kind.load(path, env, trust, member)


def _say_notes(text: str) -> None:
    """Python code that trains sees results, and of all lines the notes alone."""
    if text.startswith("note: "):
        print(text, file=sys.stderr)
