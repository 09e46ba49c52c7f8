"""Gymnasium environments on the host: every kind of end of an episode, seeds, spaces, autoreset modes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tempo_rl
from tempo_rl.env.source import source_of
from tempo_rl.env.transition import Transition
from tempo_rl.env.vector import HostVectorEnvironment, env_seeds, make_host, vectorized
from tempo_rl.errors import EnvError
from tests.rl.scripted import ID, Faulty, Scripted

ENDS = [("terminated", 2), ("truncated", 3)]


def scripted(mode: AutoresetMode, ends: list[tuple[str, int]] = ENDS, num_envs: int = 1, **kwargs: Any) -> HostVectorEnvironment:
    return HostVectorEnvironment(
        SyncVectorEnv([lambda: Scripted(ends, **kwargs)] * num_envs, autoreset_mode=mode), name="scripted"
    )


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_ends_keep_the_true_successor_and_restart_in_the_same_step(mode: AutoresetMode) -> None:
    env = scripted(mode)
    assert env.reset().tolist() == [[0, 0]]
    steps = [env.step(np.zeros(1, np.int32)) for _ in range(5)]
    assert [s.observation[0].tolist() for s in steps] == [[0, 1], [1, 0], [1, 1], [1, 2], [2, 0]]
    assert [s.final_observation[0].tolist() for s in steps] == [[0, 1], [0, 2], [1, 1], [1, 2], [1, 3]]
    assert [float(s.reward[0]) for s in steps] == [0, 1, 10, 11, 12]
    assert [bool(s.terminated[0]) for s in steps] == [False, True, False, False, False]
    assert [bool(s.truncated[0]) for s in steps] == [False, False, False, False, True]
    assert [float(s.episode_return[0]) for s in steps] == [0, 1, 10, 21, 33]
    assert [int(s.episode_length[0]) for s in steps] == [1, 2, 1, 2, 3]


def test_no_environment_takes_a_step_that_is_not_a_transition() -> None:
    """With NEXT_STEP, a reset takes the place of the inserted step, and each environment gets each action once."""
    envs = SyncVectorEnv([lambda: Scripted([("terminated", 1)]), lambda: Scripted([("truncated", 2)])])
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    env = HostVectorEnvironment(envs, name="two")
    env.reset()
    steps = [env.step(np.array([k % 2, 1 - k % 2], np.int32)) for k in range(4)]
    assert [s.terminated.tolist() for s in steps] == [[True, False]] * 4
    assert [s.reward.tolist() for s in steps] == [[0, 0], [10, 1], [20, 10], [30, 11]]
    assert [one.actions for one in envs.envs] == [[5, 6, 5, 6], [6, 5, 6, 5]]  # type: ignore[attr-defined]


def test_next_step_autoreset_of_other_vector_environments_is_refused() -> None:
    class Foreign(gym.vector.VectorEnv[Any, Any, Any]):
        num_envs = 1
        single_observation_space, single_action_space = gym.spaces.Box(0.0, 1.0), gym.spaces.Discrete(2)

    with pytest.raises(EnvError, match=r"NEXT_STEP.*loses transitions"):
        HostVectorEnvironment(Foreign(), name="foreign")


def test_environments_end_independently() -> None:
    envs = SyncVectorEnv(
        [lambda: Scripted([("terminated", 1)]), lambda: Scripted([("truncated", 2)])], autoreset_mode=AutoresetMode.SAME_STEP
    )
    env = HostVectorEnvironment(envs, name="two")
    env.reset()
    first, second = (env.step(np.zeros(2, np.int32)) for _ in range(2))
    assert first.terminated.tolist() == [True, False] and not first.truncated.any()
    assert second.terminated.tolist() == [True, False] and second.truncated.tolist() == [False, True]
    assert second.final_observation.tolist() == [[1, 1], [0, 2]]


def test_dtypes_and_shapes() -> None:
    env = scripted(AutoresetMode.SAME_STEP, num_envs=3)
    env.reset()
    step = env.step(np.zeros(3, np.int32))
    expected = Transition("float32", "float32", "bool", "bool", "float32", "float32", "int32")
    assert [str(x.dtype) for x in step] == list(expected)
    assert [x.shape for x in step] == [(3, 2), (3,), (3,), (3,), (3, 2), (3,), (3,)]


def test_results_are_copies_that_later_steps_leave_alone() -> None:
    env = scripted(AutoresetMode.SAME_STEP)
    first = env.reset()
    step = env.step(np.zeros(1, np.int32))
    copies = [np.copy(x) for x in (first, *step)]
    env.step(np.zeros(1, np.int32))
    for before, now in zip(copies, (first, *step), strict=True):
        np.testing.assert_array_equal(before, now)


def test_actions_reach_the_environment_shifted_or_clipped() -> None:
    discrete = scripted(AutoresetMode.SAME_STEP)
    discrete.reset()
    discrete.step(np.array([1], np.int32))
    assert discrete.env.envs[0].unwrapped.actions == [6]  # Discrete(2, start=5)
    continuous = scripted(AutoresetMode.SAME_STEP, continuous=True)
    continuous.reset()
    continuous.step(np.array([[7.5]], np.float32))
    assert continuous.env.envs[0].unwrapped.actions[0].tolist() == [1.0]


def test_wrong_batch_of_actions() -> None:
    env = scripted(AutoresetMode.SAME_STEP, num_envs=3)
    env.reset()
    with pytest.raises(EnvError, match=r"scripted has 3 environments, but got actions of shape \(2,\)"):
        env.step(np.zeros(2, np.int32))


def rollout(vectorization: str, seed: int, num_envs: int = 3) -> np.ndarray:
    env = make_host("CartPole-v1", num_envs, seed, vectorization)
    try:
        observations = [env.reset()]
        for t in range(40):
            observations.append(env.step((np.arange(num_envs) + t) % 2).observation)
    finally:
        env.close()
    return np.stack(observations)


def test_sync_and_async_give_the_same_numbers() -> None:
    np.testing.assert_array_equal(rollout("sync", 3), rollout("async", 3))


def test_an_environments_seed_depends_on_its_index_only() -> None:
    np.testing.assert_array_equal(rollout("sync", 3, num_envs=2)[0], rollout("sync", 3, num_envs=3)[0, :2])


def test_seeds_of_neighbouring_runs_share_no_stream() -> None:
    seeds = [s for run in range(4) for s in env_seeds(run, 8)] + env_seeds(0, 8, clock=1)
    assert len(set(seeds)) == len(seeds)


def test_reset_repeats_itself_and_differs_by_clock() -> None:
    env = make_host("CartPole-v1", 2, seed=1)
    first = env.reset()
    env.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(first, env.reset())
    assert not np.array_equal(first, env.reset(clock=5))


def test_unknown_environment_names_the_nearest() -> None:
    with pytest.raises(EnvError, match=r"CartPol-v1.*\n.*did you mean 'CartPole-v1'"):
        make_host("CartPol-v1", 1)


def test_wrong_kwargs_name_the_key() -> None:
    with pytest.raises(EnvError, match=r"gravityy.*\n.*env\.kwargs"):
        make_host("CartPole-v1", 1, gravityy=3)


MODULE = """
import gymnasium
import numpy as np
{first}

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, kind="good"):
        if kind == "bad":
            raise ValueError("no such kind")

gymnasium.register("Own-v0", entry_point=Own)
"""


def test_a_module_is_found_from_the_working_directory_and_its_mistakes_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    (tmp_path / "own_module.py").write_text(MODULE.format(first=""))
    (tmp_path / "own_bad_module.py").write_text(MODULE.format(first="import no_such_package"))
    assert make_host("own_module:Own-v0", 1).observations.shape == (1,)
    with pytest.raises(
        EnvError,
        match=r"making own_module:Own-v0 with .* raised ValueError: no such kind\n  at .*own_module\.py:\d+: raise ValueError",
    ):
        make_host("own_module:Own-v0", 1, kind="bad")
    with pytest.raises(
        EnvError, match=r"the module of 'own_bad_module:Own-v0' cannot be imported: No module named 'no_such_package'"
    ):
        make_host("own_bad_module:Own-v0", 1)
    with pytest.raises(EnvError, match=r"the module of 'nowhere:Own-v0' cannot be imported"):
        make_host("nowhere:Own-v0", 1)


def test_wrappers_are_applied_by_reference() -> None:
    env = make_host(ID, 1, wrappers=["gymnasium.wrappers:NormalizeReward"], ends=ENDS)
    assert "NormalizeReward" in str(env.env.envs[0])
    with pytest.raises(EnvError, match="Nope' cannot be imported"):
        make_host(ID, 1, wrappers=["gymnasium.wrappers:Nope"], ends=ENDS)


def test_images_keep_their_dtype() -> None:
    class Image(Scripted):
        def __init__(self) -> None:
            super().__init__(ENDS)
            self.observation_space = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)

        def _observation(self) -> np.ndarray:
            return np.full((4, 4, 3), self.count, np.uint8)

    env = HostVectorEnvironment(SyncVectorEnv([Image], autoreset_mode=AutoresetMode.SAME_STEP))
    assert env.reset().dtype == np.uint8 and env.observations.dtype == "uint8"


# -- faults of the environment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "vectorization", "message"),
    [
        (
            "observation",
            "sync",
            r"faulty gave an observation that is not finite: \[nan nan\], in environment 0 at step 3 of its episode",
        ),
        ("reward", "sync", "faulty gave a reward that is not finite: inf, in environment 0 at step 3 of its episode"),
        ("large", "sync", r"faulty gave a reward that is not finite in float32: 1e\+300, in environment 0 at step 3"),
        ("block", "async", "faulty has not answered a step within 2 s"),
        ("die", "async", "a process of faulty has ended"),
    ],
)
def test_faults_are_blamed_on_the_environment(fault: str, vectorization: str, message: str) -> None:
    env = vectorized(partial(Faulty, fault), "faulty", 2, vectorization=vectorization)
    env.timeout = 2.0
    try:
        env.reset()
        for _ in range(2):
            env.step(np.zeros(2, np.int32))
        with pytest.raises(EnvError, match=message):
            env.step(np.zeros(2, np.int32))
    finally:
        env.close()
    assert not any(process.is_alive() for process in getattr(env.env, "processes", ()))


def test_one_environment_is_not_several() -> None:
    one = Scripted(ENDS)
    with pytest.raises(EnvError, match=r"the function that makes one gives the same environment more than once\n.*lambda: MyEnv"):
        vectorized(lambda: one, "one", 2)
    vectorized(lambda: one, "one", 1).close()


def test_more_environments_than_a_host_can_hold_are_refused_at_once() -> None:
    with pytest.raises(EnvError, match=r"num_envs=100,000,000 environments CartPole-v1 on the host are too many"):
        make_host("CartPole-v1", 100_000_000)


class Wrong(Scripted):
    """An environment with one mistake, which `mistake` names."""

    def __init__(self, mistake: str):
        super().__init__([("terminated", 2)])
        self.mistake = mistake

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        return observation if self.mistake == "no info" else (np.zeros(3) if self.mistake == "shape" else observation, info)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.mistake == "four":
            return observation, reward, terminated, info
        reward = np.zeros(2) if self.mistake == "reward" else reward  # type: ignore[assignment]
        return observation, reward, int(terminated) if self.mistake == "int" else terminated, truncated, info


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("no info", r"Wrong\.reset\(\) gives array.*\n.*return observation, \{\}"),
        ("shape", r"Wrong\.reset\(\) gives an observation float64\[3\], but its observation_space is Box\("),
        ("four", r"Wrong\.step\(action\) gives \(array.*\n.*return observation, reward, terminated, truncated"),
        ("reward", r"gives the reward array\(\[0\., 0\.\]\)\n.*one number"),
        ("int", r"gives 0 for terminated\n.*write bool\(terminated\)"),
    ],
)
def test_environments_are_checked_before_they_are_used(mistake: str, message: str) -> None:
    for env in (lambda: Wrong(mistake), Wrong(mistake)):
        with pytest.raises(EnvError, match=message):
            source_of(env)
    assert source_of(Wrong("")) is not None


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", r"Faulty\.step\(\) raised LookupError: 100% of it\n  at .*scripted\.py:\d+: raise LookupError"),
        (
            "a text as a reward",
            r"Faulty\.step\(\) gives the reward '1\.5'\n  in .*scripted\.py:\d+\n  hint: a reward is one number",
        ),
        ("a truth value as a reward", r"gives the reward True"),
        ("a text as an end", r"gives 'False' for terminated\n  in .*scripted\.py:\d+\n  hint: write bool\(terminated\)"),
        ("a number as an end", r"gives 1 for truncated"),
        ("another shape", r"gives an observation float32\[3\], but its observation_space is Box.*\n  in .*scripted\.py:\d+"),
        ("texts", r"gives an observation <U1\[2\], but its"),
    ],
    ids=lambda value: value if "\\" not in value and len(value) < 30 else "",
)
def test_what_an_environment_does_wrong_later_is_one_error_with_its_line(fault: str, message: str) -> None:
    for vectorization in ("sync", "async") if fault in ("raise", "a text as a reward") else ("sync",):
        env = vectorized(partial(Faulty, fault), "Faulty", 1, vectorization=vectorization)
        try:
            env.reset()
            for _ in range(2):
                env.step(np.zeros(1, np.int32))
            with pytest.raises(EnvError, match=message):
                env.step(np.zeros(1, np.int32))
        finally:
            env.close()


def raising(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    raise LookupError("no such thing")


def nothing(env: gym.Env[Any, Any]) -> None: ...


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (
            "raising",
            r"the wrapper tests\.rl\.env\.test_host_env:raising raised LookupError: no such thing\n  at .*test_host_env\.py",
        ),
        ("nothing", r"the wrapper tests\.rl\.env\.test_host_env:nothing gives None"),
    ],
)
def test_a_wrapper_that_makes_no_environment_is_named(wrapper: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_host("CartPole-v1", 1, wrappers=[f"{__name__}:{wrapper}"])


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
def test_an_environment_without_its_spaces_is_refused(missing: str) -> None:
    class Bare(Scripted):
        def __init__(self) -> None:
            super().__init__([("terminated", 2)])
            delattr(self, missing)

    for use in (lambda: vectorized(Bare, "Bare", 1), lambda: source_of(Bare), lambda: source_of(Bare())):
        with pytest.raises(EnvError, match=f"Bare has no {missing}"):
            use()


def test_an_environment_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("gymnasium.envs.mujoco", "mujoco"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(
        EnvError, match=r"HalfCheetah-v5 needs a package that is not installed: .*\n  hint: pip install 'tempo-dl\[mujoco\]'"
    ):
        make_host("HalfCheetah-v5", 1)
    if "ALE/Pong-v5" not in gym.registry:
        with pytest.raises(EnvError, match=r"'ALE/Pong-v5'.*\n  hint: pip install ale-py, and write env\.id=ale_py:ALE/"):
            make_host("ALE/Pong-v5", 1)


@pytest.mark.slow
def test_mujoco_trains() -> None:
    for package in ("mujoco", "imageio"):
        pytest.importorskip(package, reason="needs MuJoCo: pip install -e '.[mujoco]'")
    keys: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 8, "hidden": [4], "eval_episodes": 0, "norm_obs": True}
    agent = tempo_rl.A2C(tempo_rl.EnvRecipe("HalfCheetah-v5", kwargs={"max_episode_steps": 5}), **keys).train()
    assert agent.evaluate(2).lengths.tolist() == [5, 5] and agent.predict(np.zeros(17)).shape == (6,)
