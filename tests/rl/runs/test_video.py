"""Videos of episodes: of environments on the host, and of those in JAX that Gymnasium, they themselves or their observations draw."""

from __future__ import annotations

import io
import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
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
from tempo_rl.rundir import RunDirectory
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


@pytest.mark.parametrize("size", [(20, 30), (21, 31)])
def test_an_mp4_has_all_pictures(size: tuple[int, int], tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((*size, 3), 60 * k, np.uint8) for k in range(4)]
    file = tmp_path / "video.mp4"
    file.write_bytes(encoded(frames, 50, ".mp4"))
    command = [ffmpeg.get_ffmpeg_exe(), "-i", str(file), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    height, width = (side + side % 2 for side in size)
    pictures = np.frombuffer(done.stdout, np.uint8).reshape(4, height, width, 3)
    np.testing.assert_allclose(pictures.mean((1, 2, 3)), [0, 60, 120, 180], atol=4)
    assert b" 50 fps" in done.stderr and b"h264" in done.stderr


def test_what_ffmpeg_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\ncat > /dev/null\necho no such codec >&2\nexit 3\n")
    program.chmod(0o755)
    fake = types.ModuleType("imageio_ffmpeg")
    fake.get_ffmpeg_exe = lambda: str(program)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", fake)
    with pytest.raises(RLError, match="FFmpeg cannot write the video: no such codec"):
        encoded([np.zeros((2, 2, 3), np.uint8)], 50, ".mp4")
    program.unlink()
    with pytest.raises(RLError, match=r"FFmpeg cannot write the video: .*No such file"):
        encoded([np.zeros((2, 2, 3), np.uint8)], 50, ".mp4")


def test_without_ffmpeg_videos_are_gifs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make_recipe({"algorithm": "reinforce", "env": {"id": "CartPole-v1"}})
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert RunDirectory(tmp_path).video.name == "episode.gif"
    with pytest.raises(RLError, match=r"an? video as .mp4 needs the package imageio-ffmpeg\n.*pip install 'tempo-dl\[mp4\]'"):
        watch(recipe, {}, 1, 0, tmp_path / "episode.mp4")
    module = types.ModuleType("imageio_ffmpeg")
    module.__spec__ = ModuleSpec("imageio_ffmpeg", None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", module)
    assert RunDirectory(tmp_path).video.name == "episode.mp4"


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    recipe = make_recipe({"algorithm": "reinforce", "env": {"id": "CartPole-v1"}})
    with pytest.raises(RLError, match=r"a video cannot be a .mov\n  hint: use one of .gif, .webp, .png, .mp4"):
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
