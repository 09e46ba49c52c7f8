"""The directory of a training run: config.yaml, metrics.csv, state.safetensors, result.json, and the model that it writes."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tempo_core.files import write_whole
from tempo_core.runs.commands import RecipeError, RunError
from tempo_core.runs.directory import LOCK, RunDirectory, check_one_way
from tempo_core.runs.plain import read_yaml
from tempo_core.runs.recipe import dump_recipe
from tempo_llm.training.recipe import Recipe, make_recipe

MARK = "# A recipe of tempo-llm train\n"  # the first line of a run's config.yaml
TEXT = re.compile(r"^# text (\w+)$", re.MULTILINE)  # of config.yaml: what `Prepared.digest` was
MAY_DIFFER = ("track", "wandb", "saved_dtype")  # keys that the program does not depend on
FILES = ("config.yaml", "metrics.csv", "state.safetensors", "result.json")
_TEMPORARY = re.compile(rf"\.({'|'.join(map(re.escape, FILES))})\.\d+\.\d+\.tmp")  # of `write_whole`


@dataclass(frozen=True)
class RunFiles(RunDirectory):
    """The files of one run. `state` is the state of the program after the newest report: the run goes on from it."""

    mark, command = MARK, "tempo-llm train"

    @property
    def state(self) -> Path:
        return self.path / "state.safetensors"

    @property
    def model(self) -> Path:
        """The model directory with the parameters of the newest report."""
        return self.path / "model"

    def check(self) -> None:
        """Raise RunError if something else has the place of a file of a run, or config.yaml is not that of one: it may be a file of the user."""
        self.check_files(FILES, (self.model.name,))

    def begin(self, recipe: Recipe, text: str = "none") -> None:
        """Write the recipe of a new run and the digest of its text; what an earlier run left is deleted. Raises RunError.

        config.yaml is there at every moment, if it was there before, so that the directory of a process that is killed is still a run's.
        """
        try:
            left = [path for path in self._files() if _TEMPORARY.fullmatch(path.name)]
            for path in (self.state, self.result, self.metrics, *left):  # without a state, there is no run to go on with
                path.unlink(missing_ok=True)
            write_whole(self.config, f"{MARK}# text {text}\n{dump_recipe(recipe)}".encode())
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _files(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def is_only_locked(self) -> bool:
        """Whether nothing is there but what a process leaves that is killed before config.yaml is whole."""
        return all(path.name == LOCK or _TEMPORARY.fullmatch(path.name) for path in self._files())

    def is_begun(self) -> bool:
        """Whether the directory is that of a run that ended, perhaps was killed, before its first state."""
        self.check()
        return not self.state.is_file() and (self.config.exists() or (bool(self._files()) and self.is_only_locked()))

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise RunError if the run was begun with another recipe."""
        try:
            data = read_yaml(self.config.read_text(encoding="utf-8"), str(self.config))
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path} is not the directory of a run: {self.config.name} cannot be read: {error}") from error
        if not isinstance(data, dict):
            raise RecipeError(f"{self.config} holds no keys")
        recipes = (recipe, make_recipe(data, where=str(self.config)))
        self.check_same(*(each.model_dump(mode="json", exclude=set(MAY_DIFFER)) for each in recipes))

    def check_text(self, text: str) -> None:
        """Raise RunError if the run was begun with a text of another digest. A run of an earlier version does not say which."""
        begun = TEXT.search(self.config.read_text(encoding="utf-8"))
        if begun is not None and begun[1] != text:
            raise RunError(
                f"the text of the run in {self.path} was another one: its file, its tokens, or the model to go on with have changed",
                hint="put the text of the run back, or begin another run: --out DIR",
            )


def chosen_run(recipe: Recipe, name: str, out: Path | None, overwrite: bool, resume: str) -> tuple[RunFiles, bool]:
    """The directory of a run, and whether the run that is there goes on.

    `resume` is "off", "auto" (the run in `out`, or the newest unfinished one of this name and seed; a new run if there is none), or the path of
    a run. Raises RunError.
    """
    try:
        return _chosen(recipe, name, out, overwrite, resume)
    except OSError as error:  # a name that is too long, or a directory of somebody else
        raise RunError(
            f"{error.filename or 'the run directory'} cannot be used: {error.strerror or error}", hint="choose another: --out DIR"
        ) from error


def _chosen(recipe: Recipe, name: str, out: Path | None, overwrite: bool, resume: str) -> tuple[RunFiles, bool]:
    check_one_way(overwrite, resume)
    if resume not in ("off", "auto"):
        run = RunFiles(Path(resume))
        if out is not None and out.resolve() != run.path.resolve():
            raise RunError("--out names another run than --resume", hint="leave --out out; the run goes on in its own directory")
        if run.is_begun():
            return run, False
        if not run.state.is_file():
            raise RunError(
                f"there is no run to go on with in {resume}", hint="to begin a new run if there is none: --resume auto"
            )
        run.check_recipe(recipe)
        return run, True
    run = RunFiles.usual(name, recipe.seed, resume == "auto") if out is None else RunFiles(out)
    if run.path.exists() and not run.path.is_dir():
        raise RunError(f"{run.path} is a file", hint="give a directory: --out DIR")
    run.check()
    if resume == "auto" and run.state.is_file():
        run.check_recipe(recipe)
        return run, True
    begun = resume == "auto" and run.config.exists()  # and ended before its first report
    foreign = not run.config.exists() and not run.is_only_locked()
    if foreign or (run.config.exists() and not (overwrite or begun)):
        raise RunError(
            f"{run.path} holds {'files that are not of a run' if foreign else 'a run already'}",
            hint="to use another directory: --out DIR"
            + ("" if foreign else ". To go on with it: --resume auto. To replace it: --overwrite"),
        )
    return run, False


# -- what came of a run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What came of a run. `stopped` says why it ended early: a signal, or the time. Losses are None before the first report.

    `figures` are further numbers of the newest report by their columns of metrics.csv; those of held-out rows are of the saved model, once it is
    finished. `first` are some of them before the first update.
    """

    updates: int
    loss: float | None
    held_out_loss: float | None
    tokens_per_second: float
    seconds: float
    compiles: int
    compile_seconds: float
    stopped: str | None = None
    exact: int | None = None  # of `prompts` held-out lessons, how many the model completes exactly
    prompts: int | None = None
    kinds: Mapping[str, tuple[int, int]] | None = None  # of these, the exact ones and all, by their kinds
    figures: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)


def summary(outcome: Outcome) -> str:
    """What came of a run, in words."""
    text = (
        f"{outcome.updates:,} updates in {outcome.seconds:.1f} s ({outcome.tokens_per_second:,.0f} tokens/s while training); compiled "
        f"{outcome.compiles} XLA programs in {outcome.compile_seconds:.1f} s"
    )
    for name, value in {**outcome.figures, "held_out_loss": outcome.held_out_loss}.items():
        if name in outcome.first:
            text = f"{text}; {name.replace('held_out_', 'held-out ')} {value:.3f} (before the first update: {outcome.first[name]:.3f})"
    if outcome.held_out_loss is not None and not outcome.first:
        text = f"{text}; perplexity of held-out text {math.exp(outcome.held_out_loss):.3f}"
    return text if outcome.prompts is None else f"{text}; {outcome.exact} of {outcome.prompts} held-out prompts completed exactly"


def exit_code(outcome: Outcome) -> int:
    """Of a process that was stopped: 128 and the number of the signal; 0 if its time was up."""
    name = outcome.stopped or ""
    return 128 + signal.Signals[name] if name in signal.Signals.__members__ else 0
