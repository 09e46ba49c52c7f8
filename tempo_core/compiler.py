"""The compiler, end to end: check, passes, schedule, runtime."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from tempo_core import errors
from tempo_core.backends.base import Backend
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.collector import without_collector
from tempo_core.config import Config
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.tensor import Bounds as UserBounds
from tempo_core.frontend.tensor import Tensor
from tempo_core.frontend.variables import named, remember
from tempo_core.ir.check import check_program
from tempo_core.ir.dependence import deciding
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Eval, Identity, Input, Output
from tempo_core.ir.verify import InvalidGraphError
from tempo_core.passes import pipeline
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.passes.keep.fed import fed_in_parts
from tempo_core.planner import Form, Planner, may_gain_by_a_loop
from tempo_core.program import Program, is_interpreted
from tempo_core.runtime.results import Result, Results
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.schedule import Scheduled, schedule
from tempo_core.store.cache import Decision, Kept, opened
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, full_range, identity, is_own_point
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.limits import UpTo

_LARGEST_BOUND = 2**31 - 1

Outputs = Tensor | Mapping[str, Tensor] | Iterable[Tensor]
LOG = logging.getLogger("tempo")


@without_collector
def compile_context(
    context: BaseContext, bounds: UserBounds, outputs: Outputs = (), config: Config | None = None
) -> Program[Any]:
    """Compile the program of a context: check it, then decide, schedule and stage it for these bounds."""
    config = checked_config(config)
    start = time.perf_counter()
    numbers, limits = checked_bounds(context, bounds)
    results, tensors = results_of(outputs)
    source = with_outputs(context, tensors)
    ends = source.ends()
    check_ends(source, config, ends)
    limits |= _limits_of_ends(numbers, limits, ends)
    check_inner(source, limits)
    results = replace(
        results, lengths=_with_lengths(source, {b: end for b, end in ends.items() if b not in source.outer()}, len(results.each))
    )
    check_limits(source, context, numbers, limits)
    remember(context)
    source = named(source, context)
    timing = {"check": time.perf_counter() - start}
    return _Compilation(context, config, source, results, limits, timing).program(numbers, limits, timing)


class _Compilation:
    """A checked program, and what its compilations for several bounds share: the cache, and the graphs after the passes."""

    def __init__(
        self,
        context: BaseContext,
        config: Config,
        source: Graph,
        results: Results,
        limits: dict[Symbol, UpTo],
        timing: dict[str, float],
    ):
        """`limits` are the bounds that runs choose. The seconds of all passes are added to `timing`."""
        if not source.ends():
            source = fed_in_parts(source, context.inputs, config.parts)
        self.context, self.config, self.source, self.results = context, config, source, results
        self.limits, self.timing, self.ends = limits, timing, source.ends()
        self.least = [(symbol, limit.at_least) for symbol, limit in limits.items()]
        self.tiles = checked_tiles(context, config)
        self.cache = opened(config, source, self.least)
        self.decisions: list[Decision] = []
        self.backend: Backend = NumpyBackend() if config.backend == "numpy" else JaxBackend()
        self.forms: dict[Form, _Compilation] = {}  # those that were tried

    def program(self, numbers: Bounds, limits: Mapping[Symbol, UpTo], timing: dict[str, float]) -> Program[Any]:
        """The program for some bounds, in the fastest form; under a limit of memory, in the fastest that fits."""
        limit = self.config.memory_limit
        if not isinstance(limit, int):
            program = self._program(numbers, limits, timing, self._rebound)
            if limits or not may_gain_by_a_loop(program.scheduled, self.config):
                return program

        def make(form: Form) -> Program[Any]:
            if form not in self.forms:
                config = form.of(self.config)
                self.forms[form] = _Compilation(self.context, config, self.source, self.results, self.limits, self.timing)
            return self.forms[form]._program(numbers, limits, timing, self._rebound)

        points = {step.name: numbers[step.bound_symbol] for step in self.context.steps}
        fed = {step.name for steps in self.context.inputs.values() for step in steps}
        if isinstance(limit, int):
            program, program.choice = Planner(make, points, fed, self.config, limit).choose()
        else:
            program, program.choice = Planner(make, points, fed, self.config).faster(program)
        return program

    def _program(
        self, numbers: Bounds, limits: Mapping[Symbol, UpTo], timing: dict[str, float], rebound: Callable[..., Program[Any]]
    ) -> Program[Any]:
        """The stages that depend on the bounds: a few decisions of passes, the schedule, and the program that runs."""
        decision = self._decided(numbers)
        graph: Graph = decision.value
        start = time.perf_counter()
        capacities = {step.bound_symbol: numbers[bound] for bound, step in zip(limits, graph.chosen, strict=True)}
        every = graph.all_bounds({**{b: n for b, n in numbers.items() if b not in limits}, **capacities})
        least = {
            step.bound_symbol: limit.at_least
            for (bound, limit), step in zip(limits.items(), graph.chosen, strict=True)
            if bound not in self.ends
        }

        def scheduled() -> Scheduled:
            try:
                return schedule(graph, every, is_interpreted(graph, self.config), least)
            except errors.CausalityError:
                for each in _extremes(numbers, limits):
                    schedule(self.source, each)  # raises with a cycle of statements that the user wrote
                raise

        kept = Kept(scheduled()) if self.cache is None else self.cache.schedule(decision, every, least, scheduled)
        timing["schedule"] = time.perf_counter() - start
        check = functools.partial(check_program, self.source, branch_lines=self.context.branch_lines)
        run_bounds = RunBounds(self.source, graph, numbers, limits, check)

        def within(narrower: Mapping[Symbol, UpTo]) -> Program[Any]:
            return self._program(
                {**numbers, **{bound: limit.capacity for bound, limit in narrower.items()}}, narrower, {}, rebound
            )

        rebinding = rebound, within
        return Program(self.source, kept, self.results, self.config, timing, self.context, self.backend, rebinding, run_bounds)

    def _decided(self, numbers: Bounds) -> Decision:
        """The graph after the passes: one that is there, unless they decided by other bounds."""
        for decision in self.decisions:
            if decision.value.is_for(numbers):
                return decision
        make = functools.partial(self._transformed, numbers)
        self.decisions.append(Decision(make()) if self.cache is None else self.cache.graph(numbers, make))
        return self.decisions[-1]

    def _transformed(self, numbers: Bounds) -> Graph:
        unvectorized = pipeline.unvectorized(self.source, self.config.unvectorized_steps)
        config, options = self.config, (self.config.disable, unvectorized, self.tiles, self.least)
        last = config.checkpoints, config.check_numerics, config.on
        passes = pipeline.pipeline(*options, bool(self.ends), tuple(numbers.items()), *last)
        try:
            return pipeline.run_verified(self.source, passes, self._count_seconds)
        except InvalidGraphError:
            # Values that depend on themselves confuse passes: a CausalityError explains this better.
            schedule(self.source, numbers)
            raise

    def _count_seconds(self, each: Pass, graph: Graph, seconds: float) -> None:
        self.timing[each.name] = self.timing.get(each.name, 0.0) + seconds

    @without_collector
    def _rebound(self, program: Program[Any], bounds: UserBounds) -> Program[Any]:
        """The program for other bounds. Bounds that `bounds` does not mention are those of `program`."""
        start = time.perf_counter()
        others, limits = checked_bounds(self.context, bounds, complete=False)
        limits |= _limits_of_ends(others, limits, self.ends)
        numbers, limits_of_all = {**program.bounds, **others}, {**self.limits, **limits}
        for symbol in others:
            self._check_kind(symbol, limits.get(symbol))
        if numbers == program.bounds and limits_of_all == program.limits:
            return program
        check_limits(self.source, self.context, numbers, limits_of_all)
        other = self.program(numbers, limits_of_all, {"check": time.perf_counter() - start})
        other.reuse = other.compared_to(program)
        LOG.info(other.message)
        return other

    def _check_kind(self, symbol: Symbol, limit: UpTo | None) -> None:
        """Raise BoundsError unless a bound is of the kind that was compiled: a number, or up to a capacity from the same least."""
        compiled = self.limits.get(symbol)
        if (limit is None) != (compiled is None) or (limit and compiled and limit.at_least < compiled.at_least):
            how = "for one number" if compiled is None else f"up to a capacity: tp.{compiled}"
            raise errors.BoundsError(
                f"the program was compiled for the bound {symbol} {how}",
                hint=f"compile it again for these bounds: ctx.compile({{{symbol}: ...}}, ...)",
            )


def _limits_of_ends(numbers: Bounds, limits: Mapping[Symbol, UpTo], ends: Mapping[Symbol, Node]) -> dict[Symbol, UpTo]:
    """The limits of the steps that end early: up to the number that the user gave as their bound, unless that is a limit itself."""
    return {bound: UpTo(numbers[bound]) for bound in numbers if bound in ends and bound not in limits}


def check_ends(source: Graph, config: Config, ends: Mapping[Symbol, Node]) -> None:
    """Raise CausalityError for an end that depends on itself, and ConfigError for options that need to know it before the run."""
    for bound, node in ends.items():
        step, nodes = node.domain.steps[-1], [source[number] for number in deciding(source, node)]
        inside = (steps[: steps.index(step)] for each in nodes if step in (steps := each.domain.steps))
        around = min(filter(None, inside), key=len, default=()) if len(node.domain.steps) == 1 else ()
        own = f"to end {step} elsewhere for each {around[-1]}: ctx.ends({step}, when=..., each={around[-1]})" if around else ""
        for each in nodes:
            if not isinstance(each.op, Input) and bound in each.symbols:
                raise errors.CausalityError(
                    f"{node.name} depends on where it ends: {each.label} uses {bound}",
                    where=each.where or node.where,
                    hint=own or "read the same point or earlier points only: x[t], x[0:t + 1]",
                )
        if config.check_numerics:
            raise errors.ConfigError(
                "check_numerics=True does not work with ctx.ends, where a run finds out its own end",
                where=node.where,
                hint="leave check_numerics out: ctx.compile(bounds, outputs=[x])",
            )


def check_inner(source: Graph, limits: Mapping[Symbol, UpTo]) -> None:
    """Raise an error for what an inner end leaves open: reads that may reach past it, or read a value of the inner step alone up to it,
    and results whose size it is.
    """
    for bound, outer in source.outer().items():
        step = source.ends()[bound].domain.steps[-1]
        if limits[bound].at_least > 1:
            raise errors.BoundsError(
                f"{bound} varies with {outer[0]}, and may be 1: it has no least number",
                where=source.ends()[bound].where,
                hint=f"leave at_least out: {{{bound}: tp.upto({limits[bound].capacity})}}",
            )
        for node in source:
            for edge in node.inputs:
                of, indices = source[edge.source], edge.by_step(source[edge.source].domain)
                sizes = frozenset().union(*(size.symbols for size in source.edge_type(edge).shape))
                if isinstance(node.op, Output) and (bound in sizes or step in node.domain):
                    raise errors.ShapeError(
                        f"the result {of.label} has {step} in its domain or shape, which ends at another place for each {outer[0]}",
                        where=of.where,
                        hint=f"read its last point, x[{outer[0]}, {bound} - 1], or reduce it: x[{outer[0]}, 0:{bound}].sum(0)",
                    )
                if bound in frozenset().union(*(i.symbols for i in edge.index)) and not set(outer) <= set(of.domain.steps):
                    raise errors.IndexingError(
                        f"{node.label} reads {of.label} up to {bound}, which varies with {outer[0]}; {of.label} has no step {outer[0]}",
                        where=node.where or of.where,
                        hint=f"read it point by point in a tensor that has the steps {', '.join(map(str, (*outer, step)))}, and that one up to {bound}",
                    )
                is_whole = set(outer) <= set(indices) and (step in indices or bound in sizes)
                at = indices.get(step)
                is_fixed = isinstance(at, Point) and at.expr.is_constant and bound not in sizes
                if is_whole and not is_fixed and not all(is_own_point(indices[s], s) for s in outer):
                    raise errors.OutOfDomainError(
                        f"{node.label} reads {of.label} at {', '.join(map(str, edge.index))}: there, {step} may have ended before",
                        where=node.where or of.where,
                        hint=f"read the last point there is: x[{outer[0]} - 1, {bound} - 1]",
                    )


def _with_lengths(graph: Graph, ends: Mapping[Symbol, Node], position: int) -> dict[Symbol, int]:
    """Add results from `position` on that give the bounds that the run finds out. Returns their positions."""
    positions = {}
    for number, (bound, end) in enumerate(ends.items()):
        value = graph.add(Eval(bound.expr), (), domain=Domain(), where=end.where)
        graph.add(Output(position + number), [Edge(value.id)], domain=Domain(), name=f"the true {bound}", where=end.where)
        positions[bound] = position + number
    return positions


def check_limits(source: Graph, context: BaseContext, numbers: Bounds, limits: Mapping[Symbol, UpTo]) -> None:
    """Check a program for its bounds; of those that a run chooses, for the least and the greatest. A run checks its own."""
    for each in _extremes(numbers, limits):
        try:
            check_program(source, each, context.branch_lines)
        except errors.TempoError as error:
            if each != numbers:
                least = ", ".join(f"{bound} = {each[bound]}" for bound in limits)
                advice = f"if no run chooses {least}, say so: tp.upto(capacity, at_least=...)"
                error.hint = advice if error.hint is None else f"{error.hint}; or, {advice}"
            raise


def _extremes(numbers: Bounds, limits: Mapping[Symbol, UpTo]) -> list[Bounds]:
    """The greatest bounds of a run, and the least."""
    return [numbers, {**numbers, **{bound: limit.at_least for bound, limit in limits.items()}}] if limits else [numbers]


def checked_bounds(context: BaseContext, bounds: UserBounds, complete: bool = True) -> tuple[Bounds, dict[Symbol, UpTo]]:
    """Bounds by symbol, each a number of at least 1: all those of the context, or some of them if `complete` is false.

    A bound that a run chooses has its capacity, and its limits in the second dict.
    """
    symbols = {step.bound_symbol.name: step.bound_symbol for step in context.steps}
    numbers: Bounds = {}
    limits: dict[Symbol, UpTo] = {}
    usage = f"give each bound a number: ctx.run({{{', '.join(f'{n}: ...' for n in symbols)}}}, ...)"
    if not isinstance(bounds, Mapping):
        raise errors.BoundsError(f"the bounds are {bounds!r}; they must be a dict from bounds to numbers", hint=usage)
    for key, value in bounds.items():
        symbol = symbols.get(str(key))
        if symbol is None:
            raise errors.BoundsError(
                f"{key} is not a bound of this context", hint=f"the bounds of this context are {', '.join(symbols) or 'none'}"
            )
        if isinstance(value, UpTo):
            limits[symbol], numbers[symbol] = value, value.capacity
            continue
        if isinstance(value, (bool, Expr)) or not hasattr(value, "__index__") or not 1 <= value.__index__() <= _LARGEST_BOUND:
            raise errors.BoundsError(
                f"the bound {key} is {value!r}; it must be an int from 1 to {_LARGEST_BOUND}",
                hint=f"give the number of points of the step: {{{key}: 100}}",
            )
        numbers[symbol] = value.__index__()
    missing = [name for name, symbol in symbols.items() if symbol not in numbers]
    if missing and complete:
        raise errors.BoundsError(f"the bound {missing[0]} is missing", hint=usage)
    return numbers, limits


def checked_config(config: Config | None) -> Config:
    """The options of a compilation. The default is `Config()`."""
    if config is None:
        return Config()
    if not isinstance(config, Config):
        raise errors.ConfigError(f"the config is {config!r}, not a tp.Config", hint='config=tp.Config(backend="numpy")')
    return config


def checked_tiles(context: BaseContext, config: Config) -> tuple[tuple[str, int], ...]:
    """The sizes of tiles by step. Raises ConfigError if the config names a step that the context lacks."""
    names = [step.name for step in context.steps]
    options = [(f"disable='vectorize({step})'", step) for step in config.unvectorized_steps]
    sizes = {"checkpoint": config.checkpoints, "tile": config.tiles, "host": tuple(config.parts.items())}
    for option, step in (*((name, step) for name, pairs in sizes.items() for step, _ in pairs), *options):
        if step not in names:
            raise errors.ConfigError(
                f"{option} names the step {step!r}, but this context has no such step",
                hint=f"the steps of this context are {', '.join(names) or 'none'}",
            )
    return config.tiles


def results_of(outputs: Outputs) -> tuple[Results, list[Tensor]]:
    """The form of the results, which is that of `outputs`: one tensor, tensors by name, or tensors in order. And the tensors."""
    names, single = None, isinstance(outputs, Tensor)
    if isinstance(outputs, Tensor):
        tensors = [outputs]
    elif isinstance(outputs, Mapping):
        for name in outputs:
            if not isinstance(name, str):
                raise errors.ArgumentError(f"the name of an output is {name!r}, not a string", hint="outputs={'h': h}")
        names, tensors = tuple(outputs), list(outputs.values())
    elif isinstance(outputs, Iterable) and not isinstance(outputs, (Expr, Set)):  # a set has no order
        tensors = list(outputs)
    else:
        raise errors.ArgumentError(
            f"outputs are {outputs!r}, not tensors", hint="list the tensors: outputs=[h, loss]. Or name them: outputs={'h': h}"
        )
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            label = f"`{names[position]}`" if names is not None else str(position)
            raise errors.ArgumentError(
                f"output {label} is {tensor!r}, not a tensor of this context",
                hint="list tensors: outputs=[h, loss]. To make a tensor of a number: tp.constant(3.0)",
            )
    return Results(tuple(map(result_of, tensors)), names, single), tensors


def result_of(tensor: Tensor) -> Result:
    """The form of one output."""
    condition = TRUE if tensor.user_condition is TRUE else tensor.domain.condition
    return Result(tensor.domain.steps, tensor.type, tensor.name, condition)


def with_outputs(context: BaseContext, outputs: Sequence[Tensor]) -> Graph:
    """The program's graph, with an `Output` for each result, which reads all points of its domain, and without dead nodes."""
    for position, tensor in enumerate(outputs):
        if tensor.context is not context:
            raise errors.ContextError(
                f"output {position} is {tensor!r}, not a tensor of this context", hint="run it with its own context: ctx.run(...)"
            )
    graph = context.graph.copy()
    whole = [_at_its_points(graph, tensor) for tensor in outputs]
    for position, (tensor, edge) in enumerate(zip(outputs, whole, strict=True)):
        source = graph[edge.source]
        read = replace(edge, index=tuple(full_range(s) for s in source.domain.steps))
        op = Output(position, partial=tensor.user_condition is not TRUE)
        graph.add(op, [read], domain=Domain(), name=source.name, where=source.where)
    live = remove_dead(graph)
    live.branch_lines = context.branch_lines
    return live


def _at_its_points(graph: Graph, tensor: Tensor) -> Edge:
    """A read of the tensor at the points of its own domain. If the tensor is a view of another, the read is of a copy."""
    if tensor.edge.is_own_point(tensor.node.domain) and tensor.user_condition is TRUE:
        return tensor.edge
    copy = graph.add(Identity(), [tensor.edge], domain=tensor.domain, where=tensor.read_at or errors.user_location())
    return Edge(copy.id, identity(copy.domain))


# -- programs that were compiled before -------------------------------------------------------------------------------

KEPT = 8  # the number of programs that a context keeps for `run`


class Recent:
    """The programs that `run` compiled for a context, and its latest calls. The most recently used is last."""

    def __init__(self) -> None:
        self.programs: list[tuple[object, Program[Any]]] = []
        self.calls: list[tuple[object, list[Tensor], Program[Any]]] = []  # with its tensors: no others get their identities

    def program(
        self, context: BaseContext, bounds: UserBounds, outputs: Outputs = (), config: Config | None = None
    ) -> Program[Any]:
        """A compiled program, as of `compile_context`, or an earlier program of the context that can be used again.

        If graph, outputs, config and bounds are the same, the earlier program itself is used again. If only the bounds differ, the
        parts that do not depend on them are.
        """
        numbers, limits = checked_bounds(context, bounds)
        results, tensors = results_of(outputs)
        # Equal calls, made while the graph has so many changes, run one program.
        form = results.names, results.is_single, tuple(map(id, tensors))
        call = (context.graph.changes, numbers, limits, form, config)
        for earlier_call, _, program in self.calls:
            if earlier_call == call:
                return program
        config = checked_config(config)
        least = {b: limit.at_least for b, limit in limits.items()}
        key = (results, _program_key(context, tensors), replace(config, seed=0), least)
        candidates = [program for other, program in self.programs if other == key]
        same = [program for program in candidates if program.bounds == numbers and program.limits == limits]
        if same:
            program = same[-1]
        elif candidates:
            program = candidates[-1].with_bounds(bounds)
        else:
            program = compile_context(context, bounds, results.together(dict(enumerate(tensors))), config)
        kept = [(other, earlier) for other, earlier in self.programs if earlier is not program]
        self.programs = [*kept, (key, program)][-KEPT:]
        calls = [each for each in self.calls if any(each[-1] is kept for _, kept in self.programs)]
        self.calls = [*calls, (call, tensors, program)][-KEPT:]
        return program


def _program_key(context: BaseContext, tensors: Sequence[Tensor]) -> tuple[Node, ...]:
    """The nodes of a program, equal for equal programs. Nodes that outputs add have ids that do not depend on the context."""
    first = context.graph.next_id
    numbers: dict[int, int] = {}

    def new_id(node_id: int) -> int:
        return numbers.setdefault(node_id, -1 - len(numbers)) if node_id >= first else node_id

    def renumbered(node: Node) -> Node:
        inputs = tuple(replace(edge, source=new_id(edge.source)) for edge in node.inputs)
        return replace(node, id=new_id(node.id), inputs=inputs, where="")

    return tuple(renumbered(node) if node.id >= first else node for node in with_outputs(context, tensors))
