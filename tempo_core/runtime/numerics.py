"""`Config(check_numerics=True)`: find the statement that first gave a value that is not finite.

An error reports a NaN or an infinity that reaches an output, a function on the host, or a recurrence (a value that is carried
from point to point). It names the statement where that value began. A NaN begins where no operand holds a NaN; an infinity begins
where all operands are finite. Values that a program masks out, as in `tp.where(x > 0, tp.log(x), 0)`, are not reported. An infinity
that was written as a number or fed, such as the -inf of a masked softmax, is not reported either, wherever it moves. A NaN that
such infinities give begins at the statement that gives it.

How it works: a device program only notes whether there is such a value (two bits, carried through its loops). If there is one, the
program as it was written is interpreted in NumPy up to that place, with the values that host functions returned. Each value that is
not finite carries the statement where it began.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from tempo_core.errors import NumericsError
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.ir.ops import Constant, Input, Merge, Output, Sink, Udf
from tempo_core.ir.types import is_float
from tempo_core.runtime.interpreted.stores import Executed
from tempo_core.runtime.walk import span
from tempo_core.symbolic.expr import Symbol

Array = Any
Coordinates = tuple[int, ...]
Call = tuple[str, int]  # (name, number) of a function on the host; unlike node ids, passes do not change it
Returned = dict[tuple[Call, Coordinates], tuple[Array, ...]]
FLAG: Key = (-1, 0)  # the store in which a device program notes what it saw
NAN, INFINITE = 1, 2  # the bits in that store


def traced_flag(values: Sequence[Array]) -> Any:
    """The bits (`NAN`, `INFINITE`) of traced values."""
    bits = jnp.zeros((), jnp.int32)
    for value in values:
        if jnp.issubdtype(value.dtype, jnp.floating):
            nan, infinite = jnp.isnan(value).any(), jnp.isinf(value).any()
            bits = bits | jnp.where(nan, NAN, 0) | jnp.where(infinite, INFINITE, 0)
    return bits.astype(jnp.int32)


def flag(values: Sequence[Array]) -> int:
    """The bits of arrays, or of nested lists of them."""
    bits = 0
    for value in values:
        if isinstance(value, list):
            bits |= flag(value)
            continue
        array = _floats(value)
        if array is not None and not np.isfinite(array).all():
            bits |= (NAN if np.isnan(array).any() else 0) | (INFINITE if np.isinf(array).any() else 0)
    return bits


def _floats(value: Array) -> Any:
    """A float array as a NumPy array, in float32 at least (NumPy lacks some narrow floats). None for other arrays."""
    if not is_float(str(value.dtype)):
        return None
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def host_call(node: Node) -> Call:
    """The function on the host that a node calls."""
    assert isinstance(node.op, Udf)
    return node.op.name, node.op.number


class Watch:
    """A record of one run: whether a value was not finite, and the values of host functions and streams, for a repetition.

    `search(watch)` raises NumericsError for the statement where such a value began. It returns if all infinities are intended.
    """

    def __init__(self, search: Callable[[Watch], None]):
        self.search = search
        self.returned: Returned = {}
        self.alarm = NAN | INFINITE  # the bits that start a search

    def saw(self, bits: int, where: str | None = None) -> None:
        """Search for the origin of what was seen, unless an earlier search has shown that it is intended."""
        if bits & self.alarm:
            self.search(self)
            if bits & NAN:
                raise NumericsError(
                    "a value is not a number (NaN), but NumPy computes it without NaN, so its origin is unknown",
                    where=where,
                    hint="look at each statement with its values: program.stepping(inputs)",
                )
            self.alarm = NAN

    def record(self, node: Node, at: Coordinates, values: tuple[Array, ...]) -> None:
        self.returned[host_call(node), at] = tuple(np.array(v) for v in values)


@dataclass(frozen=True)
class Origin:
    """The statement where a value that is not finite began."""

    message: str
    where: str
    hint: str


def find(
    graph: Graph, bounds: Mapping[Symbol, int], inputs: Mapping[str, Array], returned: Returned, statements: Iterator[Executed]
) -> None:
    """Raise NumericsError when a value that is not finite reaches an output, a host function or a recurrence.

    `statements` run as this function iterates over them. `returned` holds the values of host functions. Stateful functions that
    the run did not reach give NaN, whose origin is not reported.
    """
    with np.errstate(all="ignore"):
        search = _Search(graph, bounds, inputs, returned)
        for ran in statements:
            search.see(ran)


class _Search:
    """The origins of the values that are not finite so far: None for infinities that are intended."""

    def __init__(self, graph: Graph, bounds: Mapping[Symbol, int], inputs: Mapping[str, Array], returned: Returned):
        self.graph, self.bounds, self.inputs, self.returned = graph, bounds, inputs, returned
        self.origins: dict[tuple[Key, Coordinates], Origin | None] = {}

    def see(self, ran: Executed) -> None:
        """Raise NumericsError if the statement ends the way of a value that is not finite, else note where its values began."""
        node, before = ran.node, [flag((operand,)) for operand in ran.operands]
        env = {**self.bounds, **dict(zip(node.domain.steps, ran.point, strict=True))}
        reads = [edge for edge, bits in zip(node.operands(ran.branch), before, strict=True) if bits]
        read = next((origin for edge in reads if (origin := self._origin(edge, env)) is not None), None)
        ends = isinstance(node.op, (Merge, Output, Sink)) or (isinstance(node.op, Udf) and node.op.kind == "host")
        if ends and read is not None:
            raise NumericsError(read.message + _reached(node, ran.point), where=read.where, hint=read.hint)
        if isinstance(node.op, (Output, Sink)):
            return
        unknown = isinstance(node.op, Udf) and node.op.stateful and (host_call(node), ran.point) not in self.returned
        for output, value in enumerate(() if unknown else ran.values):
            if bits := flag((value,)):
                self.origins[(node.id, output), ran.point] = read or _began(ran, value, bits, before)

    def _origin(self, edge: Edge, env: Mapping[Symbol, int]) -> Origin | None:
        """The origin of the values that an edge reads: of the first point that has one."""
        source = self.graph[edge.source]
        if isinstance(source.op, Input):
            array = self.inputs[source.op.name]
            if not flag((array,)) & NAN:
                return None
            fed = f"the input `{source.op.name}` is fed with NaN{_count(array, np.isnan)}"
            return Origin(fed, source.where, "tp.where(tp.isnan(x), 0, x) replaces NaN")
        if isinstance(source.op, Constant):
            return None
        points = itertools.product(*(span(index, self.bounds)(env) for index in edge.index))
        origins = (self.origins.get(((edge.source, edge.output), at)) for at in points)
        return next((origin for origin in origins if origin is not None), None)


def _began(ran: Executed, value: Array, bits: int, before: Sequence[int]) -> Origin | None:
    """A statement as the origin of a value, if its operands have no such origin. None for infinities that are intended."""
    is_nan = bool(bits & NAN) and not any(operand_bits & NAN for operand_bits in before)
    if not is_nan and any(before):
        return None
    what, at = "not a number" if is_nan else "infinite", _at(ran.node, ran.point)
    count = _count(value, np.isnan if is_nan else np.isinf)
    return Origin(f"{_node_text(ran.node)} is {what}{at}{count}", ran.node.where, _hint(ran))


# -- words ------------------------------------------------------------------------------------------------------------


def _node_text(node: Node) -> str:
    what = getattr(node.op, "fn", None)
    op = what if isinstance(what, str) else type(node.op).__name__.lower()
    return f"`{node.name}` ({op})" if node.name else f"the result of {op}"


def _at(node: Node, at: Coordinates) -> str:
    point = ", ".join(f"{step.name} = {value}" for step, value in zip(node.domain.steps, at, strict=True))
    return f" at {point}" if point else ""


def _count(value: Array, of: Callable[[Any], Any]) -> str:
    """Text that says how many elements are wrong, and where the first is."""
    wrong = of(_floats(value))
    first = ", ".join(map(str, np.argwhere(wrong)[0].tolist()))
    return f": {int(wrong.sum())} of {wrong.size} elements, the first at [{first}]" if wrong.ndim else ""


def _reached(node: Node, at: Coordinates) -> str:
    if isinstance(node.op, Output):
        return f"; it reaches output {node.op.position}" + (f", `{node.name}`" if node.name else "")
    if isinstance(node.op, Merge):
        return f"; it reaches the recurrence{f' `{node.name}`' if node.name else ''}{_at(node, at)}"
    kind = "sink" if isinstance(node.op, Sink) else "function"
    return f"; it reaches the {kind} `{getattr(node.op, 'name', '')}`{_at(node, at)}"


_HINTS = {
    "log": "log is finite for positive numbers only: tp.log(tp.maximum(x, 1e-8))",
    "div": "the divisor is 0, or the quotient is too large: x / tp.maximum(y, 1e-8)",
    "sqrt": "sqrt takes numbers of at least 0, and its gradient is infinite at 0: tp.sqrt(x + 1e-8)",
    "rsqrt": "rsqrt takes positive numbers: tp.rsqrt(x + 1e-8)",
    "exp": "exp overflows from 89 on in float32: use softmax and logsumexp, or tp.exp(x - x.max(0))",
    "pow": "a fractional power needs numbers of at least 0, and a negative power needs numbers other than 0: tp.maximum(x, 1e-8) ** y",
}


def _hint(ran: Executed) -> str:
    ranges = []
    for operand in ran.operands:
        array = _floats(operand)
        if array is not None and array.size:
            ranges.append(f"{array.min():.6g}" if array.min() == array.max() else f"{array.min():.6g} to {array.max():.6g}")
    ranges_text = (
        f"its operands are {' and '.join(ranges)}" if ranges else "program.stepping(inputs) shows each statement with its values"
    )
    advice = _HINTS.get(str(getattr(ran.node.op, "fn", "")))
    return f"{ranges_text}; {advice}" if advice else ranges_text
