"""The loggers that a run can do without, TensorBoard and W&B: what they raise, and a block at their start or end, is one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tempo_core.runs.logger import Row, WandbLogger
from tempo_core.runs.recipe import WandbRecipe
from tempo_rl.env.closing import TooLongError, close_quietly, in_time
from tempo_rl.errors import RunError
from tempo_rl.monitor import Recorder

ANSWER = 8.0  # seconds in which W&B must have begun a run; WANDB_INIT_TIMEOUT is another number of them
UPLOAD = 60.0  # seconds in which W&B must have uploaded the rest of a run


class Tracker:
    """A logger that may fail: then it gets no more rows, and a line says so. `patience` are the seconds for its end."""

    def __init__(self, logger: Recorder, name: str, say: Callable[[str], None], patience: float | None = None, hint: str = ""):
        self._logger, self.name, self._say, self._patience, self._hint = logger, name, say, patience, hint
        self._is_off = False

    def log(self, row: Row) -> None:
        self._tried(lambda: self._logger.log(row))

    def evaluation(self, row: Row) -> None:
        self._tried(lambda: self._logger.evaluation(row))

    def _tried(self, send: Callable[[], None]) -> None:
        if self._is_off:
            return
        try:
            send()
        except Exception as error:
            self._is_off = True
            self._say(f"note: {self.name} gets no more rows: {_first_line(error)}; metrics.csv has all")

    def close(self) -> None:
        close_quietly(self._logger, self.name, self._say, self._patience, self._hint)


def wandb_tracker(
    settings: WandbRecipe, config: Mapping[str, object], directory: Path, say: Callable[[str], None]
) -> Tracker | None:
    """W&B for a run; offline if W&B refuses the key or does not answer, which a line says; None if that fails too.

    Raises `RunError` for a package that is missing, and for a wrong WANDB_MODE.
    """
    upload = f"wandb sync {directory / 'wandb'}/*run-*"

    def opened() -> WandbLogger:
        return WandbLogger(settings, config, directory, "env_steps")

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


def _begun(opened: Callable[[], WandbLogger]) -> WandbLogger:
    """A run of W&B that has begun. It reads the limit too, and then says more than that it has not answered."""
    with _environment(WANDB_INIT_TIMEOUT=f"{_answer():g}"):
        return in_time(_answer() + 1.0, opened, WandbLogger.close)


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
