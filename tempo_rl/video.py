"""Episodes to look at: a video of the first one of an evaluation, or a window on the screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from tempo_core.files import write_whole
from tempo_rl.encoding import encoded, require_suffix
from tempo_rl.env import vector_environment
from tempo_rl.env.blocked import within
from tempo_rl.env.closing import close_quietly
from tempo_rl.env.spaces import channels_of
from tempo_rl.env.vector import HostVectorEnvironment, VectorEnvironment
from tempo_rl.errors import EnvError, RLError
from tempo_rl.evaluate import Evaluation, Policy, Show, evaluation_seed, play, require_episodes
from tempo_rl.recipe import Recipe
from tempo_rl.recording import Film

if TYPE_CHECKING:
    from tempo_rl.env.functional_env import FunctionalVectorEnvironment, SingleEnvironment

MOST_FRAMES = 5_000
USUAL_FPS = 30
LEAST_SIDE = 240  # pixels: observations that are smaller pictures are magnified


class Camera(Protocol):
    """Pictures of the first of some environments."""

    fps: float

    def picture(self) -> np.ndarray:
        """The present picture, uint8 (height, width, 3)."""
        ...


class _Recording:
    """Environments of which the first one's first episode is recorded. At its last step, a new episode has begun: it ends one picture before."""

    def __init__(self, env: VectorEnvironment, camera: Camera):
        self.env, self.num_envs, self.observations, self.actions = env, env.num_envs, env.observations, env.actions
        self.camera, self.frames, self._is_over = camera, list[np.ndarray](), False

    def reset(self, clock: int = 0) -> np.ndarray:
        observation = self.env.reset(clock)
        self.frames = [self.camera.picture()]
        return observation

    def step(self, action: np.ndarray) -> Any:
        step = self.env.step(action)
        self._is_over |= bool(step.terminated[0] | step.truncated[0]) or len(self.frames) == MOST_FRAMES
        if not self._is_over:
            self.frames.append(self.camera.picture())
        return step

    def close(self) -> None:
        self.env.close()


def watch(
    recipe: Recipe,
    parameters: Mapping[str, np.ndarray],
    episodes: int,
    seed: int,
    video: str | Path | None = None,
    render: bool = False,
    cache: str | bool | None = None,
    deterministic: bool = True,
    show: Show = lambda ended, episodes, steps: None,
    hand: Callable[[Film], None] = lambda film: None,
) -> Evaluation:
    """Play `episodes` episodes one after the other; write the first one to `video`, or show all of them in a window (`render`).

    `video` ends in .gif, .webp, .png (animated) or .mp4, and has at most 5,000 pictures. `cache` is the directory of compiled programs,
    `show` is as in `play`, and `hand` gets the pictures after they are written. If playing ends early, the pictures so far are written.
    Raises `EnvError` for an environment that cannot be drawn, and `RLError` for another kind of file or a folder that is not there, before
    anything is played.
    """
    path = None if video is None else Path(video)
    if path is not None:
        require_suffix(path)
    if path is not None and not path.parent.is_dir():
        raise RLError(f"{path} cannot be written: there is no folder {path.parent}")
    if path is not None and render:
        raise RLError(
            "a window and a video at the same time are not possible",
            hint="evaluate twice with one seed; the episodes are the same: --seed 0",
        )
    require_episodes(episodes, seed)
    env = vector_environment(_drawn(recipe, "human" if render else "rgb_array"), 1, evaluation_seed(seed))

    def played(played_env: VectorEnvironment) -> Evaluation:
        policy = Policy(recipe, env.observations, env.actions, parameters, cache)
        return play(
            played_env, policy, episodes, deterministic, recipe.eval_max_steps, show=show, name=recipe.env.name, seed=seed
        )  # fmt: skip

    try:
        if path is None:
            _check_window(env)
            return played(env)
        recording = _Recording(env, camera_of(env))
        try:
            return played(recording)
        finally:
            if recording.frames:
                write_whole(path, encoded(recording.frames, recording.camera.fps, path.suffix.lower()))
                hand(Film(path, recording.frames, recording.camera.fps))
    finally:
        close_quietly(env, f"the environment {recipe.env.name}")


def _drawn(recipe: Recipe, mode: str) -> Recipe:
    """The recipe, with environments of Gymnasium that are made to be drawn."""
    from tempo_rl.env import source_for
    from tempo_rl.env.making import takes

    source = source_for(recipe)
    if recipe.env.source is not None or source.kind != "host" or not takes(source.make, "render_mode"):
        return recipe
    env = recipe.env.model_copy(update={"kwargs": {**recipe.env.kwargs, "render_mode": mode}})
    return recipe.model_copy(update={"env": env})


def _innermost(env: VectorEnvironment) -> VectorEnvironment:
    from tempo_rl.env.stacked import StackedVector

    return _innermost(env.env) if isinstance(env, StackedVector) else env


def _check_window(env: VectorEnvironment) -> None:
    inner = _innermost(env)
    if not isinstance(inner, HostVectorEnvironment):
        raise EnvError("environments in JAX have no window", hint="write a file: --video episode.gif")
    if (mode := inner.first.render_mode) != "human":
        raise EnvError(
            f"the environment was made with render_mode={mode!r}, so it cannot show a window",
            hint="make it with render_mode='human'",
        )


def camera_of(env: VectorEnvironment) -> Camera:
    """What draws the first of some environments on the host. Raises EnvError if nothing does."""
    inner = _innermost(env)
    if isinstance(inner, HostVectorEnvironment):
        return _HostCamera(inner)
    functional = cast("FunctionalVectorEnvironment", inner)
    single = functional.single
    draw = _of_gymnasium(single) or _by_render_image(single) or _of_pictures(single)
    if draw is None:
        raise EnvError(
            f"{single.name} cannot be drawn: its observations are not pictures, and it has no method render_image",
            hint="give its class the methods of gymnasium's FuncEnv: render_init() and render_image(state, render_state)",
        )
    return _FunctionalCamera(functional, *draw)


class _HostCamera:
    def __init__(self, host: HostVectorEnvironment):
        self.host, self.fps = host, float(host.first.metadata.get("render_fps") or USUAL_FPS)
        if (mode := host.first.render_mode) != "rgb_array":
            raise EnvError(
                f"{host.name} was made with render_mode={mode!r}, so it gives no pictures",
                hint="make it with render_mode='rgb_array'",
            )

    def picture(self) -> np.ndarray:
        frame: Any = within(self.host.timeout, f"{self.host.name}.render()", self.host.first.render)
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
            raise EnvError(f"{self.host.name} gave {type(frame).__name__} as a picture, not an array (height, width, 3)")
        return np.array(frame, np.uint8)


Draw = Callable[[Any], np.ndarray]  # a picture from a state of one environment


class _FunctionalCamera:
    def __init__(self, env: FunctionalVectorEnvironment, draw: Draw, fps: float):
        self.env, self.fps, self._draw = env, fps, draw

    def picture(self) -> np.ndarray:
        return np.array(self._draw(self.env.state_of_first()), np.uint8)


def _of_gymnasium(single: SingleEnvironment) -> tuple[Draw, float] | None:
    """Drawn by the environment of Gymnasium whose states it has: it says which by its attribute `drawn_as`."""
    name = getattr(single.function, "drawn_as", None)
    if name is None:
        return None
    import gymnasium

    env: Any = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset(seed=0)

    def draw(state: np.ndarray) -> np.ndarray:
        env.state = state.astype(np.float64)
        return np.asarray(env.render())

    return draw, float(env.metadata["render_fps"])


def _by_render_image(single: SingleEnvironment) -> tuple[Draw, float] | None:
    """Drawn by itself, as environments in the form of Gymnasium's `FuncEnv` may do."""
    function: Any = single.function
    if not hasattr(function, "render_image"):
        return None
    try:
        kept = [function.render_init()]
    except NotImplementedError:
        return None

    def draw(state: np.ndarray) -> np.ndarray:
        kept[0], picture = function.render_image(state, kept[0])
        return np.asarray(picture)

    return draw, float(getattr(function, "metadata", {}).get("render_fps", USUAL_FPS))


def _of_pictures(single: SingleEnvironment) -> tuple[Draw, float] | None:
    """The observations, where they are pictures: bytes with one channel or three, the first axis or the last, magnified if they are small."""
    shape = single.observations.shape
    if len(shape) != 3 or single.observations.dtype != "uint8":
        return None
    is_first = channels_of(shape) == "first"
    *sides, channels = (*shape[1:], shape[0]) if is_first else shape
    if channels not in (1, 3):
        return None
    times = max(1, -(-LEAST_SIDE // max(sides)))
    low, scale = single.observations.byte_range

    def draw(state: np.ndarray) -> np.ndarray:
        picture = (single.observed(state) - low) * scale * np.float32(255.0)
        picture = np.moveaxis(picture, 0, -1) if is_first else picture
        return np.broadcast_to(picture.round().astype(np.uint8), (*sides, 3)).repeat(times, 0).repeat(times, 1)

    return draw, float(USUAL_FPS) / 3
