"""The user's names for tensors: the variables of the function that builds the program.

When the `with` of a context ends, and when a program is compiled inside of it, the variables of the function that contains the
`with` are searched. A tensor in a variable, or in a field of an object or an entry of a dict or list in a variable, gets that name:
`loss`, `step.reward`, `metrics.entropy`. The names serve readers only; no result depends on them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from tempo_core.errors import is_users
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.names.source_lines import assignment
from tempo_core.symbolic.domain import identity

MAX_DEPTH = 2  # `metrics.loss` is one level deep
MAX_ENTRIES = 256  # entries of one container that are searched
_VIEWS = (ops.Identity, ops.Cast, ops.Gather, ops.Reshape, ops.Permute, ops.Slice)  # ops that show a part of a function's result
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, FunctionType)


@dataclass(frozen=True)
class Variable:
    """A name for a tensor; `root` is the variable of function `function`, which begins at line `first` of `file`."""

    name: str
    root: str
    file: str
    function: str
    first: int

    def line(self, where: str) -> str:
        """The line that assigns the variable. If it cannot be found: `where`, the line of the operation."""
        return assignment(self.file, self.function, self.first, self.root, where) or where


def builder() -> CodeType | None:
    """The code of the user's function whose `with` enters a context now; None if Tempo's own code enters it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name == "__enter__":
        frame = frame.f_back
    return frame.f_code if frame is not None and is_users(frame) else None


def remember(context: Any) -> None:
    """Record the variables of the function that builds the context's program now. Outside of the `with` there is no such function."""
    frame: FrameType | None = sys._getframe(1)
    building = set(context.builders) - {None}
    while frame is not None and frame.f_code not in building:
        frame = frame.f_back
    if frame is None:
        return
    code, variables_by_key = frame.f_code, context.variables
    for root, name, tensor in _tensors(context, dict(frame.f_locals)):
        edge = tensor.__dict__["edge"]
        if edge.index == identity(context.graph[edge.source].domain):  # otherwise it is a view of a tensor at other points
            variable = Variable(name, root, code.co_filename, code.co_name, code.co_firstlineno)
            variables_by_key.setdefault((edge.source, edge.output), variable)


def _tensors(context: Any, variables: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(variable, name, tensor) for each tensor of the context in `variables`. Tensors that are variables themselves come first."""
    level = [(root, root, value) for root, value in variables.items() if not root.startswith("_")]
    visited: set[int] = {id(context)}
    for depth in range(MAX_DEPTH + 1):
        next_level = []
        for root, name, value in level:
            if isinstance(value, _PLAIN) or id(value) in visited:
                continue
            visited.add(id(value))
            if _is_tensor(value):
                if value.__dict__["context"] is context:
                    yield root, name, value
            elif depth < MAX_DEPTH:
                next_level += [(root, inner if name == "self" else f"{name}.{inner}", part) for inner, part in _parts(value)]
        level = next_level


def _is_tensor(value: Any) -> bool:
    state = getattr(type(value), "__dict__", None) is not None and getattr(value, "__dict__", None)
    return isinstance(state, dict) and isinstance(state.get("edge"), Edge) and "context" in state


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The entries of a container, or the fields of an object, by name or position."""
    if isinstance(value, dict):
        pairs = [(key, part) for key, part in value.items() if isinstance(key, str)]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = list(zip(value._fields, value, strict=False))
    elif isinstance(value, (list, tuple)):
        pairs = [(str(k), part) for k, part in enumerate(value)]
    else:
        state = getattr(value, "__dict__", None)
        pairs = [(k, part) for k, part in state.items() if not k.startswith("_")] if isinstance(state, dict) else []
    return pairs[:MAX_ENTRIES]


def named(graph: Graph, context: Any) -> Graph:
    """`graph` in which nodes without a name, and results of functions, have the names of variables."""
    named = graph.copy()
    named.branch_lines = graph.branch_lines
    for (number, output), variable in context.variables.items():
        node = named.nodes.get(number)
        if node is None:
            continue
        if len(node.outputs) > 1:
            _name_result(named, node, output, variable.name)
            continue
        if not node.name:
            named.put(replace(node, name=variable.name))
        while isinstance(node.op, _VIEWS):
            edge = node.inputs[0]
            node = named[edge.source]
            if len(node.outputs) > 1:
                _name_result(named, node, edge.output, variable.name)
    return named


def _name_result(graph: Graph, node: Node, output: int, name: str) -> None:
    """Give a name to one of several results of a user's function, unless the result has one."""
    if isinstance(node.op, ops.Udf):
        results = list(node.op.results or ("",) * len(node.outputs))
        results[output] = results[output] or name
        graph.put(replace(node, op=replace(node.op, results=tuple(results))))


def lines(graph: Graph, context: Any) -> dict[str, str]:
    """The user's line of each name in a graph: the line that assigns the variable, or the line that makes the tensor."""
    line_of: dict[str, str] = {}
    for (node_id, _), variable in context.variables.items():
        if node_id in graph.nodes:
            line_of.setdefault(variable.name, variable.line(graph[node_id].where))
    for node in graph:
        if node.name:
            line_of.setdefault(node.name, node.where)
    return line_of
