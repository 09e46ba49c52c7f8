"""Environments of one's own: what an id names is looked at; vector environments as they are; the same from recipes and from Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import tempo_rl
from tempo_rl.env import make_vector, source_for, vector_environment
from tempo_rl.env.source import named, source_of
from tempo_rl.errors import EnvError, RecipeError, RLError
from tempo_rl.recipe import make_recipe
from tests.cases import fast

MODULE = '''
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


class Corridor(gym.Env):
    observation_space = gym.spaces.Box(0.0, 99.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=4):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += 1
        return np.array([self.place], np.float32), 1.0, self.place == self.length, False, {}


class Twice(gym.Wrapper):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 2.0 * reward, *rest


class Many(VectorEnv):
    """Corridors whose lengths are 2, 3, ..., all in arrays."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = gym.spaces.Discrete(99)
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, num_envs=1, first=2):
        self.num_envs = num_envs
        self.lengths = np.arange(first, first + num_envs)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.places = np.zeros(self.num_envs, np.int64)
        return self.places.copy(), {}

    def step(self, actions):
        final = self.places + 1
        done = final == self.lengths
        self.places = np.where(done, 0, final)
        never = np.zeros(self.num_envs, bool)
        return self.places.copy(), actions.astype(np.float64), done, never, {"final_obs": final, "_final_obs": done}

    def state(self):
        return {"places": self.places}

    def restore(self, state):
        self.places = np.array(state["places"])


class Functions:
    max_episode_steps = 5
    observation_space = gym.spaces.Box(0.0, 99.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, start=0.0):
        self.start = start

    def initial(self, rng, params=None):
        return jnp.full(1, self.start)

    def transition(self, state, action, rng, params=None):
        return state + 1.0

    def observation(self, state, rng, params=None):
        return state

    def reward(self, state, action, next_state, rng, params=None):
        return state[0]

    def terminal(self, state, rng, params=None):
        return jnp.zeros((), bool)


class Half:
    def initial(self, rng, params=None): ...
    def transition(self, state, action, rng, params=None): ...


class Old:
    def reset(self): ...
    def step(self, action): ...


def make(length=4):
    return Corridor(length)


def make_many(num_envs):
    return Many(num_envs, 5)


def make_functions(start=0.0):
    return Functions(start)


def make_nothing():
    return None


one = Corridor(6)
functions = Functions(2.0)
NUMBER = 3
gym.register("Corridor-v0", Corridor)
gym.register("ManyCorridors-v0", entry_point=None, vector_entry_point=Many)
'''

SMALL: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 32, "hidden": [4], "eval_episodes": 0}


@pytest.fixture
def corridors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a user, in the working directory."""
    import importlib

    (tmp_path / "corridors.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "corridors", raising=False)
    before = dict(gym.registry)
    named("corridors:Corridor")
    yield importlib.import_module("corridors")
    gym.registry.clear()
    gym.registry.update(before)
    sys.modules.pop("corridors")


KINDS = {
    "Corridor-v0": "host", "Corridor": "host", "make": "host", "one": "host", "Many": "vector", "ManyCorridors-v0": "vector",
    "make_many": "vector", "Functions": "jax", "functions": "jax", "make_functions": "jax",
}  # fmt: skip
LENGTHS = {"one": 6, "Many": 2, "ManyCorridors-v0": 2, "make_many": 5, "Functions": 5, "functions": 5, "make_functions": 5}


@pytest.mark.parametrize("name", KINDS)
def test_what_an_id_names_is_looked_at(name: str, corridors: Any) -> None:
    recipe = make_recipe({"algorithm": "actor_critic", "env": {"id": f"corridors:{name}"}, **SMALL})
    assert source_for(recipe).kind == KINDS[name] and source_for(recipe).name == f"corridors:{name}"
    env = vector_environment(recipe, 1)
    env.reset()
    steps = [env.step(np.zeros(1, np.int32)) for _ in range(LENGTHS.get(name, 4))]
    env.close()
    assert [bool((step.terminated | step.truncated)[0]) for step in steps] == [False] * (len(steps) - 1) + [True]


@pytest.mark.parametrize(
    ("name", "keywords", "length"),
    [
        ("Corridor-v0", {"length": 3}, 3), ("Corridor", {"length": 3}, 3), ("make", {"length": 3}, 3),
        ("Corridor-v0", {"max_episode_steps": 2}, 2), ("Corridor", {"max_episode_steps": 2}, 2), ("make", {"max_episode_steps": 2}, 2),
        ("Many", {"first": 3}, 3), ("ManyCorridors-v0", {"first": 3}, 3),
        ("Functions", {"max_episode_steps": 3, "start": 1.0}, 3), ("make_functions", {"max_episode_steps": 3, "start": 1.0}, 3),
    ],
)  # fmt: skip
def test_arguments_reach_it(name: str, keywords: Any, length: int, corridors: Any) -> None:
    env = make_vector(f"corridors:{name}", 1, kwargs=keywords)
    first = env.reset()
    steps = [env.step(np.zeros(1, np.int32)) for _ in range(length)]
    assert (steps[-1].terminated | steps[-1].truncated).tolist() == [True] and steps[-1].episode_length.tolist() == [length]
    assert not any((step.terminated | step.truncated)[0] for step in steps[:-1])
    assert first.tolist() == [[keywords.get("start", 0)]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Corridr-v0", r"the module corridors has no environment 'Corridr-v0'\n  hint: did you mean 'Corridor-v0'"),
        ("Nothing", r"has no environment 'Nothing'\n  hint: it has Corridor-v0, ManyCorridors-v0, Corridor, Twice, Many, Functions"),
        ("Half", r"corridors:Half is the class Half, which is not an environment: it has initial, transition, but lacks observation, reward, terminal"),
        ("Old", r"which is not an environment: it has step and reset, but is not derived from gymnasium\.Env\n  hint: an environment is a class"),
        ("NUMBER", r"corridors:NUMBER is 3, which is not an environment: it is neither derived from gymnasium\.Env nor has it the functions"),
        ("make_nothing", r"make_nothing\(\) gives None, which is not an environment"),
    ],
)  # fmt: skip
def test_what_is_no_environment_is_named(name: str, message: str, corridors: Any) -> None:
    with pytest.raises(EnvError, match=message):
        named(f"corridors:{name}")


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("Functions", {"wrappers": ["corridors:Twice"]}, r"env\.wrappers is for environments on the host, but corridors:Functions runs in JAX"),
        ("Functions", {"vectorization": "async"}, r"env\.vectorization is for environments on the host, but corridors:Functions"),
        ("Many", {"vectorization": "async"}, r"corridors:Many is a vector environment, used as it is: env\.vectorization=async"),
        ("Corridor", {"vectorization": "vector_entry_point"}, r"is for ids of Gymnasium, but corridors:Corridor is a class"),
        ("Corridor-v0", {"vectorization": "vector_entry_point"}, r"Gymnasium cannot make 'corridors:Corridor-v0': .*vector entry point"),
        ("Corridor", {"kwargs": {"width": 3}}, r"corridors:Corridor cannot be made with \{'width': 3\}: .*'width'\n  hint: check the names in env\.kwargs"),
        ("one", {"kwargs": {"length": 3}}, r"Corridor is made already, so that it takes no arguments \{'length': 3\}"),
        ("Many", {"wrappers": ["corridors:Twice"]}, r"the wrapper corridors:Twice raised"),
    ],
)  # fmt: skip
def test_keys_that_it_does_not_take(name: str, keys: Any, message: str, corridors: Any) -> None:
    import tempo_core as tp
    from tempo_rl.env import make_environment

    recipe = make_recipe({"algorithm": "actor_critic", "env": {"id": f"corridors:{name}", **keys}, **SMALL})
    ctx = tp.Context("b")
    with pytest.raises(EnvError, match=message), ctx as ((b, B),):
        make_environment(recipe, (b, B))


@pytest.mark.parametrize(
    "name",
    [
        "Corridor-v0",
        pytest.param("Corridor", marks=pytest.mark.slow),
        pytest.param("Functions", marks=pytest.mark.slow),
    ],
)
def test_the_installed_command_finds_it(name: str, corridors: Any, tmp_path: Path) -> None:
    """A console script does not look into the working directory, as `-P` does not."""
    recipe = {"algorithm": "actor_critic", "env": {"id": f"corridors:{name}"}, **SMALL, "executor": "interpreted"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    root = Path(tempo_rl.__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from tempo_rl.__main__ import main; main()"
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-P", "-c", code, "train", "recipe.yaml", "--out", "run", "--no-picture", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["env_steps"] == 32
    assert f"env.id: corridors:{name}" in done.stderr or f"corridors:{name}" in done.stderr


# -- vector environments -----------------------------------------------------------------------------------------------


def test_a_vector_environment_steps_as_it_is(corridors: Any) -> None:
    env = make_vector("corridors:Many", 3)
    env.reset()
    one = env.step(np.array([1, 0, 1], np.int32))
    two = env.step(np.array([1, 0, 0], np.int32))
    assert env.observations.counts == (99,)
    assert one.reward.tolist() == [1.0, 0.0, 1.0] and two.terminated.tolist() == [True, False, False]
    assert two.observation.tolist() == [[0], [2], [2]] and two.final_observation.tolist() == [[2], [2], [2]]
    assert two.episode_return.tolist() == [2.0, 0.0, 1.0] and two.episode_length.tolist() == [2, 2, 2]


def test_a_vector_environment_trains_and_goes_on_bit_for_bit(corridors: Any, tmp_path: Path) -> None:
    keys: Any = {**SMALL, "num_envs": 3, "total_timesteps": 48, "save_every": 1, "executor": "interpreted"}
    whole = tempo_rl.A2C(corridors.Many, **keys).train(tmp_path / "whole")
    tempo_rl.A2C(corridors.Many, **keys).train(tmp_path / "run", callbacks=[lambda it: it.iteration == 1])
    resumed = tempo_rl.A2C(corridors.Many, **keys).train(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
    assert whole.parameters is not None and resumed.parameters is not None
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], value)


def test_an_object_has_its_number(corridors: Any) -> None:
    many = corridors.Many(3)
    agent = tempo_rl.A2C(many, **{key: value for key, value in SMALL.items() if key != "num_envs"}, executor="interpreted")
    assert agent.recipe.num_envs == 3
    assert agent.train().evaluate(3).lengths.tolist() == [2, 3, 4]
    many.reset()
    assert many.places.tolist() == [0, 0, 0]  # copies were trained in
    with pytest.raises(EnvError, match=r"Many has 3 environments, but the recipe asks for num_envs=2\n  hint: write num_envs=3"):
        tempo_rl.A2C(many, **SMALL).train()


@pytest.mark.parametrize("mode", fast([AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP], AutoresetMode.SAME_STEP))
def test_make_vec(mode: AutoresetMode) -> None:
    env = gym.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": mode})
    agent = tempo_rl.A2C(env, num_steps=4, total_timesteps=24, hidden=[4], eval_episodes=0, executor="interpreted").train()
    env.close()
    assert agent.recipe.num_envs == 3 and agent.evaluate(3).returns.min() > 5
    function = tempo_rl.A2C(
        lambda num_envs: gym.make_vec("CartPole-v1", num_envs, "sync"), **SMALL, executor="interpreted"
    ).train()
    assert len(function.evaluate(3).returns) == 3


def test_a_vector_environment_that_loses_transitions_is_refused() -> None:
    """Gymnasium's CartPole for vectors restarts in the next step, and takes no other mode."""
    env = tempo_rl.EnvRecipe("CartPole-v1", vectorization="vector_entry_point")
    with pytest.raises(
        RLError, match=r"CartPole-v1 restarts episodes in the next step \(AutoresetMode\.NEXT_STEP\), which loses transitions"
    ):
        tempo_rl.A2C(env, **SMALL).train()


def test_one_that_may_restart_in_the_same_step_does(corridors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Modes(corridors.Many):  # type: ignore[misc]
        def __init__(self, num_envs: int = 1, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP):
            super().__init__(num_envs)
            self.metadata = {"autoreset_mode": autoreset_mode}

    gym.register("Modes-v0", entry_point=None, vector_entry_point=Modes)
    for env in (Modes, "Modes-v0"):
        recipe = tempo_rl.A2C(env, **SMALL).recipe
        host: Any = vector_environment(recipe, 2)
        assert host.env.unwrapped.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP


def test_what_cannot_be_copied_says_what_to_give(corridors: Any) -> None:
    many = corridors.Many(2)
    many.handle = (number for number in range(3))
    with pytest.raises(EnvError, match=r"Many cannot be copied: (.|\n)*give a function that makes one"):
        source_of(many)


# -- from Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_environment_recipe_in_python(corridors: Any) -> None:
    for env in (corridors.Corridor, "corridors:Corridor", "corridors:Corridor-v0", corridors.make):
        given = tempo_rl.EnvRecipe(env, kwargs={"length": 3}, wrappers=[corridors.Twice, "gymnasium.wrappers:ClipReward"][:1])
        agent = tempo_rl.A2C(given, **SMALL, executor="interpreted").train()
        assert agent.recipe.env.wrappers == ["corridors:Twice"] and agent.recipe.env.kwargs == {"length": 3}
        evaluation = agent.evaluate(2)
        assert evaluation.lengths.tolist() == [3, 3] and evaluation.returns.tolist() == [6.0, 6.0]


@pytest.mark.slow
def test_processes_in_python(corridors: Any) -> None:
    env = tempo_rl.EnvRecipe(corridors.Corridor, vectorization="async", wrappers=[corridors.Twice])
    assert tempo_rl.A2C(env, **SMALL).train().result is not None


def test_a_recipe_of_a_vector_has_vector_wrappers(corridors: Any) -> None:
    env = tempo_rl.EnvRecipe(
        corridors.Many, wrappers=[gym.wrappers.vector.ClipAction, gym.wrappers.vector.RecordEpisodeStatistics][1:]
    )
    host: Any = vector_environment(tempo_rl.A2C(env, **SMALL).recipe, 2)
    assert type(host.env).__name__ == "RecordEpisodeStatistics" and host.reset().tolist() == [[0], [0]]


def test_mistakes_in_an_environment_recipe(corridors: Any) -> None:
    class Local(gym.Wrapper[Any, Any, Any, Any]): ...

    with pytest.raises(EnvError, match=r"the wrapper .*Local.* has no name in a module(.|\n)*lambda: Wrapper\(MyEnv\(\)\)"):
        tempo_rl.EnvRecipe("CartPole-v1", wrappers=[Local])
    with pytest.raises(EnvError, match=r"Corridor is made already, so that it takes no arguments \{'length': 3\}"):
        tempo_rl.EnvRecipe(corridors.Corridor(), kwargs={"length": 3})
    with pytest.raises(RecipeError, match=r"env\.vectorization"):
        make_recipe({"algorithm": "ppo", "env": {"vectorization": "threads"}})
    with pytest.raises(RecipeError, match=r"unknown key env\.wrapper|did you mean|wrapper"):
        make_recipe({"algorithm": "ppo", "env": {"wrapper": []}})


class Spread(VectorEnv[Any, Any, Any]):
    """A vector environment in which parts of observations are dicts, also the final ones."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int = 2):
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Dict({"n": gym.spaces.Discrete(9), "x": gym.spaces.Box(0.0, 9.0, (1,))})
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.count = 0
        return self._seen(0), {}

    def step(self, actions: Any) -> Any:
        self.count += 1
        done = np.full(self.num_envs, self.count % 2 == 0)
        final = self._seen(self.count % 2 + 2)
        return (
            self._seen(0 if done[0] else 1),
            np.ones(self.num_envs),
            done,
            ~done & done,
            {"final_obs": final, "_final_obs": done},
        )

    def _seen(self, number: int) -> Any:
        return {"n": np.full(self.num_envs, number), "x": np.full((self.num_envs, 1), float(number), np.float32)}


def test_final_observations_in_arrays_of_parts() -> None:
    env = make_vector(f"{__name__}:Spread", 2)
    env.reset()
    env.step(np.zeros(2, np.int32))
    step = env.step(np.zeros(2, np.int32))
    assert step.final_observation.tolist() == [[2.0, 2.0]] * 2 and step.observation.tolist() == [[0.0, 0.0]] * 2


def test_a_vector_of_single_ones_is_copied() -> None:
    env = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    source = source_of(env)
    assert source is not None and source.kind == "vector" and source.num_envs == 2 and source.make() is not env
