"""A compiled program: run it, inspect it, step through it, compile it for other bounds."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import jax

from tempo_core.backends.base import Backend
from tempo_core.config import Config
from tempo_core.errors import ConfigError, TempoError
from tempo_core.frontend.aliases import Array, Inputs
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.tensor import Bounds as BoundsLike
from tempo_core.frontend.tensor import RunBounds as RunBoundsLike
from tempo_core.frontend.tensor import UserExpr
from tempo_core.frontend.variables import lines as tensor_lines
from tempo_core.frontend.variables import named
from tempo_core.ir import graph_text as ir_text
from tempo_core.ir.graph import Graph
from tempo_core.ir.names.user_lines import Sources
from tempo_core.ir.ops import Dataflow, End, Merge, Op, Sink, Udf
from tempo_core.ir.types import TensorType
from tempo_core.passes.pipeline import pipeline, unvectorized
from tempo_core.report.graphs.draw import draw, to_svg
from tempo_core.report.graphs.overview import overview
from tempo_core.report.pages.html import Shown
from tempo_core.report.pages.page import Page, Picture
from tempo_core.report.programs.explain import explanation
from tempo_core.report.programs.plan import Plan, plan_of
from tempo_core.report.programs.profile import Places, Profile, complete, counts_of, interpreted, may_repeat, timed
from tempo_core.report.programs.profile_staged import ProfiledProgram
from tempo_core.runtime.cost.capacities import Capacities
from tempo_core.runtime.cost.cost import Cost
from tempo_core.runtime.cost.count import cost_of
from tempo_core.runtime.embedded.jax_function import Carry, Gradients, JaxFunction, check_embeddable
from tempo_core.runtime.feeds import Feeds, InputSpec
from tempo_core.runtime.interpreted.interpreter import Interpreter, watched
from tempo_core.runtime.interpreted.session import Session
from tempo_core.runtime.live.executors import Executor, InterpretedExecutor, StagedExecutor
from tempo_core.runtime.live.live import MemoryGuard, Run, check_inputs, check_origin, origin_of
from tempo_core.runtime.live.other_bounds import said_of, with_other_bounds
from tempo_core.runtime.live.state_file import Snapshot
from tempo_core.runtime.numerics import Watch
from tempo_core.runtime.results import Result, Results
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.runtime.run_inputs import RunInputs, kept
from tempo_core.runtime.staged.run import StagedProgram, StagedPrograms
from tempo_core.runtime.staged.spread import spread
from tempo_core.runtime.walk import Path as Place
from tempo_core.schedule import schedule
from tempo_core.schedule.outline import outline
from tempo_core.store.cache import Kept
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.limits import UpTo
from tempo_core.target import device

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tempo_core.planner import Choice

    R = TypeVar("R", default=Array | dict[str, Array] | list[Array], covariant=True)
else:
    from typing import TypeVar

    R = TypeVar("R", covariant=True)  # the results of a run: an array, a dict of arrays, or a list of arrays


class Start(NamedTuple):
    """What a run begins with: the program at its capacities, its inputs, its seed, a watch for values that are not finite, and its bounds."""

    program: Program[Any]
    fed: Feeds
    seed: int
    watch: Watch | None
    numbers: Bounds


class Program(Shown, Generic[R]):
    """A compiled program: run it with any inputs, inspect it, or step through it.

    `source` is the program as it was written; `graph` is the graph after all passes.
    """

    def __init__(
        self,
        source: Graph,
        kept: Kept,
        results: Results,
        config: Config,
        timing: dict[str, float],
        context: BaseContext,
        backend: Backend,
        rebinding: tuple[Callable[[Program[R], BoundsLike], Program[R]], Callable[[Mapping[Symbol, UpTo]], Program[R]]],
        run_bounds: RunBounds,
    ):
        """`rebinding` are functions that give the program for other bounds, and for narrower limits of those that a run chooses."""
        scheduled = kept.scheduled
        self.source, self.scheduled, self.graph = source, scheduled, scheduled.graph
        self.results, self.config, self.timing, self.backend = results, config, timing, backend
        self.bounds: Bounds = run_bounds.compiled  # of those that a run chooses, the capacity
        self.limits: Mapping[Symbol, UpTo] = run_bounds.limits  # of the bounds that a run chooses
        self._inputs = RunInputs(run_bounds, context.inputs)
        self._former = functools.lru_cache(16)(lambda numbers: results.former(dict(numbers)))
        self.choice: Choice | None = None  # what was chosen, and what was tried beside it
        self.reuse = ""  # what `with_bounds` used again
        self._kept = kept
        self._context, self._written = context, context.graph.next_id
        self._sources = Sources(tensor_lines(source, context), self._branch_lines())
        self._parameters = frozenset(context.parameters)
        self._rebound, self._within = rebinding
        is_staged = not is_interpreted(self.graph, config)
        shared = spread(config, source, scheduled, self.limits, lambda: cost_of(scheduled, None)) if is_staged else None
        self._options = config.check_numerics, config.disable, config.launch_seconds, config.on
        make = functools.partial(
            StagedProgram,
            scheduled,
            backend,
            *self._options,
            kept=kept.executables,
            spread=shared,
            parts=config.parts,
            directory=config.swap_directory,
        )
        self._programs = StagedPrograms(make)
        self._staged = self._programs.of() if is_staged else None
        self._capacities = Capacities(scheduled, self._staged, run_bounds, config.on)
        self._narrower: dict[tuple[UpTo, ...], Program[R]] = {}  # the program for narrower limits, as far as runs needed it
        self._narrower_bound = self._narrower  # the same, with the inputs that are bound

    # -- running ------------------------------------------------------------------------------------------------------

    @checked
    def run(
        self,
        inputs: Inputs | None = None,
        seed: int | None = None,
        bounds: RunBoundsLike | None = None,
        donate: Sequence[str] = (),
        out: Mapping[str, Array] | None = None,
    ) -> R:
        """The outputs, as NumPy arrays whose leading dimensions are the steps of the output's domain, in the context's order.

        The form is that of `outputs`: a list, a dict, or one array. Outputs whose shape varies with a step are nested lists of
        arrays. `inputs` has, for each input by name, an array, an iterator of values or a function of the steps (see `tp.input`).
        `seed` is by default that of the config. `bounds` are those that a run chooses (`tp.upto`); one that is a dimension of an array
        among the inputs may be left out. `donate` names inputs whose arrays, on the device, are the run's: it may use their memory for its
        values and results, and they are deleted afterwards. `out` has arrays for results, by name, which may be memory-mapped files: a
        result that lives on the host (`Config(host=...)`) is written there part by part, and is in no other memory. Raises ArgumentError
        for one that does not fit, InputError for inputs that do not fit, and BoundsError. After an exception,
        the program can run again.
        """
        start = self._start(inputs, seed, bounds)
        program, into = start.program, self.results.arrays_for(out or {}, start.numbers)
        donated = self._inputs.donated(inputs, donate, self.config.check_numerics)
        with program._out_of_memory():
            if program._staged is not None:
                values = program._programs.of(donated=frozenset(donated)).run(start.fed, start.seed, start.watch, into)
            else:
                values = Interpreter(program.scheduled, self.backend, start.seed, start.watch).run(start.fed)
            results: R = self._form(start.numbers, into)(values)
        for array in donated.values():
            if not array.is_deleted():
                array.delete()
        return results

    def _start(self, inputs: Inputs | None, seed: int | None, bounds: RunBoundsLike | None, as_written: bool = False) -> Start:
        """The beginning of a run. Raises InputError and BoundsError."""
        self._check_target()
        numbers = self._inputs.numbers(inputs, bounds)
        program = self if as_written else self._of_run(numbers)
        fed, seed = program._inputs.fed(inputs, numbers, as_written), self.config.seed if seed is None else seed
        watch = watched(self.source, numbers, fed, seed) if self.config.check_numerics else None
        return Start(program, fed, seed, watch, numbers)

    def _of_run(self, numbers: Bounds, unknown: Set[Symbol] = frozenset()) -> Program[R]:
        """The program at the capacities of a run with these bounds, with the same inputs bound. Those of `unknown` may be less."""
        if not self.limits or self.config.disabled("capacities"):
            return self
        limits = self._capacities.of_run(numbers, unknown)
        if limits == self.limits:
            return self
        point = tuple(limits.values())
        if point not in self._narrower:
            self._narrower[point] = self._within(limits)
        if point not in self._narrower_bound:
            program, inputs = copy.copy(self._narrower[point]), self._narrower[point]._inputs
            is_alike = not self._staged or not program._staged or program._staged.takes_alike(self._staged)
            program._inputs = inputs.bound_as(self._inputs) if is_alike else inputs.bind(self._inputs.arrays, program._prepare)
            self._narrower_bound[point] = program
        return self._narrower_bound[point]

    def _check_target(self) -> None:
        """Raise ConfigError if the program was compiled for another device than the one here."""
        if not self._is_at_hand:
            raise ConfigError(
                f"the program was compiled for the target {self.config.on.kind}, and this device is {device().device_kind}",
                hint="to run it here, leave the target out: Config(). program.explain() and program.plan() work without that device",
            )

    @property
    def _is_at_hand(self) -> bool:
        return self.config.target is None or self.config.on.is_at_hand()

    def _out_of_memory(self) -> MemoryGuard:
        return MemoryGuard(lambda said: self.plan().out_of_memory(said))

    @checked
    def profile(self, inputs: Inputs | None = None, seed: int | None = None, bounds: RunBoundsLike | None = None) -> Profile[R]:
        """Run the program under a profiler: time, operations, bytes and launches by tensor, by line and by loop.

        `print(program.profile(inputs))` shows the tables, `.draw("profile.json")` draws them, and `.results` are the results. A run before it
        warms up, unless the program has sinks, functions with state, or inputs that are fed while it runs: they see one run. Compiling is
        measured apart. Arguments and errors are those of `run`; ConfigError if another profile runs.
        """
        program, fed, seed, watch, numbers = self._start(inputs, seed, bounds)
        staged, places, counts = program._profiled, Places(program.graph, self._sources), counts_of(program.cost())
        if staged is None:
            run = functools.partial(Interpreter(program.scheduled, self.backend, seed, watch).run, fed)
            measure = functools.partial(interpreted, program.scheduled, self.backend, fed, seed, watch, places)
        else:
            run = functools.partial(staged.run, fed, seed, watch)
            measure = functools.partial(staged.measured, run, places)
        with program._out_of_memory():
            plain = timed(run) if may_repeat(program.graph, fed) else None
            values, seconds, entries = measure()
            results: R = self._form(numbers)(values)
        compile_seconds = 0.0 if staged is None else staged.compile_seconds
        return Profile(results, seconds, plain, compile_seconds, complete(entries, places, counts), counts)

    @functools.cached_property
    def _profiled(self) -> ProfiledProgram | None:
        """The device programs with names for the profiler; None for an interpreted program."""
        return None if self._staged is None else ProfiledProgram(self.scheduled, self.backend, *self._options)

    def _form(self, numbers: Bounds, out: Mapping[int, Array] | None = None) -> Callable[[Mapping[int, Any]], Any]:
        """The function that gives the results of a run with these bounds, some of them in arrays by position."""
        lengths = self.results.lengths

        def form(values: Mapping[int, Any]) -> Any:
            # A run that ends before the least number of points may have no value for the number.
            true = {bound: int(values.get(position, 0)) for bound, position in lengths.items()}
            for bound, number in true.items():
                self._inputs.bounds.check_end(bound, number)
            return self._former(tuple({**numbers, **true}.items()))(values, out or {})

        return form

    @overload
    def as_jax(
        self: Program[Array], carry: Carry | None = None, gradients: Gradients | None = None
    ) -> JaxFunction[jax.Array]: ...
    @overload
    def as_jax(
        self: Program[dict[str, Array]], carry: Carry | None = None, gradients: Gradients | None = None
    ) -> JaxFunction[dict[str, jax.Array]]: ...
    @overload
    def as_jax(
        self: Program[list[Array]], carry: Carry | None = None, gradients: Gradients | None = None
    ) -> JaxFunction[list[jax.Array]]: ...
    @checked
    def as_jax(self, carry: Carry | None = None, gradients: Gradients | None = None) -> JaxFunction[Any]:
        """The program as a pure JAX function `(state, inputs) -> (state, results)`, for `jax.jit`, `jax.vmap` and `jax.grad`.

        `f = program.as_jax()` begins with `f.init(seed=0)`. The state has the seed of the next call, so that each call draws other
        numbers, and the carried values: with `carry={"next_w": "w"}` the output `next_w` is the input `w` of the next call.
        `gradients={"loss": {"w": "dw"}}` declares that the output `dw` is the gradient of the output `loss` by the input `w`:
        `jax.grad` then takes it, and nothing else. Without it, JAX differentiates the device program.

        Raises TempoError for programs that call functions on the host, with the user's line, and ConfigError for programs that are
        interpreted or check their numbers, and for outputs whose shapes vary with a step if each call chooses bounds (`tp.upto`).
        """
        self._check_target()
        check_embeddable(self.graph, self._staged is None, self.config.check_numerics)

        @functools.lru_cache(None)
        def function(program: Program[Any]) -> JaxFunction[Any]:
            staging = False, self.config.disable, None, self.config.on
            whole = StagedProgram(program.scheduled, self.backend, *staging, is_differentiable=not gradients)
            options = self.results, self.config.seed, carry or {}, gradients or {}
            return JaxFunction(
                whole.as_function(), program._inputs, *options, lambda *of_call: function(program._of_run(*of_call))
            )

        return function(self)

    def compile(self) -> Program[R]:
        """Compile all device programs now, so that no run has to, but for smaller capacities (`tp.upto`). Returns the program itself."""
        self._check_target()
        if self._staged is not None:
            self._staged.compile_all()
        return self

    @checked
    def bind(self, inputs: Inputs) -> Program[R]:
        """The same program with some inputs bound, such as the weights of a model: its runs take the others.

        Arrays of the device are taken as they are; NumPy arrays are moved there once, and copied unless they are read-only (memory-mapped
        files are). Where a step is written out, the array of its points is split into one array a point, once. Bound programs share the
        device programs of this one. Raises InputError for inputs that do not fit, are streamed, or are bound already.
        """
        program = copy.copy(self)
        program._inputs, program._narrower_bound = self._inputs.bind(inputs, self._prepare), {}
        return program

    @property
    def _prepare(self) -> Callable[[str, Any], Any] | None:
        """The function that gives an array as device programs take it, for many runs."""
        return None if self._staged is None else functools.partial(self._staged.fed, is_lasting=True)

    @checked
    def start(
        self,
        inputs: Inputs | None = None,
        seed: int | None = None,
        by: Expr | str | None = None,
        bounds: RunBoundsLike | None = None,
    ) -> Run[R]:
        """A run that goes on when it is told to: `run.advance()`, `run.save(path)`, `run.finish()`.

        It can stop between iterations of the outermost loops; with `by`, or with `run.advance(t, 16)` as the first call, between those
        of the loops over that step. Arguments are those of `run`. Raises InputError, and StateError for a step without a loop.
        """
        for bound, outer in self.source.outer().items():
            raise ConfigError(
                f"a run cannot stop in a program where {bound} varies with {outer[0]}: the ends that it has found are not in its state",
                where=self.source.ends()[bound].where,
                hint="run it at once: program.run(inputs)",
            )
        start = self._start(inputs, seed, bounds)
        run = start.program._run(start, None if by is None else str(by))
        if by is not None:
            run.opened_by(str(by))
        return run

    @checked
    def resume(self, path: str | Path | Snapshot, inputs: Inputs | None = None, bounds: RunBoundsLike | None = None) -> Run[R]:
        """The run that `run.save(path)` wrote, or `run.snapshot()` gave, from the place where it was: it gives the same results, bit for bit.

        `inputs` are those that the file does not have: iterators, functions of the steps, and arrays of a file that was saved without
        them. An iterator begins with its first value again. Raises StateError if the file is missing or damaged, or is the state of
        another program, with what differs, and InputError.

        `bounds` are other numbers for the step of an outermost loop, such as `{I: 2000}` for a run that was begun with 1000, if each run
        chooses the bound (`tp.upto`): at least the iterations that are done. Results are those of a run that had these bounds from its start,
        bit for bit, if nothing depends on the bound. What does, such as `1 - i / I`, has the new number from here on: `run.message` names it.
        An input over the step is given anew, with the same values at first. Raises BoundsError, and StateError for a run that has ended.
        """
        state = copy.deepcopy(path) if isinstance(path, Snapshot) else Snapshot.read(path)  # it stays as it is
        meta: Any = state.meta
        given, limits = inputs or {}, self._inputs.bounds
        saved = {bound.name: meta["bounds"].get(bound.name, self.bounds[bound]) for bound in self.limits}
        before, numbers = (
            limits.of_run(saved, {}, {}),
            limits.of_run({**saved, **{str(b): n for b, n in (bounds or {}).items()}}, {}, {}),
        )
        steps = {step: numbers[bound] for step in self.source.order if numbers[bound := step.bound_symbol] != before[bound]}
        check_origin("the snapshot" if isinstance(path, Snapshot) else str(path), self._of_run(numbers)._origin, meta)
        held = {name: state.arrays[f"input/{name}"] for name in self._inputs.needed if f"input/{name}" in state.arrays}
        chosen = {UserExpr(bound.expr): numbers[bound] for bound in self.limits}
        start = self._start({**held, **given}, int(state.arrays["seed"]), chosen)
        run = start.program._run(start, None)
        check_inputs(run, state, self._inputs.needed, {step.name: before[step.bound_symbol] for step in steps})
        if steps:
            state = with_other_bounds(state, steps, start.program.scheduled, run)
            run.message = said_of(self.source, steps)
        run._put_back(state)
        return run

    def _run(self, start: Start, by: str | None) -> Run[R]:
        fed = replace(start.fed, arrays={name: kept(array) for name, array in start.fed.arrays.items()})  # the run may live long

        def executor(step: str | None, place: Place) -> Executor:
            if self._staged is None:
                return InterpretedExecutor(self.scheduled, self.backend, fed, start.seed, start.watch, place)
            return StagedExecutor(self._programs.of((step,)), fed, start.seed, start.watch, place)

        bounds = {bound.name: start.numbers[bound] for bound in self.limits}
        shapes = {name: result.shape(start.numbers) for name, result in self.outputs.items()}
        graphs, form = (self.source, self.graph), self._form(start.numbers)
        can_be_saved = start.watch is None
        return Run(graphs, executor, fed, start.seed, form, self._origin, shapes, by, self._out_of_memory, can_be_saved, bounds)

    @functools.cached_property
    def _origin(self) -> dict[str, str]:
        executor = "interpreted" if self._staged is None else "staged"
        texts = {"schedule": self.scheduled.text(), "graph": ir_text.to_text(self.graph)}
        return origin_of(texts, self._limited_bounds, executor, self.backend.name, self.config.disable)

    @checked
    def stepping(
        self, inputs: Inputs | None = None, seed: int | None = None, as_written: bool = False, bounds: RunBoundsLike | None = None
    ) -> Session[R]:
        """A session that runs the program statement by statement (interpreted), and shows each statement with its values.

        With `as_written`, the statements are those of the program before all passes, one for each operation that the user wrote.
        All values are then kept, so that you can look at them.
        """
        if as_written and self.results.lengths:
            raise ConfigError(
                "a program with ctx.ends can be stepped through only as it was compiled",
                hint="leave as_written out: program.stepping(inputs)",
            )
        start = self._start(inputs, seed, bounds, as_written)
        scheduled = start.program.scheduled if not as_written else schedule(self.source, start.numbers)
        interpreter = Interpreter(scheduled, self.backend, start.seed, start.watch)
        if as_written:
            interpreter.storage = {}  # every value stays
        return Session(scheduled, interpreter, start.fed, self._form(start.numbers), self._branch_lines(), self._inputs.domains)

    def _branch_lines(self) -> dict[tuple[str, str], Sequence[str]]:
        """For each recurrence, by name and line (node ids change): the lines that assign its branches."""
        merges = [node for node in self.source if isinstance(node.op, Merge)]
        return {(node.name, node.where): self._context.branch_lines.get(node.id, ()) for node in merges}

    @checked
    def step(self, inputs: Inputs | None = None, seed: int | None = None, bounds: RunBoundsLike | None = None) -> Session[R]:
        """Run statement by statement, and give each statement after it ran: `for step in program.step(inputs): print(step)`."""
        return self.stepping(inputs, seed, bounds=bounds)

    def compared_to(self, other: Program[Any]) -> str:
        """A message that says which parts are compiled anew here, and which parts of `other` are used again."""
        changed = ", ".join(f"{b}: {other.bounds[b]} -> {n}" for b, n in self.bounds.items() if n != other.bounds[b])
        is_loaded = "schedule" in (self._kept.loaded or ())
        reuse = "passes reused" + ("" if is_loaded else f", scheduled anew in {self.timing['schedule']:.2g} s")
        if self._staged is None:
            return f"{changed}: {reuse}; interpreted, nothing to compile"
        self._staged.lower_all()
        count, reusable = len(self._staged.segments), self._staged.reusable()
        return f"{changed}: {reuse}; {count - reusable} of {count} XLA programs recompiled"

    @checked
    def with_bounds(self, bounds: BoundsLike) -> Program[R]:
        """The program for other bounds. Bounds that are left out stay as they are; one that a run chooses gets another capacity.

        The graph after the passes, and XLA programs that stay the same, are used again. `message` says which parts are not; it is
        logged too (logger "tempo"). Raises the errors of `compile`.
        """
        other = self._rebound(self, bounds)
        return other if other is self or not self._inputs.arrays else other.bind(self._inputs.arrays)

    # -- inspection ---------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, InputSpec]:
        """The inputs that a run needs, by name, without those that are bound."""
        return self._inputs.needed

    @property
    def outputs(self) -> dict[str, Result]:
        """The results of a run, by the names of `outputs`, else by the names of the tensors, else by position."""
        return self.results.by_name

    @property
    def message(self) -> str:
        """What was used again: by `with_bounds`, and from the cache on disk (`Config(cache=...)`), with the XLA programs so far.

        Empty if there was nothing to use.
        """
        cached = ""
        if self._kept.loaded is not None:
            total = self.loads + self.compiles
            parts = (*self._kept.loaded, *([f"{self.loads} of {total} XLA programs"] if total else []))
            cached = f"from the cache: {', '.join(parts) or 'nothing'}"
        return "; ".join(filter(None, (self.reuse, cached)))

    @property
    def loads(self) -> int:
        """XLA programs that came from the cache on disk so far, and so were not compiled."""
        return sum(staged.loads for program in self._all for staged in program._programs)

    @property
    def compiles(self) -> int:
        """XLA programs compiled so far by the staged executor."""
        return sum(staged.compiles for program in self._all for staged in program._programs)

    @property
    def compile_seconds(self) -> float:
        """Seconds so far in Tempo's passes and schedule, and in XLA."""
        seconds = (staged.compile_seconds for program in self._all for staged in program._programs)
        return sum(sum(program.timing.values()) for program in self._all) + sum(seconds)

    @property
    def _all(self) -> tuple[Program[R], ...]:
        """The program for all capacities that runs needed so far."""
        return self, *self._narrower.values()

    @property
    def _limited_bounds(self) -> dict[str, str]:
        """The bounds by name: a number, or the limits of one that a run chooses."""
        return {bound.name: str(self.limits.get(bound, number)) for bound, number in self.bounds.items()}

    def __repr__(self) -> str:
        bounds = ", ".join(map("=".join, self._limited_bounds.items()))
        fed = ", ".join(self.inputs) or "nothing"
        how = f"{self.plan().compiles} XLA programs" if self._staged is not None else f"interpreted with {self.backend.name}"
        return f"<Program {bounds}: {fed} -> {', '.join(self.outputs) or 'nothing'}; {how}>"

    def _page(self) -> Page:
        plan = self.plan()._page()
        bounds = ", ".join(map(" = ".join, self._limited_bounds.items()))
        fed = "; ".join(map(str, self.inputs.values()))
        results = "; ".join(f"{name}: {result}" for name, result in self.outputs.items())
        facts = (("bounds", bounds), ("inputs", fed), ("results", results), *plan.facts)
        facts = tuple((word, value) for word, value in facts if value)
        return Page("program", facts, (*plan.parts, Picture("graph", to_svg(overview(self.graph)))))

    @checked
    def text(self, kind: str = "program", full: bool = False) -> str:
        """The program as text: "sdg" (the final graph), "source" (the graph as written), "schedule", "program", "memory", "plan",
        "peak" (all tensors in memory where it is fullest).

        Tensors of one module, optimizer or object share a line in the last four; with `full`, each statement and store has its own.
        The plan shows the user's lines too.
        """
        makers = {
            "program": lambda: self.scheduled.text() if full else outline(self.scheduled.root, self.graph),
            "schedule": lambda: self.scheduled.schedule.text(full),
            "memory": lambda: self.plan().memory(full),
            "plan": lambda: self.plan().text(full),
            "peak": lambda: self.plan().table(full),
            "sdg": lambda: ir_text.to_text(self.graph, full_constants=False),
            "source": lambda: ir_text.to_text(self.source, full_constants=False),
        }
        if kind not in makers:
            raise TempoError(f"there is no text {kind!r}", hint=f"one of {', '.join(makers)}: program.text('plan')")
        return makers[kind]()

    @checked
    def draw(self, path: str | Path, full: bool = False) -> None:
        """Write the final graph as .svg or Graphviz .dot. Nodes that belong together share a box; with `full`, each has its own.

        Raises ConfigError for another format, and for a file that cannot be written.
        """
        draw(self.graph, path, full, self._sources)

    def cost(self) -> Cost:
        """Operations, bytes moved, stores and temporaries, by statement and in all: polynomials in the bounds, and numbers.

        They are counted, not measured: `print(program.cost())` shows where a program spends its work, and how that grows.
        """
        return cost_of(self.scheduled, self._staged)

    def _numbers(self) -> Cost:
        """The same in numbers alone."""
        return cost_of(self.scheduled, self._staged, in_numbers=True)

    @checked
    def explain(self, tensor: str = "") -> str:
        """What was done to each operation of the program, and why: by tensor and line, or for one tensor by its name.

        It says how passes changed the operation or why they left it, in which statement and loops it runs, and what is kept of its
        values for which readers. The passes run again for it. Raises ArgumentError for a name that the program lacks.
        """
        config = self.config
        least = [(bound, limit.at_least) for bound, limit in self.limits.items()]
        numbers = tuple(self.bounds.items())
        steps, ends = unvectorized(self.source, config.unvectorized_steps), bool(self.source.ends())
        last = config.checkpoints, config.check_numerics, config.on
        passes = pipeline(config.disable, steps, config.tiles, least, ends, numbers, *last)
        written = self._context.graph.copy()
        written.nodes = {number: node for number, node in written.nodes.items() if number < self._written}
        written = named(written, self._context)
        asked = {
            step: ["an inner end: each of its points has its own number of iterations"]
            for step in steps[len(config.unvectorized_steps) :]
        }
        if self.choice is not None:
            asked |= {step: [f"by its price: {self.choice.chosen}; {self.choice.others[0]}"] for step in self.choice.form.loops}
        (_, _, on_device), (_, _, on_host) = self.plan().count(False).peaks
        text = explanation(
            self.source, written, passes, self.scheduled, self._staged, self._sources, asked, on_device or on_host, tensor
        )
        choices = () if tensor else (str(self.choice or ""), str(self._capacities), self._compared())
        return "\n\n".join(filter(None, (*choices, text)))

    def _compared(self) -> str:
        """The target, and the forms of loops of which the staged executor compared the seconds."""
        texts = () if self._staged is None else (*self._staged.unrolled.compared, *self._staged.launches.compared)
        lines = (f"loops, by the seconds of the target {self.config.on.kind}", *texts)
        return "\n  ".join(lines) if texts or self.config.target is not None else ""

    def plan(self) -> Plan:
        """The schedule, the memory of every tensor and its peaks, and the XLA programs that a run compiles.

        `plan.peak_device_bytes`, `plan.table()`, `plan.to_json()` and `plan.draw("memory.json")` count everything, also temporaries. For another
        target than the device here, these are an estimate.
        """
        place = "host" if self.backend.name == "numpy" else "device"
        plan = plan_of(self.graph, self.scheduled, self._staged, self._sources, self._parameters, place)
        return plan if self._is_at_hand else plan.coarse()


def is_interpreted(graph: Graph, config: Config) -> bool:
    """Whether a program is interpreted: by choice, or because shapes vary (`pad` is off), of values or of ranges that are read."""
    if config.interpreted or not all(t.is_static for node in graph for t in node.outputs):
        return True
    if graph.outer() and any(_leaves_the_device(node.op) for node in graph):  # a launch hands no inner ends to the next one
        return True
    if "pad" not in config.disable:
        return False
    return not all(t.is_static for node in graph for t in (*map(graph.edge_type, node.inputs), *_inner_types(node.op)))


def _leaves_the_device(op: Op) -> bool:
    return op.kind == "host" if isinstance(op, Udf) else isinstance(op, Sink) and not isinstance(op, End)


def _inner_types(op: Op) -> tuple[TensorType, ...]:
    """The types of all values inside of an island; none of another operation."""
    return op.body.slot_types if isinstance(op, Dataflow) else ()
