"""A traced device program as operations on values, in computations: the program, the bodies of its loops, the branches of its conditions.

What does not change in a loop is computed before it, equal operations are one, and what XLA simplifies is left out or written as XLA
computes it: views of a value, slices of a padding that give its operand, transpositions that another one turns back, elementwise operations
on a repeated value, quotients by a number or by a repeated value, and what nothing reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempo_core.backends.scopes import Scope
from tempo_core.ir.types import is_float

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
OWN = (
    "dot_general", "conv_general_dilated", "sort", "top_k", "scatter", "scatter-add", "scatter_add", "scatter_mul",
    "scatter_max", "scatter_min", "pure_callback", "io_callback", "triangular_solve", "cholesky", "while", "scan", "cond",
)  # fmt: skip
WINDOWS = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "reduce_window", "reduce_window_sum", "reduce_window_max")
CHEAP = ("broadcast_in_dim", "iota", "rev", "slice", "transpose")  # XLA computes them in each iteration
REDUCTIONS = (
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin",
)  # fmt: skip
NOT_ELEMENTWISE = {
    *CHEAP, *REDUCTIONS, *WINDOWS, *OWN, "dynamic_slice", "dynamic_update_slice", "pad", "concatenate", "stack", "gather", "indices",
    "zeros", "row",
}  # fmt: skip


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
    is_repeated: bool = False  # it is in memory, and kernels that could read it there compute it again
    kernels: set[int] = field(default_factory=set)  # that read it, directly or through fused values
    indices: set[tuple[int, int]] = field(default_factory=set)  # at which kernels compute it, fused
    users: int = 0
    readers: list[Op] = field(default_factory=list)  # in its own computation
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
    axis: int | None = None  # along which it computes sums of windows, or concatenates
    padding: tuple[tuple[int, int, int], ...] = ()
    permutation: tuple[int, ...] = ()
    joined: Op | None = None  # of a reduction: the last operation that is computed with it
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
    takes_fixed: bool = False  # of a body: it takes values from outside that stay the same; XLA moves nothing out of others
    begin: int = -1
    end: int = -1


@dataclass(eq=False)
class Carry:
    """One value of a loop: what it begins with, what an iteration takes over, what it hands on, and the result."""

    initial: Value
    received: Value
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
        while _without_dead(self.whole, _uses(self.whole)):
            pass

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
            values[variable].is_literal = math.prod(values[variable].shape) == 1  # a number, which is a constant for XLA

        def of(atom: Any) -> Value:
            return self._literal(atom) if hasattr(atom, "val") else values[atom]

        needed = _needed(jaxpr)
        uses = Counter(id(atom) for equation in jaxpr.eqns if id(equation) in needed for atom in equation.invars)
        uses.update(map(id, jaxpr.outvars))
        for equation in jaxpr.eqns:
            if id(equation) in needed:
                once = [not hasattr(atom, "val") and uses[id(atom)] == 1 for atom in equation.invars]
                results = self._equation(equation, [of(atom) for atom in equation.invars], once, at, caller)
                values.update(zip(equation.outvars, results, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def _literal(self, atom: Any) -> Value:
        key = (str(atom.aval), repr(atom.val))
        if key not in self._literals:
            self._literals[key] = self._value(atom.aval, None, self.whole)
            self._literals[key].is_literal = True
        return self._literals[key]

    def _equation(
        self, equation: Any, inputs: list[Value], once: Sequence[bool], at: Computation, caller: int | None
    ) -> list[Value]:
        """Add an operation; gives its results. `once` are the inputs that nothing else reads."""
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
            fixed, carried, rows = _of_scan(inputs, params)
            return self._loop(params["jaxpr"], fixed, carried, rows, params["length"], None, statement, at)
        if name == "cond":
            return self._cond(equation, inputs, statement, at)
        if name == "div" and is_float(str(inputs[1].dtype)):
            name, inputs = self._product(inputs, statement, at)
        key = (name, *map(id, inputs), str(params), *(str(v.aval) for v in equation.outvars))
        if name != "iota" and key in self._same and all(value.computation in at.around for value in self._same[key]):
            return self._same[key]
        outputs = [self._value(v.aval, statement, at) for v in equation.outvars]
        if inputs and name not in OWN and (all(value.is_literal for value in inputs) or _is_folded(name, inputs)):
            for value in outputs:
                value.is_literal = True
        else:
            if name == "concatenate":
                inputs = [value for value in inputs if math.prod(value.shape)]
            known = (
                _part(inputs[0], params) if name == "slice" else _turned_back(inputs[0], params) if name == "transpose" else None
            )
            if name == "dynamic_slice" and once[0] and inputs[0].producer is not None and inputs[0].producer.name == name:
                inputs = [*inputs[0].producer.inputs, *inputs[1:]]  # XLA reads a slice of a slice where the first one does
            repeated = _repeated(name, inputs, once)
            if known is not None:
                outputs = [known]
            elif repeated is not None:  # of a value that is repeated, it is computed once, and repeated then
                source = inputs[repeated].producer
                assert source is not None
                small = Value(source.inputs[0].shape, outputs[0].dtype, statement, at)
                self._add(name, [*inputs[:repeated], source.inputs[0], *inputs[repeated + 1 :]], [small], at)
                self._add("broadcast_in_dim", [small], outputs, at)
            elif _is_view(name, params, inputs, outputs[0]):
                outputs = [inputs[0]]
            else:
                if name == "gather":
                    inputs = [inputs[0], self._whole_indices(inputs[1], equation, statement, at)]
                op = self._add(name, inputs, outputs, at)
                op.axis = params.get("axis") if name in WINDOWS else params.get("dimension") if name == "concatenate" else None
                op.padding = params.get("padding_config", ())
                op.permutation = tuple(params.get("permutation", ()))
        self._same[key] = outputs
        return outputs

    def _whole_indices(self, indices: Value, gather: Any, statement: int | None, at: Computation) -> Value:
        """The indices of a gather as XLA takes them: those along its batch dimensions are next to the others."""
        count, shape = len(gather.params["dimension_numbers"].operand_batching_dims), gather.invars[1].aval.shape
        if not count:
            return indices
        key = ("indices", id(indices), count)
        if key not in self._same or any(value.computation not in at.around for value in self._same[key]):
            whole = Value((*shape[:-1], shape[-1] + count), indices.dtype, statement, at)
            self._add("indices", [indices], [whole], at)
            self._same[key] = [whole]
        return self._same[key][0]

    def _product(self, inputs: list[Value], statement: int | None, at: Computation) -> tuple[str, list[Value]]:
        """A quotient as XLA computes it: a product where the divisor is a number, or the same number for many elements."""
        x, y = inputs
        if y.is_literal:
            return "mul", [x, y]
        broadcast = y.producer
        if (
            broadcast is None
            or broadcast.name != "broadcast_in_dim"
            or math.prod(broadcast.inputs[0].shape) >= math.prod(y.shape)
        ):
            return "div", [x, y]
        divisor = broadcast.inputs[0]
        key = ("reciprocal", id(divisor), y.shape)
        if key not in self._same or any(value.computation not in at.around for value in self._same[key]):
            small, whole = Value(divisor.shape, divisor.dtype, statement, at), Value(y.shape, y.dtype, statement, at)
            self._add("div", [divisor], [small], at)
            self._add("broadcast_in_dim", [small], [whole], at)
            self._same[key] = [whole]
        return "mul", [x, self._same[key][0]]

    def _add(self, name: str, inputs: list[Value], outputs: list[Value], at: Computation) -> Op:
        op = Op(name, inputs, outputs)
        for value in outputs:
            value.producer = op
        home = at
        if name not in CHEAP and name != "row":
            home = self._before_loops(op, at)
            self._hoist(inputs, home)
        for value in outputs:
            value.computation = home
        home.ops.append(op)
        return op

    def _before_loops(self, op: Op, at: Computation) -> Computation:
        """The computation in which an operation runs: outside of the loops in which its operands stay the same."""
        while at.is_body and at.takes_fixed and op.inputs and all(self._is_fixed(value, at) for value in op.inputs):
            at = at.around[-2]
        return at

    def _is_fixed(self, value: Value, at: Computation) -> bool:
        """Whether a value is the same in all iterations of a body."""
        if value.is_literal or value.computation.level < at.level:
            return True
        producer = value.producer
        return producer is not None and producer.name in CHEAP and all(self._is_fixed(v, at) for v in producer.inputs)

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
        fixed = [*consts, *rows, *(value for k, value in enumerate(initial) if stays[k])]
        inner.takes_fixed = not all(value.is_literal for value in fixed)
        received = [value if stays[k] else self._value(variables[k].aval, statement, inner) for k, value in enumerate(initial)]
        elements = [self._value(variable.aval, statement, inner) for variable in variables[count:]]
        for row, element in zip(rows, elements, strict=True):
            self._add("row", [row], [element], inner)
        handed = self._run(jaxpr, body.consts, [*consts, *received, *elements], inner, statement)
        loop = Op("loop", [*consts, *initial, *rows], [], [inner])
        loop.pointers = len(consts) + len(initial) + len(handed) - count + len(rows) + (condition is None)
        loop.counters = 0 if condition else 1 if any(map(_counts, received, handed)) else 2
        if condition is not None:
            test = Computation(at.level + 1)
            test.around = (*at.around, test)
            loop.inner.insert(0, test)
            loop.inputs += condition[1]
            test.results = self._run(condition[0].jaxpr, condition[0].consts, [*condition[1], *received], test, statement)
        results = []
        for k, value in enumerate(initial):
            result = value if stays[k] else self._value(variables[k].aval, statement, at)
            results.append(result)
            if not stays[k]:
                loop.carries.append(Carry(value, received[k], handed[k], result))
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
            carry.received.is_carried = True
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


def _uses(computation: Computation) -> Counter[int]:
    """How often each value is read, by its identity."""
    uses = Counter(map(id, computation.results))
    for op in computation.ops:
        uses.update(map(id, op.inputs))
        for inner in op.inner:
            uses += _uses(inner)
    return uses


def _without_dead(computation: Computation, uses: Mapping[int, int]) -> bool:
    """Leave out what nothing reads: operations, and values that a loop hands to iterations which do not read them."""
    is_changed = False
    for op in computation.ops:
        for carry in [each for each in op.carries if not uses.get(id(each.received)) and not uses.get(id(each.result))]:
            op.carries.remove(carry)
            op.inputs.remove(carry.initial)
            op.outputs.remove(carry.result)
            op.inner[-1].results.remove(carry.handed)
            op.pointers -= 1
            is_changed = True
        for inner in op.inner:
            is_changed |= _without_dead(inner, uses)
    live = [op for op in computation.ops if op.inner or not op.outputs or any(uses.get(id(value)) for value in op.outputs)]
    is_changed |= len(live) < len(computation.ops)
    computation.ops = live
    return is_changed


def _is_view(name: str, params: Mapping[str, Any], inputs: Sequence[Value], output: Value) -> bool:
    """Whether an operation gives its first operand, perhaps in another shape."""
    if name in _ALIASES:
        return True
    if name in ("broadcast_in_dim", "transpose"):
        return _is_bitcast(inputs[0].shape, output.shape)
    if name == "concatenate":
        return len(inputs) == 1
    if name == "pad":
        return not any(size for each in params["padding_config"] for size in each)
    return name in ("slice", "dynamic_slice", "convert_element_type") and inputs[0].type == output.type


def _repeated(name: str, inputs: Sequence[Value], once: Sequence[bool]) -> int | None:
    """The position of an elementwise operation's only operand, if it repeats a smaller value and nothing else reads it."""
    if name in NOT_ELEMENTWISE or name == "convert_element_type":
        return None
    others = [k for k, value in enumerate(inputs) if not value.is_literal]
    source = inputs[others[0]].producer if len(others) == 1 and once[others[0]] else None
    if source is None or source.name != "broadcast_in_dim" or len(source.outputs[0].shape) != len(inputs[others[0]].shape):
        return None
    size = math.prod(source.inputs[0].shape)
    return others[0] if 1 < size < math.prod(source.outputs[0].shape) else None


def _is_folded(name: str, inputs: Sequence[Value]) -> bool:
    """Whether XLA computes a result before the program runs: a place, given as numbers, of what follows from positions alone."""
    return name in ("dynamic_update_slice", "gather") and all(map(_follows_from_positions, inputs))


def _follows_from_positions(value: Value) -> bool:
    if value.is_literal or value.producer is None:
        return value.is_literal
    op = value.producer
    return op.name == "iota" or (op.name in ("broadcast_in_dim", "concatenate") and all(map(_follows_from_positions, op.inputs)))


def _turned_back(value: Value, params: Mapping[str, Any]) -> Value | None:
    """The operand of a transposition that another one turns back; None if it is turned in another way."""
    op, permutation = value.producer, params["permutation"]
    if op is None or op.name != "transpose" or len(op.permutation) != len(permutation) or op.outputs[0].shape != value.shape:
        return None
    return op.inputs[0] if [op.permutation[k] for k in permutation] == list(range(len(permutation))) else None


def _of_scan(inputs: list[Value], params: dict[str, Any]) -> tuple[list[Value], list[Value], list[Value]]:
    """The inputs of a scan: those that stay the same, those that it carries, and those of which each iteration takes a row."""
    if "ft_in" in params:  # since JAX 0.11
        fixed, carried, rows = params["ft_in"].update(inputs).unpack()
        return list(fixed), list(carried), list(rows)
    first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
    return inputs[:first], inputs[first:second], inputs[second:]


def _part(value: Value, params: Mapping[str, Any]) -> Value | None:
    """The operand of a padding or a concatenation that a slice of its result is; None if it is another part."""
    op, starts = value.producer, tuple(params["start_indices"])
    sizes = tuple(limit - start for start, limit in zip(starts, params["limit_indices"], strict=True))
    if op is None or any(stride != 1 for stride in params["strides"] or ()):
        return None
    if op.name == "pad":
        is_all = op.inputs[0].shape == sizes and not any(between for _, _, between in op.padding)
        return op.inputs[0] if is_all and starts == tuple(low for low, _, _ in op.padding) else None
    if op.name != "concatenate" or op.axis is None or any(len(operand.shape) != len(starts) for operand in op.inputs):
        return None
    begin = 0
    for operand in op.inputs:
        if operand.shape == sizes and starts == tuple(begin if k == op.axis else 0 for k in range(len(starts))):
            return operand
        begin += operand.shape[op.axis]
    return None


def _is_bitcast(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two shapes differ in dimensions of size 1 alone."""
    return [size for size in shape if size != 1] == [size for size in other if size != 1] and math.prod(shape) == math.prod(other)


def _counts(received: Value, handed: Value) -> bool:
    """Whether a carried value is a counter: XLA keeps one of them for a loop."""
    producer = handed.producer
    return not received.shape and producer is not None and producer.name == "add" and any(v is received for v in producer.inputs)


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
