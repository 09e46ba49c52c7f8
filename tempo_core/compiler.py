"""The compiler, end to end: check, passes, schedule, runtime."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tempo_core.backends.base import Backend
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.config import Config
from tempo_core.errors import ArgumentError, BoundsError, CausalityError, ConfigError, ContextError, user_location
from tempo_core.frontend.context import BaseContext
from tempo_core.frontend.tensor import Tensor
from tempo_core.frontend.variables import named, remember
from tempo_core.ir.check import check_program
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Identity, Output
from tempo_core.ir.verify import InvalidGraphError, verify
from tempo_core.passes import pipeline
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.program import Program, Result, Results, is_interpreted
from tempo_core.schedule import schedule
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, full_range, identity
from tempo_core.symbolic.expr import Bounds, Expr

_LARGEST_BOUND = 2**31 - 1


Outputs = Tensor | Mapping[str, Tensor] | Iterable[Tensor]
LOG = logging.getLogger("tempo")


def compile_context(
    context: BaseContext, bounds: Mapping[Expr, int], outputs: Outputs = (), config: Config | None = None
) -> Program[Any]:
    """Compile the program of a context. The stages, in order, are the lines below."""
    config = checked_config(config)
    timing: dict[str, float] = {}

    def finished(each: Pass, graph: Graph, seconds: float) -> None:
        timing[each.name] = timing.get(each.name, 0.0) + seconds
        verify(graph, after=each.name)

    start = time.perf_counter()
    numbers = checked_bounds(context, bounds)
    results, tensors = results_of(outputs)
    source = with_outputs(context, tensors)
    check_program(source, numbers, context.branch_lines)
    remember(context)
    source = named(source, context)
    timing["check"] = time.perf_counter() - start
    passes = pipeline.pipeline(config.disable, config.unvectorized_steps, checked_tiles(context, config))
    try:
        graph = pipeline.run(source, passes, finished)
    except InvalidGraphError:
        schedule(source, numbers)  # values that depend on themselves confuse passes: CausalityError says so better
        raise
    backend: Backend = NumpyBackend() if config.backend == "numpy" else JaxBackend()

    def for_bounds(numbers: Bounds, timing: dict[str, float]) -> Program[Any]:
        """What depends on the bounds: the schedule, and what is run. Nothing above but the check does."""
        start = time.perf_counter()
        try:
            scheduled = schedule(graph, graph.all_bounds(numbers), dealloc=is_interpreted(graph, config))
        except CausalityError:
            schedule(source, numbers)  # whose cycle is of the statements that the user wrote
            raise
        timing["schedule"] = time.perf_counter() - start
        return Program(source, scheduled, results, config, timing, context, backend, rebound)

    def rebound(program: Program[Any], bounds: Mapping[Expr, int]) -> Program[Any]:
        start = time.perf_counter()
        numbers = {**program.bounds, **checked_bounds(context, bounds, complete=False)}
        if numbers == program.bounds:
            return program
        check_program(source, numbers, context.branch_lines)
        other = for_bounds(numbers, {"check": time.perf_counter() - start})
        other.message = other.compared_to(program)
        LOG.info(other.message)
        return other

    return for_bounds(numbers, timing)


def checked_bounds(context: BaseContext, bounds: Mapping[Expr, int], complete: bool = True) -> Bounds:
    """Bounds by symbol: exactly those of the context (or some, unless `complete`), each a number of at least 1."""
    known = {step.bound_symbol.name: step.bound_symbol for step in context.steps}
    found: Bounds = {}
    usage = f"ctx.run({{{', '.join(f'{n}: ...' for n in known)}}}, ...)"
    if not isinstance(bounds, Mapping):
        raise BoundsError(f"the bounds are {bounds!r}, not a dict from bounds to numbers", hint=usage)
    for key, value in bounds.items():
        symbol = known.get(str(key))
        if symbol is None:
            raise BoundsError(f"{key} is no bound of this context", hint=f"its bounds are {', '.join(known) or 'none'}")
        if isinstance(value, (bool, Expr)) or not hasattr(value, "__index__") or not 1 <= value.__index__() <= _LARGEST_BOUND:
            raise BoundsError(
                f"the bound {key} is {value!r}; it must be an int of at least 1",
                hint=f"from 1 to {_LARGEST_BOUND}, as steps are int32 numbers; for no timesteps at all there is nothing to run",
            )
        found[symbol] = value.__index__()
    missing = [name for name, symbol in known.items() if symbol not in found]
    if missing and complete:
        raise BoundsError(f"the bound {missing[0]} is not given", hint=usage)
    return found


def checked_config(config: Config | None) -> Config:
    """The options of a compilation; the usual ones where none are given."""
    if config is None:
        return Config()
    if not isinstance(config, Config):
        raise ConfigError(f"the config is {config!r}", hint='config=tp.Config(backend="numpy")')
    return config


def checked_tiles(context: BaseContext, config: Config) -> tuple[tuple[str, int], ...]:
    """The sizes of tiles by step; ConfigError where the config names a step that the context lacks."""
    names = [step.name for step in context.steps]
    for step in config.unvectorized_steps:
        if step not in names:
            raise ConfigError(
                f"disable names the step {step!r} in 'vectorize({step})'",
                hint=f"the context has the steps {', '.join(names) or 'none'}",
            )
    for step, _ in config.tiles:
        if step not in names:
            raise ConfigError(f"tile names the step {step!r}", hint=f"the context has the steps {', '.join(names) or 'none'}")
    return config.tiles


def results_of(outputs: Outputs) -> tuple[Results, list[Tensor]]:
    """How results are handed out, in the form of `outputs`: one tensor, tensors by name, or tensors in order."""
    names, single = None, isinstance(outputs, Tensor)
    if isinstance(outputs, Tensor):
        tensors = [outputs]
    elif isinstance(outputs, Mapping):
        names, tensors = tuple(map(str, outputs)), list(outputs.values())
    elif isinstance(outputs, Iterable):
        tensors = list(outputs)
    else:
        raise ArgumentError(f"outputs are {outputs!r}", hint="outputs=[h, loss], outputs={'h': h}, or one tensor: outputs=h")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            called = f"`{names[position]}`" if names is not None else str(position)
            raise ArgumentError(
                f"output {called} is {tensor!r}, not a tensor of this context",
                hint="outputs=[h, loss]; numbers are tp.constant(3.0)",
            )
    return Results(tuple(map(Result.of, tensors)), names, single), tensors


def with_outputs(context: BaseContext, outputs: Sequence[Tensor]) -> Graph:
    """The program's graph with an `Output` for each result, which reads all points of its domain; dead nodes removed."""
    for position, tensor in enumerate(outputs):
        if tensor.context is not context:
            raise ContextError(
                f"output {position} is {tensor!r}, not a tensor of this context",
                hint="run it with the context that it was made in",
            )
    graph = context.graph.copy()
    whole = [_at_its_points(graph, tensor) for tensor in outputs]
    for position, (tensor, edge) in enumerate(zip(outputs, whole, strict=True)):
        source = graph[edge.source]
        read = replace(edge, index=tuple(full_range(s) for s in source.domain.steps))
        op = Output(position, partial=tensor.user_condition is not TRUE)
        graph.add(op, [read], domain=Domain(), name=source.name, where=source.where)
    kept = remove_dead(graph)
    kept.branch_lines = context.branch_lines
    return kept


def _at_its_points(graph: Graph, tensor: Tensor) -> Edge:
    """The tensor read at the points of its own domain: a copy where it is a view of another."""
    if tensor.edge.is_own_point(tensor.node.domain) and tensor.user_condition is TRUE:
        return tensor.edge
    copy = graph.add(Identity(), [tensor.edge], domain=tensor.domain, where=user_location())
    return Edge(copy.id, identity(copy.domain))


# -- programs that were compiled before -------------------------------------------------------------------------------

KEPT = 8  # programs that a context keeps for `run`


def recalled(
    context: BaseContext, bounds: Mapping[Expr, int], outputs: Outputs = (), config: Config | None = None
) -> Program[Any]:
    """`compile_context`, or a program that it made before: where graph, outputs and config are the same, and the bounds too,
    it is used again; with other bounds, what does not depend on them is.
    """
    config = checked_config(config)
    results, tensors = results_of(outputs)
    numbers = checked_bounds(context, bounds)
    key = (results, _asked(context, tensors), replace(config, seed=0))
    known = [program for other, program in context.programs if other == key]
    same = [program for program in known if program.bounds == numbers]
    if same:
        found = same[-1]
    elif known:
        found = known[-1].with_bounds(bounds)
    else:
        found = compile_context(context, bounds, outputs, config)
    kept = [(other, program) for other, program in context.programs if program is not found]
    context.programs[:] = [*kept, (key, found)][-KEPT:]
    return found


def _asked(context: BaseContext, tensors: Sequence[Tensor]) -> tuple[Node, ...]:
    """All that a program is made of, equal for equal programs: its graph, with what outputs add to it under numbers of its own."""
    first = context.graph.next_id
    numbers: dict[int, int] = {}

    def own(node_id: int) -> int:
        return numbers.setdefault(node_id, -1 - len(numbers)) if node_id >= first else node_id

    def renumbered(node: Node) -> Node:
        inputs = tuple(replace(edge, source=own(edge.source)) for edge in node.inputs)
        return replace(node, id=own(node.id), inputs=inputs, where="")

    return tuple(renumbered(node) if node.id >= first else node for node in with_outputs(context, tensors))
