"""Brax's environments: its own transitions, episodes of their own, ends by time and by falling."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_rl.env import is_functional, make_vector
from tempo_rl.env.functional_env import make_single
from tempo_rl.errors import EnvError


def test_without_brax_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_functional("brax/ant")
    monkeypatch.setitem(sys.modules, "brax", None)
    with pytest.raises(EnvError, match=r"brax/ant cannot be made: .*\n  hint: pip install 'tempo-dl\[brax\]'"):
        make_single("brax/ant")


@pytest.fixture(scope="module")
def brax() -> Any:
    pytest.importorskip("brax", reason="needs Brax: pip install -e '.[brax]'")
    return make_single("brax/inverted_pendulum", backend="spring")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Brax System:UserWarning")
def test_transitions_are_braxs(brax: Any) -> None:
    from brax import envs

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs = envs.get_environment("inverted_pendulum", backend="spring")
        key = jax.random.key(3)
        state, ours = jax.jit(theirs.reset)(jax.random.key_data(key)), jax.jit(brax.function.initial)(key)
        step, transition = jax.jit(theirs.step), jax.jit(brax.function.transition)
        for k in range(12):
            action = jnp.asarray([np.sin(k)], "float32")
            following = transition(ours, action, key)
            state, before, ours = step(state, action), ours, following
            np.testing.assert_allclose(brax.function.observation(ours, key), state.obs, rtol=1e-5, atol=1e-6)
            assert float(brax.function.reward(before, action, ours, key)) == float(state.reward)
            assert bool(brax.function.terminal(ours, key)) == bool(state.done)


@pytest.mark.slow
def test_each_episode_begins_elsewhere_and_ends_by_time_or_by_falling(brax: Any) -> None:
    env = make_vector("brax/inverted_pendulum", 3, 5, {"backend": "spring", "max_episode_steps": 6})
    first = env.reset()
    assert len(np.unique(first[:, 0])) == 3, "rows begin at different places"
    action = np.zeros((3, 1), np.float32)
    steps = [env.step(action) for _ in range(6)]
    last = steps[-1]
    assert last.truncated.all() and not any(step.truncated.any() for step in steps[:-1]) and not last.terminated.any()
    assert last.episode_length.tolist() == [6] * 3 and last.episode_return.tolist() == [6.0] * 3
    assert (last.observation != first).all(), "not Brax's first state of the row again"
    assert (last.final_observation != last.observation).any(axis=1).all()
    falling = make_vector("brax/inverted_pendulum", 1, 5, {"backend": "spring"})
    falling.reset()
    for _ in range(200):
        step = falling.step(np.ones((1, 1), np.float32))
        if step.terminated[0]:
            break
    assert step.terminated[0] and not step.truncated[0] and abs(step.final_observation[0, 1]) > 0.2 > abs(step.observation[0, 1])


@pytest.mark.slow
def test_what_brax_does_not_have(brax: Any) -> None:
    for name, keywords, message in (
        ("brax/antt", {}, r"Brax has no environment 'antt'\n  hint: did you mean brax/ant\?"),
        ("brax/xyz", {}, r"Brax has no environment 'xyz'\n  hint: the names are ant, "),
        (
            "brax/ant",
            {"backend": "warp"},
            r"Brax has no backend 'warp'\n  hint: env.kwargs.backend is one of generalized, spring",
        ),
        ("brax/ant", {"legs": 3}, r"Brax cannot make ant with backend=generalized and \{'legs': 3\}"),
    ):
        with pytest.raises(EnvError, match=message):
            make_single(name, **keywords)
