"""The compiler, end to end: check, passes, schedule, runtime."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tempo_core.backends.base import Backend, numpy_dtype
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.config import Config
from tempo_core.errors import BoundsError, InputError, TempoError
from tempo_core.frontend.context import Context
from tempo_core.frontend.tensor import Tensor
from tempo_core.ir import text as ir_text
from tempo_core.ir.check import check_program
from tempo_core.ir.draw import draw
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Input, Output
from tempo_core.ir.types import TensorType
from tempo_core.ir.verify import InvalidGraphError, verify
from tempo_core.passes import pipeline
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.runtime.interpreter import Interpreter
from tempo_core.runtime.plan import Plan, plan_of
from tempo_core.runtime.stage import Staged
from tempo_core.schedule import Scheduled, schedule
from tempo_core.symbolic.domain import Domain, full_range
from tempo_core.symbolic.expr import Expr, Symbol

Bounds = dict[Symbol, int]


def compile_context(
    context: Context, bounds: Mapping[Expr, int], outputs: Sequence[Tensor] = (), config: Config | None = None
) -> Program:
    """Compile the program of a context. The stages, in order, are the lines below."""
    config = config or Config()
    timing: dict[str, float] = {}

    def finished(each: Pass, graph: Graph, seconds: float) -> None:
        timing[each.name] = timing.get(each.name, 0.0) + seconds
        verify(graph, after=each.name)

    start = time.perf_counter()
    numbers = checked_bounds(context, bounds)
    source = with_outputs(context, outputs)
    check_program(source, numbers, context.branch_lines)
    timing["check"] = time.perf_counter() - start
    passes = pipeline.pipeline(config.disable, config.unvectorized_steps)
    try:
        graph = pipeline.run(source, passes, finished)
    except InvalidGraphError:
        schedule(source, numbers)  # values that depend on themselves confuse passes: CausalityError says so better
        raise
    start = time.perf_counter()
    scheduled = schedule(graph, numbers, dealloc=_interpreted(graph, config))
    timing["schedule"] = time.perf_counter() - start
    return Program(source, scheduled, [Result.of(t) for t in outputs], config, timing, _input_names(context.graph))


def checked_bounds(context: Context, bounds: Mapping[Expr, int]) -> Bounds:
    """Bounds by symbol: exactly those of the context, each a number of at least 1."""
    known = {str(step.bound): Symbol(str(step.bound)) for step in context.steps}
    found: Bounds = {}
    for key, value in bounds.items():
        symbol = known.get(str(key))
        if symbol is None:
            raise BoundsError(f"{key} is no bound of this context", hint=f"its bounds are {', '.join(known) or 'none'}")
        if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
            raise BoundsError(f"the bound {key} is {value!r}; it must be a number of at least 1")
        found[symbol] = value.__index__()
    missing = [name for name, symbol in known.items() if symbol not in found]
    if missing:
        raise BoundsError(
            f"the bound {missing[0]} is not given", hint=f"ctx.run({{{', '.join(f'{n}: ...' for n in known)}}}, ...)"
        )
    return found


def with_outputs(context: Context, outputs: Sequence[Tensor]) -> Graph:
    """The program's graph with an `Output` for each result, which reads all points of its domain; dead nodes removed."""
    for position, tensor in enumerate(outputs):
        if not isinstance(tensor, Tensor) or tensor.context is not context:
            raise TempoError(f"output {position} is {tensor!r}, not a tensor of this context")
    whole = [tensor.materialized() for tensor in outputs]
    graph = context.graph.copy()
    for position, tensor in enumerate(whole):
        ranges = tuple(full_range(s) for s in tensor.node.domain.steps)
        edge = Edge(tensor.edge.source, ranges, tensor.edge.output)
        graph.add(Output(position), [edge], domain=Domain(), name=tensor.name, where=tensor.node.where)
    return remove_dead(graph)


def _input_names(graph: Graph) -> tuple[str, ...]:
    return tuple(node.op.name for node in graph.inputs() if isinstance(node.op, Input))


def _interpreted(graph: Graph, config: Config) -> bool:
    """Whether the program is interpreted: by choice, or because shapes vary (`pad` is off)."""
    return config.interpreted or not all(t.is_static for node in graph for t in node.outputs)


@dataclass(frozen=True)
class Result:
    """How one output is handed out: its domain's steps lead, then its shape, which may vary from point to point."""

    steps: tuple[Symbol, ...]
    type: TensorType

    @staticmethod
    def of(tensor: Tensor) -> Result:
        return Result(tensor.domain.steps, tensor.type)

    def trimmed(self, value: Any, bounds: Bounds) -> Any:
        """The array, or nested lists of arrays where the shape varies with a step."""
        if self.type.is_static:  # the value may still be padded, where it is one point of what varies
            sizes = tuple(size.evaluate(bounds) for size in (*(s.bound_expr for s in self.steps), *self.type.shape))
            array = np.asarray(value)
            return array if array.shape == sizes else array[tuple(slice(0, n) for n in sizes)]

        def rows(part: Any, steps: tuple[Symbol, ...], at: dict[Symbol, int]) -> Any:
            if steps:
                return [rows(part[k], steps[1:], {**at, steps[0]: k}) for k in range(bounds[Symbol(str(steps[0].bound))])]
            sizes = tuple(size.evaluate({**bounds, **at}) for size in self.type.shape)
            return np.asarray(part)[tuple(slice(0, n) for n in sizes)]

        return rows(value, self.steps, {})


class Program:
    """A compiled program: run it with any inputs, look at what the compiler made of it, or step through it."""

    def __init__(
        self,
        source: Graph,
        scheduled: Scheduled,
        results: list[Result],
        config: Config,
        timing: dict[str, float],
        known_inputs: tuple[str, ...],
    ):
        self.source, self.scheduled, self.graph = source, scheduled, scheduled.graph
        self.known_inputs = known_inputs  # of the context: those that no output needs may be fed, and are ignored
        self.results, self.config, self.timing = results, config, timing
        self.bounds: Bounds = dict(scheduled.bounds)
        self.backend: Backend = NumpyBackend() if config.backend == "numpy" else JaxBackend()
        self._staged = None if _interpreted(self.graph, config) else Staged(scheduled, self.backend)
        if isinstance(config.memory_limit, int):
            self.plan().check_memory(config.memory_limit)

    @property
    def compiles(self) -> int:
        """XLA programs compiled so far by the staged executor."""
        return self._staged.compiles if self._staged is not None else 0

    @property
    def compile_seconds(self) -> float:
        """Seconds in our own passes and schedule, and in XLA, so far."""
        return sum(self.timing.values()) + (self._staged.compile_seconds if self._staged is not None else 0.0)

    def run(self, inputs: Mapping[str, Any] | None = None, seed: int | None = None) -> list[Any]:
        """The outputs, as NumPy arrays whose leading dimensions are the steps of the output's domain, in the context's order.

        Outputs whose shape varies with a step are nested lists of arrays. Raises InputError for inputs that do not fit.
        """
        fed = self._checked_inputs(inputs or {})
        chosen = self.config.seed if seed is None else seed
        if self._staged is not None:
            values = self._staged.run(fed, chosen)
        else:
            values = Interpreter(self.scheduled, self.backend, chosen, check_numerics=self.config.check_numerics).run(fed)
        return [result.trimmed(values[k], self.bounds) for k, result in enumerate(self.results)]

    def step(self, inputs: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Run statement by statement: yields each statement with its point and values (interpreted)."""
        fed = self._checked_inputs(inputs or {})
        return Interpreter(self.scheduled, self.backend, self.config.seed, check_numerics=self.config.check_numerics).steps(fed)

    def _checked_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        declared = {n.op.name: n for n in self.source.inputs() if isinstance(n.op, Input)}
        unknown = [name for name in inputs if name not in self.known_inputs]
        if unknown:
            raise InputError(f"the program has no input `{unknown[0]}`", hint=f"its inputs are {', '.join(declared) or 'none'}")
        found = {}
        for name, node in declared.items():
            type = node.outputs[0]
            shape = tuple(size.evaluate(self.bounds) for size in type.shape)
            if name not in inputs:
                raise InputError(
                    f"the input `{name}` is not given", where=node.where, hint=f"inputs={{{name!r}: array of shape {shape}}}"
                )
            value = inputs[name]
            array = value if isinstance(value, jax.Array) else np.asarray(value)  # what is on the device stays there
            if tuple(array.shape) != shape:
                raise InputError(
                    f"the input `{name}` has shape {tuple(array.shape)}; declared is {type}, which is {shape} here",
                    where=node.where,
                )
            wanted = numpy_dtype(type.dtype)
            if array.dtype != wanted:
                if not (np.can_cast(array.dtype, wanted, "same_kind") or (array.dtype.kind in "iub" and wanted.kind in "iuf")):
                    raise InputError(f"the input `{name}` has dtype {array.dtype}; declared is {type.dtype}", where=node.where)
                array = array.astype(wanted)
            found[name] = array
        return found

    def text(self, kind: str = "program") -> str:
        """What the compiler made: "sdg" (the final graph), "schedule", "program", "memory" or "plan"."""
        makers = {
            "sdg": lambda: ir_text.to_text(self.graph, full_constants=False),
            "schedule": self.scheduled.schedule.text,
            "program": self.scheduled.text,
            "memory": lambda: self.plan().text().partition("storage\n")[2],
            "plan": lambda: self.plan().text(),
        }
        if kind not in makers:
            raise TempoError(f"no text {kind!r}", hint=f"one of {', '.join(makers)}")
        return makers[kind]()

    def draw(self, path: str | Path) -> None:
        """Write the final graph as .svg or Graphviz .dot."""
        draw(self.graph, path)

    def plan(self) -> Plan:
        """The schedule, the storage of every tensor, and the XLA programs that a run compiles."""
        return plan_of(self.graph, self.scheduled, self._staged)
