"""The graph as text, one node a line, printed without loss (`tests/graph_parser.py` reads it back).

    steps i<I t<T
    %0 x = Input(name="x", dtype="float32", shape=(4,))() : float32[4] over (t) @ "train.py:3"
    %1 = Reduce(fn="sum", axes=(0,))(%0[0:t + 1]) : float32[4] over (t)
    %2 = Merge(type=float32[4])(%1[0] if t == 0, %2[t - 1] if t >= 1) : float32[4] over (t)

A node reads `%id name = Op(fields)(edges) : types over domain @ "user's line"`; fields at their defaults, an empty name, no
outputs and no line are left out. An edge reads `%source[index].output if condition`. A user's function stands under its name
in a table: the caller's table, or that of `function_table`. A fused island has its body, over slots `$0, $1, ...`, in braces. The
last line of the body names the slots that the island gives: `give $4 loss @ "train.py:3", $5`.
The bounds of steps that passes added follow the steps, in lines such as `bound T_TILE = (T + 63)//64`, after the steps of which a run
takes one point: `chosen T_last`.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes  # noqa: F401  (makes NumPy know bfloat16)
import numpy as np

from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Constant, Dataflow, Op
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE

Functions = Mapping[str, Callable[..., Any]]

SHORT_CONSTANT = 16  # elements: up to this many are printed as numbers, more as base64
_BARE_NAME = re.compile(r"[^\W\d][\w.]*")


def function_table(graph: Graph) -> dict[str, Callable[..., Any]]:
    """A name for each user's function in `graph`: the function's name, with `#2`, `#3`, ... if two functions share it."""
    table: dict[str, Callable[..., Any]] = {}
    for op in (part for node in graph for part in node.op.parts):
        function = getattr(op, "fn", None)
        if not callable(function) or any(function is other for other in table.values()):
            continue
        name = base = _function_name(function)
        number = 1
        while name in table:
            number += 1
            name = f"{base}#{number}"
        table[name] = function
    return table


def to_text(graph: Graph, functions: Functions | None = None, *, full_constants: bool = True) -> str:
    """`graph` as text. Without `full_constants`, long constants print as `...`, for people only."""
    printer = _Printer(function_table(graph) if functions is None else functions, full_constants)
    header = " ".join(["steps", *(f"{step.name}<{step.bound}" for step in graph.order)])
    derived = [f"bound {bound} = {expression}" for bound, expression in graph.derived.items()]
    chosen = [f"chosen {' '.join(step.name for step in graph.chosen)}"] if graph.chosen else []
    return "\n".join([header, *chosen, *derived, *(line for node in graph for line in printer.node(node))]) + "\n"


# -- printing -----------------------------------------------------------------------------------------------------------


class _Printer:
    def __init__(self, functions: Functions, full_constants: bool):
        self.functions, self.full_constants = functions, full_constants

    def node(self, node: Node) -> Iterator[str]:
        name = _name_text(node.name)
        edges = ", ".join(map(edge_text, node.inputs))
        tail = f"{_types_text(node.outputs)} over {node.domain}" + (f" @ {_quoted(node.where)}" if node.where else "")
        yield from self._operation(f"%{node.id}{name}", node.op, edges, tail, "")

    def _operation(self, left: str, op: Op, operands: str, tail: str, indent: str) -> Iterator[str]:
        line = f"{indent}{left} = {self.op(op)}({operands}){tail}"
        if not isinstance(op, Dataflow):
            yield line
            return
        body, inner = op.body, indent + "  "
        yield line + " {"
        for slot, type_ in enumerate(body.input_types):
            yield f"{inner}${slot} : {type_}"
        for instruction, arguments, results in body.instructions:
            types = _types_text(tuple(body.slot_types[slot] for slot in results))
            yield from self._operation(_slots_text(results), instruction, _slots_text(arguments), types, inner)
        origins = body.origins or (("", ""),) * len(body.results)
        gives = (f"${slot}{_origin_text(*origin)}" for slot, origin in zip(body.results, origins, strict=True))
        yield f"{inner}give {', '.join(gives)}".rstrip()
        yield f"{indent}}}"

    def op(self, op: Op) -> str:
        """`Gather(axis=1)`: the op with the fields that are not at their defaults."""
        if isinstance(op, Constant):
            return f"Constant({self._constant(op)})"
        if isinstance(op, Dataflow):
            return "Dataflow()"
        shown = [
            f"{field.name}={self._field(field, getattr(op, field.name))}"
            for field in dataclasses.fields(op)
            if field.compare and not (field.default is not dataclasses.MISSING and getattr(op, field.name) == field.default)
        ]
        return f"{type(op).__name__}({', '.join(shown)})"

    def _field(self, field: dataclasses.Field[Any], value: Any) -> str:
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, tuple):
            return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
        if callable(value):
            for name, function in self.functions.items():
                if function is value:
                    return _quoted(name)
            raise ValueError(f"the function {value!r} has no name in the table of functions")
        return repr(value) if isinstance(value, float) else str(value)

    def _constant(self, op: Constant) -> str:
        type_ = f"{op.dtype}[{', '.join(map(str, op.sizes))}]"
        array = np.frombuffer(op.data, np.dtype(op.dtype))
        if array.size <= SHORT_CONSTANT:
            numbers = str(array[0]) if not op.sizes else f"[{', '.join(map(str, array))}]"
            if constant_bytes(op.dtype, numbers) == op.data:  # not so for a NaN with a payload
                return f"{type_}, {numbers}"
        return f"{type_}, {_quoted(base64.b64encode(op.data).decode()) if self.full_constants else '...'}"


def edge_text(edge: Edge) -> str:
    """`%4[0:t + 1].1 if t >= 1`."""
    index = f"[{', '.join(map(str, edge.index))}]" if edge.index else ""
    output = f".{edge.output}" if edge.output else ""
    return f"%{edge.source}{index}{output}" + ("" if edge.condition is TRUE else f" if {edge.condition}")


def op_text(op: Op) -> str:
    """An op with its fields, for people: long constants and functions in short form."""
    functions = {_function_name(f): f for f in (getattr(op, "fn", None),) if callable(f)}
    return _Printer(functions, full_constants=False).op(op)


def _function_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)  # instances have neither, or the latter
    return name if isinstance(name, str) else type(function).__name__


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _name_text(name: str) -> str:
    """A node's name after its number; in quotes unless it is a single word."""
    return f" {name if _BARE_NAME.fullmatch(name) else _quoted(name)}" if name else ""


def _origin_text(name: str, where: str) -> str:
    return _name_text(name) + (f" @ {_quoted(where)}" if where else "")


def _types_text(types: tuple[TensorType, ...]) -> str:
    return f" : {', '.join(map(str, types))}" if types else ""


def _slots_text(slots: tuple[int, ...]) -> str:
    return ", ".join(f"${slot}" for slot in slots)


def constant_bytes(dtype: str, numbers: str) -> bytes:
    """The bytes of `1.5` or `[1.0, -inf, nan]` in `dtype`."""
    words = re.sub(r"[\[\]\s]", "", numbers).split(",")
    if dtype == "bool":
        values: list[Any] = [{"True": True, "False": False}[word] for word in words if word]
    else:
        values = [(float if "float" in dtype else int)(word) for word in words if word]
    return np.array(values, np.dtype(dtype)).tobytes()
