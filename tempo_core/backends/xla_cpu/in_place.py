"""Updates in place: what reads a value comes before the update that takes the value's place.

XLA's CPU compiler computes a read of a few elements again in each operation that uses them. If such an operation may run after the update, it
copies the whole value, in each iteration. Here such reads are in memory once (`Apart.put`), each with a number that only this read gives: that
an update waits for these numbers, XLA does not see through.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array, Parts
from tempo_core.backends.xla_cpu.apart import counter
from tempo_core.ir import ops
from tempo_core.prices import LARGEST_READ_OF_AN_UPDATE
from tempo_core.symbolic.expr import StepValues

Token = Any  # the counter of a loop, once a read is done


class Reads:
    """The reads of one value in an iteration of a loop, of which `counter` says the number."""

    def __init__(self, count: Array):
        self.count = count
        self.tokens: list[Token] = []

    def of(self, x: Array, results: Sequence[Array]) -> list[Array]:
        """Results of an operation that reads `x`, in memory. Those that are nearly as large as it are left where they are."""
        return [self._read(each) if _size(each) <= LARGEST_READ_OF_AN_UPDATE * _size(x) else each for each in results]

    def _read(self, result: Array) -> Array:
        value, token = lax.cond(
            self.count >= 0, lambda *both: both, lambda *both: tuple(map(jnp.zeros_like, both)), result, self.count
        )
        self.tokens.append(token)
        return value

    def before(self, operands: Sequence[Array]) -> list[Array]:
        """Operands of an update, once all reads are done."""
        if not self.tokens:
            return list(operands)
        done = self.count
        for token in self.tokens:
            done = jnp.minimum(done, token)
        return list(lax.cond(done >= 0, lambda *each: each, lambda *each: tuple(map(jnp.zeros_like, each)), *operands))


_EARLIER: ContextVar[Mapping[int, Reads] | None] = ContextVar("reads by statements before", default=None)


@contextmanager
def after(reads: Mapping[int, Reads]) -> Iterator[None]:
    """Inside, a statement is traced that updates operands, by position, which other statements of the iteration read before."""
    token = _EARLIER.set(reads)
    try:
        yield
    finally:
        _EARLIER.reset(token)


class Updates:
    """The updates of an island, and the reads of what they update, by the slot of the value."""

    def __init__(self, body: ops.Dataflowed, env: StepValues):
        self._to_move, earlier = _to_move(body), _EARLIER.get() or {}
        self._reads = {slot: each for slot in self._to_move if (each := earlier.get(slot) or reads(env)) is not None}

    def results(self, number: int, slots: Sequence[Any], results: tuple[Array, ...]) -> tuple[Array, ...]:
        """The results of an instruction, where they read what is updated later."""
        for slot, each in self._reads.items():
            if number in self._to_move[slot]:
                results = tuple(each.of(slots[slot], results))
        return results

    def operands(self, slot: int, values: list[Array]) -> list[Array]:
        """The operands of an update, after the reads of the value in `slot`."""
        each = self._reads.get(slot)
        return values if each is None else [values[0], *each.before(values[1:])]


@functools.lru_cache(maxsize=1024)
def _to_move(body: ops.Dataflowed) -> dict[int, set[int]]:
    """For each slot that an update takes: the instructions that read it for more than the update."""
    makers = {target: number for number, (_, _, targets) in enumerate(body.instructions) for target in targets}

    def needed(slots: Iterable[int], but: int) -> set[int]:
        """The instructions that give these slots, without what only one of them needs."""
        found: set[int] = set()
        waiting = [makers[slot] for slot in slots if slot in makers]
        while waiting:
            number = waiting.pop()
            if number not in found and number != but:
                found.add(number)
                waiting += [makers[slot] for slot in body.instructions[number][1] if slot in makers]
        return found

    moves = {}
    for number, (op, operands, _) in enumerate(body.instructions):
        if not isinstance(op, ops.Update):
            continue
        slot = operands[0]
        beside = needed(body.results, number)
        moves[slot] = {n for n, (_, sources, _) in enumerate(body.instructions) if slot in sources and n in beside}
    return moves


def _size(x: Array | Parts) -> int:
    return int(x.size) if hasattr(x, "size") else 0


def reads(env: StepValues) -> Reads | None:
    """Of a value that a loop updates in place; None outside of loops, and on other devices than a CPU."""
    count = counter(env)
    return None if count is None else Reads(jnp.asarray(count, jnp.int32))
