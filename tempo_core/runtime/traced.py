"""A traced device program as the kernels that XLA makes of it: which operations are fused, and which values are in memory.

What does not change in a loop is computed before it. Elementwise operations, slices and paddings are fused into what reads them, unless
several kernels do, or one that needs its operands in memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from tempo_core.backends.scopes import Scope

_CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
)
_ALIASES = ("reshape", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient", "bitcast_convert_type")
_MOVES = (
    "broadcast_in_dim",
    "iota",
    "slice",
    "dynamic_slice",
    "pad",
    "concatenate",
    "transpose",
    "rev",
)  # fused, and not element by element
_REDUCTIONS = (
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
    "argmax",
    "argmin",
)
WINDOWS = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "reduce_window", "reduce_window_sum", "reduce_window_max")
_IN_MEMORY = (
    "dot_general", "conv_general_dilated", "sort", "top_k", "gather", "scatter", "scatter-add", "scatter_add", "scatter_mul",
    "scatter_max", "scatter_min", "pure_callback", "io_callback", "triangular_solve", "cholesky", "while", "scan", "cond",
)  # fmt: skip
_CHEAP = ("broadcast_in_dim", "iota", "rev", "slice", "transpose")  # XLA computes them in each iteration
_BRANCHING = ("pad", "concatenate")  # XLA computes them once for a kernel, or into memory
_NOT_ELEMENTWISE = {*_MOVES, *_REDUCTIONS, *WINDOWS, *_IN_MEMORY, "dynamic_update_slice", "zeros", "row"}
MOST_PADDINGS = 2  # in one kernel
MOST_COPIES = 15  # of the code of a fused value in one kernel


@dataclass(eq=False)
class Value:
    """A value of the traced program."""

    shape: tuple[int, ...]
    dtype: Any
    statement: int | None
    computation: Computation  # that defines it
    producer: Op | None = None
    is_external: bool = False  # an argument
    is_literal: bool = False
    is_carried: bool = False  # what an iteration takes over
    in_memory: bool = False
    kernels: set[int] = field(default_factory=set)  # that read it, directly or through fused values
    indices: set[object] = field(default_factory=set)  # at which its fused readers compute it
    users: int = 0
    last: int = -1  # the time of its last read

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * int(getattr(self.dtype, "itemsize", 4))

    @property
    def type(self) -> tuple[object, ...]:
        return self.dtype, self.shape


@dataclass(eq=False)
class Op:
    """An operation. A loop or a condition has `inner` computations, and a loop its `carries`."""

    name: str
    inputs: list[Value]
    outputs: list[Value]
    inner: list[Computation] = field(default_factory=list)
    carries: list[Carry] = field(default_factory=list)
    pointers: int = 0  # entries of its table of pointers
    counters: int = 0  # numbers of its own
    axis: int | None = None  # along which it computes sums of windows
    is_kernel: bool = False
    begin: int = -1
    end: int = -1


@dataclass(eq=False)
class Computation:
    """The operations of a program, of a loop's body or condition, or of a branch; and what it hands on."""

    level: int
    around: tuple[Computation, ...] = ()  # this one, and those around it
    ops: list[Op] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    is_body: bool = False
    begin: int = -1
    end: int = -1


@dataclass(eq=False)
class Carry:
    """One value of a loop: what it begins with, what an iteration takes over, what it hands on, and the result."""

    initial: Value
    taken: Value
    handed: Value
    result: Value


# -- reading the traced program ---------------------------------------------------------------------------------------


class Trace:
    """A traced program as computations. What does not change in a loop is computed before it, as XLA does."""

    def __init__(self, closed: Any, donated: int):
        self.whole = Computation(0)
        self.whole.around = (self.whole,)
        arguments = [self._value(v.aval, None, self.whole) for v in closed.jaxpr.invars]
        self.arguments, self.donated = arguments, set(map(id, arguments[:donated]))
        self._literals: dict[object, Value] = {}
        self._same: dict[object, list[Value]] = {}  # the results of equal operations
        for value in arguments:
            value.is_external = value.in_memory = True
        self.whole.results = self._run(closed.jaxpr, closed.consts, arguments, self.whole)

    def _value(self, aval: Any, statement: int | None, at: Computation, rows: int | None = None) -> Value:
        shape, dtype = tuple(getattr(aval, "shape", ())), getattr(aval, "dtype", np.dtype("int32"))
        return Value(tuple(map(int, shape if rows is None else (rows, *shape))), dtype, statement, at)

    def _run(
        self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Value], at: Computation, caller: int | None = None
    ) -> list[Value]:
        """Add the operations of a jaxpr; gives the values of its results. Those in no statement belong to the `caller`'s."""
        values: dict[Any, Value] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable in jaxpr.constvars:
            values[variable] = self._value(variable.aval, None, at)
            values[variable].is_external = values[variable].in_memory = True

        def of(atom: Any) -> Value:
            return self._literal(atom) if hasattr(atom, "val") else values[atom]

        needed = _needed(jaxpr)
        for equation in jaxpr.eqns:
            if id(equation) in needed:
                results = self._equation(equation, [of(atom) for atom in equation.invars], at, caller)
                values.update(zip(equation.outvars, results, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def _literal(self, atom: Any) -> Value:
        key = (str(atom.aval), repr(atom.val))
        if key not in self._literals:
            self._literals[key] = self._value(atom.aval, None, self.whole)
            self._literals[key].is_literal = True
        return self._literals[key]

    def _equation(self, equation: Any, inputs: list[Value], at: Computation, caller: int | None) -> list[Value]:
        name, params = equation.primitive.name, equation.params
        statement = _statement(equation, caller)
        if name in _CALLS:
            inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
            body, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
            return self._run(body, consts, inputs, at, statement)
        if name == "while":
            first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            condition = (params["cond_jaxpr"], inputs[:first])
            return self._loop(params["body_jaxpr"], inputs[first:second], inputs[second:], [], 0, condition, statement, at)
        if name == "scan":
            first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
            rows = inputs[second:]
            return self._loop(params["jaxpr"], inputs[:first], inputs[first:second], rows, params["length"], None, statement, at)
        if name == "cond":
            return self._cond(equation, inputs, statement, at)
        key = (name, *map(id, inputs), str(params), *(str(v.aval) for v in equation.outvars))
        if name != "iota" and key in self._same and all(value.computation in at.around for value in self._same[key]):
            return self._same[key]
        outputs = [self._value(v.aval, statement, at) for v in equation.outvars]
        if inputs and all(value.is_literal for value in inputs) and name not in _IN_MEMORY:
            for value in outputs:
                value.is_literal = True
        else:
            is_view = name in _ALIASES or (
                name in ("broadcast_in_dim", "transpose") and _is_bitcast(inputs[0].shape, outputs[0].shape)
            )
            if is_view or (name == "convert_element_type" and outputs[0].type == inputs[0].type):
                outputs = [inputs[0]]
            else:
                self._add(name, inputs, outputs, at).axis = params.get("axis") if name in WINDOWS else None
        self._same[key] = outputs
        return outputs

    def _add(self, name: str, inputs: list[Value], outputs: list[Value], at: Computation) -> Op:
        op = Op(name, inputs, outputs)
        for value in outputs:
            value.producer = op
        home = at
        if name not in _CHEAP and name != "row":
            home = self._before_loops(op, at)
            self._hoist(inputs, home)
        for value in outputs:
            value.computation = home
        home.ops.append(op)
        return op

    def _before_loops(self, op: Op, at: Computation) -> Computation:
        """The computation in which an operation runs: outside of the loops in which its operands stay the same."""
        while at.is_body and op.inputs and all(self._is_fixed(value, at) for value in op.inputs):
            at = at.around[-2]
        return at

    def _is_fixed(self, value: Value, at: Computation) -> bool:
        """Whether a value is the same in all iterations of a body."""
        if value.is_literal or value.computation.level < at.level:
            return True
        producer = value.producer
        return producer is not None and producer.name in _CHEAP and all(self._is_fixed(v, at) for v in producer.inputs)

    def _hoist(self, values: Sequence[Value], home: Computation) -> None:
        """Move the cheap operations behind some values to the computation in which they are needed."""
        for value in values:
            if value.producer is not None and value.computation.level > home.level:
                self._hoist(value.producer.inputs, home)
                value.computation.ops.remove(value.producer)
                home.ops.append(value.producer)
                for output in value.producer.outputs:
                    output.computation = home

    def _loop(
        self, body: Any, consts: Sequence[Value], initial: Sequence[Value], rows: Sequence[Value], length: int,
        condition: tuple[Any, Sequence[Value]] | None, statement: int | None, at: Computation,
    ) -> list[Value]:  # fmt: skip
        """A loop: of `rows`, each iteration takes one row; its last results are rows of `length`."""
        jaxpr, count = body.jaxpr, len(initial)
        inner = Computation(at.level + 1, is_body=True)
        inner.around = (*at.around, inner)
        variables = jaxpr.invars[len(consts) :]
        stays = [jaxpr.outvars[k] is variable for k, variable in enumerate(variables[:count])]
        taken = [value if stays[k] else self._value(variables[k].aval, statement, inner) for k, value in enumerate(initial)]
        elements = [self._value(variable.aval, statement, inner) for variable in variables[count:]]
        for row, element in zip(rows, elements, strict=True):
            self._add("row", [row], [element], inner)
        handed = self._run(jaxpr, body.consts, [*consts, *taken, *elements], inner, statement)
        loop = Op("loop", [*consts, *initial, *rows], [], [inner])
        loop.pointers = len(consts) + len(initial) + len(handed) - count + len(rows) + (condition is None)
        loop.counters = 0 if condition else 1 if any(map(_counts, taken, handed)) else 2
        if condition is not None:
            test = Computation(at.level + 1)
            test.around = (*at.around, test)
            loop.inner.insert(0, test)
            loop.inputs += condition[1]
            test.results = self._run(condition[0].jaxpr, condition[0].consts, [*condition[1], *taken], test, statement)
        results = []
        for k, value in enumerate(initial):
            result = value if stays[k] else self._value(variables[k].aval, statement, at)
            results.append(result)
            if not stays[k]:
                loop.carries.append(Carry(value, taken[k], handed[k], result))
        for variable, value in zip(jaxpr.outvars[count:], handed[count:], strict=True):
            statement = value.statement
            zeros, result = (self._value(variable.aval, statement, at, length) for _ in range(2))
            before, after = (self._value(variable.aval, statement, inner, length) for _ in range(2))
            zeros.producer = Op("zeros", [], [zeros])
            self._add("dynamic_update_slice", [before, value], [after], inner)
            loop.carries.append(Carry(zeros, before, after, result))
            results.append(result)
        inner.results = [carry.handed for carry in loop.carries]
        for carry in loop.carries:
            carry.taken.is_carried = True
            carry.result.producer = loop
            carry.result.statement = carry.handed.statement
            loop.outputs.append(carry.result)
        at.ops.append(loop)
        return results

    def _cond(self, equation: Any, inputs: list[Value], statement: int | None, at: Computation) -> list[Value]:
        outputs = [self._value(v.aval, statement, at) for v in equation.outvars]
        op = Op("condition", inputs, outputs, pointers=len(inputs) + len(outputs))
        for value in outputs:
            value.producer = op
        for branch in equation.params["branches"]:
            inner = Computation(at.level + 1)
            inner.around = (*at.around, inner)
            inner.results = self._run(branch.jaxpr, branch.consts, inputs[1:], inner, statement)
            op.inner.append(inner)
        at.ops.append(op)
        return outputs


# -- what is in memory ------------------------------------------------------------------------------------------------


def decide(program: Trace) -> None:
    """Which values XLA computes into memory: those of kernels, those that kernels need there, and those that several kernels read."""
    needed: set[int] = set()
    paddings: Counter[int] = Counter()  # in each kernel

    def of(computation: Computation) -> None:
        for value in computation.results:
            needed.add(id(value))
            value.indices.add(None)
        for op in reversed(computation.ops):
            if op.inner:
                for carry in op.carries:
                    for value in (carry.initial, carry.taken, carry.result):
                        value.in_memory = True
                for value in op.outputs:
                    value.in_memory = True
                for inner in op.inner:
                    of(inner)
            own = (
                bool(op.inner)
                or op.name in _IN_MEMORY
                or op.name in WINDOWS
                or op.name in _REDUCTIONS
                or op.name == "dynamic_update_slice"
            )
            for value in op.outputs:
                value.in_memory = value.in_memory or own or id(value) in needed or _must_be_stored(value, paddings)
            op.is_kernel = own or any(value.in_memory for value in op.outputs)
            kernels = {id(op)} if op.is_kernel else set().union(*(value.kernels for value in op.outputs))
            indices = {id(op)} if op.is_kernel else set().union(*(value.indices for value in op.outputs))
            if op.name in _BRANCHING and not op.is_kernel:
                paddings.update(kernels)
            elementwise = is_elementwise(op)
            for position, value in enumerate(op.inputs):
                if value.is_literal:
                    continue
                value.kernels |= kernels
                value.users += 1
                value.indices |= indices if elementwise else {hash((id(op), position, index)) for index in indices}
                if not value.is_literal and (value.computation is not computation or _needs_in_memory(op, position, value)):
                    needed.add(id(value))

    of(program.whole)


def _must_be_stored(value: Value, paddings: Mapping[int, int]) -> bool:
    """Whether several kernels read a value, or one computes it too often."""
    if _is_free(value):
        return False
    emitted = len(value.indices)
    by_branches = (
        value.producer is not None
        and value.producer.name in _BRANCHING
        and (emitted > 1 or value.users > 1 or any(paddings.get(kernel, 0) >= MOST_PADDINGS for kernel in value.kernels))
    )
    return len(value.kernels) > 1 or emitted > MOST_COPIES or by_branches


def _needs_in_memory(op: Op, position: int, value: Value) -> bool:
    """Whether an operand of a kernel has to be in memory."""
    if op.name == "gather" and position == 1:
        return not _is_free(value)
    if op.inner or op.name in _IN_MEMORY or op.name in WINDOWS:
        return True
    if op.name == "dynamic_update_slice":
        return position == 0
    producer = value.producer
    return op.name in _REDUCTIONS and producer is not None and producer.name == "select_n"


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

    seen: set[tuple[int, bool]] = set()

    def visit(value: Value, aligned: bool) -> None:
        if value.is_literal or (id(value), aligned) in seen:
            return
        seen.add((id(value), aligned))
        if value.in_memory or value.producer is None:
            (elementwise if aligned else other)[id(value)] = value
            return
        for source in value.producer.inputs:
            visit(source, aligned and is_elementwise(value.producer))

    for source in op.inputs:
        visit(source, is_elementwise(op))
    for inner in op.inner:
        for value in inner.results:
            visit(value, False)
        for each in inner.ops:
            for value in chain(*reads(each)) if each.is_kernel else ():
                if inner not in value.computation.around:
                    other[id(value)] = value
    return list(elementwise.values()), list(other.values())


def is_elementwise(op: Op) -> bool:
    return not op.inner and op.name not in _NOT_ELEMENTWISE


def _is_bitcast(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two shapes differ in dimensions of size 1 alone."""
    return [size for size in shape if size != 1] == [size for size in other if size != 1] and math.prod(shape) == math.prod(other)


def _counts(taken: Value, handed: Value) -> bool:
    """Whether a carried value is a counter: XLA keeps one of them for a loop."""
    producer = handed.producer
    return not taken.shape and producer is not None and producer.name == "add" and any(v is taken for v in producer.inputs)


def _needed(jaxpr: Any) -> set[int]:
    """The equations whose results are needed."""
    live = {id(atom) for atom in jaxpr.outvars}
    needed: set[int] = set()
    for equation in reversed(jaxpr.eqns):
        if any(id(variable) in live for variable in equation.outvars) or equation.effects:
            needed.add(id(equation))
            live |= {id(atom) for atom in equation.invars}
    return needed


def _statement(equation: Any, caller: int | None) -> int | None:
    scope = Scope.of(str(equation.source_info.name_stack))
    return caller if scope is None or scope.statement is None else scope.statement[0]
