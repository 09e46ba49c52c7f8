"""Agents in Python: what they train on, what they predict, what they save; and algorithms and policies that recipes name."""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_rl
from tempo_rl import A2C, PPO, REINFORCE, ActorCritic, Agent, Algorithm, Iteration, Monitor, Recipe
from tempo_rl.agents.reinforce import reinforce
from tempo_rl.algorithms import A2CKeys, DQNKeys, PPOKeys, ReinforceKeys
from tempo_rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tempo_rl.cli import app
from tempo_rl.env import vector_environment
from tempo_rl.env.source import source_of
from tempo_rl.errors import CheckpointError, EnvError, RecipeError, RLError, RunError
from tempo_rl.recipe import ActorCriticRecipe, DQNRecipe, PPORecipe, ReinforceRecipe, make_recipe
from tests.rl.scripted import ID, Scripted

SMALL: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [3], "eval_episodes": 0}
ENDS = [("terminated", 3)]


@pytest.mark.parametrize(
    ("recipe", "keys"),
    [(PPORecipe, PPOKeys), (ActorCriticRecipe, A2CKeys), (ReinforceRecipe, ReinforceKeys), (DQNRecipe, DQNKeys)],
    ids=lambda c: c.__name__,
)
def test_the_typed_keys_are_those_of_the_recipe(recipe: type[Recipe], keys: type) -> None:
    assert set(typing.get_type_hints(keys)) == set(recipe.model_fields) - {"algorithm", "env"}


def test_every_name_is_there() -> None:
    for name in tempo_rl.__all__:
        assert getattr(tempo_rl, name) is not None
    assert set(tempo_rl.__all__) == set(tempo_rl._PLACES)
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        tempo_rl.Nope  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> REINFORCE:
    """An agent with trained parameters; tests only look at it."""
    return REINFORCE("CartPole-v1", **SMALL).train(tmp_path_factory.mktemp("trained") / "run")


def test_training_leaves_parameters_and_a_result(trained: REINFORCE) -> None:
    assert trained.parameters is not None and trained.result is not None
    assert trained.parameters["policy.0.weight"].shape == (4, 3) and trained.result["env_steps"] == 24


def test_predictions_are_for_one_observation_or_for_a_batch(trained: REINFORCE) -> None:
    batch = np.random.default_rng(0).normal(size=(5, 4)) * 3
    greedy = trained.predict(batch)
    assert greedy.shape == (5,) and [int(trained.predict(row)) for row in batch] == greedy.tolist()
    drawn = [trained.predict(batch, deterministic=False, seed=k) for k in range(9)]
    assert len({tuple(actions) for actions in drawn}) > 1
    np.testing.assert_array_equal(drawn[3], trained.predict(batch, deterministic=False, seed=3))
    with pytest.raises(RLError, match=r"has the shape \(4,\), and this one \(3,\)\n.*or a batch \('B', 4\)"):
        trained.predict(np.zeros(3))


def test_a_saved_policy_plays_the_same(trained: REINFORCE, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "policy.safetensors")
    returns = trained.evaluate(episodes=3, seed=5).returns
    for again in (REINFORCE.load(path), tempo_rl.load(path), tempo_rl.load(path, env=lambda: gym.make("CartPole-v1"))):
        assert type(again) is REINFORCE and again.recipe.hidden == [3]
        np.testing.assert_array_equal(again.evaluate(episodes=3, seed=5).returns, returns)
    with pytest.raises(CheckpointError, match="holds an agent of the algorithm reinforce, not of ppo"):
        PPO.load(path)
    with pytest.raises(RLError, match=r"parameter policy\.0\.weight has the shape \(4, 3\), and this environment needs \(2, 3\)"):
        REINFORCE.load(path, env=lambda: Scripted(ENDS)).evaluate(1)


def test_an_agent_that_is_not_trained_says_so() -> None:
    agent = PPO("CartPole-v1", num_envs=2)
    for use in (agent.evaluate, lambda: agent.predict(np.zeros(4)), lambda: agent.save("nowhere")):
        with pytest.raises(RLError, match=r"this PPO is not trained yet\n.*agent\.train\(\)"):
            use()


def test_unknown_and_wrong_keys_are_named() -> None:
    with pytest.raises(RecipeError, match=r"PPO: unknown key learning_rat\n.*did you mean learning_rate\?"):
        PPO("CartPole-v1", learning_rat=1e-3)  # type: ignore[call-arg]
    with pytest.raises(RecipeError, match="num_envs is 0"):
        A2C("CartPole-v1", num_envs=0)


def test_a_run_in_a_directory_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("iteration\n")
    with pytest.raises(RunError, match="holds a run already"):
        REINFORCE("CartPole-v1", **SMALL).train(tmp_path)


def test_callbacks_see_every_iteration_and_can_stop(tmp_path: Path) -> None:
    seen: list[Iteration] = []

    def second(iteration: Iteration) -> bool:
        seen.append(iteration)
        return iteration.iteration == 1

    agent = REINFORCE("CartPole-v1", **SMALL).train(tmp_path / "run", callbacks=[second])
    assert [(it.iteration, it.env_steps) for it in seen] == [(0, 8), (1, 16)]
    assert (
        set(seen[0].metrics) >= {"loss", "entropy", "episodic_return"}
        and seen[0].parameters.keys() == (agent.parameters or {}).keys()
    )
    assert (
        agent.result is not None
        and agent.result["interrupted"]
        and load_checkpoint(tmp_path / "run/checkpoints/latest.safetensors")
    )
    again = REINFORCE("CartPole-v1", **SMALL).train(tmp_path / "run", resume=True)
    assert again.result is not None and again.result["env_steps"] == 24


# -- environments -----------------------------------------------------------------------------------------------------


class Counting:
    """In JAX: the state counts steps; the reward is the action; there are no ends but the time limit."""

    max_episode_steps = 3
    observation_space = gym.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def initial(self, rng: jax.Array, params: Any = None) -> jax.Array:
        return jnp.zeros(1)

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return state + 1.0

    def observation(self, state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return state

    def reward(self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return action.astype("float32")

    def terminal(self, state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return jnp.zeros((), bool)


def scripted() -> Scripted:
    return Scripted(ENDS)


@pytest.mark.parametrize(
    "env",
    [
        scripted,
        pytest.param(Scripted(ENDS), marks=pytest.mark.slow),
        pytest.param(gym.make(ID, ends=ENDS), marks=pytest.mark.slow),
    ],
    ids=["function", "object", "object with a spec"],
)
def test_environments_of_your_own(env: Any) -> None:
    recipe = A2C(env, **SMALL).recipe
    host: Any = vector_environment(recipe, 2)
    assert len({id(copy.unwrapped) for copy in host.env.envs}) == 2, "copies share nothing"
    host.reset()
    steps = [host.step(np.zeros(2, np.int32)) for _ in range(3)]
    assert [bool(step.terminated.all()) for step in steps] == [False, False, True]
    assert A2C(env, **SMALL).train().parameters is not None


@pytest.mark.parametrize("env", [Counting(), Counting], ids=["object", "class"])
def test_environments_in_jax(env: Any) -> None:
    agent = A2C(env, **SMALL, learning_rate=0.1)
    assert agent.recipe.env.source is not None and agent.recipe.env.source.is_functional
    host = vector_environment(agent.recipe, 2)
    first = host.reset()
    steps = [host.step(np.array([0, 1])) for _ in range(4)]
    assert first.tolist() == [[0], [0]] and [bool(step.truncated.all()) for step in steps] == [False, False, True, False]
    assert steps[2].final_observation.tolist() == [[3], [3]] and steps[2].observation.tolist() == [[0], [0]]
    assert steps[2].episode_return.tolist() == [0, 3]


def test_an_environment_in_jax_trains() -> None:
    agent = A2C(Counting(), **(SMALL | {"total_timesteps": 480}), learning_rate=0.1, anneal_lr=False).train()
    assert agent.evaluate(episodes=2).returns.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (3, r"3 is not an environment\n.*give an id"),
        (lambda: 3, r"<lambda>\(\) gives 3, which is not an environment"),
    ],
)
def test_what_is_no_environment_is_refused(env: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        source_of(env)


def test_an_environment_in_jax_needs_a_time_limit() -> None:
    class Endless(Counting):
        max_episode_steps = None  # type: ignore[assignment]

    with pytest.raises(EnvError, match="Endless has no time limit"):
        vector_environment(A2C(Endless(), **SMALL).recipe, 1)


# -- algorithms and policies of your own ------------------------------------------------------------------------------


class OwnRecipe(Recipe):
    """A recipe with one more key."""

    norm_returns: bool = True
    baseline: bool = False
    bonus: float = 0.5


def own_algorithm(recipe: OwnRecipe, monitor: Monitor) -> Agent:
    assert recipe.bonus == 0.25
    return reinforce(recipe, monitor)  # type: ignore[arg-type]


def no_algorithm(recipe: Recipe, monitor: Monitor) -> int:
    return 3


class Halved(ActorCritic):
    """A policy that sees half of the observation."""

    def policy(self, observation: Any) -> Any:
        return super().policy(observation * 0.5)


OWN = {"algorithm": f"{__name__}:own_algorithm", "policy": f"{__name__}:Halved", "bonus": 0.25, **SMALL}


def test_recipes_name_algorithms_and_policies(tmp_path: Path) -> None:
    from tempo_rl.rundir import create_run
    from tempo_rl.train import train

    recipe = make_recipe(OWN)
    assert type(recipe) is OwnRecipe
    run = create_run(tmp_path / "run")
    train(recipe, run)
    command = CliRunner().invoke(app, ["eval", str(run.path), "--episodes", "1"])
    assert command.exit_code == 1 and f"would import {OWN['algorithm']}, {OWN['policy']}\n  hint: if you trust" in command.output
    command = CliRunner().invoke(app, ["eval", str(run.path), "--episodes", "1", "--trust"])
    assert command.exit_code == 0, command.output


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"algorithm": "no.such:thing"}, r"'no\.such:thing' cannot be imported"),
        ({"algorithm": "nothing"}, r"algorithm is 'nothing'\n.*or module:function"),
        (OWN | {"bonuss": 1}, r"unknown key bonuss\n.*did you mean bonus\?"),
    ],
)
def test_algorithms_that_are_none(data: Any, message: str) -> None:
    with pytest.raises((RecipeError, EnvError), match=message):
        make_recipe(data)


class Silent:
    def finished(self, iteration: int, metrics: Any, parameters: Any) -> None: ...


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"algorithm": f"{__name__}:no_algorithm"}, r"no_algorithm gives 3\n.*return an Agent"),
        (
            {"algorithm": "reinforce", "policy": f"{__name__}:Silent"},
            r"Silent' is not a class derived from tempo_rl\.models:ActorCritic",
        ),
    ],
)
def test_what_a_recipe_names_must_be_of_its_kind(data: Any, message: str) -> None:
    with pytest.raises((RecipeError, EnvError), match=message):
        tempo_rl.build_agent(make_recipe(data | SMALL), Silent())


@pytest.mark.parametrize(
    "foreign",
    [
        {"policy": "evil:Policy"},
        {"algorithm": "evil:algorithm"},
        {"env": {"id": "evil.module:Env"}},
        {"env": {"id": "evil:Env-v0"}},
        {"env": {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers:ClipReward", "evil:Wrapper"]}},
    ],
)
def test_a_checkpoint_from_elsewhere_imports_nothing(foreign: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make_recipe({"algorithm": "reinforce"})
    dumped: Callable[..., Any] = lambda **_: {"algorithm": "reinforce", **foreign}  # noqa: E731
    monkeypatch.setattr(type(recipe), "model_dump", lambda self, **_: dumped())
    path = save_checkpoint(tmp_path / "a.safetensors", Checkpoint({}, recipe, 1, 1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"would import evil[\w.]*:\w+"):
        load_checkpoint(path, trust=False)


def test_modules_are_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_from_here.py").write_text(
        "from tempo_rl import Recipe\nclass Mine(Recipe):\n    extra: int = 3\ndef agent(recipe: Mine, monitor): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert make_recipe({"algorithm": "found_from_here:agent"}).model_dump()["extra"] == 3


def test_every_algorithm_has_its_class() -> None:
    from tempo_rl.recipe import ALGORITHMS

    assert {kind.name for kind in Algorithm.__subclasses__()} == set(ALGORITHMS)
