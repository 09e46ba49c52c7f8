"""Ops that are more than a function of arrays: branching tensors, users' functions, results, fused islands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tempo_core.ir.ops.base import Op, Types
from tempo_core.ir.ops.work import ALIAS, CALL, HELD, MEMORY, TAKEN, Work, each_result, nothing
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.lazy import lazy


def _called(op: Udf, inputs: Types, outputs: Types) -> Expr:
    return op.cost[0] if op.cost else each_result(op, inputs, outputs)


def _of_instructions(op: Dataflow, inputs: Types, outputs: Types) -> Expr:
    types = op.body.slot_types
    parts = (
        each.work.operations(each, tuple(types[s] for s in sources), tuple(types[s] for s in targets))
        for each, sources, targets in op.body.instructions
    )
    return sum(parts, Expr.of(0))


@dataclass(frozen=True)
class Merge(Op):
    """The value of the first operand whose edge condition holds at the point: the node of a branching tensor."""

    work = Work(nothing, ALIAS, HELD)
    type: TensorType

    def infer(self, inputs: Types) -> Types:
        return (self.type,)


@dataclass(frozen=True)
class Udf(Op):
    """A user's function of arrays. `kind` "jax": traceable by JAX; "host": called with NumPy arrays, never inside XLA.

    A `stateful` function is called once per point, in the order of the points, and is never removed, shared or vectorized.
    `fn` takes one array per operand and returns a sequence with one array per entry of `types`; it is compared by identity.
    `cost` is what the user says a call takes: (operations, bytes moved), or nothing.
    """

    work = Work(_called, MEMORY, CALL)
    fn: Callable[..., Any]
    types: tuple[TensorType, ...]
    kind: str = "jax"
    stateful: bool = False
    name: str = "udf"
    where: str = field(default="", compare=False, repr=False)  # the user's line
    number: int = field(default=0, compare=False, repr=False)  # distinguishes calls on one line
    results: tuple[str, ...] = field(default=(), compare=False, repr=False)  # the user's names for several results
    cost: tuple[Expr, ...] = ()

    def infer(self, inputs: Types) -> Types:
        return self.types

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(s.symbols for t in self.types for s in t.shape), *(s.symbols for s in self.cost))


@dataclass(frozen=True)
class Sink(Op):
    """Hands its operands to `fn(*arrays, **point)` on the host; `point` maps step names to numbers. Gives nothing."""

    work = TAKEN
    fn: Callable[..., Any]
    name: str = "sink"

    def infer(self, inputs: Types) -> Types:
        return ()


def uncalled(*values: Any) -> None:
    """The function of a sink that is none."""


@dataclass(frozen=True)
class End(Sink):
    """The end of a step: the points after the first one at which its operand, a bool, holds do not exist.

    `bound` is the step's bound, which the run finds out: `T`, and `T_last + 1` after `passes/shapes/capacity.py`.
    """

    fn: Callable[..., Any] = uncalled
    name: str = "end"
    bound: Expr = field(default_factory=lambda: Expr.of(1))


@dataclass(frozen=True)
class Output(Op):
    """A result of the program: its operand is handed to the caller under position `position`. Gives nothing.

    A `partial` result may read points at which its operand does not exist: it is zero there.
    """

    work = TAKEN
    position: int
    partial: bool = False

    def infer(self, inputs: Types) -> Types:
        return ()


@dataclass(frozen=True, eq=False)
class Dataflowed:
    """The body of a fused island: `instructions` are (op, operand slots, result slots), over numbered slots.

    Slots `0 .. len(input_types) - 1` hold the island's operands; each instruction appends its outputs. `results` names
    the slots that the island gives, `slot_types` the type of every slot. `origins` holds the user's name (or "") and the user's
    line for each result; it may be empty. `lines` holds the name (or "") and the line for each instruction; texts leave them out.
    """

    input_types: tuple[TensorType, ...]
    instructions: tuple[tuple[Op, tuple[int, ...], tuple[int, ...]], ...]
    results: tuple[int, ...]
    slot_types: tuple[TensorType, ...]
    origins: tuple[tuple[str, str], ...] = ()
    lines: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(op: Op, inputs: Types, outputs: Types) -> Dataflowed:
        """The body of an island; another op is an island of one."""
        if isinstance(op, Dataflow):
            return op.body
        targets = tuple(range(len(inputs), len(inputs) + len(outputs)))
        return Dataflowed(inputs, ((op, tuple(range(len(inputs))), targets),), targets, (*inputs, *outputs))

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(self.slot_types[slot] for slot in self.results)


@dataclass(frozen=True)
class Dataflow(Op):
    """A fused island: a small acyclic program of ops with one domain, run as one statement (`passes/keep/fuse.py`)."""

    work = Work(_of_instructions, MEMORY, CALL)
    body: Dataflowed

    def infer(self, inputs: Types) -> Types:
        return self.body.output_types

    @property
    def parts(self) -> tuple[Op, ...]:
        return tuple(part for op, _, _ in self.body.instructions for part in op.parts)

    @lazy
    def updated(self) -> frozenset[int]:
        slots = {sources[k] for op, sources, _ in self.body.instructions for k in op.updated}
        return frozenset(slots & set(range(len(self.body.input_types))))

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(op.symbols for op, _, _ in self.body.instructions))
