"""Training: a recipe becomes a program, the program runs, and the run directory receives the results."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals
from typing import Any, NotRequired, TypedDict, TypeVar

import numpy as np

import tempo_core as tp
from tempo_core.runs import doctor
from tempo_core.runs.logger import CSVLogger, Row
from tempo_core.runs.stop import Stopped, StopRequest
from tempo_rl.agents import Agent
from tempo_rl.agents.base import Arrays
from tempo_rl.checkpoint import Checkpoint, for_member, save_checkpoint
from tempo_rl.compiles import CompileCounter
from tempo_rl.env.blocked import last_words
from tempo_rl.env.closing import close_quietly
from tempo_rl.env.functional_env import FunctionalEnv
from tempo_rl.env.program import ProgramEnvironment
from tempo_rl.env.saved import saved_spaces
from tempo_rl.env.spaces import out_of_reach
from tempo_rl.env.stacked import StackedEnv
from tempo_rl.errors import RecipeError, RLError, RunError, own_line
from tempo_rl.evaluate import Evaluation, Evaluator, Show, fault_of_environment, steps_for_a_fault
from tempo_rl.keeper import Keeper
from tempo_rl.members import build_members, of_member
from tempo_rl.models import LARGEST
from tempo_rl.monitor import Callback, DivergenceError, Logger, TrainingMonitor, lower
from tempo_rl.own import remember
from tempo_rl.progress import EvaluationProgress, Progress
from tempo_rl.recipe import Recipe
from tempo_rl.recording import JSONLLogger, Machine, Recorder, Recorders
from tempo_rl.references import foreign_references
from tempo_rl.rundir import RunDirectory, rows_before
from tempo_rl.streams import mend
from tempo_rl.tracking import open_recorders
from tempo_rl.video import watch

Error = TypeVar("Error", bound=BaseException)


class Timing(TypedDict):
    """How long a run took, and how much of it was compiling."""

    env_steps: int
    seconds: float  # those before the run was resumed included
    compile_seconds: float
    evaluation_seconds: float  # without compiling
    seconds_per_iteration: float | None  # the median
    steps_per_second: float  # without the seconds of compiling and of evaluation
    compiles: int  # XLA programs
    loads: int  # XLA programs that were not compiled, but came from the cache


class Member(TypedDict):
    """What a member of a run with many came to: the keys in which it differs, the mean of its recent returns, and its evaluation."""

    keys: dict[str, float]
    episodic_return: float | None
    eval_return_mean: float | None
    diverged: bool


class Result(Timing):
    """What `result.json` holds. The returns are those of the greedy evaluation; None where there was none."""

    eval_return_mean: float | None
    eval_return_std: float | None
    versions: dict[str, str | None]
    eval_episodes: NotRequired[int]  # of the evaluation, if a signal ended it early
    members: NotRequired[list[Member]]  # of a run with many
    interrupted: NotRequired[bool]
    error: NotRequired[str]  # why training ended early


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training run; `result` is the content of result.json. `stopped` says why it ended early: a signal, the time.

    `saved_steps` are the environment steps of the newest state on disk: fewer than those of the result after a second signal.
    `video` is the film of an episode, if one was asked for, and `video_error` says why there is none.
    """

    result: Result
    evaluation: Evaluation | None
    stopped: str | None = None
    saved_steps: int = 0
    video: Path | None = None
    video_error: RLError | None = None

    @property
    def interrupted(self) -> bool:
        return self.stopped is not None


class TrainingError(RunError):
    """A training that had to stop. `outcome` is what there is of it."""

    def __init__(self, message: str, outcome: Outcome, *, hint: str | None = None):
        super().__init__(message, hint=hint)
        self.outcome = outcome


class _Silent:
    """A monitor for programs that are planned and never run."""

    def finished(self, iteration: int, metrics: Arrays, parameters: Arrays) -> None: ...


def compile_config(recipe: Recipe, cache: str | bool | None = None, devices: int | str = 1) -> tp.Config:
    """The compiler's options that a recipe sets. `cache` is the directory of compiled programs, and `devices` as in `tp.Config`."""
    return tp.Config(
        seed=recipe.seed,
        executor=recipe.executor,
        disable=tuple(recipe.disable),
        cache=cache,
        devices=devices,
        memory_limit=recipe.memory_limit,
        swap=recipe.swap,
    )


def plan(
    recipe: Recipe,
    full: bool = False,
    as_json: bool = False,
    picture: Path | None = None,
    cache: str | bool | None = None,
    devices: int | str = 1,
) -> str:
    """The compiled program's plan: schedule, stores, device programs; `full` gives each statement and store its own line.

    `as_json` gives the memory of all tensors and its peaks instead, and `picture` is a trace of them that is written (.json). Nothing is run.
    """
    with _compiled(recipe, cache, devices) as program:
        made = program.plan()
        if picture is not None:
            made.draw(picture)
        return made.json() if as_json else made.text(full)


def check(recipe: Recipe, cache: str | bool | None = None) -> None:
    """Make the environments and compile the program. Without a `memory_limit`, XLA compiles nothing for it."""
    with _compiled(recipe, cache):
        pass


@contextmanager
def _compiled(recipe: Recipe, cache: str | bool | None, devices: int | str = 1) -> Iterator[tp.Program]:
    agent, _ = build_members(recipe, _Silent())
    try:
        _check_sizes(recipe, agent)
        yield agent.compile_for_runs(compile_config(recipe, cache, devices))
    finally:
        close_quietly(agent.environment, f"the environments {recipe.env.name}")


def train(
    recipe: Recipe,
    run: RunDirectory,
    progress: bool = False,
    say: Callable[[str], None] = print,
    show_plan: bool = False,
    cache: str | bool | None = None,
    profile: bool = False,
    resume: Checkpoint | None = None,
    time_limit: float | None = None,
    callbacks: Sequence[Callback] = (),
    devices: int | str = 1,
    recorders: Sequence[Recorder] = (),
    film: bool = False,
) -> Outcome:
    """Train as `recipe` says and fill `run`, or go on from the checkpoint `resume` of the same run.

    `cache` is the directory of compiled programs, True for the usual one, None for none; `devices` is as in `tempo_core.Config`. `time_limit` is in seconds.
    `callbacks` are called after each iteration, and `recorders` are told of the run. With `film`, an episode of the
    trained policy is recorded at the end, unless a signal ends the run.
    With `profile`, the run is profiled: its tables are said, and its flame picture is profile.json of the run.
    After SIGINT (Ctrl-C), SIGTERM or SIGHUP the running iteration is finished and saved, and the outcome says that it was stopped.

    Raises `RunError` if the directory cannot be used, and `TrainingError` if training fails: in the environment, because the loss or a
    parameter is not finite, or because the disk is full. The newest checkpoint is then that of a good iteration.
    """
    if resume is not None and resume.program is None:
        raise RunError(
            "the checkpoint holds only a policy, so a run cannot go on from it", hint="train from the start: leave --resume out"
        )
    if resume is not None:
        recipe, resume = recipe.going_on_from(resume.recipe), resume.at_program()
    run = replace(run, path=run.path.absolute())  # environments may change the working directory
    request = StopRequest(say, time_limit)
    with run.locked(), request.listening():
        run.check()
        return _Training(recipe, run, progress, say, request, cache, callbacks, devices, recorders, film).run(
            show_plan, profile, resume
        )


class _Training:
    """One call of `train`."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunDirectory,
        progress: bool,
        say: Callable[[str], None],
        request: StopRequest,
        cache: str | bool | None,
        callbacks: Sequence[Callback],
        devices: int | str,
        recorders: Sequence[Recorder],
        film: bool,
    ):
        self.recipe, self.directory, self.say, self.request, self.cache = recipe, run, say, request, cache
        self.evaluated = 0  # iterations that were done at the last evaluation while training
        self.callbacks, self.devices, self.progress, self.film = callbacks, devices, progress, film
        self.compiles, self.compile_seconds = CompileCounter(), 0.0
        self.evaluation_seconds = 0.0
        self.bar = Progress(recipe.iterations * recipe.num_envs * recipe.num_steps, progress, say, self._compiling)
        self.recorders, self.machine = Recorders(recorders), Machine()
        self.loggers: list[Logger] = []
        self.monitor = TrainingMonitor(recipe, self.loggers, self.bar.update, callbacks)
        self.environment: ProgramEnvironment | None = None
        self.program: tp.Program | None = None
        self.keeper = Keeper(run, recipe, self.monitor)
        self.resumed_at = 0  # iterations
        self.inputs: dict[str, np.ndarray] = {}
        self.evaluator: Evaluator | None = None
        self.evaluations: CSVLogger | None = None

    def run(self, show_plan: bool, profile: bool, resume: Checkpoint | None) -> Outcome:
        try:
            return self._run(show_plan, profile, resume)
        finally:
            self.recorders.close()

    def _run(self, show_plan: bool, profile: bool, resume: Checkpoint | None) -> Outcome:
        began = time.perf_counter()
        error: BaseException | None = None
        with self.compiles, self.bar, last_words(self._write_early):
            agent, self.inputs = build_members(self.recipe, self.monitor)
            mend()
            self.environment = agent.environment
            self.keeper.spaces = saved_spaces(agent.environment.observations, agent.environment.actions)
            try:
                config = compile_config(self.recipe, self.cache, self.devices)
                self.program, self.compile_seconds = _compile(self.recipe, agent, config, self.compiles, began)
                if show_plan:
                    self.say(self.program.plan().text())
                if (bounds := out_of_reach(agent.environment.actions)) is not None:
                    self.say(
                        f"note: actions of {self.recipe.env.name} lie between {bounds[0]:g} and {bounds[1]:g}, but those of a new policy are "
                        "around 0 with the deviation 1, so that nearly all of them are clipped: squash_actions=true maps them to the bounds"
                    )
                self.directory.begin(self.recipe)
                remember(self.directory.path, foreign_references(self.recipe.model_dump(mode="json"), True))
                self._open_loggers(resume)
                try:
                    if profile:
                        self._profile(agent, self.program)
                    else:
                        self._iterate(agent, self.program, resume)
                except (Exception, KeyboardInterrupt, SystemExit) as problem:
                    error = problem
                self._write_early()
            finally:
                self._close(agent)
        stopped = self.request.reason if self.monitor.iterations < self.recipe.iterations else None
        with last_words(self._write_early):
            if error is not None and not (isinstance(error, KeyboardInterrupt) and stopped):
                raise self._failure(error) from error
            return self._filmed(self._outcome(stopped))

    def _write_early(self, error: str | None = None) -> None:
        """A result before everything is closed and the evaluation plays, either of which may not end: it says that the run is not finished."""
        result = _result(None, self._timing())
        if error is None:
            result["interrupted"] = True
        else:
            result["error"] = error
        with suppress(RunError):
            if self.directory.config.exists():
                self.directory.write_result(result)

    def _close(self, agent: Agent) -> None:
        self.keeper.close()
        close_quietly(agent.environment, f"the environments {self.recipe.env.name}", self.say)
        if self.evaluator is not None:
            self.evaluator.close(self.say)
        for logger in (*self.loggers, *self.monitor.member_loggers, *([] if self.evaluations is None else [self.evaluations])):
            if logger is not self.recorders:  # they are also told of the end
                logger.close()

    def _open_loggers(self, resume: Checkpoint | None) -> None:
        def rows(file: Path) -> int | None:
            return None if resume is None else rows_before(file, resume.iterations)

        directory, steps = self.directory, 0 if resume is None else resume.env_steps
        if resume is not None and (held := rows_before(directory.metrics, resume.iterations)) < resume.iterations:
            self.say(f"note: {directory.metrics} holds {held} of the {resume.iterations} iterations so far")
        self.loggers.append(CSVLogger(directory.metrics, rows(directory.metrics)))
        if self.recipe.count > 1:
            directory.member(0).parent.mkdir(exist_ok=True)
            files = [directory.member(number) for number in range(self.recipe.count)]
            self.monitor.member_loggers = [CSVLogger(file, rows(file)) for file in files]
        if self.recipe.jsonl:
            self.loggers.append(JSONLLogger(directory.lines, rows(directory.lines)))
        if self.recipe.eval_every:
            self.evaluations = CSVLogger(directory.evaluations, rows(directory.evaluations))
            self.evaluator = Evaluator(self.recipe, self.cache)
        assert self.program is not None, "it is compiled"
        open_recorders(self.recorders, self.recipe, directory, self.program, steps, self.say)
        if self.recorders:
            self.loggers.append(self.recorders)

    def _iterate(self, agent: Agent, program: tp.Program, resume: Checkpoint | None) -> None:
        """Run the iterations, and save them."""
        monitor, keeper = self.monitor, self.keeper
        live = (
            program.start(self.inputs, bounds=agent.chosen(program)) if resume is None else self._resumed(agent, program, resume)
        )
        keeper.look(live)
        self.request.is_saved = lambda: monitor.iterations == keeper.saved
        self.request.can_finish = True
        is_told, diverged = False, set[int]()
        while not live.done and monitor.iterations < self.recipe.iterations and self.request.reason is None:
            count, began = 1 if self.callbacks else keeper.count(), time.perf_counter()
            live.advance(count=count)
            keeper.ran(count, time.perf_counter() - began)
            is_last = live.done or monitor.iterations == self.recipe.iterations
            if self.recorders and (row := self.machine.row(monitor.iterations - 1, monitor.env_steps, is_last)) is not None:
                self.recorders.machine(row)
            with self.request.dispensable(), self._evaluating():
                self._evaluate()
            self.request.by_callback = monitor.stop_requested
            keeper.keep(live, at_once=self.request.reason is not None)
            for member, at in monitor.diverged.items():
                if member not in diverged:
                    self.say(f"note: member {member} diverged in iteration {at} (counted from 0), and is left out of the means")
                diverged.add(member)
            restarts = getattr(agent.environment, "restarts", "")
            if restarts and not is_told:
                self.say(f"note: {restarts}; if the run is resumed, its episodes start anew")
                is_told = True

    def _evaluate(self) -> None:
        """Evaluate the parameters after this iteration, if it is time to, and log it. An evaluation that fails is left out."""
        monitor = self.monitor
        if self.evaluator is None or self.evaluations is None or monitor.latest is None:
            return
        if monitor.iterations % self.recipe.eval_every == 0:
            try:
                result = self._evaluated(self.evaluator, monitor.latest, self.bar.evaluating)
            except RLError as error:
                self.say(f"note: the evaluation after iteration {monitor.iterations} failed: {error}")
                return
            if len(result.returns) < self.recipe.eval_episodes * self.recipe.count:
                return
            row = self._row_of(result)
            self.evaluations.log(row)
            self.recorders.evaluation(row)
            self.evaluated = monitor.iterations

    def _row_of(self, evaluation: Evaluation) -> Row:
        """The row of an evaluation of the newest parameters."""
        monitor = self.monitor
        numbers = {"return_mean": evaluation.mean, "return_std": evaluation.std, "length_mean": float(evaluation.lengths.mean())}
        return {"iteration": monitor.iterations - 1, "env_steps": monitor.env_steps, **numbers}

    def _evaluated(self, evaluator: Evaluator, parameters: Arrays, show: Show) -> Evaluation:
        """The evaluation of all members, one after the other, in the same environments."""
        count = self.recipe.count
        parts = [
            evaluator(parameters if count == 1 else of_member(parameters, member), self._is_signalled, show)
            for member in range(count)
            if not self._is_signalled()
        ]
        return Evaluation(
            *(np.concatenate(values) for values in zip(*((part.returns, part.lengths) for part in parts), strict=True))
        )

    def _resumed(self, agent: Agent, program: tp.Program, resume: Checkpoint) -> tp.Run[Any]:
        assert resume.program is not None, "it was looked at before"
        live = program.resume(resume.program, bounds=agent.chosen(program))
        before, now = (recipe.iterations * recipe.num_envs * recipe.num_steps for recipe in (resume.recipe, self.recipe))
        for key, default in self.recipe.defaults_of_length().items():
            held, usual = getattr(resume.recipe, key), resume.recipe.defaults_of_length()[key]
            if held == usual != default:
                self.say(
                    f"note: {key} was {held} so far, and is {default} by default in a run that has {now:,} steps from its start, so that the "
                    f"result is not that of such a run (if both have {key}={held}, it is)"
                )
        if live.message:
            self.say(
                f"note: the recipe counts with the length of the run, and from here on with {now:,} steps instead of {before:,}, so that "
                f"the result is not that of a run that had {now:,} from its start (anneal_lr=false does not count with it): {live.message}"
            )
        self.monitor.go_on_from(
            resume.iterations, resume.parameters, resume.progress.get("recent_returns", ()), resume.progress.get("members", ())
        )
        self.keeper.go_on_from(resume)
        self.resumed_at, self.machine = resume.iterations, Machine(resume.env_steps)
        self.bar.go_on_from(resume.env_steps)
        self.say(f"resumed after iteration {resume.iterations} of {self.recipe.iterations} ({resume.env_steps:,} steps)")
        return live

    def _profile(self, agent: Agent, program: tp.Program) -> None:
        """Run the program under the profiler. It cannot stop on its way, so that the checkpoint at its end cannot be resumed."""
        measured = program.profile(self.inputs, bounds=agent.chosen(program))
        measured.draw(self.directory.profile)
        monitor = self.monitor
        assert monitor.latest is not None, "a run has at least one iteration"
        checkpoint = Checkpoint(monitor.latest, self.recipe, monitor.iterations, monitor.env_steps, spaces=self.keeper.spaces)
        save_checkpoint(self.directory.checkpoint(monitor.env_steps), checkpoint)
        self.say(f"{measured}\nthe flame picture is {self.directory.profile}")

    def _failure(self, error: BaseException) -> RLError:
        """The error that the user sees, with what was saved. The result says it too, if it can be written."""
        user_error = cause(error, RLError)
        if isinstance(user_error, DivergenceError) and self._is_unchecked():
            user_error = fault_of_environment(self.recipe, self.monitor.latest) or _of_either(user_error, self.recipe)
        if user_error is not None:
            message, hint = user_error.message, user_error.hint
        elif isinstance(error, tp.errors.FunctionError) and (raised := root(error)) is not error:
            message, hint = f"{type(raised).__name__}: {raised}{own_line(raised)}", "--traceback shows all"
        elif isinstance(error, tp.errors.TempoError):
            message, hint = str(error), None
        elif isinstance(error, SystemExit):
            message, hint = f"something called sys.exit({error.code!r}) while training", "an environment must not end the process"
        elif isinstance(error, KeyboardInterrupt):
            message, hint = "interrupted", None
        else:
            raise error
        kept = self.directory.all_checkpoints()
        saved = "; no iteration was saved"
        if self.keeper.saved:
            place = f"{kept[0]} holds" if kept else f"{self.directory.checkpoints} no longer holds"
            saved = f"; {place} iteration {self.keeper.saved}"
        outcome = self._outcome(None, message)
        return TrainingError(message + saved, outcome, hint=hint)

    def _is_unchecked(self) -> bool:
        """Whether the environment may have given numbers that are not finite, and nobody has looked."""
        inner = self.environment.env if isinstance(self.environment, StackedEnv) else self.environment
        return isinstance(inner, FunctionalEnv) and not self.recipe.check_finite

    def _outcome(self, stopped: str | None, error: str | None = None) -> Outcome:
        monitor = self.monitor
        evaluation = None
        if self.recipe.eval_episodes and monitor.latest and stopped is None and error is None:
            with suppress(Stopped), self.request.dispensable(), self._evaluating():
                evaluation = self._last_evaluation(monitor.latest)
            stopped = self.request.reason if evaluation is None else None
        result = _result(evaluation, self._timing())
        if self.recipe.count > 1:
            result["members"] = self._members(evaluation)
        if evaluation is not None and self.evaluated != monitor.iterations:
            self.recorders.evaluation(self._row_of(evaluation))
        if evaluation is not None and len(evaluation.returns) < self.recipe.eval_episodes * self.recipe.count:
            result["eval_episodes"] = len(evaluation.returns)
        if stopped is not None:
            result["interrupted"] = True
        if error is not None:
            result["error"] = error
        try:
            self.directory.write_result(result)
        except RunError:
            if error is None:
                raise
        return Outcome(result, evaluation, stopped, self.keeper.saved * self.recipe.num_envs * self.recipe.num_steps)

    def _filmed(self, outcome: Outcome) -> Outcome:
        """The outcome with the video of an episode, if one is to be recorded and no signal has ended the run or its evaluation."""
        is_signalled = outcome.stopped in Signals.__members__ or "eval_episodes" in outcome.result
        monitor, video = self.monitor, self.directory.video
        if not self.film or is_signalled or monitor.latest is None:
            return outcome
        try:
            newest = Checkpoint(monitor.latest, self.recipe, monitor.iterations, monitor.env_steps, monitor.numbers())
            shown = for_member(newest)  # the best one
            watch(
                shown.recipe, shown.parameters, 1, self.recipe.seed, video, cache=self.cache,
                hand=lambda film: self.recorders.film(film, monitor.env_steps),
            )  # fmt: skip
        except RLError as error:
            return replace(outcome, video_error=error)
        return replace(outcome, video=video)

    def _last_evaluation(self, parameters: Arrays) -> Evaluation | None:
        """The evaluation at the end, or the episodes of it that ended before a signal. An environment that fails in it costs no result."""
        recipe = self.recipe
        try:
            with EvaluationProgress(recipe.eval_episodes, self.progress, self.say) as show:
                evaluator = Evaluator(recipe, self.cache)
                try:
                    made = self._evaluated(evaluator, parameters, show)
                finally:
                    evaluator.close(self.say)
            return made if len(made.returns) else None
        except RLError as error:
            self.say(f"note: the evaluation failed: {error}")
            return None

    def _members(self, evaluation: Evaluation | None) -> list[Member]:
        """What each member came to."""
        recipe, episodes = self.recipe, self.recipe.eval_episodes
        complete = evaluation is not None and len(evaluation.returns) == episodes * recipe.count
        return [
            {
                "keys": keys,
                "episodic_return": float(np.mean(returns)) if returns else None,
                "eval_return_mean": float(evaluation.returns[k * episodes : (k + 1) * episodes].mean())
                if complete and evaluation is not None
                else None,
                "diverged": k in self.monitor.diverged,
            }
            for k, (keys, returns) in enumerate(zip(recipe.members, self.monitor.member_returns, strict=True))
        ]

    def _is_signalled(self) -> bool:
        return self.request.signal is not None

    def _compiling(self) -> float:
        """The seconds of compiling so far, Tempo's and XLA's."""
        return self.compile_seconds + self.compiles.seconds

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Inside is an evaluation, whose seconds are counted."""
        began, compiling = time.perf_counter(), self._compiling()
        try:
            yield
        finally:
            self.evaluation_seconds += time.perf_counter() - began - (self._compiling() - compiling)

    def _timing(self) -> Timing:
        monitor, compiles = self.monitor, self.compiles
        lengths = np.diff(monitor.times).tolist()  # seconds from the end of one iteration to the next, so the first is left out
        seconds = self.keeper.seconds
        training = seconds - self.keeper.seconds_before - self._compiling() - self.evaluation_seconds
        steps = self.recipe.count * (monitor.env_steps - self.resumed_at * self.recipe.num_envs * self.recipe.num_steps)
        return {
            "env_steps": monitor.env_steps,
            "seconds": seconds,
            "compile_seconds": self._compiling(),
            "evaluation_seconds": self.evaluation_seconds,
            "seconds_per_iteration": statistics.median(lengths) if lengths else None,
            "steps_per_second": steps / max(training, 1e-9),
            "compiles": compiles.count,
            "loads": self.program.loads if self.program is not None else 0,
        }


def _of_either(error: DivergenceError, recipe: Recipe) -> DivergenceError:
    """The error of a loss that is not finite, where it is not known whether the environment or learning made it so."""
    steps = steps_for_a_fault(recipe)
    return DivergenceError(
        f"{error.message}; either learning diverged, or {recipe.env.name} gave a number that is not finite "
        f"(it gave none in {steps:,} more steps)",
        hint=f"train again with check_finite=true: if the environment is at fault, the error says so. Otherwise {lower(recipe)}",
    )


def cause(error: BaseException | None, kind: type[Error]) -> Error | None:
    """`error` if it is of `kind`, else the nearest of its causes that is, else None. A program wraps the errors of its sinks."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def root(error: BaseException) -> BaseException:
    """The first error of a chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _check_sizes(recipe: Recipe, agent: Agent) -> None:
    """Raise `RecipeError` for an iteration whose observations are more than one array holds."""
    shape = agent.environment.observations.shape
    if recipe.count * recipe.num_envs * recipe.num_steps * math.prod(shape) > LARGEST:
        sizes = f"num_envs={recipe.num_envs:,} x num_steps={recipe.num_steps:,}"
        raise RecipeError(
            f"{sizes} observations of shape {shape} hold more than {LARGEST:,} numbers, the most of an array",
            hint="use fewer environments or steps: num_envs=64",
        )


def _compile(recipe: Recipe, agent: Agent, config: tp.Config, compiles: CompileCounter, began: float) -> tuple[tp.Program, float]:
    """The program, and the seconds of building and compiling it, without those of XLA (which `compiles` counts)."""
    before = compiles.seconds
    _check_sizes(recipe, agent)
    program = agent.compile_for_runs(config)
    return program, time.perf_counter() - began - (compiles.seconds - before)


def _result(evaluation: Evaluation | None, timing: Timing) -> Result:
    return {
        "eval_return_mean": evaluation.mean if evaluation else None,
        "eval_return_std": evaluation.std if evaluation else None,
        **timing,
        "versions": versions(),
    }


PACKAGES = ("tempo-dl", "jax", "jaxlib", "numpy", "gymnasium", "islpy", "flax", "wandb", "tensorboardX", "imageio-ffmpeg")


def versions() -> dict[str, str | None]:
    """The versions of Python and of the packages for a run; None for a package that is not installed."""
    return doctor.versions(PACKAGES)
