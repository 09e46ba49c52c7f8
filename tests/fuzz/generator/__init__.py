"""Random recurrent programs: `draw_program(choices)`, `seeded(seed)`, and a strategy for hypothesis, `programs()`.

A program is a list of *units*. A unit is one statement, or one recurrence with all its branches; `MAKERS` lists their kinds.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.fuzz.choices import Choices, Drawn, Seeded
from tests.fuzz.generator import grids, indices, inner, learning, ops, recurrences, results, settings, states
from tests.fuzz.generator.drawing import Drawing
from tests.fuzz.script import Program

EXECUTORS = settings.EXECUTORS
Maker = Callable[[Drawing], object]

MAKERS: dict[Maker, int] = {  # the kinds of units, each with its relative frequency
    ops.fed: 1, ops.random: 1, ops.number: 1, ops.unary: 3, ops.binary: 3, ops.deep: 5, ops.contract: 1, ops.joined: 1,
    ops.sized: 3, ops.cast: 2, ops.typed: 3, ops.function: 1, ops.discrete: 1,
    indices.read: 6, indices.shifted: 1, indices.early: 2, indices.attention: 1, indices.sometimes: 1,
    recurrences.recurrence: 5, recurrences.carried: 2, recurrences.rows: 1, recurrences.table: 1, recurrences.diagonal: 1, recurrences.stencil: 1,
    recurrences.merge: 2, recurrences.mutual: 1, recurrences.discrete: 1, recurrences.growing: 1, recurrences.after_a_place: 2,
    recurrences.intervals: 1, states.state: 2, ops.convolved: 2, grids.grid: 1,
}  # fmt: skip
CHECKS = {"passes": 8, "compiled again": 16, "other bounds": 12, "limit": 4}  # percent of the programs
_WEIGHTED = tuple(maker for maker, weight in MAKERS.items() for _ in range(weight))


def draw_program(choices: Choices, size: int = 8, executor: str = "numpy") -> Program:
    """Up to `size` units over one to three steps."""
    return drawn(choices, size, executor)[0]


def seeded(seed: int, size: int = 8, executor: str = "numpy") -> Program:
    """The program of a seed."""
    return draw_program(Seeded(seed), size, executor)


@st.composite
def programs(draw: Callable[[st.SearchStrategy[int]], int], size: int = 8, executor: str = "numpy") -> Program:
    """Programs, as a strategy: hypothesis shrinks the choices behind a failing one."""
    return draw_program(Drawn(draw), size, executor)


def drawn(choices: Choices, size: int, executor: str, is_grid: bool = False) -> tuple[Program, Drawing]:
    """A program, and the generator's state after drawing it. If it `is_grid`, it ends with a grid and its gradient."""
    d = Drawing(choices, (3, 3, 4)) if is_grid else Drawing(choices)
    differentiated = is_grid or d.chance(35)
    leaf = ops.fed(d, leaf=differentiated, single=True)
    ops.fed(d)
    count = choices.integer(0, size) if is_grid else choices.integer(3, size)
    for number in range(count):
        d.pending = []
        maker = inner.ended_inside if d.has_inner and number == count // 2 else choices.pick(_WEIGHTED)
        maker(d)
        if d.broken:
            return Program(d.bounds, tuple(d.units), (d.names[0],), d.data), d
    d.pending = []
    name = grids.grid(d, leaf) if is_grid else ""
    gradients: tuple[str, ...] = ()
    if differentiated:
        if d.chance(15) and not is_grid:
            learning.through_training(d, leaf)
        gradients = learning.loss(d, leaf)
        gradients = (*gradients, name) if gradients and name else gradients
    elif d.chance(45):
        choices.pick((learning.training, learning.network, learning.network, ops.module, ops.module))(d)
    outputs = gradients or tuple([n for n in d.names if not _is_read(d, n)][-5:])
    d.pending = []
    if not gradients:
        outputs = _conditioned(d, outputs)
    sunk = _sink(d, outputs)
    outputs = results.views(d, outputs, fixed=2 if gradients else 0)
    if sunk and sunk not in outputs:
        outputs = (*outputs, sunk)
    config = settings.config(d, executor)
    checks = tuple(check for check, percent in CHECKS.items() if d.chance(percent))
    d.features.update(f"check: {check}" for check in checks)
    program = Program(
        d.bounds, tuple(d.units), outputs, d.data, config, leaf if gradients else "", sunk, checks, frozenset(d.features)
    )  # fmt: skip
    return program, d


def _is_read(d: Drawing, name: str) -> bool:
    """Whether a unit uses a tensor, besides the unit that defines it."""
    return Program(d.bounds, tuple(d.units), ()).uses(name) > 1


def _conditioned(d: Drawing, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """The outputs, and sometimes one more: one of them under a condition."""
    moving = [n for n in outputs if d.steps_of(n)]
    if not moving or not d.chance(12):
        return outputs
    chosen, name = d.choices.pick(moving), d.name()
    steps = d.steps_of(chosen)
    where = indices.condition(d, d.choices.pick(steps), steps)
    d.mark("condition: of an output")
    return (*outputs, name) if d.add(f"{name} = {chosen}[{', '.join(steps)}, {where}]") else outputs


def _sink(d: Drawing, outputs: tuple[str, ...]) -> str:
    """An output that goes to a sink too, sometimes only where a condition holds; "" for no sink."""
    static = [n for n in outputs if n in d.names and d.fits(n, "any", static=True)]
    chosen = d.choices.pick(static) if static and d.chance(15) else ""
    if not chosen:
        return ""
    steps = d.steps_of(chosen)
    when = f", when={indices.condition(d, d.choices.pick(steps), steps)}" if steps and d.chance(40) else ""
    d.mark("sink: where a condition holds" if when else "sink: everywhere")
    return chosen if d.add(f"tp.sink(see, {chosen}{when})") else ""
