"""Run directories: `config.yaml`, `metrics.csv`, `checkpoints/`, `result.json`, and what the recipe or the command asks for besides.

Nothing that a run did not write is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tempo_core.files import write_whole
from tempo_core.runs import directory
from tempo_core.runs.plain import read_yaml
from tempo_rl.encoding import usual_suffix
from tempo_rl.errors import CheckpointError, RecipeError, RunError
from tempo_rl.recipe import Recipe, dump_recipe, make_recipe

Mode: TypeAlias = Literal["new", "overwrite", "resume"]

MARK = "# The recipe of this run, as tempo-rl resolved it.\n"
RESULTS = (
    "metrics.csv",
    "metrics.jsonl",
    "evaluations.csv",
    "result.json",
    "profile.json",
    "returns.png",
    "episode.gif",
    "episode.mp4",
)
UNNUMBERED = ("latest.safetensors", "best.safetensors", "program.safetensors")
ROW = re.compile(rb'(?:\{"iteration": )?(\d+)')
NUMBERED = re.compile(r"step_\d{12,}\.safetensors")
FOLDERS = ("checkpoints", "wandb", "tensorboard", "members", "plots")
OWN = ("config.yaml", *RESULTS, *FOLDERS, ".lock")


@dataclass(frozen=True)
class RunDirectory(directory.RunDirectory):
    """The files of one run. `mode` says what may be there when training begins: nothing, a run to replace, or one to go on with."""

    mark, command, inner = MARK, "tempo-rl", ("checkpoints",)
    mode: Mode = "new"

    @property
    def lines(self) -> Path:
        """The metrics as lines of JSON."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """The evaluations while training."""
        return self.path / "evaluations.csv"

    def member(self, number: int) -> Path:
        """The metrics of one member of a run with many."""
        return self.path / "members" / f"{number:03d}.csv"

    @property
    def picture(self) -> Path:
        """The returns over the steps."""
        return self.path / "returns.png"

    def plot(self, name: str) -> Path:
        """A picture that a command draws of the run, or of several of which it is the first."""
        return self.path / "plots" / f"{name}.png"

    @property
    def plan(self) -> Path:
        """The schedule of the program, for those who track the run."""
        return self.path / "plan.png"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def video(self) -> Path:
        """An episode with the last parameters, as .mp4 where that can be written, else as .gif."""
        return self.path / f"episode{usual_suffix()}"

    @property
    def profile(self) -> Path:
        return self.path / "profile.json"

    @property
    def latest(self) -> Path:
        """The checkpoint of the newest whole iteration that was saved."""
        return self.checkpoints / "latest.safetensors"

    @property
    def best(self) -> Path:
        """The checkpoint with the best mean return."""
        return self.checkpoints / "best.safetensors"

    def checkpoint(self, env_steps: int) -> Path:
        """The path of the checkpoint after `env_steps` environment steps. The names sort by age."""
        return self.checkpoints / f"step_{env_steps:012d}.safetensors"

    def numbered_checkpoints(self) -> list[Path]:
        """The checkpoints that carry their steps in their names, oldest first."""
        return sorted(path for path in self.checkpoints.glob("step_*.safetensors") if NUMBERED.fullmatch(path.name))

    def all_checkpoints(self) -> list[Path]:
        """All checkpoints, newest first; the best one is not among them."""
        return [path for path in (self.latest, *reversed(self.numbered_checkpoints())) if path.exists()]

    def latest_checkpoint(self) -> Path:
        """The newest checkpoint. Raises `CheckpointError` if there is none."""
        paths = self.all_checkpoints()
        if not paths:
            raise CheckpointError(f"{self.path} holds no checkpoint", hint="a run saves one after its first iteration")
        return paths[0]

    def check(self) -> None:
        """Raise `RunError` unless training may begin here."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file", hint="give a directory: --out DIR")
        foreign = sorted(path.name for path in self.path.iterdir() if not _is_own(path.name)) if self.path.is_dir() else []
        if foreign:
            raise RunError(
                f"{self.path} holds files that are not of a run: {', '.join(foreign[:5])}",
                hint="choose a new directory: --out DIR",
            )
        self.check_files(("config.yaml", *RESULTS), FOLDERS)
        holds_results = any((self.path / name).exists() for name in RESULTS)
        if self.mode == "new" and (holds_results or self.all_checkpoints()):
            raise RunError(
                f"{self.path} holds a run already",
                hint="to go on with it: --resume auto. To replace it: --overwrite. To use another directory: --out DIR",
            )

    def begin(self, recipe: Recipe) -> None:
        """Write the recipe; in the mode "overwrite", first delete the run that is there. Raises `RunError`."""
        try:
            if self.mode == "overwrite":
                events = (self.path / "tensorboard").glob("events.out.tfevents.*")
                for old in (
                    *(self.path / name for name in RESULTS),
                    self.latest,
                    self.best,
                    *self.numbered_checkpoints(),
                    *events,
                    *(self.path / "members").glob("[0-9][0-9][0-9]*.csv"),
                ):
                    old.unlink(missing_ok=True)
            for left in (*self.path.glob(".*"), *self.checkpoints.glob(".*")):
                if _is_left_over(left.name):
                    left.unlink(missing_ok=True)
            if self.mode != "resume" or self._has_grown(recipe):
                write_whole(self.config, (MARK + dump_recipe(recipe)).encode())
            self.result.unlink(missing_ok=True)  # of the run that goes on
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _has_grown(self, recipe: Recipe) -> bool:
        """Whether the run goes on to another length than that of its recipe."""
        return self.config.exists() and self.values().get("total_timesteps") != recipe.total_timesteps

    def recipe(self) -> Recipe:
        """The recipe of the run. It imports what the recipe names. Raises `RecipeError`."""
        return make_recipe(self.values(), where=str(self.config))

    def values(self) -> dict[str, object]:
        """The recipe of the run as plain data. Raises `RecipeError`."""
        try:
            data = read_yaml(self.config.read_text(encoding="utf-8"), str(self.config))
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{self.config} cannot be read: {error}") from error
        if not isinstance(data, dict):
            raise RecipeError(f"{self.config} holds no keys")
        return data

    def check_there(self) -> None:
        """Raise `RunError` if the directory was renamed or removed while training."""
        if not self.path.is_dir():
            raise RunError(
                f"the directory {self.path} is gone",
                hint="if it was renamed, go on with the run where it is now: --resume NEW_NAME",
            )

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json. Raises `RunError`."""
        self.check_there()
        super().write_result(result)


def _is_own(name: str) -> bool:
    """Whether a run writes files of this name."""
    return name in OWN or _is_left_over(name)


def _is_left_over(name: str) -> bool:
    """Whether a process that was killed left a file of this name: one of a run under a temporary name."""
    whole = re.sub(r"(\.\d+)*\.tmp$", "", name.lstrip("."))
    is_own = whole in ("config.yaml", *RESULTS, *UNNUMBERED) or NUMBERED.fullmatch(whole) is not None
    return name.startswith(".") and name.endswith(".tmp") and is_own


def create_run(path: Path, overwrite: bool = False) -> RunDirectory:
    """A directory for a new run. Raises `RunError` if `path` holds a run already (unless `overwrite`), or other files.

    Nothing is written or deleted before the program is compiled.
    """
    run = RunDirectory(path, "overwrite" if overwrite else "new")
    run.check()
    return run


def rows_before(file: Path, iterations: int) -> int:
    """How many whole lines of a file are of the first `iterations`. A resumed run may have begun it, or evaluated more often before."""
    with suppress(OSError):
        lines = [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        return sum(int(row[1]) < iterations for row in map(ROW.match, lines) if row is not None)
    return 0


def find_checkpoint(path: Path, best: bool = False) -> Path:
    """A checkpoint's path: `path` itself, or in the run directory `path` the newest one, or the `best` one. Raises `CheckpointError`."""
    if path.is_dir():
        run = RunDirectory(path)
        if best and not run.best.exists():
            raise CheckpointError(f"{path} holds no best checkpoint yet", hint="the newest one: leave --best out")
        return run.best if best else run.latest_checkpoint()
    if best and path.exists():
        raise CheckpointError(f"--best chooses a checkpoint of a run, but {path} is one file", hint="leave --best out")
    if not path.exists():
        raise CheckpointError(f"there is no run or checkpoint {path}")
    return path


def recipe_of(path: Path) -> Path:
    """The recipe's file of a run, from its directory or from one of its checkpoints. Raises `RunError`."""
    config = RunDirectory(path if path.is_dir() else path.parent.parent).config
    if not config.is_file():
        raise RunError(f"there is no run {path}", hint="to begin a new run if there is none: --resume auto")
    return config
