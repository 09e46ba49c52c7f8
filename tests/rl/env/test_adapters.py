"""Libraries of environments in JAX, by id: each on a small package with the same functions, and for real where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_rl
from tempo_rl.env import is_functional, make_vector
from tempo_rl.env.adapters.stepped import Outcome, Stepped
from tempo_rl.env.functional_env import make_single
from tempo_rl.env.registry import ADAPTERS
from tempo_rl.env.spaces import Continuous
from tempo_rl.errors import EnvError
from tests.rl.env.fake_libraries import FILES, write_library

KEYS: Any = {"num_envs": 2, "num_steps": 8, "total_timesteps": 32, "hidden": [4], "eval_episodes": 0}


def test_each_library_has_its_package() -> None:
    assert sorted(ADAPTERS) == sorted(FILES)


@pytest.fixture
def library(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The prefix of a library, whose package is the small one."""
    prefix: str = request.param
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = write_library(prefix, tmp_path)
    kept = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in packages}
    importlib.invalidate_caches()
    yield prefix
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
    sys.modules.update(kept)


def each(*names: str) -> Any:
    return pytest.mark.parametrize("library", names or sorted(FILES), indirect=True)


def action(env: Any, goes: bool) -> np.ndarray:
    if isinstance(env.actions, Continuous):
        return np.full((2, 1), 1.0 if goes else -1.0, np.float32)
    return np.full(2, goes, np.int32)


SEEN: dict[str, dict[int, list[float]]] = {
    "pgx": {place: [float(place == k) for k in range(4)] for place in range(4)},
    "xminigrid": {place: [place, 11 - place] for place in range(4)},
    "jumanji": {place: [1.0, 1.0, place] for place in range(4)},
}


@each()
def test_steps_and_ends(library: str) -> None:
    """The third place terminates, and the next episode begins at once; four steps truncate."""
    limit = {"max_episode_steps": 4} if library == "brax" else {}
    env = make_vector(f"{library}/Line", 2, 1, limit)
    seen = SEEN.get(library, {place: [float(place)] for place in range(4)})
    assert env.reset().tolist() == [seen[0]] * 2
    for place in (1, 2, 3):
        step = env.step(action(env, True))
        assert step.reward.tolist() == [place] * 2 and step.final_observation.tolist() == [seen[place]] * 2
        assert step.terminated.tolist() == [place == 3] * 2 and not step.truncated.any()
    assert step.observation.tolist() == [seen[0]] * 2 and step.episode_return.tolist() == [6.0] * 2
    for count in (1, 2, 3, 4):
        step = env.step(action(env, False))
        assert step.truncated.tolist() == [count == 4] * 2 and not step.terminated.any()
    for goes in (False, True, True, True):  # the third place with the fourth step
        step = env.step(action(env, goes))
    assert step.terminated.all() and not step.truncated.any()


@each(*[pytest.param(name, marks=() if name in ("jumanji", "xminigrid") else pytest.mark.slow) for name in sorted(FILES)])  # type: ignore[arg-type]
def test_agents_train(library: str) -> None:
    agent = tempo_rl.A2C(f"{library}/Line", **KEYS).train()
    assert agent.result is not None and agent.result["env_steps"] == 32


@each()
def test_names_that_a_library_does_not_have(library: str) -> None:
    with pytest.raises(EnvError, match=r"Lime"):
        make_single(f"{library}/Lime")
    if library != "craftax":
        with pytest.raises(EnvError, match=rf"has no environment 'Lime'\n  hint: did you mean {library}/Line\?"):
            make_single(f"{library}/Lime")


@pytest.mark.parametrize(
    ("library", "keywords", "limit"),
    [
        ("gymnax", {"max_steps_in_episode": 7, "bonus": 1.0}, 7), ("craftax", {"max_timesteps": 7}, 7), ("xminigrid", {"max_steps": 7}, 7),
        ("jumanji", {"time_limit": 7}, 7), ("playground", {"episode_length": 7}, 7), ("pgx", {}, 10_000), ("brax", {"legs": 3}, 1000),
        ("pgx", {"max_episode_steps": 7}, 7),
    ],
    indirect=["library"],
)  # fmt: skip
def test_arguments(library: str, keywords: Any, limit: int) -> None:
    single = make_single(f"{library}/Line", **keywords)
    assert single.max_episode_steps == limit
    if "bonus" in keywords:
        assert make_vector(f"{library}/Line", 1, kwargs=keywords).reset().shape == (1, 1)
        env = make_vector(f"{library}/Line", 2, kwargs=keywords)
        env.reset()
        assert env.step(action(env, True)).reward.tolist() == [2.0, 2.0]


@each(*[name for name in sorted(FILES) if name != "playground"])
def test_arguments_that_a_library_does_not_take(library: str) -> None:
    with pytest.raises(EnvError, match="wings"):
        make_single(f"{library}/Line", wings=2)


@pytest.mark.parametrize(
    ("library", "name", "message"),
    [
        ("pgx", "Duel", r"pgx/Duel is a game of 2 players, but an agent plays alone\n  hint: .*pgx/2048"),
        ("jumanji", "Team", r"Jumanji gives 3 rewards a step: the environment is for several agents"),
    ],
    indirect=["library"],
)
def test_several_players_are_refused(library: str, name: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_single(f"{library}/{name}")


@pytest.mark.parametrize("prefix", sorted(ADAPTERS))
def test_a_library_that_is_not_installed(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ADAPTERS[prefix].packages[0]
    monkeypatch.setitem(sys.modules, package, None)
    assert is_functional(f"{prefix}/Line") and not is_functional("ALE/Pong-v5")
    message = (
        rf"{prefix}/Line cannot be made: {package} is not installed\n  hint: pip install {ADAPTERS[prefix].install}".replace(
            "[", r"\["
        )
    )
    with pytest.raises(EnvError, match=message):
        make_single(f"{prefix}/Line")


@each("gymnax")
def test_a_library_that_lacks_a_package_of_its_own(library: str, tmp_path: Path) -> None:
    (tmp_path / "gymnax/__init__.py").write_text("import six_of_gymnax\n")
    with pytest.raises(EnvError, match=r"gymnax/Line cannot be made: No module named 'six_of_gymnax'\n  hint: pip install"):
        make_single("gymnax/Line")


def test_nothing_is_imported_for_another_environment() -> None:
    import subprocess

    packages = [adapter.packages[0] for adapter in ADAPTERS.values()]
    code = f"import sys, tempo_rl.env as e; e.make_vector('jax/CartPole-v1', 1).reset(); print([p for p in {packages} if p in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- the real libraries --------------------------------------------------------------------------------------------------

REAL = [
    ("gymnax", "gymnax", "CartPole-v1", (4,), 500),
    ("gymnax", "gymnax", "Breakout-MinAtar", (10, 10, 4), 1000),
    ("pgx", "pgx", "2048", (4, 4, 31), 10_000),
    ("pgx", "pgx", "minatar-breakout", (10, 10, 4), 10_000),
    ("xminigrid", "xminigrid", "MiniGrid-Empty-5x5", (98,), 100),
    ("jumanji", "jumanji", "Snake-v1", (725,), 4000),
    ("craftax", "craftax", "Craftax-Classic-Symbolic-v1", (1345,), 10_000),
    ("playground", "mujoco_playground", "CartpoleBalance", (5,), 1000),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("prefix", "package", "name", "shape", "limit"), REAL, ids=lambda value: str(value))
def test_the_real_library(prefix: str, package: str, name: str, shape: tuple[int, ...], limit: int) -> None:
    """Its own transitions, and one iteration of training."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install {ADAPTERS[prefix].install}")
    single = make_single(f"{prefix}/{name}")
    assert single.observations.shape == shape and single.max_episode_steps == limit
    environment: Any = single.function
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        key = jax.random.wrap_key_data(np.array([0, 3], np.uint32), impl="threefry2x32")
        outcome = jax.jit(environment.initial)(key)
        packed, seen = jax.jit(single.initial)(np.array([0, 3], np.uint32))
        jax.tree.map(
            np.testing.assert_array_equal, jax.tree.map(np.asarray, single.unpacked(packed)), jax.tree.map(np.asarray, outcome)
        )
        np.testing.assert_array_equal(seen, single.observations.inward(outcome.observation))
    agent = tempo_rl.A2C(f"{prefix}/{name}", num_envs=2, num_steps=4, total_timesteps=8, hidden=[4], eval_episodes=0).train()
    assert agent.result is not None and agent.result["env_steps"] == 8


class WritesIntoItsState(Stepped):
    """As Brax's hopper: a step writes numbers of Python into the dict of the state that it is given."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def begin(self, key: jax.Array) -> Outcome:
        return Outcome({"reward": jnp.zeros(())}, jnp.zeros((1,)), 0.0, False)

    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        inner.update(reward=2.0)
        return Outcome(inner, jnp.ones((1,)), 2.0, False)


def test_a_step_that_writes_into_the_state_it_is_given() -> None:
    env = WritesIntoItsState()
    key = jax.random.key(0)
    state = env.initial(key)
    following = env.transition(state, jnp.asarray(1), key)
    assert float(state.inner["reward"]) == 0.0, "the state before stays as it was"
    assert following.inner["reward"].dtype == jnp.float32 and float(following.inner["reward"]) == 2.0
