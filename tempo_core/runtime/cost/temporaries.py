"""What a device program keeps in memory while it runs, besides its arguments and results: an estimate from its traced operations.

It is the memory of XLA's buffers as XLA's CPU compiler lays them out, without compiling. Operations that XLA fuses have no memory
(`fused.py`); a loop carries its values in place; a value that is read for the last time gives its memory to an elementwise result of the
same size; and values lie in the memory of results and donated arguments while those are not there. Where XLA might do better or worse, the
estimate takes the worse. It depends on no clock and no device.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tempo_core.runtime.cost.fused import decide, reads
from tempo_core.runtime.cost.traced import WINDOWS, Carry, Computation, Op, Trace, Value

POINTER = 8
BLOCK = 16  # XLA computes windows over a whole axis in blocks of so many elements
MARGIN = 6  # percent: XLA orders some kernels so that more values are alive at a time, and leaves gaps between them
SMALL = 1024  # bytes of tuples, counters and flags that the traced program does not show
ALIGNMENT = 64  # bytes: each buffer of XLA begins at a multiple


@dataclass(frozen=True)
class Buffer:
    """Memory for one intermediate value: `statement` is the node whose statement computes it, None for what belongs to no statement."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    statement: int | None

    @property
    def type(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Estimate:
    """The most bytes at a time, with the buffers in memory then, the largest first, and the node of the statement that runs then."""

    bytes: int = 0
    buffers: tuple[Buffer, ...] = ()
    statement: int | None = None


@dataclass(eq=False)
class _Place:
    """Memory of one or several values, one after the other."""

    value: Value
    bytes: int
    begin: int
    end: int
    is_external: bool = False
    holds: Value | None = None  # the latest of its values
    is_carried: bool = False  # by a loop around


def estimate(jaxpr: Any, donated: int = 0) -> Estimate:
    """The estimate for a closed jaxpr, whose first `donated` arguments give their memory to its first results."""
    program = Trace(jaxpr, donated)
    decide(program)
    _schedule(program.whole)
    return _Layout(program).estimate()


# -- the order in which kernels run -----------------------------------------------------------------------------------


def _schedule(computation: Computation, time: int = 0) -> int:
    """Breadth first, as XLA's CPU compiler orders kernels: each as soon as all that it reads is there. Gives the time after the last."""
    kernels = [op for op in computation.ops if op.is_kernel]
    producers = {id(value): op for op in kernels for value in op.outputs}
    waits: dict[int, int] = {}
    users: dict[int, list[Op]] = {}
    for op in kernels:
        before = {id(producers[id(value)]) for value in chain(*reads(op)) if id(value) in producers} - {id(op)}
        waits[id(op)] = len(before)
        for each in before:
            users.setdefault(each, []).append(op)
    _write_last(kernels, waits, users)
    order: list[Op] = []
    ready, loops = (deque(op for op in kernels if not waits[id(op)] and bool(op.inner) == is_loop) for is_loop in (False, True))
    while ready or loops:  # a loop runs after what may run before it
        op = (ready or loops).popleft()
        order.append(op)
        for user in users.get(id(op), ()):
            waits[id(user)] -= 1
            if not waits[id(user)]:
                (loops if user.inner else ready).append(user)
    computation.ops = order
    computation.begin = time
    for op in order:
        op.begin = time
        time += 1
        for inner in op.inner:
            time = _schedule(inner, time)
        op.end = time - 1 if not op.inner else time
        time = op.end + 1
    computation.end = time
    return time + 1


def _write_last(kernels: Sequence[Op], waits: dict[int, int], users: dict[int, list[Op]]) -> None:
    """Let a kernel that writes into an array wait for the other readers of the array, unless they wait for it."""
    readers: dict[int, list[Op]] = {}
    for op in kernels:
        for value in chain(*reads(op)):
            readers.setdefault(id(value), []).append(op)
    for op in kernels:
        if op.name != "dynamic_update_slice":
            continue
        others = [
            reader for reader in readers.get(id(op.inputs[0]), ()) if reader is not op and reader.name != "dynamic_update_slice"
        ]
        if not others:
            continue
        later, waiting = {id(op)}, [op]
        while waiting:
            for user in users.get(id(waiting.pop()), ()):
                if id(user) not in later:
                    later.add(id(user))
                    waiting.append(user)
        for reader in others:
            if id(reader) not in later:
                users.setdefault(id(reader), []).append(op)
                waits[id(op)] += 1


# -- memory over time -------------------------------------------------------------------------------------------------


class _Layout:
    """The memory of values over time."""

    def __init__(self, program: Trace):
        self.program = program
        self.made: list[_Place] = []
        self.place: dict[int, _Place] = {}
        self.tables: list[tuple[int, int, int]] = []
        self.statements: dict[int, int | None] = {}
        self.outside = {id(value) for value in program.whole.results}
        self._last_reads(program.whole)
        self._mark_results(program.whole)
        for value in program.arguments:
            if id(value) in program.donated:
                self.place[id(value)] = self._new(value, -1, value.last, True)
        self._lay_out(program.whole)

    def estimate(self) -> Estimate:
        changes: dict[int, int] = {}
        borrowed = self._in_results()
        spans = [(p.bytes, p.begin, p.end) for p in self.made if not p.is_external and id(p) not in borrowed]
        for bytes, begin, end in [*spans, *self.tables]:
            changes[begin] = changes.get(begin, 0) + bytes
            changes[end + 1] = changes.get(end + 1, 0) - bytes
        best, at, now = 0, -1, 0
        for time in sorted(changes):
            now += changes[time]
            if now > best:
                best, at = now, time
        alive = [p for p in self.made if not p.is_external and id(p) not in borrowed and p.begin <= at <= p.end]
        buffers = sorted(
            (Buffer(p.value.shape, str(p.value.dtype), p.bytes, p.value.statement) for p in alive), key=lambda b: -b.bytes
        )
        return Estimate(best * (100 + MARGIN) // 100 + SMALL * (best > 0), tuple(buffers), self.statements.get(at))

    def _in_results(self) -> set[int]:
        """The values that XLA puts into the memory of results, the largest first: while no result is there yet, or no longer a donated argument."""
        busy = {id(p): [(p.begin, p.end)] for p in self.made if p.is_external}
        results = sorted((p for p in self.made if p.is_external), key=lambda p: p.bytes)
        borrowed: set[int] = set()
        for place in sorted((p for p in self.made if not p.is_external), key=lambda p: (-p.bytes, p.begin)):
            for result in results:
                spans = busy[id(result)]
                if result.bytes >= place.bytes and all(end < place.begin or place.end < begin for begin, end in spans):
                    spans.append((place.begin, place.end))
                    borrowed.add(id(place))
                    break
        return borrowed

    def _last_reads(self, computation: Computation) -> None:
        for op in computation.ops:
            end = op.end if op.joined is None else max(op.end, op.joined.end)
            for value in chain(*reads(op)):
                value.last = max(value.last, end)  # a loop's, for what its body reads from outside
            for inner in op.inner:
                self._last_reads(inner)
        for value in computation.results:
            value.last = max(value.last, computation.end)

    def _mark_results(self, computation: Computation) -> None:
        """The memory of carried values whose results are results of the program is the caller's."""
        for op in reversed(computation.ops):
            for carry in op.carries:
                if id(carry.result) in self.outside:
                    self.outside.add(id(carry.initial))
            for inner in op.inner:
                self._mark_results(inner)

    def _new(self, value: Value, begin: int, end: int, external: bool = False) -> _Place:
        place = _Place(value, _aligned(value.bytes), begin, end, external, value)
        self.made.append(place)
        return place

    def _lay_out(self, computation: Computation, handed: Mapping[int, Carry] | None = None) -> None:
        for op in computation.ops:
            self.statements[op.begin] = next((value.statement for value in op.outputs), None)
            if op.inner:
                self._enter(op, computation)
                continue
            for value in op.outputs:
                if value.in_memory:
                    self.place[id(value)] = self._place_of(op, value, (handed or {}).get(id(value)), computation)
            if op.name in WINDOWS:
                self.made.append(_Place(op.outputs[0], self._blocks(op), op.begin, op.begin))

    def _blocks(self, op: Op) -> int:
        """The memory inside a sum or maximum of windows, which XLA computes in blocks: the padded operand, and the sums in each block."""
        operand = op.inputs[0]
        length = max(operand.shape, default=1) if op.axis is None else operand.shape[op.axis]
        if length <= BLOCK:
            return 0
        return 2 * _aligned(operand.bytes // length * BLOCK * -(-length // BLOCK))

    def _enter(self, op: Op, computation: Computation) -> None:
        if op.pointers:
            self.tables.append((_aligned(POINTER * op.pointers), op.begin, op.end))
        for _ in range(op.counters):
            self.tables.append((ALIGNMENT, op.begin, op.end))
        inside = {id(value) for inner in op.inner for each in inner.ops if each.is_kernel for value in chain(*reads(each))}
        uses = Counter(id(value) for value in op.inputs)
        carried: list[tuple[_Place, bool, Carry]] = []
        for carry in op.carries:
            alone = uses[id(carry.initial)] <= 1 and id(carry.initial) not in inside
            initial, zeros = (
                self.place.get(id(carry.initial)),
                carry.initial.producer is not None and carry.initial.producer.name == "zeros",
            )
            last = max(carry.result.last, op.end)
            if initial is not None and alone and not zeros and _is_over(initial, carry.initial, op.end):
                initial.end = max(initial.end, last)
                place = initial
            else:
                begin = (
                    computation.begin if zeros or carry.initial.is_literal else op.begin
                )  # what waits for nothing is computed first
                place = self._new(carry.result, begin, last, id(carry.result) in self.outside)
            self.place[id(carry.received)] = self.place[id(carry.result)] = place
            carried.append((place, place.is_carried, carry))
            place.is_carried, place.holds = True, carry.received
        if op.name == "condition":
            for value in op.outputs:
                self.place[id(value)] = self._new(value, op.begin, max(value.last, op.end), id(value) in self.outside)
        for inner in op.inner:
            self._lay_out(inner, {id(carry.handed): carry for carry in op.carries})
        for place, was_carried, carry in carried:
            place.is_carried, place.holds = was_carried, carry.result

    def _place_of(self, op: Op, value: Value, carry: Carry | None, computation: Computation) -> _Place:
        end = max(value.last, op.begin)
        if carry is not None:
            end = max(end, computation.end)
            over = carry.received
            if over.last < op.begin or (over.last == op.begin and _is_in_place(op, value, over)):
                return self.place[id(over)]
        for operand in chain(*reads(op)):
            place = self.place.get(id(operand))
            if place is None or operand.computation is not computation or operand.bytes != value.bytes:
                continue
            is_free = _is_over(place, operand, op.begin) and (
                not place.is_external or place.is_carried or id(value) in self.outside
            )
            if is_free and _is_in_place(op, value, operand):
                place.end, place.holds = max(place.end, end), value
                return place
        return self._new(value, op.begin, end, carry is None and id(value) in self.outside)


def _is_over(place: _Place, value: Value, time: int) -> bool:
    """Whether a place is free for another value after the last read of its value at a time."""
    return place.holds is value and value.last <= time and (place.is_carried or place.end <= time)


def _is_in_place(op: Op, value: Value, over: Value) -> bool:
    """Whether a kernel may write its result over an operand."""
    elementwise, other = reads(op)
    if op.name == "dynamic_update_slice":
        return op.inputs[0] is over and not any(each is over for each in chain(*reads(Op("update", op.inputs[1:], []))))
    return over in elementwise and over not in other and over.bytes == value.bytes


def _aligned(bytes: int) -> int:
    return -(-bytes // ALIGNMENT) * ALIGNMENT
