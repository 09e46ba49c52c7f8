"""Islands as JAX traces them: passes of the backend rewrite their instructions for the target's compiler, before JAX sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array, Backend, Call, Setting, is_static
from tempo_core.backends.products import with_shares
from tempo_core.backends.scopes import instruction_scope
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, StepValues

NUMBER = TensorType("int32")


class Instruction(NamedTuple):
    """An operation with the slots of its operands and results. It belongs to the instruction of the graph with this `number`."""

    number: int
    op: ops.Op
    sources: tuple[int, ...]
    targets: tuple[int, ...]


class Island:
    """The instructions of an island, which passes rewrite, and the types of all slots.

    `makers` has, by slot, the operation whose first result it is, and the slots of the operands. `tokens` has, for operands that a loop
    updates in place, the slot of the token: a number that the last read of the operand gives (`keep`); None if nothing has read it yet.
    """

    def __init__(self, at: Setting, body: ops.Dataflowed):
        self.at, self.results, self.types = at, list(body.results), list(body.slot_types)
        self.instructions = [Instruction(number, *each) for number, each in enumerate(body.instructions)]
        self.makers = {targets[0]: (op, sources) for op, sources, targets in body.instructions}
        self.tokens: dict[int, int | None] = {}
        self.number = 0  # of the instruction at hand
        self._numbers = replace(at, env={symbol: value for symbol, value in at.env.items() if is_static(value)})
        self.is_in_loop = bool(at.backend.passes) and len(self._numbers.env) < len(at.env)  # as `counter` says

    def shape(self, slot: int) -> tuple[int, ...]:
        return self.at.shape(self.types[slot].shape)

    def size(self, slot: int) -> int:
        """The number of elements of a value."""
        return math.prod(self.shape(slot))

    def value(self, expression: Expr) -> int | None:
        """The number that an expression is at all points; None if there is none."""
        return self._numbers.value(expression) if expression.symbols <= self._numbers.env.keys() else None

    def rewriting(self) -> Iterator[Instruction]:
        """The instructions in their order. A pass adds what takes their place."""
        before, self.instructions = self.instructions, []
        for each in before:
            self.number = each.number
            yield each

    def slot(self, type: TensorType) -> int:
        self.types.append(type)
        return len(self.types) - 1

    def add(self, op: ops.Op, sources: Sequence[int], *types: TensorType, targets: Sequence[int] = ()) -> tuple[int, ...]:
        """An instruction with results in these slots, or in new ones of these types."""
        slots = tuple(targets) or tuple(map(self.slot, types))
        self.instructions.append(Instruction(self.number, op, tuple(sources), slots))
        self.makers[slots[0]] = (op, tuple(sources))
        return slots

    def keep(self, slots: Sequence[int], token: int | None = None) -> tuple[int, ...]:
        """Values in memory, once a token is there, else the counter of a loop around the island."""
        return self.add(Call(keep), (self.counter if token is None else token, *slots), *(self.types[slot] for slot in slots))

    @cached_property
    def counter(self) -> int:
        """The slot of the counter of a loop around the island."""
        step, slot = next(symbol for symbol in self.at.env if symbol not in self._numbers.env), self.slot(NUMBER)
        self.instructions.insert(0, Instruction(0, ops.Eval(step.expr), (), (slot,)))
        return slot


def dataflow(at: Setting, op: ops.Dataflow, *operands: Array) -> tuple[Array, ...]:
    """The operations of an island."""
    return ordered(at, op.body, (), *operands)


def ordered(at: Setting, body: ops.Dataflowed, positions: Sequence[int], *operands: Array) -> tuple[Array, ...]:
    """The operations of an island, among statements that read and update the operands at some `positions`.

    The last operands are the tokens of these, one each: None if nothing has read the operand yet. So are the last results.
    """
    island, count = Island(at, body), len(body.input_types)
    tokens = {position: (island.slot(NUMBER), token) for position, token in zip(positions, operands[count:], strict=True)}
    island.tokens = {position: None if token is None else slot for position, (slot, token) in tokens.items()}
    slots = {**dict(enumerate(operands[:count])), **dict(tokens.values())}
    # Outside of a program, each call would compile the loop of a scan.
    if island.is_in_loop or any(isinstance(each, jax.core.Tracer) for each in operands):
        for rewrite in at.backend.passes:
            rewrite(island)
    types = island.types
    run(at, [each._replace(op=with_shares(each.op, [types[k] for k in each.sources])) for each in island.instructions], slots)
    last = [None if token is None else slots[token] for token in island.tokens.values()]
    return (*(slots[slot] for slot in island.results), *last)


def run(at: Setting, instructions: Sequence[Instruction], slots: dict[int, Any]) -> None:
    """Run instructions on the values in slots, in place."""
    for number, op, sources, targets in instructions:
        with instruction_scope(number):
            results = at.backend.kernel(op, [slots[source] for source in sources], at.env, at.seed)
        slots.update(zip(targets, results, strict=True))


def keep(at: Setting | None, token: Array, *values: Array) -> tuple[Array, ...]:
    """Values in memory, once a token is there: the counter of a loop, or what another call of this function gave for it.

    XLA does not decide a branch on a loop's counter, which is never negative: it computes the values by themselves, and before.
    """
    return lax.cond(token >= 0, lambda *each: each, lambda *each: tuple(map(jnp.zeros_like, each)), *values)


def counter(backend: Backend, env: StepValues) -> Any:
    """A step whose value is not known while the program is compiled; None outside of loops, and where no pass asks for it."""
    return next((value for value in env.values() if not is_static(value)), None) if backend.passes else None
