"""Agents in Python: what they train on, what they predict, what they save; and algorithms and policies that recipes name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_core as tp
import tempo_rl
from tempo_rl import A2C, PPO, REINFORCE, ActorCritic, Agent, Algorithm, Iteration, Monitor, Recipe
from tempo_rl.agents.reinforce import reinforce
from tempo_rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tempo_rl.cli import app
from tempo_rl.env import vector_environment
from tempo_rl.env.functional_env import make_single, single_of
from tempo_rl.env.source import source_of
from tempo_rl.errors import CheckpointError, EnvError, RecipeError, RLError, RunError
from tempo_rl.recipe import make_recipe
from tempo_rl.train import TrainingError
from tests.cases import cells, fast, first, slow
from tests.rl.scripted import ID, Scripted

SMALL: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [3], "eval_episodes": 0}
ENDS = [("terminated", 3)]


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


@pytest.mark.slow
def test_training_leaves_parameters_and_a_result(trained: REINFORCE) -> None:
    assert trained.parameters is not None and trained.result is not None
    assert trained.parameters["policy.0.weight"].shape == (4, 3) and trained.result["env_steps"] == 24


@pytest.mark.slow
def test_the_speed_is_that_of_training_alone() -> None:
    result = A2C("CartPole-v1", **(SMALL | {"eval_episodes": 2})).train(cache=False).result
    assert result is not None and result["evaluation_seconds"] > 0.0
    training = result["seconds"] - result["compile_seconds"] - result["evaluation_seconds"]
    assert result["steps_per_second"] == pytest.approx(result["env_steps"] / training)


def test_predictions_are_for_one_observation_or_for_a_batch(trained: REINFORCE) -> None:
    batch = np.random.default_rng(0).normal(size=(5, 4)) * 3
    greedy = trained.predict(batch)
    assert greedy.shape == (5,) and [int(trained.predict(row)) for row in batch] == greedy.tolist()
    drawn = [trained.predict(batch, deterministic=False, seed=k) for k in range(9)]
    assert len({tuple(actions) for actions in drawn}) > 1
    np.testing.assert_array_equal(drawn[3], trained.predict(batch, deterministic=False, seed=3))
    with pytest.raises(RLError, match=r"has the shape \(4,\), but this one has \(3,\)\n.*or a batch \('B', 4\)"):
        trained.predict(np.zeros(3))
    for wrong in (np.full(4, np.nan), [1e300, 0.0, 0.0, 0.0]):
        with pytest.raises(RLError, match="an observation of CartPole-v1 must be finite in float32, not "):
            trained.predict(wrong)
    with pytest.raises(RLError, match=r"an observation of CartPole-v1 must be numbers, not \['left'\]"):
        trained.predict(["left"])  # type: ignore[list-item]
    with pytest.raises(RLError, match=r"the number of episodes of an evaluation is an int of at least 1, not 1\.5"):
        trained.evaluate(1.5)  # type: ignore[arg-type]
    with pytest.raises(RLError, match=r"the seed of an evaluation is an int of at least 0, not -1"):
        trained.evaluate(1, seed=-1)


def test_draws_go_on_from_call_to_call(tmp_path: Path) -> None:
    """A policy that is nearly 50:50 draws anew in each call, and an evaluation with another seed plays other episodes."""

    class Sums(Scripted):
        """The reward is the action, and nothing else is random."""

        def step(self, action: Any) -> Any:
            observation, _, *ends = super().step(action)
            return observation, float(action), *ends

    agent = REINFORCE(lambda: Sums(ENDS), **(SMALL | {"learning_rate": 1e-9})).train()
    observation = np.zeros(2, np.float32)

    def drawn(of: Any = agent, **keys: Any) -> list[int]:
        first = int(of.predict(observation, deterministic=False, **keys))
        return [first, *(int(of.predict(observation, deterministic=False)) for _ in range(29))]

    sequence, following = drawn(seed=3), drawn()
    assert sequence != following and {5, 6} == set(sequence) and 6 < sequence.count(5) < 24
    assert drawn(seed=3) == sequence and drawn() == following and drawn(seed=4) != sequence
    path = agent.save(tmp_path / "policy.safetensors")
    loaded = [drawn(REINFORCE.load(path, env=lambda: Sums(ENDS))) for _ in range(2)]
    assert loaded[0] == loaded[1] == drawn(seed=agent.recipe.seed)
    agent.predict(observation, deterministic=False, seed=3)
    agent.predict(observation)  # greedy actions draw nothing
    assert int(agent.predict(observation, deterministic=False)) == sequence[1]
    returns = [agent.evaluate(8, seed=k, deterministic=False).returns.tolist() for k in (0, 0, 1)]
    assert returns[0] == returns[1] != returns[2]
    with pytest.raises(RLError, match="the seed of a draw is an int of at least 0, not -1"):
        agent.predict(observation, seed=-1)


def test_a_saved_policy_plays_the_same(trained: REINFORCE, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "policy.safetensors")
    returns = trained.evaluate(episodes=3, seed=5).returns
    for again in (REINFORCE.load(path), tempo_rl.load(path), tempo_rl.load(path, env=lambda: gym.make("CartPole-v1"))):
        assert type(again) is REINFORCE and again.recipe.hidden == [3]
        np.testing.assert_array_equal(again.evaluate(episodes=3, seed=5).returns, returns)
    with pytest.raises(CheckpointError, match=f"policy cannot be written: there is no directory {tmp_path}/none$"):
        trained.save(tmp_path / "none" / "policy")
    assert not (tmp_path / "none").exists()
    with pytest.raises(CheckpointError, match="holds an agent of the algorithm reinforce, not of ppo"):
        PPO.load(path)
    with pytest.raises(RLError, match=r"parameter policy\.0\.weight has the shape \(4, 3\), but this environment needs \(2, 3\)"):
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
    with pytest.raises(RecipeError, match=r"A2C always trains with the algorithm actor_critic\n.*leave algorithm= out"):
        A2C("CartPole-v1", algorithm="ppo")  # type: ignore[call-arg]


def test_wrong_arguments_of_training_are_named_before_it_compiles() -> None:
    agent = REINFORCE("CartPole-v1", **SMALL)
    with pytest.raises(RunError, match=r"callbacks is <function(.|\n)*not a list of functions\n.*write callbacks=\[function\]"):
        agent.train(callbacks=lambda iteration: True)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"callbacks is \[1\]"):
        agent.train(callbacks=[1])  # type: ignore[list-item]
    with pytest.raises(RunError, match="resume=True needs `out`, the directory of the run to go on with"):
        agent.train(resume=True)


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


class Pickled(Scripted, gym.utils.EzPickle):
    """Gymnasium's way to be copied is to be made anew."""

    def __init__(self, ends: list[tuple[str, int]]):
        super().__init__(ends)
        gym.utils.EzPickle.__init__(self, ends)


@pytest.mark.parametrize(
    "env",
    [gym.make(ID, ends=ENDS), Pickled(ENDS), gym.wrappers.TimeLimit(Pickled(ENDS), 9)],
    ids=["a spec", "EzPickle", "wrapped"],
)
def test_copies_of_an_object_are_as_it_is_now(env: Any) -> None:
    env.unwrapped.ends = [("terminated", 2)]
    host = vector_environment(A2C(env, **SMALL).recipe, 2)
    host.reset()
    assert [host.step(np.zeros(2, np.int32)).terminated.tolist() for _ in range(2)] == [[False] * 2, [True] * 2]
    assert env.unwrapped.count == 0, "the object itself is not stepped"


class Integers(Counting):
    """The state is an integer counter, far from zero; an observation is what `observation_space` says."""

    def __init__(self, space: gym.spaces.Space[Any], start: int = 0, dtype: str = "int32"):
        self.observation_space, self.start, self.dtype = space, start, dtype  # type: ignore[assignment]

    def initial(self, rng: jax.Array, params: Any = None) -> jax.Array:
        return jnp.asarray(self.start, self.dtype)

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return state + jnp.asarray(1, state.dtype)

    def observation(self, state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        place = (state - jnp.asarray(self.start, state.dtype)).astype("int32")
        shape = self.observation_space.shape
        return place if shape is None else jnp.broadcast_to(place, shape)

    def reward(self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return (next_state - jnp.asarray(self.start, state.dtype)).astype("float32")


@pytest.mark.parametrize(
    ("start", "dtype"), [(2**24, "int32"), (-(2**31), "int32"), (2**32 - 10, "uint32"), (100, "uint8"), (0, "bfloat16")]
)
def test_a_state_in_jax_keeps_its_dtype(start: int, dtype: str) -> None:
    env = Integers(gym.spaces.Box(0, 9, (1,), np.int32), start, dtype)
    host: Any = vector_environment(A2C(env, **SMALL).recipe, 1)
    host.reset()
    steps = [host.step(np.zeros(1, np.int32)) for _ in range(3)]
    assert [step.episode_return.tolist() for step in steps] == [[1.0], [3.0], [6.0]]
    assert steps[2].episode_length.tolist() == [3] and steps[2].truncated.all()
    assert host.state_of_first().dtype == dtype and int(host.state_of_first()) == start


def test_more_steps_than_float32_counts() -> None:
    single = single_of(source_of(Counting()) or pytest.fail(), max_episode_steps=2**24 + 5)
    assert single.state_dtype == "int32"
    state, _ = single.initial(jnp.zeros(2, "uint32"))
    later = state.at[-2].set(2**24)
    assert int(single.advance(later, jnp.int32(0), jnp.zeros(2, "uint32"))[-1]) == 2**24 + 1


def test_a_state_that_changes_its_dtype_is_refused() -> None:
    class Changing(Integers):
        def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
            return state + 0.5

    with pytest.raises(EnvError, match=r"Changing\.transition\(\) gives a state of float32, but initial\(\) gives one of int32"):
        vector_environment(A2C(Changing(gym.spaces.Discrete(9)), **SMALL).recipe, 1)


class Choices(gym.Env[Any, Any]):
    """On the host: the observation is the number of steps, in `space`; episodes end after three."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space: gym.spaces.Space[Any]):
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self._observation(), 1.0, self.count == 3, False, {}

    def _observation(self) -> Any:
        space = self.observation_space
        return self.count if space.shape == () else np.full(space.shape, self.count, space.dtype)  # type: ignore[arg-type]


SPACES = {
    "Discrete": (gym.spaces.Discrete(5), (1,)),
    "MultiDiscrete": (gym.spaces.MultiDiscrete([4, 5]), (2,)),
    **{f"Box of {dtype}": (gym.spaces.Box(0, 9, (2,), dtype), (2,)) for dtype in ("int64", "int32", "int16", "uint32", "int8")},
}


@pytest.mark.parametrize(("space", "kind"), cells(SPACES, [Choices, Integers], fast=[("Discrete", Integers)]))
def test_observations_of_integers_train(space: str, kind: Any) -> None:
    given, shape = SPACES[space]
    agent = A2C(kind(given), **(SMALL | {"total_timesteps": 16}))
    env = vector_environment(agent.recipe, 2)
    env.reset()
    seen = env.step(np.zeros(2, np.int32)).observation
    env.close()
    assert seen.shape == (2, *shape)
    assert set(seen[0].tolist()) == {1}
    kept = {
        "Box of int32": "int32",
        "Box of uint32": "uint32",
        "Box of int8": "int8",
        "Discrete": "int32",
        "MultiDiscrete": "int32",
    }
    assert env.observations.dtype == kept.get(space, "float32")
    if space == "Discrete" or (kind is Choices and space == "Box of int64"):
        assert agent.train().evaluate(2).lengths.tolist() == [3, 3]


class Broken(Counting):
    """At the second step of each episode, a number is not one."""

    def __init__(self, what: str):
        self.what = what

    def observation(self, state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return jnp.where((state == 2.0) & (self.what == "an observation"), jnp.nan, state)

    def reward(self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: Any = None) -> jax.Array:
        return jnp.where((next_state[0] == 2.0) & (self.what == "a reward"), jnp.inf, 1.0)


@pytest.mark.parametrize("what", fast(["an observation", "a reward"], "a reward"))
def test_a_number_of_an_environment_in_jax_that_is_not_finite_is_blamed_on_it(what: str) -> None:
    with pytest.raises(
        TrainingError, match=rf"Broken gave {what} that is not finite: .*in environment 0 at step 2 of its episode"
    ):
        A2C(Broken(what), **SMALL).train()


DIVERGING: Any = {"learning_rate": 1e38, "max_grad_norm": None, "anneal_lr": False}


def test_where_nobody_looked_neither_the_environment_nor_the_learning_rate_is_blamed() -> None:
    message = (
        r"training diverged in iteration .*; either learning diverged, or Counting gave a number that is not finite "
        r"\(it gave none in 16 more steps\)(.|\n)*hint: train again with check_finite=true: .*Otherwise lower learning_rate"
    )
    with pytest.raises(TrainingError, match=message):
        A2C(Counting(), **SMALL, **DIVERGING).train()


@pytest.mark.slow
@pytest.mark.parametrize("env", first(1, [Counting(), "CartPole-v1"]), ids=["in JAX", "on the host"])
def test_where_all_numbers_were_checked_the_learning_rate_is_blamed(env: Any) -> None:
    with pytest.raises(
        TrainingError, match=r"training diverged in iteration(.|\n)*hint: metrics\.csv.*lower learning_rate"
    ) as raised:
        A2C(env, **SMALL, **DIVERGING, check_finite=True).train()
    assert "either" not in str(raised.value)


@pytest.mark.parametrize("what", fast(["an observation", "a reward"], "a reward"))
@pytest.mark.parametrize(("kind", "keys"), [(A2C, {}), (PPO, {"num_minibatches": 2, "frames": 2}), slow((REINFORCE, {}))])
def test_a_number_that_is_not_finite_is_found_at_its_step(
    what: str, kind: Any, keys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is too rare to come again in some more steps."""
    monkeypatch.setattr("tempo_rl.train.fault_of_environment", lambda *_: None)
    message = (
        rf"Broken gave {what} that is not finite, in environment 0 at step 2 of its episode(.|\n)*the environment is at fault"
    )
    with pytest.raises(TrainingError, match=message):
        kind(Broken(what), **SMALL, **keys, check_finite=True).train()


@pytest.mark.slow
def test_looking_at_each_step_changes_nothing(tmp_path: Path) -> None:
    for name, looks in (("plain", False), ("checked", True)):
        A2C(Counting(), **SMALL, check_finite=looks).train(tmp_path / name)
    assert (tmp_path / "plain" / "metrics.csv").read_bytes() == (tmp_path / "checked" / "metrics.csv").read_bytes()


def test_a_class_of_gymnasium_is_not_one_in_jax() -> None:
    with pytest.raises(EnvError, match=r"scripted:Scripted is an environment of Gymnasium, not one in JAX"):
        make_single("tests.rl.scripted:Scripted", ends=[])


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


def test_recipes_name_algorithms_and_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_rl.rundir import create_run
    from tempo_rl.train import train

    recipe = make_recipe(OWN)
    assert type(recipe) is OwnRecipe
    run = create_run(tmp_path / "run")
    train(recipe, run)
    arguments = ["eval", str(run.path), "--episodes", "1"]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 0, "this user trained it"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    command = CliRunner().invoke(app, arguments)
    assert (
        command.exit_code == 1
        and f"would import {OWN['algorithm']}, {OWN['policy']}\n  hint: this runs code. If you trust" in command.output
    )
    command = CliRunner().invoke(app, [*arguments, "--trust"])
    assert command.exit_code == 0, command.output


def test_own_runs_are_those_of_their_directory_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_rl.own import known, remember

    assert remember(tmp_path / "run", ["mine:agent"]) and remember(tmp_path / "run", ["mine:agent", "mine:Env"])
    assert known(tmp_path / "run/checkpoints/latest.safetensors") == ["mine:agent", "mine:Env"]
    assert known(tmp_path / "running/checkpoints/latest.safetensors") == []
    monkeypatch.chdir(tmp_path)  # another module may have the same name here
    assert known(tmp_path / "run/checkpoints/latest.safetensors") == []
    monkeypatch.setenv("XDG_STATE_HOME", "/proc")
    assert not remember(tmp_path / "run", ["mine:agent"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"algorithm": "no.such:thing"}, r"'no\.such:thing' cannot be imported"),
        ({"algorithm": "nothing"}, r"algorithm is 'nothing'\n.*or your own as module:function"),
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
        ({"algorithm": f"{__name__}:no_algorithm"}, r"no_algorithm gives 3, not an Agent\n.*return an Agent"),
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
        {"env": {"id": "CartPole-v1", "kwargs": {"inner": ["evil:Wrapper"]}}},
        # of packages that are known, but no row of the table
        {"env": {"id": "brax.io.model:load_params", "kwargs": {"path": "evil:Wrapper"}}},
        {"env": {"id": "gymnasium:make"}},
        {"algorithm": "gymnasium.envs.registration:load_env_creator"},
        {"policy": "tempo_rl.references:load_reference"},
    ],
)
def test_a_checkpoint_from_elsewhere_imports_nothing(foreign: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make_recipe({"algorithm": "reinforce"})
    dumped: Callable[..., Any] = lambda **_: {"algorithm": "reinforce", **foreign}  # noqa: E731
    monkeypatch.setattr(type(recipe), "model_dump", lambda self, **_: dumped())
    path = save_checkpoint(tmp_path / "a.safetensors", Checkpoint({}, recipe, 1, 1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"would import (evil|brax|gymnasium|tempo_rl)[\w.]*:\w+"):
        load_checkpoint(path, trust=False)


@pytest.fixture
def marking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the working directory, `marking`, that leaves a file when it is imported, and a recipe that names it."""
    (tmp_path / "marking.py").write_text(
        "from pathlib import Path\nPath('imported').touch()\nfrom tempo_rl import Recipe\n"
        "class Mine(Recipe):\n    extra: int = 3\ndef agent(recipe: Mine, monitor): ...\n"
    )
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("algorithm: marking:agent\nextra: 4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "marking", raising=False)
    return tmp_path


def test_a_recipe_is_validated_and_listed_without_importing_what_it_names(marking: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["validate", "mine", "num_envs=3"])
    assert result.exit_code == 0, result.output
    assert "num_envs: 3" in result.output and "extra: 4" in result.output
    assert "# would import marking:agent; not imported" in result.output
    assert "num_envs is 0" in runner.invoke(app, ["validate", "mine", "num_envs=0"]).output
    assert "marking:agent" in runner.invoke(app, ["ls"]).output
    assert not (marking / "imported").exists()


@pytest.mark.parametrize("command", [("plan",), ("train",), ("validate", "--trust")])
def test_a_command_says_what_it_imports_before_it_does(
    command: tuple[str, ...], marking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, bool]] = []
    monkeypatch.setattr("typer.echo", lambda text="", **_: said.append((str(text), (marking / "imported").exists())))
    CliRunner().invoke(app, [command[0], "mine", *command[1:]])
    assert said[0] == ("note: this recipe imports marking:agent", False) and (marking / "imported").exists()


def test_neither_a_picture_nor_a_resumed_run_imports_what_a_run_of_others_names(marking: Path) -> None:
    from tempo_rl.rundir import MARK

    run = marking / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text(MARK + "algorithm: marking:agent\nenv: {id: CartPole-v1}\n")
    (run / "metrics.csv").write_text("iteration,env_steps,episodic_return\n0,8,1.0\n1,16,2.0\n")
    assert CliRunner().invoke(app, ["plot", "run"]).exit_code == 0
    resumed = CliRunner().invoke(app, ["train", "ppo", "--resume", "run"])
    assert "has another recipe: it would import marking:agent" in resumed.output
    checkpoint = Checkpoint({}, make_recipe({"algorithm": "ppo"}), 1, 2048, program=tp.Snapshot({}, {}))
    save_checkpoint(run / "checkpoints" / "latest.safetensors", checkpoint)
    resumed = CliRunner().invoke(app, ["train", "ppo", "--resume", "run"])
    assert not (marking / "imported").exists()


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
