"""Videos of episodes: of environments on the host, and of those in JAX that Gymnasium, they themselves or their observations draw."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from tempo_rl.env import make_vector
from tempo_rl.errors import EnvError, RLError
from tempo_rl.evaluate import play
from tempo_rl.recipe import make_recipe
from tempo_rl.video import _Recording, camera_of, encoded, watch


def actions_of(env: Any) -> Any:
    """A policy without parameters: always the first of some actions, or none."""
    return lambda observation, deterministic, seed: np.zeros((len(observation), *env.actions.shape), env.actions.dtype)


def test_a_recording_has_the_first_episode() -> None:
    env = make_vector("CartPole-v1", 1, 3, {"render_mode": "rgb_array"})
    recording = _Recording(env, camera_of(env))
    evaluation = play(recording, actions_of(env), 2)
    env.close()
    assert len(recording.frames) == evaluation.lengths[0]  # the pictures before each of its steps
    assert all(frame.shape == (400, 600, 3) and frame.dtype == np.uint8 for frame in recording.frames)
    assert (recording.frames[0] != recording.frames[-1]).any() and recording.camera.fps == 50


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("jax/CartPole-v1", (400, 600, 3)),
        ("jax/Pendulum-v1", (500, 500, 3)),
        ("jax/Acrobot-v1", (500, 500, 3)),
        ("jax/MountainCarContinuous-v0", (400, 600, 3)),
        ("jax/Catch-v0", (240, 240, 3)),
        ("phys2d/CartPole-v1", (400, 600, 3)),
    ],
)
def test_environments_in_jax_are_drawn(name: str, shape: tuple[int, ...]) -> None:
    if name.startswith("phys2d"):
        pytest.importorskip("flax")
    env = make_vector(name, 1, 3)
    env.reset()
    camera = camera_of(env)
    first = camera.picture()
    for _ in range(4):
        env.step(np.zeros((1, *env.actions.shape), env.actions.dtype))
    assert first.shape == camera.picture().shape == shape and first.dtype == np.uint8
    assert (first != camera.picture()).any()


def test_a_state_is_drawn_as_gymnasium_draws_it() -> None:
    env: Any = make_vector("jax/CartPole-v1", 1, 3)
    env.reset()
    picture = camera_of(env).picture()
    other: Any = gym.make("CartPole-v1", render_mode="rgb_array").unwrapped
    other.reset(seed=9)
    other.state = env.state_of_first()
    np.testing.assert_array_equal(picture, other.render())


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png"])
def test_the_file_has_all_pictures(suffix: str) -> None:
    frames = [np.full((20, 30, 3), 60 * k, np.uint8) for k in range(4)]
    with Image.open(io.BytesIO(encoded(frames, 50, suffix))) as image:
        assert getattr(image, "n_frames", 1) == 4 and image.size == (30, 20)
        if suffix == ".gif":
            assert image.info["duration"] == 20


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    recipe = make_recipe({"algorithm": "reinforce", "env": {"id": "CartPole-v1"}})
    with pytest.raises(RLError, match=r"a video cannot be a .mov\n  hint: use one of .gif, .webp, .png"):
        watch(recipe, {}, 1, 0, tmp_path / "episode.mov")
    with pytest.raises(RLError, match="a window and a video at the same time are not possible"):
        watch(recipe, {}, 1, 0, tmp_path / "episode.gif", render=True)
    plain = make_vector("CartPole-v1", 1, 3)
    with pytest.raises(EnvError, match=r"CartPole-v1 was made with render_mode=None, so it gives no pictures"):
        camera_of(plain)
    plain.close()
    with pytest.raises(EnvError, match=r"Trivial cannot be drawn: its observations are not pictures"):
        camera_of(make_vector("Trivial", 1, 3, {"max_episode_steps": 5}))
    in_jax = make_recipe({"algorithm": "reinforce", "env": {"id": "jax/CartPole-v1"}})
    with pytest.raises(EnvError, match=r"environments in JAX have no window\n  hint: write a file: --video"):
        watch(in_jax, {}, 1, 0, render=True)
    assert list(tmp_path.iterdir()) == []
