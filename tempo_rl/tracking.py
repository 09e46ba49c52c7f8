"""The loggers that a run can do without, TensorBoard and W&B: what they raise, and a block at their start or end, is one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tempo_core as tp
from tempo_core.runs.logger import Row
from tempo_core.runs.recipe import WandbRecipe
from tempo_rl.boards import TensorBoardRecorder, WandbRecorder
from tempo_rl.env.closing import TooLongError, close_quietly, in_time
from tempo_rl.errors import RunError
from tempo_rl.recipe import Recipe, dump_recipe
from tempo_rl.recording import Film, Recorder, Recorders
from tempo_rl.rundir import RunDirectory

ANSWER = 8.0  # seconds in which W&B must have begun a run; WANDB_INIT_TIMEOUT is another number of them
UPLOAD = 60.0  # seconds in which W&B must have uploaded the rest of a run


class Tracker(Recorder):
    """A recorder that may fail: then it gets no more rows, and a line says so. `patience` are the seconds for its end.

    A picture or a film that fails is left out, which a line says too.
    """

    def __init__(self, logger: Recorder, name: str, say: Callable[[str], None], patience: float | None = None, hint: str = ""):
        self._logger, self.name, self._say, self._patience, self._hint = logger, name, say, patience, hint
        self._is_off = False

    def log(self, row: Row) -> None:
        self._tried(lambda: self._logger.log(row))

    def evaluation(self, row: Row) -> None:
        self._tried(lambda: self._logger.evaluation(row))

    def machine(self, row: Row) -> None:
        self._tried(lambda: self._logger.machine(row))

    def recipe(self, text: str) -> None:
        self._tried(lambda: self._logger.recipe(text), "the recipe")

    def plan(self, picture: Path, text: str, env_steps: int) -> None:
        self._tried(lambda: self._logger.plan(picture, text, env_steps), "the picture of the plan")

    def film(self, film: Film, env_steps: int) -> None:
        self._tried(lambda: self._logger.film(film, env_steps), "the film of an episode")

    def _tried(self, send: Callable[[], None], extra: str | None = None) -> None:
        if self._is_off:
            return
        try:
            send()
        except Exception as error:
            if extra is not None:
                self._say(f"note: {self.name} does not get {extra}: {_first_line(error)}")
                return
            self._is_off = True
            self._say(f"note: {self.name} gets no more rows: {_first_line(error)}; metrics.csv has all")

    def close(self) -> None:
        close_quietly(self._logger, self.name, self._say, self._patience, self._hint)


def open_recorders(
    recorders: Recorders, recipe: Recipe, run: RunDirectory, program: tp.Program, env_steps: int, say: Callable[[str], None]
) -> None:
    """Add those that the recipe names, and tell all of them of the recipe and the program. `env_steps` are those before this process.

    Raises `RunError` for a package that is missing.
    """
    if recipe.tensorboard:
        board = TensorBoardRecorder(run.path / "tensorboard", env_steps)
        recorders.add(Tracker(board, "TensorBoard's writer", say))
    if recipe.track:
        tracker = wandb_tracker(recipe.wandb, recipe.model_dump(mode="json"), run.path, say)
        if tracker is not None:
            recorders.add(tracker)
    if recorders:
        recorders.recipe(dump_recipe(recipe))
    if recipe.tensorboard or recipe.track:
        from tempo_rl.plot import draw_plan

        recorders.plan(draw_plan(program, run.plan), program.plan().text(), env_steps)


def wandb_tracker(
    settings: WandbRecipe, config: Mapping[str, object], directory: Path, say: Callable[[str], None]
) -> Tracker | None:
    """W&B for a run; offline if W&B refuses the key or does not answer, which a line says; None if that fails too.

    Raises `RunError` for a package that is missing, and for a wrong WANDB_MODE.
    """
    upload = f"wandb sync {directory / 'wandb'}/*run-*"

    def opened() -> WandbRecorder:
        return WandbRecorder(settings, config, directory, "env_steps")

    try:
        logger = _begun(opened)
    except RunError:
        raise
    except (Exception, SystemExit) as error:
        say(f"note: W&B {_problem(error)}; the run is recorded offline, and uploaded later with: {upload}")
        try:
            with _environment(WANDB_MODE="offline"):
                logger = _begun(opened)
        except (Exception, SystemExit) as second:
            say(f"note: W&B {_problem(second)}, also offline: the run is not tracked; metrics.csv has all")
            return None
    return Tracker(logger, "W&B", say, UPLOAD, f"; what it has is uploaded later with: {upload}")


def _begun(opened: Callable[[], WandbRecorder]) -> WandbRecorder:
    """A run of W&B that has begun. It reads the limit too, and then says more than that it has not answered."""
    with _environment(WANDB_INIT_TIMEOUT=f"{_answer():g}"):
        return in_time(_answer() + 1.0, opened, WandbRecorder.close)


def _answer() -> float:
    """The seconds in which W&B must have begun a run."""
    try:
        return float(os.environ.get("WANDB_INIT_TIMEOUT", ANSWER))
    except ValueError:
        return ANSWER


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Inside, environment variables have other values."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _problem(error: BaseException) -> str:
    if isinstance(error, TooLongError):
        return f"has not answered within {_answer():g} s"
    return f"does not begin the run: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    """What an error says, in one line of at most 200 letters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
