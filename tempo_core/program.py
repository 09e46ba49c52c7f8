"""A compiled program: run it, inspect it, step through it, compile it for other bounds."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, overload

import jax
import jax.numpy as jnp
import numpy as np

from tempo_core.backends.base import Backend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.config import Config
from tempo_core.errors import ConfigError, InputError, TempoError
from tempo_core.frontend.aliases import Array, Inputs
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.tensor import Bounds as BoundsLike
from tempo_core.frontend.tensor import RunBounds as RunBoundsLike
from tempo_core.frontend.tensor import Tensor, UserExpr
from tempo_core.frontend.variables import lines as tensor_lines
from tempo_core.frontend.variables import named
from tempo_core.ir import graph_text as ir_text
from tempo_core.ir.graph import Graph
from tempo_core.ir.names.user_lines import Sources
from tempo_core.ir.ops import Dataflow, Merge, Op
from tempo_core.ir.types import TensorType
from tempo_core.passes.pipeline import pipeline
from tempo_core.report.graphs.draw import draw, to_svg
from tempo_core.report.graphs.overview import overview
from tempo_core.report.pages.html import Shown
from tempo_core.report.pages.page import Page, Picture
from tempo_core.report.programs.explain import explanation
from tempo_core.report.programs.plan import Plan, plan_of
from tempo_core.report.programs.profile import Places, Profile, complete, counts_of, interpreted, may_repeat, timed
from tempo_core.report.programs.profile_staged import ProfiledProgram
from tempo_core.runtime.cost.cost import Cost
from tempo_core.runtime.cost.count import cost_of
from tempo_core.runtime.embedded.jax_bounds import CallLengths, Extent
from tempo_core.runtime.embedded.jax_function import Carry, Form, Gradients, JaxFunction, check_device_only
from tempo_core.runtime.feeds import Feeds, InputSpec, check_names, checked_inputs, input_specs, kind_of
from tempo_core.runtime.interpreted.interpreter import Interpreter
from tempo_core.runtime.interpreted.session import Session
from tempo_core.runtime.live.executors import Executor, InterpretedExecutor, StagedExecutor
from tempo_core.runtime.live.live import MemoryGuard, Origin, Run, origin_of, resumed
from tempo_core.runtime.live.state_file import Snapshot, path_of
from tempo_core.runtime.numerics import Ran, Watch, find
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.runtime.staged.run import StagedProgram
from tempo_core.runtime.staged.spread import Spread, spread
from tempo_core.runtime.walk import Path as Place
from tempo_core.schedule import schedule
from tempo_core.schedule.outline import outline
from tempo_core.store.cache import Kept
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.limits import UpTo

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tempo_core.planner import Choice

    R = TypeVar("R", default=Array | dict[str, Array] | list[Array], covariant=True)
else:
    from typing import TypeVar

    R = TypeVar("R", covariant=True)  # the results of a run: an array, a dict of arrays, or a list of arrays


@dataclass(frozen=True)
class Result:
    """The form of one output: the steps of its domain lead, then its shape follows, which may vary from point to point.

    A `condition` other than TRUE comes from the user's index of the output. Where it does not hold, the result is masked.
    """

    steps: tuple[Symbol, ...]
    type: TensorType
    name: str = ""
    condition: Bool = TRUE

    @staticmethod
    def of(tensor: Tensor) -> Result:
        condition = TRUE if tensor.user_condition is TRUE else tensor.domain.condition
        return Result(tensor.domain.steps, tensor.type, tensor.name, condition)

    def former(self, bounds: Bounds) -> Callable[[Any], Any]:
        """A function that gives the result of a run: an array, or nested lists if the shape varies with a step.

        Missing points are masked, or None in lists.
        """
        points, sizes = [bounds[step.bound_symbol] for step in self.steps], self.shape(bounds)
        if sizes is None:
            return lambda value: self._nested(_on_host(value), points, bounds, lambda part: _writable(np.asarray(part)))

        def trimmed(value: Any) -> Any:
            array = _trimmed(np.asarray(value), sizes)
            return _writable(array) if self.condition is TRUE else self._masked(array, points, bounds)

        return trimmed

    def shape(self, bounds: Bounds) -> tuple[int, ...] | None:
        """The shape of the result; None if it varies with a step."""
        if not self.type.is_static:
            return None
        return (*(bounds[step.bound_symbol] for step in self.steps), *(size.evaluate(bounds) for size in self.type.shape))

    def traced_former(self, bounds: Bounds) -> Callable[[Any], Any]:
        """The same for an array of JAX, perhaps a traced one. Missing points are zero, or None in lists."""
        points, sizes = [bounds[step.bound_symbol] for step in self.steps], self.shape(bounds)
        if sizes is None:
            return lambda value: self._nested(value, points, bounds, lambda part: part)

        def trimmed(value: Any) -> Any:
            array = _trimmed(value, sizes)
            if self.condition is TRUE:
                return array
            missing = self._missing(points, bounds)
            missing = missing.reshape(missing.shape + (1,) * (array.ndim - missing.ndim))
            return jnp.where(jnp.broadcast_to(missing, array.shape), jnp.zeros((), array.dtype), array)

        return trimmed

    def _nested(self, value: Any, points: list[int], bounds: Bounds, finished: Callable[[Any], Any]) -> Any:

        def rows(part: Any, steps: tuple[Symbol, ...], at: dict[Symbol, int]) -> Any:
            if steps:
                return [rows(part[k], steps[1:], {**at, steps[0]: k}) for k in range(points[len(at)])]
            if not self.condition.evaluate({**bounds, **at}):
                return None
            return finished(part[tuple(slice(0, size.evaluate({**bounds, **at})) for size in self.type.shape)])

        return rows(value, self.steps, {})

    def _missing(self, points: list[int], bounds: Bounds) -> np.ndarray[Any, Any]:
        """For each point, whether the output does not exist there."""
        missing = np.zeros(points, bool)
        for at in itertools.product(*map(range, points)):
            missing[at] = not self.condition.evaluate({**bounds, **dict(zip(self.steps, at, strict=True))})
        return missing

    def _masked(self, array: Any, points: list[int], bounds: Bounds) -> Any:
        missing = self._missing(points, bounds)
        mask = np.broadcast_to(missing.reshape(missing.shape + (1,) * (array.ndim - missing.ndim)), array.shape)
        return np.ma.MaskedArray(np.where(mask, np.zeros((), array.dtype), array), mask)

    def __str__(self) -> str:
        over = f" over ({', '.join(s.name for s in self.steps)})" if self.steps else ""
        return f"{self.type}{over}" + ("" if self.condition is TRUE else f" where {self.condition}")


def _trimmed(array: Any, sizes: tuple[int, ...]) -> Any:
    """An array without its padding, which it has if it is one point of a tensor whose shape varies."""
    return array if array.shape == sizes else array[tuple(slice(0, n) for n in sizes)]


def _on_host(value: Any) -> Any:
    """A device array as one of NumPy, so that JAX does not compile a program for each shape that is cut from it; else the value itself."""
    return np.array(value) if isinstance(value, jax.Array) else value


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A result that the caller may write into: it shares no memory with inputs or other results. JAX's arrays stay read-only."""
    return array.copy() if array.flags.writeable else array


@dataclass(frozen=True)
class Results:
    """All outputs, in the form of `outputs`: a dict with `names`, one tensor (`is_single`), or a sequence."""

    each: tuple[Result, ...]
    names: tuple[str, ...] | None = None
    is_single: bool = False
    lengths: Mapping[Symbol, int] = field(default_factory=dict)  # the positions of the bounds that the run finds out

    def former(self, bounds: Bounds) -> Callable[[Mapping[int, Any]], Any]:
        """A function that gives the results of a run, from the values by position."""
        formers = [result.former(bounds) for result in self.each]
        return lambda values: self.together({k: of(values[k]) for k, of in enumerate(formers)})

    def together(self, values: Mapping[int, Any]) -> Any:
        """Values by position in the form of the outputs."""
        if self.is_single:
            return values[0]
        arrays = [values[k] for k in range(len(self.each))]
        return arrays if self.names is None else dict(zip(self.names, arrays, strict=True))


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
        rebound: Callable[[Program[R], BoundsLike], Program[R]],
        run_bounds: RunBounds,
    ):
        scheduled = kept.scheduled
        self.source, self.scheduled, self.graph = source, scheduled, scheduled.graph
        self.results, self.config, self.timing, self.backend = results, config, timing, backend
        self.bounds: Bounds = run_bounds.compiled  # of those that a run chooses, the capacity
        self.limits: Mapping[Symbol, UpTo] = run_bounds.limits  # of the bounds that a run chooses
        self._run_bounds = run_bounds
        self._former = functools.lru_cache(16)(lambda numbers: results.former(dict(numbers)))
        self.choice: Choice | None = None  # what was chosen to meet a limit of memory
        self.reuse = ""  # what `with_bounds` used again
        self._kept = kept
        self._domains = context.inputs  # inputs that no output needs may be fed, and are ignored
        self._lines = context.branch_lines
        self._sources = Sources(tensor_lines(source, context), self._branch_lines())
        self._parameters = frozenset(context.parameters)
        self._context, self._written = context, context.graph.next_id
        self._rebound = rebound
        self._arrays: Mapping[str, Any] = {}  # bound inputs
        self._bound: Mapping[str, Any] = {}  # the same, as device programs take them
        self._opened: dict[str | None, StagedProgram] = {}
        self._donors: dict[frozenset[str], StagedProgram] = {}
        self._staged = None
        self._spread: Spread | None = None
        if not is_interpreted(self.graph, config):
            self._spread = spread(config.devices, source, scheduled, self.limits, lambda: cost_of(scheduled, None))
            self._staged = self._new_staged()

    # -- running ------------------------------------------------------------------------------------------------------

    @checked
    def run(
        self,
        inputs: Inputs | None = None,
        seed: int | None = None,
        bounds: RunBoundsLike | None = None,
        donate: Sequence[str] = (),
    ) -> R:
        """The outputs, as NumPy arrays whose leading dimensions are the steps of the output's domain, in the context's order.

        The form is that of `outputs`: a list, a dict, or one array. Outputs whose shape varies with a step are nested lists of
        arrays. `inputs` has, for each input by name, an array, an iterator of values or a function of the steps (see `tp.input`).
        `seed` is by default that of the config. `bounds` are those that a run chooses (`tp.upto`); one that is a dimension of an array
        among the inputs may be left out. `donate` names inputs whose arrays, on the device, are the run's: it may use their memory for its
        values and results, and they are deleted afterwards. Raises InputError for inputs that do not fit, and BoundsError. After an exception,
        the program can run again.
        """
        numbers = self._numbers(inputs, bounds)
        fed = self._fed(inputs, numbers)
        donated = self._donated(inputs, donate)
        chosen = self.config.seed if seed is None else seed
        watch = self._watch(fed, chosen, numbers)
        with self._out_of_memory():
            if self._staged is not None:
                values = (self._donating(donated) if donated else self._staged).run(fed, chosen, watch)
            else:
                values = Interpreter(self.scheduled, self.backend, chosen, watch).run(fed)
            results: R = self._form(numbers)(values)
        for array in donated.values():
            if not array.is_deleted():
                array.delete()
        return results

    def _donated(self, inputs: Inputs | None, names: Sequence[str]) -> dict[str, jax.Array]:
        """The arrays that a run may have for itself. Raises InputError."""
        arrays: dict[str, jax.Array] = {}
        for name in names:
            spec, value = self._specs.get(name), (inputs or {}).get(name)
            if spec is None or name in self._arrays or self.config.check_numerics:
                why = "is bound" if name in self._arrays else "is read again by check_numerics"
                problem = (
                    f"the input `{name}` {why}, and cannot be donated" if spec else f"the program has no input `{name}` to donate"
                )
                raise InputError(problem, hint=f"its inputs are {', '.join(self.inputs) or 'none'}")
            if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
                raise spec.error(
                    f"is {kind_of(value)}, but only an array on the device can be donated",
                    f"leave it out of donate, or put it on the device: jax.device_put({name})",
                )
            arrays[name] = value
        return arrays

    def _donating(self, names: Iterable[str]) -> StagedProgram:
        """The device programs of runs that have the arrays of some inputs for themselves."""
        key = frozenset(names)
        if key not in self._donors:
            self._donors[key] = self._new_staged(donated=key)
        return self._donors[key]

    def _out_of_memory(self) -> MemoryGuard:
        return MemoryGuard(lambda said: self.plan().out_of_memory(said))

    @checked
    def profile(self, inputs: Inputs | None = None, seed: int | None = None, bounds: RunBoundsLike | None = None) -> Profile[R]:
        """Run the program under a profiler: time, operations, bytes and launches by tensor, by line and by loop.

        `print(program.profile(inputs))` shows the tables, `.draw("profile.svg")` draws them, and `.results` are the results. A run before it
        warms up, unless the program has sinks, functions with state, or inputs that are fed while it runs: they see one run. Compiling is
        measured apart. Arguments and errors are those of `run`; ConfigError if another profile runs.
        """
        numbers = self._numbers(inputs, bounds)
        chosen, fed, staged = self.config.seed if seed is None else seed, self._fed(inputs, numbers), self._profiled
        places, counts, watch = Places(self.graph, self._sources), counts_of(self.cost()), self._watch(fed, chosen, numbers)
        if staged is None:
            run = functools.partial(Interpreter(self.scheduled, self.backend, chosen, watch).run, fed)
            measure = functools.partial(interpreted, self.scheduled, self.backend, fed, chosen, watch, places)
        else:
            run = functools.partial(staged.run, fed, chosen, watch)
            measure = functools.partial(staged.measured, run, places)
        with self._out_of_memory():
            plain = timed(run) if may_repeat(self.graph, fed) else None
            values, seconds, entries = measure()
            results: R = self._form(numbers)(values)
        compile_seconds = 0.0 if staged is None else staged.compile_seconds
        return Profile(results, seconds, plain, compile_seconds, complete(entries, places, counts), counts)

    @functools.cached_property
    def _profiled(self) -> ProfiledProgram | None:
        """The device programs with names for the profiler; None for an interpreted program."""
        config = self.config
        if self._staged is None:
            return None
        return ProfiledProgram(self.scheduled, self.backend, config.check_numerics, config.disable, config.launch_seconds)

    def _numbers(self, inputs: Inputs | None, bounds: RunBoundsLike | None) -> Bounds:
        """The bounds of a run."""
        arrays: Inputs = inputs if isinstance(inputs, Mapping) else {}  # `_fed` refuses others
        return self._run_bounds.of_run(bounds, {**self._arrays, **arrays}, self._domains)

    def _form(self, numbers: Bounds) -> Callable[[Mapping[int, Any]], Any]:
        """The function that gives the results of a run with these bounds."""
        lengths = self.results.lengths

        def form(values: Mapping[int, Any]) -> Any:
            # A run that ends before the least number of points may have no value for the number.
            true = {bound: int(values.get(position, 0)) for bound, position in lengths.items()}
            for bound, number in true.items():
                self._run_bounds.check_end(bound, number)
            return self._former(tuple({**numbers, **true}.items()))(values)

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
        check_device_only(self.graph)
        if self._staged is None:
            raise ConfigError(
                "an interpreted program is not a JAX function",
                hint='compile it with tp.Config(executor="staged"), the default, on the backend "jax" and with the pass pad',
            )
        if self.config.check_numerics:
            raise ConfigError(
                "a JAX function cannot raise NumericsError",
                hint="compile it without check_numerics, and let JAX check: jax.config.update('jax_debug_nans', True)",
            )
        whole = StagedProgram(
            self.scheduled, self.backend, disable=self.config.disable, is_differentiable=not gradients
        ).as_function()
        lengths = self._call_lengths() if self.limits else None
        formers = [result.traced_former(self.bounds) for result in self.results.each]

        def run(inputs: Mapping[str, Any], at: tuple[Any, tuple[Any, ...]]) -> dict[int, Any]:
            values = whole(inputs, *at)
            if lengths is None:
                return {k: of(values[k]) for k, of in enumerate(formers)}
            return {**values, **{k: lengths.at_capacity(k, values[k], self.bounds) for k in range(len(formers))}}

        outputs = {
            name: Form(result.shape(self.bounds), result.type.dtype, result.condition is TRUE)
            for name, result in self.outputs.items()
        }
        return JaxFunction(
            run,
            self._specs,
            self._domains,
            self._arrays,
            self.results.together,
            outputs,
            self.config.seed,
            carry or {},
            gradients or {},
            lengths,
        )

    def _call_lengths(self) -> CallLengths:
        """How each call of a JAX function chooses bounds. Raises ConfigError for what has no static shape then."""
        bound = next(iter(self.limits))
        for name, result in self.outputs.items():
            if not result.type.is_static:
                raise ConfigError(
                    f"the output `{name}` has a shape that varies with a step, but each call of a JAX function chooses {bound}",
                    hint=f"compile it for one bound: ctx.compile({{{bound}: {self.limits[bound].capacity}}}, ...)",
                )
        extents = tuple(Extent(result.steps, result.type, result.condition) for result in self.results.each)
        return CallLengths(self._run_bounds, self._specs_of, self._domains, extents, self.results.lengths)

    def compile(self) -> Program[R]:
        """Compile all device programs now, so that no run has to. Returns the program itself."""
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
        check_names(self._specs, self._domains, inputs)
        specs = {name: spec for name, spec in self._specs.items() if name in inputs}
        for name, node in self.source.fed().items():
            varying = [
                b for b in self.limits if name in inputs and b in frozenset().union(*(s.symbols for s in node.outputs[0].shape))
            ]
            if varying:
                raise specs[name].error(
                    f"cannot be bound: each run chooses its size {varying[0]}", "give it to each run: program.run({...})"
                )
        given = checked_inputs(self._free(specs, inputs), self._domains, inputs)
        for feed in given.streams.values():
            raise feed.spec.error("is streamed, and cannot be bound", "give the stream to each run: program.run({...})")
        program = copy.copy(self)
        arrays = {name: _kept(array) for name, array in given.arrays.items()}
        program._arrays = {**self._arrays, **arrays}
        if self._staged is not None:
            program._bound = {**self._bound, **{name: self._staged.bound(name, array) for name, array in arrays.items()}}
        return program

    def _free(self, specs: Mapping[str, InputSpec], inputs: Mapping[str, Any]) -> dict[str, InputSpec]:
        """Those of some inputs that are not bound. Raises InputError if one of `inputs` is."""
        for name in inputs:
            if name in self._arrays:
                raise specs[name].error(
                    "is bound already", "leave it out, or use the program that program.bind(...) was called on"
                )
        return {name: spec for name, spec in specs.items() if name not in self._arrays}

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
        numbers = self._numbers(inputs, bounds)
        chosen = self.config.seed if seed is None else seed
        run = self._run(self._fed(inputs, numbers), chosen, None if by is None else str(by), numbers)
        return run if by is None else run.opened()

    @checked
    def resume(self, path: str | Path | Snapshot, inputs: Inputs | None = None) -> Run[R]:
        """The run that `run.save(path)` wrote, or `run.snapshot()` gave, from the place where it was: it gives the same results, bit for bit.

        `inputs` are those that the file does not have: iterators, functions of the steps, and arrays of a file that was saved without
        them. An iterator begins with its first value again. Raises StateError if the file is missing or damaged, or is the state of
        another program, with what differs, and InputError.
        """
        given: Inputs = {} if inputs is None else inputs

        def run_of(fed: dict[str, Any], seed: int, bounds: Mapping[str, int]) -> Run[R]:
            inputs = {name: value for name, value in fed.items() if name in given or name not in self._arrays}
            numbers = self._numbers(inputs, {UserExpr(Symbol(name).expr): number for name, number in bounds.items()})
            return self._run(self._fed(inputs, numbers), seed, None, numbers)

        return resumed(run_of, path if isinstance(path, Snapshot) else path_of(path), given, self._origin)

    def _run(self, fed: Feeds, seed: int, by: str | None, numbers: Bounds) -> Run[R]:
        fed = replace(fed, arrays={name: _kept(array) for name, array in fed.arrays.items()})  # the run may live long
        watch = self._watch(fed, seed, numbers)

        def executor(step: str | None, place: Place) -> Executor:
            if self._staged is None:
                return InterpretedExecutor(self.scheduled, self.backend, fed, seed, watch, place)
            return StagedExecutor(self._opened_at(step), fed, seed, watch, place)

        outputs = {name: position for position, name in enumerate(self.outputs)}
        examples = _examples(self.source)
        bounds = {bound.name: numbers[bound] for bound in self.limits}
        form = self._form(numbers)
        shapes = {name: result.shape(numbers) for name, result in self.outputs.items()}
        return Run(
            self.graph, executor, fed, seed, form, self._origin, outputs, by, examples, self._out_of_memory, watch is not None, bounds, shapes
        )  # fmt: skip

    def _opened_at(self, step: str | None) -> StagedProgram:
        """The device programs of runs that stop between iterations over a step."""
        if step not in self._opened:
            self._opened[step] = self._new_staged((step,))
        return self._opened[step]

    def _new_staged(self, opened_at: tuple[str | None] | None = None, donated: frozenset[str] = frozenset()) -> StagedProgram:
        config, kept = self.config, self._kept.executables
        options = (config.check_numerics, config.disable, config.launch_seconds)
        return StagedProgram(self.scheduled, self.backend, *options, opened_at, kept, donated=donated, spread=self._spread)

    @functools.cached_property
    def _origin(self) -> Origin:
        bounds = {bound.name: str(self.limits.get(bound, number)) for bound, number in self.bounds.items()}
        executor = "interpreted" if self._staged is None else "staged"
        texts = {"schedule": self.scheduled.text(), "graph": ir_text.to_text(self.graph)}
        return origin_of(texts, bounds, executor, self.backend.name, self.config.disable)

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
        numbers = self._numbers(inputs, bounds)
        scheduled = self.scheduled if not as_written else schedule(self.source, numbers)
        fed, chosen = self._fed(inputs, numbers, as_written), self.config.seed if seed is None else seed
        interpreter = Interpreter(scheduled, self.backend, chosen, self._watch(fed, chosen, numbers))
        if as_written:
            interpreter.storage = {}  # every value stays
        return Session(scheduled, interpreter, fed, self._form(numbers), self._branch_lines(), self._domains)

    def _branch_lines(self) -> dict[tuple[str, str], Sequence[str]]:
        """For each recurrence, by name and line (node ids change): the lines that assign its branches."""
        merges = [node for node in self.source if isinstance(node.op, Merge)]
        return {(node.name, node.where): self._lines.get(node.id, ()) for node in merges}

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
        return other if other is self or not self._arrays else other.bind(self._arrays)

    def _watch(self, fed: Feeds, seed: int, numbers: Bounds) -> Watch | None:
        """A watch for values that are not finite, if the config asks for it."""
        if not self.config.check_numerics:
            return None

        def search(watch: Watch) -> None:
            """Run the program as it was written, in NumPy, until such a value reaches an output, a host function or a recurrence."""
            interpreter = Interpreter(schedule(self.source, numbers), NumpyBackend(), seed, repeated=watch.returned)
            ran = interpreter.steps(interpreter.state(Feeds(fed.arrays, {})))
            statements = (Ran(each.node, each.branch, each.point, each.operands, each.values) for each in ran)
            find(self.source, numbers, fed.arrays, watch.returned, statements)

        return Watch(search)

    def _fed(self, inputs: Inputs | None, numbers: Bounds | None = None, as_written: bool = False) -> Feeds:
        """The inputs of a run with these bounds, of the compiled program or of the program `as_written`."""
        given: Inputs = {} if inputs is None else inputs
        numbers = self._numbers(inputs, None) if numbers is None else numbers
        specs = self._specs_of(numbers)
        if not self._arrays:
            fed = checked_inputs(specs, self._domains, given)
        else:
            fed = checked_inputs(self._free(specs, given), self._domains, given)
            fed = Feeds({**fed.arrays, **self._arrays}, fed.streams, self._bound)
        if not self.limits or as_written:
            return fed
        return replace(fed, chosen=self._run_bounds.chosen(numbers), fit=self._run_bounds.fitted)

    # -- inspection ---------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, InputSpec]:
        """The inputs that a run needs, by name, without those that are bound."""
        return {name: spec for name, spec in self._specs.items() if name not in self._arrays}

    @functools.cached_property
    def _specs(self) -> dict[str, InputSpec]:
        return input_specs(self.source, self._domains, self.bounds)

    def _specs_of(self, numbers: Bounds) -> dict[str, InputSpec]:
        """The inputs of a run with these bounds."""
        return self._specs if numbers == self.bounds else input_specs(self.source, self._domains, numbers)

    @property
    def outputs(self) -> dict[str, Result]:
        """The results of a run, by the names of `outputs`, else by the names of the tensors, else by position."""
        names = self.results.names
        if names is None:
            tensor_names = [result.name for result in self.results.each]
            names = tuple(n if n and tensor_names.count(n) == 1 else str(k) for k, n in enumerate(tensor_names))
        return dict(zip(names, self.results.each, strict=True))

    @property
    def message(self) -> str:
        """What was used again: by `with_bounds`, and from the cache on disk (`Config(cache=...)`), with the XLA programs so far.

        Empty if there was nothing to use.
        """
        return "; ".join(filter(None, (self.reuse, self._from_cache())))

    def _from_cache(self) -> str:
        if self._kept.loaded is None:
            return ""
        parts = list(self._kept.loaded)
        total = self.loads + self.compiles
        if total:
            parts.append(f"{self.loads} of {total} XLA programs")
        return f"from the cache: {', '.join(parts) or 'nothing'}"

    @property
    def loads(self) -> int:
        """XLA programs that came from the cache on disk so far, and so were not compiled."""
        return sum(staged.loads for staged in self._all_staged())

    @property
    def compiles(self) -> int:
        """XLA programs compiled so far by the staged executor."""
        return sum(staged.compiles for staged in self._all_staged())

    def _all_staged(self) -> list[StagedProgram]:
        return [*([] if self._staged is None else [self._staged]), *self._opened.values(), *self._donors.values()]

    @property
    def compile_seconds(self) -> float:
        """Seconds so far in Tempo's passes and schedule, and in XLA."""
        return sum(self.timing.values()) + sum(staged.compile_seconds for staged in self._all_staged())

    def __repr__(self) -> str:
        bounds = ", ".join(f"{bound}={self.limits.get(bound, number)}" for bound, number in self.bounds.items())
        fed = ", ".join(self.inputs) or "nothing"
        how = f"{self.plan().compiles} XLA programs" if self._staged is not None else f"interpreted with {self.backend.name}"
        return f"<Program {bounds}: {fed} -> {', '.join(self.outputs) or 'nothing'}; {how}>"

    def _page(self) -> Page:
        plan = self.plan()._page()
        bounds = ", ".join(f"{bound} = {self.limits.get(bound, number)}" for bound, number in self.bounds.items())
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

    @checked
    def explain(self, tensor: str = "") -> str:
        """What was done to each operation of the program, and why: by tensor and line, or for one tensor by its name.

        It says how passes changed the operation or why they left it, in which statement and loops it runs, and what is kept of its
        values for which readers. The passes run again for it. Raises ArgumentError for a name that the program lacks.
        """
        config = self.config
        least = [(bound, limit.at_least) for bound, limit in self.limits.items()]
        numbers = tuple(self.bounds.items())
        ends = bool(self.results.lengths)
        passes = pipeline(config.disable, config.unvectorized_steps, config.tiles, least, ends, numbers, config.checkpoints)
        written = self._context.graph.copy()
        written.nodes = {number: node for number, node in written.nodes.items() if number < self._written}
        written = named(written, self._context)
        text = explanation(self.source, written, passes, self.scheduled, self._staged, self._sources, tensor)
        return text if self.choice is None or tensor else f"{self.choice}\n\n{text}"

    def plan(self) -> Plan:
        """The schedule, the memory of every tensor and its peaks, and the XLA programs that a run compiles.

        `plan.peak_device_bytes`, `plan.table()`, `plan.to_json()` and `plan.draw("memory.svg")` count everything, also temporaries.
        """
        place = "host" if self.backend.name == "numpy" else "device"
        return plan_of(self.graph, self.scheduled, self._staged, self._sources, self._parameters, place)


def _kept(array: Any) -> Any:
    """An array that nobody else writes into: a copy, unless it is read-only or on a device."""
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        return array
    held = array.copy()
    held.flags.writeable = False
    return held


def _examples(graph: Graph) -> dict[str, str]:
    """The steps of a graph, each with the name of a tensor over it."""
    examples = {step.name: "" for step in graph.order}
    for node in graph:
        for step in node.domain.steps:
            if node.name and (not examples[step.name] or isinstance(node.op, Merge)):
                examples[step.name] = node.name
    return examples


def is_interpreted(graph: Graph, config: Config) -> bool:
    """Whether a program is interpreted: by choice, or because shapes vary (`pad` is off), of values or of ranges that are read."""
    if config.interpreted or not all(t.is_static for node in graph for t in node.outputs):
        return True
    if "pad" not in config.disable:
        return False
    return not all(t.is_static for node in graph for t in (*map(graph.edge_type, node.inputs), *_inner_types(node.op)))


def _inner_types(op: Op) -> tuple[TensorType, ...]:
    """The types of all values inside of an island; none of another operation."""
    return op.body.slot_types if isinstance(op, Dataflow) else ()
