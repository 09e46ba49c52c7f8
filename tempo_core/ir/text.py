"""The graph as text, one node a line, printed and parsed without loss.

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

import ast
import base64
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ml_dtypes  # noqa: F401  (makes NumPy know bfloat16)
import numpy as np

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Constant, Dataflow, Dataflowed, Op
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Index, Point, Range
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.parse import parse as parse_symbolic
from tempo_core.symbolic.parse import parse_bool, parse_expr

Functions = Mapping[str, Callable[..., Any]]

SHORT_CONSTANT = 16  # elements: up to this many are printed as numbers, more as base64
_BARE_NAME = re.compile(r"[^\W\d][\w.]*")
_NODE = re.compile(r'%(\d+)(?: ("(?:[^"\\]|\\.)*"|[^\W\d][\w.]*))? = (.*)')
_RESULT = re.compile(r'\$(\d+)(?: ("(?:[^"\\]|\\.)*"|[^\W\d][\w.]*))?(?: @ ("(?:[^"\\]|\\.)*"))?')
_EDGE = re.compile(r"%(\d+)(\[.*?\])?(?:\.(\d+))?(?: if (.*))?")
_TYPE = re.compile(r"(\w+)\[(.*)\]")


class GraphTextError(ValueError):
    """Raised if a text is not a graph. The message names the line and the problem."""


def function_table(graph: Graph) -> dict[str, Callable[..., Any]]:
    """A name for each user's function in `graph`: the function's name, with `#2`, `#3`, ... if two functions share it."""
    table: dict[str, Callable[..., Any]] = {}
    for op in _all_ops(node.op for node in graph):
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
    """`graph` as text. Without `full_constants`, long constants print as `...`, for reading only (`parse` refuses them)."""
    printer = _Printer(function_table(graph) if functions is None else functions, full_constants)
    header = " ".join(["steps", *(f"{step.name}<{step.bound}" for step in graph.order)])
    derived = [f"bound {bound} = {expression}" for bound, expression in graph.derived.items()]
    chosen = [f"chosen {' '.join(step.name for step in graph.chosen)}"] if graph.chosen else []
    return "\n".join([header, *chosen, *derived, *(line for node in graph for line in printer.node(node))]) + "\n"


def parse(text: str, functions: Functions | None = None) -> Graph:
    """The graph in `text`; empty lines and lines that start with `#` are skipped. Raises `GraphTextError`."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    reader = _Reader([(number, line) for number, line in lines if line and not line.startswith("#")], functions or {})
    try:
        return reader.graph()
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, ArithmeticError) as error:
        reason = error.args[0] if isinstance(error, KeyError) else error
        raise GraphTextError(f"line {reader.number}: {reason}\n  {reader.line}") from error


def _all_ops(outer_ops: Iterable[Op]) -> Iterator[Op]:
    for op in outer_ops:
        yield op
        if isinstance(op, Dataflow):
            yield from _all_ops(inner for inner, _, _ in op.body.instructions)


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
            raise GraphTextError(f"the function {value!r} has no name in the table of functions")
        return repr(value) if isinstance(value, float) else str(value)

    def _constant(self, op: Constant) -> str:
        type_ = f"{op.dtype}[{', '.join(map(str, op.sizes))}]"
        array = np.frombuffer(op.data, np.dtype(op.dtype))
        if array.size <= SHORT_CONSTANT:
            numbers = str(array[0]) if not op.sizes else f"[{', '.join(map(str, array))}]"
            if _constant_bytes(op.dtype, numbers) == op.data:  # not so for a NaN with a payload
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


def _constant_bytes(dtype: str, numbers: str) -> bytes:
    """The bytes of `1.5` or `[1.0, -inf, nan]` in `dtype`."""
    words = re.sub(r"[\[\]\s]", "", numbers).split(",")
    if dtype == "bool":
        values: list[Any] = [{"True": True, "False": False}[word] for word in words if word]
    else:
        values = [(float if "float" in dtype else int)(word) for word in words if word]
    return np.array(values, np.dtype(dtype)).tobytes()


# -- parsing ------------------------------------------------------------------------------------------------------------


def _split(text: str, separator: str = ",") -> list[str]:
    """`text` cut at each `separator` that stands outside brackets and quotes; the parts are stripped, an empty end dropped."""
    parts, start, depth, quoted, position = [], 0, 0, False, 0
    while position < len(text):
        sign = text[position]
        if quoted:
            position += sign == "\\"
            quoted = sign != '"'
        elif sign == '"':
            quoted = True
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position].strip())
            position += len(separator)
            start = position
            continue
        position += 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _bracketed(text: str) -> tuple[str, str]:
    """The text inside the bracket at the start of `text`, and the text after it."""
    depth, quoted, position = 0, False, 0
    while position < len(text):
        sign = text[position]
        if quoted:
            position += sign == "\\"
            quoted = sign != '"'
        elif sign == '"':
            quoted = True
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth == 0:
                return text[1:position], text[position + 1 :]
        if depth == 0:
            break
        position += 1
    raise ValueError(f"expected an expression in brackets at `{text}`")


def _name(text: str | None) -> str:
    """A name from its printed form: a word, or a text in quotes."""
    return str(json.loads(text)) if text and text.startswith('"') else text or ""


class _Reader:
    """Reads numbered `lines`; `number` and `line` are the current position, for errors."""

    def __init__(self, lines: list[tuple[int, str]], functions: Functions):
        self.lines, self.functions = iter(lines), functions
        self.number, self.line = 0, ""
        self.symbols: dict[str, Symbol] = {}

    def _advance(self) -> bool:
        self.number, self.line = next(self.lines, (self.number, ""))
        return bool(self.line)

    def graph(self) -> Graph:
        if not self._advance() or self.line.split()[0] != "steps":
            raise ValueError("a graph starts with its steps, such as `steps i<I t<T`")
        order = []
        for word in self.line.split()[1:]:
            name, _, bound = word.partition("<")
            order.append(Symbol(name, bound))
            self.symbols[name], self.symbols[bound] = order[-1], Symbol(bound)
        graph = Graph(tuple(order))
        while self._advance():
            if self.line.startswith("chosen "):
                names = self.line.split()[1:]
                graph.chosen = tuple(step for step in order if step.name in names)
                continue
            if self.line.startswith("bound "):
                name, _, value = self.line.removeprefix("bound ").partition(" = ")
                graph.derived[Symbol(name)] = parse_expr(value, self.symbols)
                continue
            node = self._node()
            if node.id in graph.nodes:
                raise ValueError(f"%{node.id} is defined twice")
            graph.put(node)
        return graph

    def _node(self) -> Node:
        match = _NODE.fullmatch(self.line)
        if match is None:
            raise ValueError("a node reads `%1 name = Op(field=value)(%0[t]) : float32[4] over (t)`")
        node_id, name, rest = match.groups()
        rest = rest.removesuffix(" {") if rest.startswith("Dataflow(") else rest
        kind, fields, operands, rest = self._call(rest)
        rest, *where = _split(rest, " @ ") or [""]
        types, domain = _split(f" {rest}", " over ")
        steps, *condition = _split(domain, " where ")
        return Node(
            int(node_id),
            self._op(kind, fields),
            Domain(
                tuple(self._step(step) for step in _split(_bracketed(steps)[0])),
                parse_bool(condition[0], self.symbols) if condition else TRUE,
            ),
            tuple(map(self._edge, _split(operands))),
            self._types(types),
            name=_name(name),
            where=json.loads(where[0]) if where else "",
        )

    def _call(self, text: str) -> tuple[str, str, str, str]:
        """`Op(fields)(operands) rest` in its four parts."""
        kind, bracket, _ = text.partition("(")
        if not bracket:
            raise ValueError(f"expected an op with its fields and operands, such as `CumSum(axis=0)(%1[t])`, at `{text}`")
        fields, rest = _bracketed(text[len(kind) :])
        operands, rest = _bracketed(rest)
        return kind, fields, operands, rest

    def _step(self, name: str) -> Symbol:
        step = self.symbols.get(name)
        if step is None or not step.is_step:
            raise ValueError(f"`{name}` is not a step of this graph")
        return step

    def _types(self, text: str) -> tuple[TensorType, ...]:
        return tuple(map(self._type, _split(text.strip().removeprefix(":"))))

    def _type(self, text: str) -> TensorType:
        match = _TYPE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"`{text}` is not a type such as `float32[4, T]`")
        return TensorType(match[1], tuple(parse_expr(size, self.symbols) for size in _split(match[2])))

    def _edge(self, text: str) -> Edge:
        match = _EDGE.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text}` is not an edge such as `%3[t - 1, 0:T].1 if t >= 1`")
        source, index, output, condition = match.groups()
        return Edge(
            int(source),
            tuple(map(self._index, _split(index[1:-1]))) if index else (),
            int(output or 0),
            parse_bool(condition, self.symbols) if condition else TRUE,
        )

    def _index(self, text: str) -> Index:
        text, *size = _split(text, " to ")
        parts = [parse_expr(part, self.symbols) for part in _split(text, ":")]
        if len(parts) == 1:
            return Point(parts[0])
        start, stop, *stride = parts
        return Range(start, stop, int(stride[0]) if stride else 1, parse_expr(size[0], self.symbols) if size else None)

    # -- ops --------------------------------------------------------------------------------------------------------------

    def _op(self, kind: str, text: str) -> Op:
        if kind == "Constant":
            return self._constant(text)
        if kind == "Dataflow":
            return Dataflow(self._body())
        op_class = getattr(ops, kind, None)
        if not (isinstance(op_class, type) and issubclass(op_class, Op)):
            raise ValueError(f"unknown op `{kind}`")
        declared = {field.name: str(field.type) for field in dataclasses.fields(op_class)}
        values = {}
        for part in _split(text):
            name, _, value = part.partition("=")
            if name not in declared:
                raise ValueError(f"{kind} has no field `{name}`; it has {', '.join(declared) or 'none'}")
            values[name] = self._field(declared[name], value)
        return op_class(**values)

    def _field(self, declared: str, text: str) -> Any:
        """A field's value, read as its declaration in the op's class says."""
        if declared.startswith("tuple["):
            inner = declared.removeprefix("tuple[").removesuffix(", ...]")
            return tuple(self._field(inner, part) for part in _split(_bracketed(text)[0]))
        if declared.startswith("Callable"):
            name = json.loads(text)
            if name not in self.functions:
                raise ValueError(f'no function is given for {text}; pass functions={{"{name}": ...}}')
            return self.functions[name]
        match declared:
            case "str":
                return json.loads(text)
            case "float":
                return float(text)
            case "int" | "int | None" | "bool":
                return ast.literal_eval(text)
            case "Expr" | "Expr | None":
                return parse_expr(text, self.symbols)
            case "Expr | Bool":
                return parse_symbolic(text, self.symbols)
            case "TensorType":
                return self._type(text)
        raise TypeError(f"fields of type {declared} cannot be read; give them a row here")

    def _constant(self, text: str) -> Constant:
        type_text, value = _split(text)
        if value == "...":
            raise ValueError("this constant was left out when the text was printed (full_constants=False)")
        type_ = self._type(type_text)
        data = base64.b64decode(json.loads(value)) if value.startswith('"') else _constant_bytes(type_.dtype, value)
        return Constant(type_.dtype, tuple(map(int, type_.shape)), data)

    def _body(self) -> Dataflowed:
        """The lines of an island, up to its closing brace."""
        types: dict[int, TensorType] = {}
        instructions: list[tuple[Op, tuple[int, ...], tuple[int, ...]]] = []
        results: tuple[int, ...] = ()
        origins: tuple[tuple[str, str], ...] = ()
        inputs = 0
        while self._advance() and self.line != "}":
            line = self.line
            if line.split()[0] == "give":
                gives = [self._result(part) for part in _split(line.removeprefix("give"))]
                results = tuple(slot for slot, _ in gives)
                origins = tuple(origin for _, origin in gives)
                continue
            left, *right = line.split("= ", 1)
            if not right:
                slot, _, type_ = line.partition(" : ")
                types[self._slots(slot)[0]] = self._type(type_)
                inputs += 1
                continue
            kind, fields, operands, rest = self._call(right[0].removesuffix(" {"))
            result_slots = self._slots(left)
            types.update(zip(result_slots, self._types(rest), strict=True))
            instructions.append((self._op(kind, fields), self._slots(operands), result_slots))
        if self.line != "}":
            raise ValueError("an island ends with a line `}`")
        input_types = tuple(types[slot] for slot in range(inputs))
        slot_types = tuple(types[slot] for slot in range(len(types)))
        named_origins = origins if any(origin != ("", "") for origin in origins) else ()
        return Dataflowed(input_types, tuple(instructions), results, slot_types, named_origins)

    def _result(self, text: str) -> tuple[int, tuple[str, str]]:
        """A result of an island: `$4 loss @ "train.py:3"`."""
        match = _RESULT.fullmatch(text)
        if match is None:
            raise ValueError(f'`{text}` is not a result of an island such as `$4 loss @ "train.py:3"`')
        slot, name, where = match.groups()
        return int(slot), (_name(name), json.loads(where) if where else "")

    def _slots(self, text: str) -> tuple[int, ...]:
        return tuple(int(part.removeprefix("$")) for part in _split(text))
