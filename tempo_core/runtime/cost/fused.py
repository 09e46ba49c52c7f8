"""Which operations of a traced device program XLA fuses, and which values it computes into memory.

These are the rules of XLA's CPU compiler. A cheap operation (elementwise, or a slice, say) is computed in each kernel that reads it. It is
in memory if something reads it that cannot compute it: a product, a loop, the caller. Then other readers still compute it again if it
reads one array. If it reads several and some reader cannot compute it, it is in memory for all. An expensive operation, a padding and a
concatenation are computed once. XLA's library of reductions reads its operands from memory, and its results are there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from tempo_core.runtime.cost.traced import CHEAP, NOT_ELEMENTWISE, OWN, REDUCTIONS, WINDOWS, Computation, Op, Trace, Value

_REDUCED_ALONG = {"add", "sub", "mul", "div", "max", "min", "exp", "neg", "broadcast_in_dim", "integer_pow", "square"}
_BRANCHING = ("pad", "concatenate", "stack")  # XLA computes them once for a kernel, or into memory
_EXPENSIVE = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "digamma", "div", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "lgamma", "log", "log1p", "logistic", "pow", "rem", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "gather",
}  # fmt: skip
_RETURNED = (0, 0)  # stands among the kernels that read a value: the computation gives it
MOST_COPIES = 15  # of the code of a fused value in one kernel


def decide(program: Trace) -> None:
    """Which values are in memory, and which operations are kernels."""
    _count(program.whole)
    reduced = set(_of_reductions(program.whole))
    _decide(program.whole, reduced, set(reduced))


def _count(computation: Computation) -> None:
    for op in computation.ops:
        for value in op.inputs:
            value.users += 1
            if value.computation is computation:
                value.readers.append(op)
        for inner in op.inner:
            _count(inner)
    for value in computation.results:
        value.users += 1


def _decide(computation: Computation, reduced: set[int], needed: set[int]) -> None:
    """From the results to the operands: `needed` are the values that a reader cannot compute, `reduced` the results of reductions."""
    places = {id(op): place for place, op in enumerate(computation.ops)}
    for value in computation.results:
        needed.add(id(value))
        value.indices.add(_RETURNED)
    for op in reversed(computation.ops):
        if op.inner:
            for carry in op.carries:
                for value in (carry.initial, carry.received, carry.result):
                    value.in_memory = True
            for value in op.outputs:
                value.in_memory = True
            for inner in op.inner:
                _decide(inner, reduced, needed)
        is_kernel = _is_kernel(op)
        for value in op.outputs:
            is_stored = _is_stored(op, value, places)
            value.in_memory = value.in_memory or is_kernel or id(value) in needed or is_stored
            value.is_repeated = value.in_memory and not (is_kernel or is_stored or id(value) in reduced or not _is_repeated(op))
        op.is_kernel = is_kernel or any(value.in_memory for value in op.outputs)
        again = [value for value in op.outputs if value.is_repeated or not op.is_kernel]
        kernels: set[int] = set().union({id(op)} if op.is_kernel else (), *(value.kernels for value in again))
        indices: set[tuple[int, int]] = set().union({(id(op), 0)} if op.is_kernel else (), *(v.indices for v in again))
        for position, value in enumerate(op.inputs):
            if value.is_literal:
                continue
            if op.name in REDUCTIONS:
                needed.update(map(id, _read_by_reduction(value)))
            if value.computation is not computation or _needs_in_memory(op, position, value):
                needed.add(id(value))
                continue
            value.kernels |= kernels
            moved = {(kernel, hash((id(op), position, index))) for kernel, index in indices}
            value.indices |= indices if is_elementwise(op) else moved


# -- values with several readers --------------------------------------------------------------------------------------


def _is_stored(op: Op, value: Value, places: Mapping[int, int]) -> bool:
    """Whether several readers of a value are a reason to have it in memory."""
    if _is_free(value):
        return False
    if op.name == "indices" or (op.name in _BRANCHING and (len(_indices(op, value)) > 1 or value.users > 1)):
        return True
    if op.name in _EXPENSIVE and len(value.kernels) > 1:
        return True
    if value.users > 1 and op.name not in ("row", "zeros") and not (_is_repeated(op) or _is_fused_everywhere(op, value, places)):
        return True
    copies = Counter(kernel for kernel, _ in value.indices)
    return max(copies.values(), default=0) > MOST_COPIES


def _indices(op: Op, value: Value) -> set[tuple[int, int]]:
    """The kernels that read a value, with the ways on which they do. A padding whose reader is returned has no other reader for that."""
    return value.indices - {_RETURNED} if op.name == "pad" else value.indices


def _is_repeated(op: Op) -> bool:
    """Whether XLA computes a cheap operation again in its readers although it is in memory."""
    return op.name not in _BRANCHING and _reads_one(op)


def _reads_one(op: Op) -> bool:
    """Whether a cheap operation reads one array, or no more than it gives."""
    if op.name in _EXPENSIVE or _is_kernel(op) or len(op.outputs) != 1:
        return False
    (result,) = op.outputs
    rank, size = len(result.shape), math.prod(result.shape)
    operands = {id(value): value for value in op.inputs}.values()
    large = [v for v in operands if not _is_free(v) and (len(v.shape) >= rank or math.prod(v.shape) >= size)]
    arrays = [v for v in large if v.producer is None or v.producer.name != "broadcast_in_dim"]
    return len(arrays) <= 1 or sum(value.bytes for value in operands) <= result.bytes


def _is_fused_everywhere(op: Op, value: Value, places: Mapping[int, int]) -> bool:
    """Whether all readers of a value can compute it: between it and them is no value that only memory can hand on."""
    last = max((places[id(reader)] for reader in value.readers), default=-1)
    below = {id(value)}  # what is computed from it
    blocked: set[int] = set()  # and not fused on all ways
    for each in value.computation.ops[places[id(op)] + 1 : last + 1]:
        ways = [operand for operand in each.inputs if id(operand) in below]
        if not ways:
            continue
        is_blocked = any(id(operand) in blocked for operand in ways)
        if is_blocked and any(reader is each for reader in value.readers):
            return False
        for output in each.outputs:
            below.add(id(output))
            if is_blocked or (output.in_memory and not _reads_one(each)):
                blocked.add(id(output))
    return True


# -- operations that read from memory ---------------------------------------------------------------------------------


def _is_kernel(op: Op) -> bool:
    """Whether XLA fuses an operation into no reader of its result."""
    return bool(op.inner) or op.name in (*OWN, *WINDOWS, *REDUCTIONS, "dynamic_update_slice")


def _needs_in_memory(op: Op, position: int, value: Value) -> bool:
    """Whether an operation cannot compute an operand."""
    if op.inner or op.name in OWN or op.name in WINDOWS:
        return True
    if op.name == "dynamic_update_slice":  # it writes in place, unless it reads the array elsewhere
        return position == 0 or _reads(value, op.inputs[0])
    producer = "" if value.producer is None else value.producer.name
    if op.name == "gather" and position == 0 and producer and producer not in CHEAP:
        return True
    if op.name in ("broadcast_in_dim", "gather"):  # they read an element several times
        return producer in _EXPENSIVE
    if op.name == "transpose":  # one that is not fused is a copy of its operand, which XLA has in another layout
        return op.is_kernel and producer != ""
    return op.name in REDUCTIONS and not _is_reduced_along(value)


def _reads(value: Value, array: Value) -> bool:
    """Whether a value that is not in memory yet is computed from an array."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each is array:
            return True
        producer = each.producer
        if id(each) in seen or producer is None or each.in_memory or producer.inner or each.computation is not array.computation:
            continue
        seen.add(id(each))
        waiting += producer.inputs
    return False


# -- XLA's library of reductions --------------------------------------------------------------------------------------


def _is_reduced_along(value: Value) -> bool:
    """Whether a reduction computes its operand as it goes."""
    return value.producer is not None and value.producer.name in _REDUCED_ALONG and value.users == 1


def _read_by_reduction(value: Value) -> Iterator[Value]:
    """The values that a reduction reads from memory for an operand."""
    if _is_reduced_along(value) and value.producer is not None:
        for source in value.producer.inputs:
            yield from _read_by_reduction(source)
    elif not value.is_literal:
        yield value


def _of_reductions(computation: Computation) -> Iterator[int]:
    """What reductions give: operations on a result are computed with it, up to one that is read several times."""
    for op in computation.ops:
        for inner in op.inner:
            yield from _of_reductions(inner)
        if op.name in REDUCTIONS:
            value = op.outputs[0]
            while value.users == 1 and value.readers and _is_joined(value.readers[0], value):
                op.joined = value.readers[0]
                value = op.joined.outputs[0]
            yield id(value)


def _is_joined(op: Op, value: Value) -> bool:
    """Whether an operation on a reduction's result is computed with it."""
    others = (each.producer for each in op.inputs if each is not value and not _is_free(each))
    return op.name in _REDUCED_ALONG and all(each is None or each.name in (*_REDUCED_ALONG, *REDUCTIONS) for each in others)


# -- what kernels read ------------------------------------------------------------------------------------------------


def _is_free(value: Value) -> bool:
    """Whether a value follows from positions and constants alone, so that each reader computes it again."""
    if value.is_literal:
        return True
    producer = value.producer
    if value.is_carried or value.is_external or producer is None:
        return False
    return producer.name in ("iota", "zeros") or (producer.name == "broadcast_in_dim" and all(map(_is_free, producer.inputs)))


def reads(op: Op) -> tuple[list[Value], list[Value]]:
    """The values in memory that a kernel reads: element by element, and in other ways. Those of a loop include its bodies'."""
    elementwise: dict[int, Value] = {}
    other: dict[int, Value] = {}
    seen: set[tuple[int, bool, bool]] = set()

    def visit(value: Value, aligned: bool, from_memory: bool) -> None:
        if value.is_literal or (id(value), aligned, from_memory) in seen:
            return
        seen.add((id(value), aligned, from_memory))
        producer = value.producer
        if producer is None or (value.in_memory and (from_memory or not value.is_repeated)):
            (elementwise if aligned else other)[id(value)] = value
            return
        for source in producer.inputs:
            visit(source, aligned and is_elementwise(producer), source.computation is not value.computation)

    if op.name in REDUCTIONS:
        for source in (each for value in op.inputs for each in _read_by_reduction(value)):
            visit(source, False, True)
    else:
        for position, source in enumerate(op.inputs):
            is_far = not op.outputs or source.computation is not op.outputs[0].computation
            visit(source, is_elementwise(op), is_far or _needs_in_memory(op, position, source))
    for inner in op.inner:
        for value in inner.results:
            visit(value, False, True)
        for each in inner.ops:
            for value in chain(*reads(each)) if each.is_kernel else ():
                if inner not in value.computation.around:
                    other[id(value)] = value
    return list(elementwise.values()), list(other.values())


def is_elementwise(op: Op) -> bool:
    """Whether an operation reads its operands at the elements that it gives."""
    return not op.inner and op.name not in NOT_ELEMENTWISE
