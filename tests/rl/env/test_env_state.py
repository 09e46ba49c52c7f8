"""The state of environments on the host: what goes on from it is what would have come, for every row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import tempo_core as tp
from tempo_rl.env import make
from tempo_rl.env.gymnasium_env import GymnasiumEnv
from tempo_rl.env.state import ATTRIBUTES, restore_state, state_of
from tempo_rl.env.vector import HostVectorEnvironment, make_host
from tempo_rl.errors import EnvError
from tests.rl.scripted import ID, Scripted

ENVIRONMENTS = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
TABLES = ["Blackjack-v1", "CliffWalkingSlippery-v1", "FrozenLake-v1", "Taxi-v4"]
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "TimeAwareObservation": wrappers.TimeAwareObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "ClipAction": wrappers.ClipAction,
    "RescaleAction": partial(wrappers.RescaleAction, min_action=np.float32(-3), max_action=np.float32(3)),
    "DtypeObservation": partial(wrappers.DtypeObservation, dtype=np.float32),
    "FlattenObservation": wrappers.FlattenObservation,
    "RescaleObservation": partial(wrappers.RescaleObservation, min_obs=np.float32(0), max_obs=np.float32(1)),
    "ReshapeObservation": partial(wrappers.ReshapeObservation, shape=(3, 1)),
    "ClipReward": partial(wrappers.ClipReward, min_reward=-1.0, max_reward=1.0),
}
CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: (name, lambda env: env) for name in [*ENVIRONMENTS, *TABLES]},
    **{name: ("Pendulum-v1", wrapper) for name, wrapper in WRAPPERS.items()},
}
LONGEST = 9  # steps of an episode


def made(case: str) -> gym.Env[Any, Any]:
    name, wrapper = CASES[case]
    return wrapper(gym.make(name, max_episode_steps=LONGEST))


def layers(env: Any) -> list[Any]:
    return [env, *layers(env.env)] if isinstance(env, gym.Wrapper) else [env]


def played(env: Any, steps: int) -> list[Any]:
    """Some steps with actions that depend on their number alone; an episode that ends is followed by another one."""
    seen: list[Any] = []
    for at in range(steps):
        action = (at % 2) if hasattr(env.action_space, "n") else np.full(env.action_space.shape, 0.3 * (at % 3), np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        seen += [observation, reward, terminated, truncated]
        if terminated or truncated:
            seen.append(env.reset()[0])
    return seen


def same(values: list[Any], others: list[Any]) -> None:
    for value, other in zip(values, others, strict=True):
        assert np.asarray(value).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(value, other)


def plain(layer: Any) -> dict[str, Any]:
    """The attributes of a layer that are numbers or arrays of numbers; those of its statistics too."""
    found: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if isinstance(value, wrappers.utils.RunningMeanStd):
            found |= {f"{name}.{key}": part for key, part in plain(value).items()}
        elif isinstance(value, (type(None), bool, int, float, str, np.ndarray, np.generic, tuple)):
            array = np.asarray(value)
            if not array.dtype.hasobject or value is None:
                found[name] = value
    return found


def test_every_row_has_a_case() -> None:
    names = {type(layer).__name__ for case in CASES for layer in layers(made(case))}
    assert {row.partition(":")[2] for row in ATTRIBUTES} == names


@pytest.mark.parametrize("case", CASES)
def test_what_goes_on_from_a_state_is_what_would_have_come(case: str) -> None:
    for before in (0, 4, LONGEST, LONGEST + 3):
        env = made(case)
        env.reset(seed=5)
        played(env, before)
        state = state_of(env)
        other = made(case)  # never reset
        restore_state(other, state)
        for layer, twin in zip(layers(env), layers(other), strict=True):
            if not isinstance(layer, wrappers.PassiveEnvChecker):  # which stops its checks
                here, there = plain(layer), plain(twin)
                assert here.keys() == there.keys()
                for name, value in here.items():
                    np.testing.assert_array_equal(value, there[name], err_msg=name)
        same(played(env, 2 * LONGEST), played(other, 2 * LONGEST))


def test_a_state_is_a_copy() -> None:
    env = made("CartPole-v1")
    env.reset(seed=1)
    state = state_of(env)
    copies = {name: array.copy() for name, array in state.items()}
    first = played(env, 3)
    for name, array in state.items():
        np.testing.assert_array_equal(array, copies[name])
    restore_state(env, state)
    same(played(env, 3), first)
    restore_state(env, state)
    same(played(env, 3), first)


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_every_bit_generator_goes_on(kind: Any) -> None:
    env, other = made("Pendulum-v1"), made("Pendulum-v1")
    env.unwrapped.np_random = np.random.Generator(kind(3))
    env.reset()
    restore_state(other, state_of(env))
    same(played(env, 20), played(other, 20))


def test_an_environment_without_a_reset_has_a_state() -> None:
    env, other = made("MountainCar-v0"), made("MountainCar-v0")
    other.reset(seed=9)
    restore_state(other, state_of(env))
    assert other.unwrapped._np_random is None
    env.reset(seed=2)
    other.reset(seed=2)
    same(played(env, 5), played(other, 5))


class OfMyOwn(Scripted):
    """Says what its state is."""

    def state(self) -> dict[str, Any]:
        return {"episode": np.int32(self.episode), "count": self.count}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        self.episode, self.count = int(arrays["episode"]), int(arrays["count"])


ENDS = [("terminated", 2), ("truncated", 3)]


def test_layers_of_your_own_say_their_state() -> None:
    env, other = (wrappers.NormalizeReward(OfMyOwn(ENDS)) for _ in range(2))
    env.reset(seed=0)
    played(env, 4)
    restore_state(other, state_of(env))
    same(played(env, 6), played(other, 6))


def test_a_layer_that_does_not_say_its_state_is_named() -> None:
    with pytest.raises(EnvError, match=r"the environment Scripted does not say what its state is(.|\n)*state\(\) -> arrays"):
        state_of(Scripted(ENDS))
    with pytest.raises(EnvError, match=r"the wrapper FrameStackObservation of CartPole-v1 does not say"):
        state_of(wrappers.FrameStackObservation(made("CartPole-v1"), 2))

    class Heavier(type(made("CartPole-v1").unwrapped)):  # type: ignore[misc]
        """A subclass may have more state than the row of its base."""

    with pytest.raises(EnvError, match=r"the environment .*Heavier does not say"):
        state_of(Heavier())


def test_state_that_is_not_numbers_is_named() -> None:
    class Words(OfMyOwn):
        def state(self) -> dict[str, Any]:
            return {"words": {"a": 1}}

    with pytest.raises(EnvError, match=r"0\.Words\.words of .* is not a number or an array of numbers: {'a': 1}"):
        state_of(Words(ENDS))


@pytest.mark.parametrize("value", [{"up": 1}, [[1], [2, 3]]])
def test_state_that_no_file_holds_is_named(value: object) -> None:
    class Words(OfMyOwn):
        def state(self) -> dict[str, Any]:
            return {"words": value}

    with pytest.raises(EnvError, match=r"0\.Words\.words of .* is not a number or an array of numbers"):
        state_of(Words(ENDS))


def test_what_functions_of_your_own_raise_names_their_line() -> None:
    class Forgetful(OfMyOwn):
        def state(self) -> Any:
            return None

    class Failing(OfMyOwn):
        def state(self) -> Any:
            raise RuntimeError("no state today")

        def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
            raise KeyError("place")

    with pytest.raises(EnvError, match=r"Forgetful\.state\(\) gives None\n.*return arrays by name"):
        state_of(Forgetful(ENDS))
    with pytest.raises(EnvError, match=r"Failing\.state\(\) raised RuntimeError: no state today\n  at .*: raise RuntimeError"):
        state_of(Failing(ENDS))
    text = np.frombuffer(b'{"layers": ["Failing"], "numbers": {}, "seed": null, "random": null}', np.uint8)
    with pytest.raises(EnvError, match=r"Failing\.restore\(\) raised KeyError: 'place'\n  at "):
        restore_state(Failing(ENDS), {"text": text})


def test_the_state_of_other_wrappers_is_refused() -> None:
    state = state_of(made("CartPole-v1"))
    with pytest.raises(
        EnvError, match=r"saved state belongs to TimeLimit around .*CartPoleEnv, but this environment is NormalizeReward around"
    ):
        restore_state(wrappers.NormalizeReward(made("CartPole-v1")), state)


# -- many of them -----------------------------------------------------------------------------------------------------


def rollout(host: HostVectorEnvironment, steps: int) -> list[Any]:
    return [part for at in range(steps) for part in host.step((np.arange(host.num_envs) + at) % 2)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sync", "sync"),
        pytest.param("sync", "async", marks=pytest.mark.slow),
        pytest.param("async", "sync", marks=pytest.mark.slow),
    ],
)
def test_vector_environments_go_on(first: str, second: str) -> None:
    host, other = make_host("CartPole-v1", 3, 1, first), make_host("CartPole-v1", 3, 2, second)
    try:
        host.reset(4)
        rollout(host, 25)
        other.restore(host.state())
        expected = rollout(host, 25)
        assert any(expected[at].any() for at in range(2, len(expected), 7)), "no episode ended"
        same(rollout(other, 25), expected)
    finally:
        host.close()
        other.close()


def test_environments_that_restart_on_request_go_on() -> None:
    def make() -> HostVectorEnvironment:
        envs: VectorEnv[Any, Any, Any] = SyncVectorEnv([partial(OfMyOwn, ENDS)] * 2, autoreset_mode=AutoresetMode.DISABLED)
        return HostVectorEnvironment(envs)

    host, other = make(), make()
    host.reset()
    rollout(host, 2)  # the first episodes have just ended
    other.restore(host.state())
    same(rollout(other, 7), rollout(host, 7))


def test_another_number_of_environments_is_refused() -> None:
    state = make_host("CartPole-v1", 3).state()
    with pytest.raises(EnvError, match=r"saved state is that of 3 environments, but CartPole-v1 has 2"):
        make_host("CartPole-v1", 2).restore(state)


def test_vector_environments_that_cannot_be_reached_are_named() -> None:
    envs = gym.make_vec("CartPole-v1", 2, "vector_entry_point", vector_kwargs={})
    envs.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
    with pytest.raises(
        EnvError, match=r"the state of CartPole-v1 inside CartPoleVectorEnv cannot be reached(.|\n)*vectorization=sync"
    ):
        HostVectorEnvironment(envs).state()


def test_an_environment_in_another_process_says_why_it_has_no_state() -> None:
    host = make_host("CartPole-v1", 2, 0, "async", ["tests.rl.scripted:two_frames"])
    try:
        with pytest.raises(EnvError, match=r"the wrapper FrameStackObservation of CartPole-v1 does not say(.|\n)*state\(\)"):
            host.state()
        host.reset()
        assert host.step(np.zeros(2, np.int32)).observation.shape == (2, 2, 4), "the processes live on"
    finally:
        host.close()


# -- in a program -----------------------------------------------------------------------------------------------------


def acting(
    env_id: str, vectorization: str = "sync", **kwargs: Any
) -> tuple[tp.Program[dict[str, np.ndarray]], Callable[[], None]]:
    """Two environments whose actions follow from the last observations, and what closes them."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        env = make(env_id, (b, B), 2, 3, kwargs, vectorization)
        observation = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(b, t), name="observation")
        step = env.step((observation.sum(0) < 0.0).astype("int32"))
        tp.carry(observation, env.reset((b,)), step.observation, kept=(b,))
    outputs = {"observation": observation, "length": step.episode_length}
    return ctx.compile({B: 2, T: 40}, outputs, tp.Config(backend="numpy")), env.close


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_a_saved_run_goes_on_within_an_episode(vectorization: str, tmp_path: Path) -> None:
    program, close = acting("CartPole-v1", vectorization)
    run = program.start({})
    run.advance("t", 25)
    file = run.save(tmp_path / "state.safetensors")
    expected = run.finish()
    close()
    assert (expected["length"][:, 25:] == 1).any() and (expected["length"][:, 25] > 1).any()
    program, close = acting("CartPole-v1", vectorization)
    results = program.resume(file).finish()
    close()
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value)


def test_a_run_that_cannot_be_saved_goes_on(tmp_path: Path) -> None:
    program, close = acting(ID, ends=ENDS)
    run = program.start({})
    run.advance("t", 3)
    with pytest.raises(EnvError, match=rf"the environment Scripted of {ID} does not say what its state is"):
        run.save(tmp_path / "state.safetensors")
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(run.finish()["observation"], program.run({})["observation"])
    close()


def test_the_count_of_steps_is_in_the_state() -> None:
    """A reset asks for seeds by the number of steps before it."""
    (env, other) = (GymnasiumEnv(make_host("CartPole-v1", 2), (None, None)) for _ in range(2))  # type: ignore[arg-type]
    env._reset(np.int32(7))
    env._step(np.zeros(2, np.int32))
    other.restore(env.state())
    same(list(env._step(np.ones(2, np.int32))), list(other._step(np.ones(2, np.int32))))


@pytest.mark.parametrize("may_restart", [True, False])
def test_only_a_run_that_cannot_be_saved_says_so(may_restart: bool) -> None:
    ctx = tp.Context("b")
    with ctx as (batch,):
        env = GymnasiumEnv(make_host(ID, 1, ends=[("terminated", 2)]), batch, may_restart)
    if may_restart:
        env.state()
        assert env.restarts == f"the environment Scripted of {ID} does not say what its state is"
    else:
        with pytest.raises(EnvError, match="does not say what its state is, so that the run cannot be saved"):
            env.state()
