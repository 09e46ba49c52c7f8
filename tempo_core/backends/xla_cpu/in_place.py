"""Updates in place: what reads a value comes before the update that takes the value's place.

XLA's CPU compiler computes a read of a few elements again in each operation that uses them. If such an operation may run after the update, it
copies the whole value, in each iteration. Here such reads are in memory once (`Apart.put`), each with a number that only this read gives: that
an update waits for these numbers, XLA does not see through.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
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
Results = tuple[Array, ...]


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
    """The updates of an island, and its reads of what it updates, or what is updated later, by the slot of the value."""

    def __init__(self, body: ops.Dataflowed, env: StepValues):
        earlier, updated = _EARLIER.get() or {}, _beside(body)
        every = frozenset(range(len(body.instructions)))
        self._beside = {slot: updated.get(slot, every) for slot in updated.keys() | earlier.keys()}
        self._reads = {slot: each for slot in self._beside if (each := earlier.get(slot) or reads(env)) is not None}
        self._large = {
            slot: {slot} for slot in self._reads
        }  # the value, and what is nearly as large: what reads that, reads the value

    def results(
        self, number: int, sources: Sequence[int], targets: Sequence[int], slots: Sequence[Any], results: Results
    ) -> Results:
        """The results of an instruction, where they read what is updated later."""
        for slot, each in self._reads.items():
            if number in self._beside[slot] and not self._large[slot].isdisjoint(sources):
                read = each.of(slots[slot], results)
                self._large[slot] |= {
                    target for target, before, after in zip(targets, results, read, strict=True) if before is after
                }
                results = tuple(read)
        return results

    def operands(self, slot: int, values: list[Array]) -> list[Array]:
        """The operands of an update, after the reads of the value in `slot`."""
        each = self._reads.get(slot)
        return values if each is None else [values[0], *each.before(values[1:])]


@functools.lru_cache(maxsize=1024)
def _beside(body: ops.Dataflowed) -> dict[int, frozenset[int]]:
    """For each slot that an update takes: the instructions that are needed for more than the update."""
    makers = {target: number for number, (_, _, targets) in enumerate(body.instructions) for target in targets}

    def needed(but: int) -> frozenset[int]:
        """The instructions that give the results, without what only one of them needs."""
        found: set[int] = set()
        waiting = [makers[slot] for slot in body.results if slot in makers]
        while waiting:
            number = waiting.pop()
            if number not in found and number != but:
                found.add(number)
                waiting += [makers[slot] for slot in body.instructions[number][1] if slot in makers]
        return frozenset(found)

    instructions = enumerate(body.instructions)
    return {sources[0]: needed(number) for number, (op, sources, _) in instructions if isinstance(op, ops.Update)}


def _size(x: Array | Parts) -> int:
    return int(x.size) if hasattr(x, "size") else 0


def reads(env: StepValues) -> Reads | None:
    """Of a value that a loop updates in place; None outside of loops, and on other devices than a CPU."""
    count = counter(env)
    return None if count is None else Reads(jnp.asarray(count, jnp.int32))
