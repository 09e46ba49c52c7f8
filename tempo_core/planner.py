"""The choice of a form: which steps are loops, tiles, checkpoints. Under a memory limit the fastest form that fits is taken.

A form is a set of options that a user could write too (`Config.disable`, `tile`, `checkpoint`), so each form is an ordinary program: what it
costs is counted (`runtime/cost/`), and XLA says what it allocates. Forms are tried in this order: as it is without a limit; each step
changed alone; then the smallest of these, with each other step changed too, as long as that saves memory. Of the forms whose stores,
inputs and results fit, XLA compiles some, those first that the cost model has for the fastest, until one fits with its temporaries.

Without a limit, a step that could be vectorized stays a loop where the cost model has that for clearly faster. Nothing but memory makes it so:
a loop's values stay in the cache, and memory that an allocator does not keep costs time in each run. So loops are only tried for programs with
much memory, of whose time that much depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from tempo_core.config import Config
from tempo_core.errors import CausalityError, TempoError
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Sink, Udf
from tempo_core.passes.keep.checkpoint import goes_back
from tempo_core.prices import LEAST_GAIN, LEAST_SECONDS_SAVED
from tempo_core.report.programs.plan import Plan
from tempo_core.runtime.cost.cost import Cost
from tempo_core.runtime.cost.usage import DEVICE, Usage
from tempo_core.runtime.staged.spread import bytes_along
from tempo_core.schedule import Scheduled
from tempo_core.target import Target

MOST_COMPILED = 10  # forms that XLA compiles for a choice by time, at seconds each; after these, any form that fits is taken
MOST_LOOPS = 3  # steps that are tried as loops, each at the time of all passes
LEAST_POINTS = 4  # of a step that is cut into tiles or segments
TILES = 4, 16, 64  # into so many parts a step is cut, of which each is a tile
PARTS = 8, 64, 512  # of so many parts, the device has one at a time
LEVELS = 3  # so often are segments cut into segments


class Compiled(Protocol):
    """What is asked of a program (`program.py`)."""

    @property
    def graph(self) -> Graph: ...
    @property
    def scheduled(self) -> Scheduled: ...
    def plan(self) -> Plan: ...
    def _numbers(self) -> Cost: ...


P = TypeVar("P", bound=Compiled)


@dataclass(frozen=True)
class Form:
    """`loops` are steps that are not vectorized; the others are pairs of a step and a number of points. `rolled`: no loop is written out."""

    loops: tuple[str, ...] = ()
    tiles: tuple[tuple[str, int], ...] = ()
    checkpoints: tuple[tuple[str, int], ...] = ()
    host: tuple[tuple[str, int], ...] = ()
    rolled: bool = False

    def of(self, config: Config) -> Config:
        """The options of this form, on top of those that the user chose."""
        disable = (*config.disable, *(f"vectorize({step})" for step in self.loops), *(("unroll",) if self.rolled else ()))
        tile, checkpoint = (*config.tile, *self.tiles), (*config.checkpoint, *self.checkpoints)
        host = *config.host, *self.host
        return replace(
            config, disable=tuple(dict.fromkeys(disable)), memory_limit=None, tile=tile, checkpoint=checkpoint, host=host
        )

    def __add__(self, other: Form) -> Form:
        checkpoints, rolled = self.checkpoints + other.checkpoints, self.rolled or other.rolled
        return Form(self.loops + other.loops, self.tiles + other.tiles, checkpoints, self.host + other.host, rolled)

    @property
    def steps(self) -> set[str]:
        return {*self.loops, *dict(self.tiles), *dict(self.checkpoints), *dict(self.host)}

    def __str__(self) -> str:
        parts = [f"a loop over {step}" for step in self.loops]
        parts += [f"tiles of {size} over {step}" for step, size in self.tiles]
        for step in dict(self.checkpoints):
            sizes = [size for each, size in self.checkpoints if each == step]
            parts.append(f"checkpoints every {' and '.join(map(str, sizes))} points of {step}")
        parts += [f"values over {step} on the host, {size} points at a time on the device" for step, size in self.host]
        parts += ["no loop written out"] if self.rolled else []
        return " and ".join(parts) or "as without a limit"


@dataclass
class Candidate(Generic[P]):
    """A program in a form. `bytes` are those of its peak: at least so many, until XLA has compiled it (`is_exact`)."""

    form: Form
    program: P
    target: Target
    limit: int | None = None
    has_own_memory: bool = True  # whether what is on the host is not counted
    estimate: int = 0
    bytes: int = 0
    is_exact: bool = False

    def __post_init__(self) -> None:
        self.plan = self.program.plan()
        usage = self.plan.count(False)
        self.estimate = self._peak(usage)
        self.is_exact = not self.plan.device_programs  # of a program that XLA does not compile, the estimate is all there is
        self.bytes = self.estimate if self.is_exact else self._peak(usage.without_temporaries())
        self.cost = self.program._numbers()
        self.allocated = self.cost.numbers["stores"] + self.cost.numbers["temporaries"]
        moving_launches = self.plan.launches if any(self.plan.moves) else 0
        self.moving = usage.bytes_moved / self.target.host + moving_launches * self.target.exchange

    def compile(self) -> None:
        if not self.is_exact:
            usage = self.counted(self.plan.usage)
            self.bytes, self.is_exact = peak(usage), True
            tensors = usage.alive(usage.on_device, DEVICE)
            self.allocated = min(self.allocated, sum(each.bytes for each in tensors if each.kind not in ("input", "result")))

    def _peak(self, usage: Usage) -> int:
        return peak(self.counted(usage))

    def counted(self, usage: Usage) -> Usage:
        """The usage of which the limit is for the device's part."""
        return usage if self.has_own_memory else usage.in_one_memory()

    @property
    def fits(self) -> bool:
        return self.limit is None or self.bytes <= self.limit

    @property
    def seconds(self) -> float:
        return self.target.seconds(self.cost, self.plan.launches, self.allocated) + self.moving

    def pays(self, seconds: float) -> bool:
        """Whether a form that takes so many seconds is clearly faster."""
        return self.seconds > max(LEAST_GAIN * seconds, seconds + LEAST_SECONDS_SAVED)

    def is_worse_than(self, other: Candidate[P]) -> bool:
        """Whether another form is clearly faster, with less memory."""
        return self.pays(other.seconds) and other.allocated < self.allocated

    @property
    def why_not(self) -> str:
        """Why another form was chosen."""
        return "too large" if not self.fits else "slower" if self.is_exact else "slower by the model, so not compiled"

    def __str__(self) -> str:
        size = f"{self.bytes:,} bytes" if self.is_exact else f"at least {self.bytes:,} bytes"
        form = self.form if self.limit is not None or self.form.steps else "as it is"
        return f"{form}: {size}, about {self.seconds * 1e3:.3g} ms"


def peak(usage: Usage) -> int:
    """The bytes that a limit is for: on the device, or of a program that runs with NumPy on the host."""
    return usage.on_device.device_bytes or usage.on_host.host_bytes


@dataclass(frozen=True)
class Choice:
    """What was chosen, under a limit or without one, and what was tried beside it, as texts."""

    limit: int | None
    form: Form
    chosen: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        why = "the form of the program, by its time" if self.limit is None else f"memory_limit: {self.limit:,} bytes"
        return "\n  ".join((why, f"chosen: {self.chosen}", *self.others))


class Planner(Generic[P]):
    """Tries the forms of a program. `make` compiles one without XLA; `points` are the numbers of points of the steps, `fed` those of inputs."""

    def __init__(
        self,
        make: Callable[[Form], P],
        points: Mapping[str, int],
        fed: Collection[str],
        config: Config,
        limit: int | None = None,
    ):
        self.make, self.points, self.fed, self.config, self.limit = make, points, fed, config, limit
        self.has_own_memory = config.swap not in ("auto", "off") or config.on.kind != "cpu"
        self.tried: dict[Form, Candidate[P]] = {}
        self.compiled = 0

    def choose(self) -> tuple[P, Choice]:
        """The program in the fastest form that fits. Raises OutOfMemoryPlanError, with the smallest limit that would do."""
        first = self._try(Form())
        assert first is not None
        chosen = self._fitting([first])
        if chosen is None:
            start, singles = first, [each for form in self._singles() if (each := self._try(form))]
            chosen = self._fitting(singles)
            while chosen is None and singles:
                least = min(singles, key=lambda each: each.estimate)
                if least.estimate >= start.estimate:
                    break
                start = least
                singles = [each for form in self._further(start.form) if (each := self._try(form))]
                chosen = self._fitting(singles)
        chosen = chosen or self._smallest()
        if chosen is None:
            raise self._refusal()
        return self._chosen(chosen)

    def faster(self, program: P) -> tuple[P, Choice | None]:
        """The program as it is, or with one step as a loop that could be vectorized, if that is clearly faster by the model, with less memory.

        The temporaries of the program as it is are XLA's own figure before a loop is taken: XLA may need none of them.
        """
        first = self.tried[Form()] = Candidate(Form(), program, self.config.on)
        if not first.pays(first.seconds - first.target.most_saved(first.cost, first.allocated)):
            return program, None
        largest, tiled = _largest_steps(program.scheduled, self.config.on), dict(self.config.tile)
        steps = [step for step in largest if step in self.points and step not in tiled]
        loops = [Form(loops=(step,)) for step in steps[:MOST_LOOPS] if self._may_be_a_loop(step)]
        tried = [each for form in loops if (each := self._try(form))]
        best = min((each for each in tried if first.is_worse_than(each)), key=lambda each: each.seconds, default=first)
        if best is not first:
            first.compile()
        return self._chosen(best if first.is_worse_than(best) else first)

    def _chosen(self, chosen: Candidate[P]) -> tuple[P, Choice]:
        def why_not(each: Candidate[P]) -> str:
            if self.limit is not None or each.seconds >= chosen.seconds:
                return each.why_not
            return "not clearly faster" if each.allocated < chosen.allocated else "needs more memory"

        others = [f"{why_not(each)}: {each}" for each in self.tried.values() if each is not chosen]
        return chosen.program, Choice(self.limit, chosen.form, str(chosen), tuple(others))

    def _try(self, form: Form) -> Candidate[P] | None:
        """The program in a form; None if there is none, or if it is the same as without."""
        if form not in self.tried:
            try:
                program = self.make(form)
            except CausalityError:
                if not form.steps:
                    raise
                return None  # some programs need a step vectorized
            alike = (each for other, each in self.tried.items() if (other.host, other.rolled) == (form.host, form.rolled))
            if any(each.program.graph.nodes == program.graph.nodes for each in alike):
                return None
            self.tried[form] = Candidate(form, program, self.config.on, self.limit, self.has_own_memory)
        return self.tried[form]

    def _fitting(self, candidates: Sequence[Candidate[P]]) -> Candidate[P] | None:
        """The fastest of some forms that fits, as XLA has it. Those that fit by a coarse estimate come first."""
        assert self.limit is not None
        is_larger = {each.form: each.estimate * (each.estimate > self.limit) for each in candidates}
        for each in sorted(candidates, key=lambda each: (is_larger[each.form], each.seconds)):
            if each.fits and (each.is_exact or self.compiled < MOST_COMPILED):
                self.compiled += not each.is_exact
                each.compile()
                if each.fits:
                    return each
        return None

    def _smallest(self) -> Candidate[P] | None:
        """A form that fits, if any of those that were tried does: the first by a coarse estimate."""
        for each in sorted(self.tried.values(), key=lambda each: each.estimate):
            if each.fits:
                each.compile()
                if each.fits:
                    return each
        return None

    def _singles(self) -> Iterator[Form]:
        """The forms that change one step."""
        for step in self.points:
            yield from self._of_step(step)

    def _further(self, form: Form) -> Iterator[Form]:
        """A form with one more step changed."""
        for step in self.points:
            if step not in form.steps:
                yield from (form + other for other in self._of_step(step))
            elif step not in dict(form.host):
                yield from (form + replace(other, loops=(), tiles=()) for other in self._with_host(step))

    def _of_step(self, step: str) -> Iterator[Form]:
        points = self.points[step]
        if self._may_be_a_loop(step):
            yield from self._and_rolled(Form(loops=(step,)))
        if points < LEAST_POINTS:
            return
        if step not in dict(self.config.tile) and not self.config.disabled("tile"):
            for size in dict.fromkeys(-(-points // parts) for parts in TILES):
                yield Form(tiles=((step, size),))
        loop = self.tried.get(Form(loops=(step,))) or self.tried[Form()]
        is_free = step not in dict(self.config.checkpoint) and not self.config.disabled("checkpoint")
        if is_free and goes_back(loop.program.graph, step):
            for levels in range(1, LEVELS + 1):
                root = points ** (1 / (levels + 1))  # then each level keeps as many values as the others
                sizes = dict.fromkeys(math.ceil(root**level) for level in range(levels, 0, -1))
                yield Form(checkpoints=tuple((step, size) for size in sizes))
        yield from self._with_host(step)

    def _and_rolled(self, form: Form) -> Iterator[Form]:
        """A form, and if it has loops that are written out, which takes memory for each iteration, the form without."""
        yield form
        if form in self.tried and self.tried[form].plan.written_out:
            yield replace(form, rolled=True)

    def _with_host(self, step: str) -> Iterator[Form]:
        """Forms in which the device has a part of the values over a step: in a loop over it, or tile by tile."""
        is_off = self.config.interpreted or self.config.swap == "off" or step in dict(self.config.host)
        if is_off or not (self.has_own_memory or step in self.fed):
            return
        can_loop = self._may_be_a_loop(step)
        can_tile = step not in dict(self.config.tile) and not self.config.disabled("tile")
        for size in dict.fromkeys(-(-self.points[step] // parts) for parts in PARTS):
            part = ((step, size),)
            tiles = part if can_tile else ()
            yield from self._and_rolled(Form(host=part, loops=(step,) if can_loop else (), tiles=tiles))
            if can_loop and can_tile:
                yield Form(host=part, tiles=tiles)

    def _may_be_a_loop(self, step: str) -> bool:
        return "vectorize" not in self.config.disable and step not in self.config.unvectorized_steps

    def _refusal(self) -> TempoError:
        """The error if nothing fits: the smallest limit that would do, and the tensors that need it."""
        for each in sorted(self.tried.values(), key=lambda each: each.estimate)[:2]:
            each.compile()
        least = min((each for each in self.tried.values() if each.is_exact), key=lambda each: each.bytes)
        assert self.limit is not None
        return least.plan.refused(self.limit, least.counted(least.plan.usage), str(least.form), len(self.tried))


# -- without a limit ------------------------------------------------------------------------------------------------------


def may_gain_by_a_loop(scheduled: Scheduled, config: Config) -> bool:
    """Whether the values that are computed for all points of a step at once may need more memory than a cache has, on one device."""
    is_chosen = config.disabled("loop") or config.interpreted or bool(config.parts)
    if is_chosen or config.devices != 1:
        return False
    return bool(_largest_steps(scheduled, config.on))


def _largest_steps(scheduled: Scheduled, target: Target) -> list[str]:
    """The steps whose points are computed at once, with so many values, the most first.

    In a loop, each call of a function on the host would part launches, which have prices of their own: steps with such functions stay.
    """
    nodes = [
        node for node in scheduled.graph if isinstance(node.op, Sink) or (isinstance(node.op, Udf) and node.op.kind == "host")
    ]
    bytes = {
        step.name: bytes_along(scheduled, step) for step in scheduled.graph.order if not any(step in n.domain for n in nodes)
    }
    return [name for name in sorted(bytes, key=lambda name: -bytes[name]) if bytes[name] > target.cache_bytes]
