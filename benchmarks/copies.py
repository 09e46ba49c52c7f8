"""Bytes that only move, against the bytes that products, reductions and stores read and write: from the optimized HLO, for each program.

A copy, transposition, slice, gather or concatenation counts as a move if it stands alone or in a fusion that computes nothing. Each
counts as often as the loops around it run. Nothing is timed, so that the figures are the same on every run.

    python -m benchmarks.copies [--quick] [--only TEXT]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.common import Results, arguments, say
from benchmarks.decode import random_model
from benchmarks.hlo import NO_WORK, Instruction, Module, Shape, parse
from benchmarks.ppo import build_ours, recipe_of
from tempo_core.runtime.staged.run import StagedProgram
from tempo_llm.attention import Attention
from tempo_llm.generate import Generator
from tempo_llm.requests import Group
from tempo_llm.sampling import GREEDY

MOVES = frozenset({"copy", "transpose", "slice", "dynamic-slice", "gather", "concatenate", "reverse"})
COMPUTES = frozenset({"dot", "reduce", "convolution", "scatter", "custom-call", "sort", "reduce-window"})
PICKS = frozenset({"slice", "dynamic-slice", "gather"})  # read a part of their first operand
HLO_NAMES = {
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "int32": "s32",
    "uint32": "u32",
    "bool": "pred",
    "int8": "s8",
}
ONE_WRITE = itertools.repeat(
    1.0
)  # trips of loops that XLA cannot count: of these programs, only loops around a write into a store
VIEWS = frozenset({"bitcast", "broadcast", "reshape", "iota"}) | NO_WORK


@dataclass(frozen=True)
class Move:
    """An instruction that only moves bytes: `times` in a run, in or out of a loop."""

    instruction: Instruction
    times: float
    in_loop: bool

    @property
    def bytes(self) -> float:
        return self.instruction.bytes * self.times


@dataclass(frozen=True)
class Traffic:
    """The moves of a program, and the bytes that its products, reductions and stores read and write."""

    moves: tuple[Move, ...]
    needed: float

    @property
    def share_in_loops(self) -> float:
        """The bytes moved in loops, for each byte that is needed."""
        return sum(move.bytes for move in self.moves if move.in_loop) / max(self.needed, 1)

    def of_shapes(self, shapes: Sequence[Shape]) -> list[Move]:
        """The moves of arrays with the dtype of one of `shapes`, and its sizes in any order."""
        wanted = {_in_any_order(shape) for shape in shapes}
        return [move for move in self.moves if any(_in_any_order(shape) in wanted for shape in move.instruction.shapes)]


def _in_any_order(shape: Shape) -> tuple[str, tuple[int, ...]]:
    return shape.dtype, tuple(sorted(size for size in shape.sizes if size != 1))


def traffic(module: Module, unknown: Iterable[float] = ()) -> Traffic:
    """What a program moves and needs. `unknown` are the trip counts of the loops for which XLA knows none, in their order.

    Raises ValueError if there are too few of them.
    """
    counts = iter(unknown)
    names = {i.name: i for computation in module.computations.values() for i in computation.instructions}
    moves: list[Move] = []
    needed = 0.0

    def walk(computation: str, times: float, in_loop: bool) -> None:
        nonlocal needed
        for instruction in module.operations(computation):
            if instruction.opcode == "while":
                trips = next(counts, None) if instruction.trip_count is None else instruction.trip_count
                if trips is None:
                    raise ValueError(f"XLA does not know how often the loop {instruction} runs")
                walk(instruction.called["body"][0], times * trips, True)
            elif only_moves(module, instruction):
                moves.append(Move(instruction, times, in_loop))
            else:
                needed += times * needed_bytes(module, names, instruction)

    walk(module.entry, 1.0, False)
    return Traffic(tuple(moves), needed)


def only_moves(module: Module, instruction: Instruction) -> bool:
    """Whether an instruction moves data and computes nothing; the few numbers that say from where may be computed."""
    inner = module.inside(instruction)
    large = [i for i in inner if i.opcode not in VIEWS and 2 * _elements(i) > _elements(instruction)]
    return bool(large) and all(i.opcode in MOVES for i in large)


def _elements(instruction: Instruction) -> int:
    return max((int(np.prod(shape.sizes)) for shape in instruction.shapes), default=0)


def needed_bytes(module: Module, names: Mapping[str, Instruction], instruction: Instruction) -> int:
    """The bytes that an operation reads and writes, if it is or has a product, a reduction or a write into a store; else 0.

    Of an array of which a part is read, and of a store, only the part counts.
    """
    inner = module.inside(instruction)
    writes = [i for i in inner if i.opcode == "dynamic-update-slice"]
    if not writes and not any(i.opcode in COMPUTES for i in inner):
        return 0
    if instruction.opcode != "fusion":
        operands = instruction.operands[1:2] if writes else instruction.operands
        written = 0 if writes else instruction.bytes
        return written + sum(names[name].bytes for name in operands if name in names)
    body = module.computations[instruction.called["calls"][0]].instructions
    total = 0 if writes else instruction.bytes
    for parameter in (i for i in body if i.opcode == "parameter"):
        users = [i for i in body if parameter.name in i.operands]
        if users and all(i.opcode in PICKS and i.operands[0] == parameter.name for i in users):
            total += sum(i.bytes for i in users)
        elif not any(i.opcode == "dynamic-update-slice" and i.operands[0] == parameter.name for i in users):
            total += parameter.bytes
    return total + sum(names[i.operands[1]].bytes for i in writes)


# -- programs ---------------------------------------------------------------------------------------------------------


def modules(program: tp.Program[Any]) -> list[Module]:
    """The optimized HLO of a program's device programs, which are compiled for it. Long loops stay whole: their trips are known."""
    assert program._staged is not None
    staged = StagedProgram(program.scheduled, program._staged.backend)
    staged.lower_all()
    return [parse((s.lowered.compile() if s.compiled is None else s.compiled).as_text()) for s in staged.segments]


def stores(program: tp.Program[Any]) -> list[Shape]:
    """The arrays of the stores with several slots and more than one dimension."""
    assert program._staged is not None
    lowering = program._staged.lowering
    keys = [key for key, storage in program.scheduled.storage.items() if storage.size > 1]
    arrays = [Shape(HLO_NAMES[lowering.type(key).dtype], lowering.shape(key)) for key in keys]
    return [array for array in arrays if len(_in_any_order(array)[1]) > 1]


def ppo(envs: int, steps: int) -> tp.Program[Any]:
    return build_ours(recipe_of("ppo_functional", envs, steps, 2))[1]


def llama(size: str, rows: int, length: int, attention: str = "full") -> tp.Program[Any]:
    config, weights = random_model(size)
    group = Group(tuple(range(rows)), [[1]] * rows, [length - 1] * rows)
    generator = Generator(config, weights, Attention.parse(attention), length)
    return generator.program(GREEDY, generator.sizes(group))[1]


def rnn(rows: int, length: int, width: int, batch: str) -> tp.Program[Any]:
    """The loss of a recurrent network and its gradient. The batch is a step or a dimension."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        here, shape = ((b,), (width,)) if batch == "step" else ((), (rows, width))
        x = tp.input("x", shape, domain=(*here, t))
        weights = [tp.input(name, (width, width), requires_grad=True) for name in ("w", "u")]
        h = tp.recurrence(shape, domain=(*here, t), name="h")
        h[(*here, 0)] = tp.tanh(x[(*here, 0)] @ weights[0])
        h[(*here, t + 1)] = tp.tanh(h @ weights[1] + x[(*here, t + 1)] @ weights[0])
        every = (slice(0, B), slice(0, T)) if batch == "step" else (slice(0, T),)
        loss = (h[every] ** 2).mean()
        return ctx.compile({B: rows, T: length}, [loss, *tp.grad(loss, weights)])


def kalman(length: int, states: int, observed: int) -> tp.Program[Any]:
    """The Kalman filter: means and covariances of a state, from observations; a step for each observation, one after the other."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, c = tp.input("a", (states, states)), tp.input("c", (observed, states))
        q, r = tp.input("q", (states, states)), tp.input("r", (observed,))
        y = tp.input("y", (observed,), domain=(t,))
        mean, spread = (
            tp.recurrence((states,), domain=(t,), name="mean"),
            tp.recurrence((states, states), domain=(t,), name="spread"),
        )
        mean[0], spread[0] = tp.zeros((states,)), q
        m, p = a @ mean, a @ spread @ a.transpose(1, 0) + q
        for k in range(observed):  # observations with independent noise are worked in one by one
            row = c.spatial[k]
            gain = (p @ row) / ((row * (p @ row)).sum() + r.spatial[k])
            m = m + gain * (y.spatial[k] - (row * m).sum())
            p = p - gain.expand_dims(1) * (p @ row).expand_dims(0)
        mean[t + 1], spread[t + 1] = m, p
        return ctx.compile({T: length}, [mean, spread])


PROGRAMS: dict[str, tuple[Callable[[], tp.Program[Any]], Callable[[], tp.Program[Any]]]] = {  # at full size, and small
    "PPO 512x250": (lambda: ppo(512, 250), lambda: ppo(16, 24)),
    "Llama 100M, 1 row": (lambda: llama("100M", 1, 512), lambda: llama("5M", 1, 256)),
    "Llama 100M, 4 rows": (lambda: llama("100M", 4, 512), lambda: llama("5M", 4, 128)),
    "gradient of an RNN, batch as a step": (lambda: rnn(64, 250, 128, "step"), lambda: rnn(16, 24, 32, "step")),
    "gradient of an RNN, batch as a dimension": (lambda: rnn(64, 250, 128, "dimension"), lambda: rnn(16, 24, 32, "dimension")),
    "Kalman filter": (lambda: kalman(1000, 64, 4), lambda: kalman(24, 16, 2)),
    "window attention": (lambda: llama("100M", 1, 512, "window=64"), lambda: llama("tiny", 1, 128, "window=16")),
}


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("copies", options)
    for name, (full, small) in PROGRAMS.items():
        if not results.selects(name):
            continue
        program = small() if options.quick else full()
        parts = [traffic(module, ONE_WRITE) for module in modules(program)]
        needed, moved = sum(p.needed for p in parts), sum(m.bytes for p in parts for m in p.moves if m.in_loop)
        whole = [move for part in parts for move in part.of_shapes(stores(program))]
        say(f"\n{name}: {moved / 1e6:,.1f} MB moved in loops for {needed / 1e6:,.1f} MB needed: {moved / max(needed, 1):.1%}")
        for move in sorted((m for p in parts for m in p.moves), key=lambda m: -m.bytes)[:5]:
            say(f"  {move.bytes / 1e6:10,.2f} MB  {move.times:8,.0f} x {move.instruction}")
        for move in whole:
            say(f"  a whole store: {move.times:,.0f} x {move.instruction}")
        results.add(name, needed_bytes=needed, moved_bytes_in_loops=moved, whole_stores=len(whole))
    results.finish()


if __name__ == "__main__":
    main()
