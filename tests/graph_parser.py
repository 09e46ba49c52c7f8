"""Graphs from their text (`tempo_core/ir/graph_text.py`): the tests' graphs, and what the fuzzer prints and reads back."""

from __future__ import annotations

import ast
import base64
import dataclasses
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import ml_dtypes  # noqa: F401  (makes NumPy know bfloat16)

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.graph_text import constant_bytes
from tempo_core.ir.ops import Constant, Dataflow, Dataflowed, Op
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, conjunction, disjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum

Functions = Mapping[str, Callable[..., Any]]

_NODE = re.compile(r'%(\d+)(?: ("(?:[^"\\]|\\.)*"|[^\W\d][\w.]*))? = (.*)')
_RESULT = re.compile(r'\$(\d+)(?: ("(?:[^"\\]|\\.)*"|[^\W\d][\w.]*))?(?: @ ("(?:[^"\\]|\\.)*"))?')
_EDGE = re.compile(r"%(\d+)(\[.*?\])?(?:\.(\d+))?(?: if (.*))?")
_TYPE = re.compile(r"(\w+)\[(.*)\]")


class GraphTextError(ValueError):
    """Raised if a text is not a graph. The message names the line and the problem."""


def parse(text: str, functions: Functions | None = None) -> Graph:
    """The graph in `text`; empty lines and lines that start with `#` are skipped. Raises `GraphTextError`."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    reader = _Reader([(number, line) for number, line in lines if line and not line.startswith("#")], functions or {})
    try:
        return reader.graph()
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, ArithmeticError) as error:
        reason = error.args[0] if isinstance(error, KeyError) else error
        raise GraphTextError(f"line {reader.number}: {reason}\n  {reader.line}") from error


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
        data = base64.b64decode(json.loads(value)) if value.startswith('"') else constant_bytes(type_.dtype, value)
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


# -- expressions and conditions ------------------------------------------------------------------------------------------

Kind = TypeVar("Kind", Expr, Bool)
_KIND_NAMES = {True: "an expression", False: "a condition"}

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Bool]] = {
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, Callable[..., Expr]] = {"min": minimum, "max": maximum}
_TRUTHS: dict[str, Bool] = {"true": TRUE, "false": FALSE}


def parse_symbolic(text: str, symbols: Mapping[str, Symbol]) -> Expr | Bool:
    """The expression or condition in `text`, over the named `symbols`. Raises `ValueError` if `text` is neither."""
    try:
        return _build(ast.parse(text.strip(), mode="eval").body, symbols)
    except SyntaxError:
        raise ValueError(f"`{text}` is not an expression of steps and bounds") from None


def parse_expr(text: str, symbols: Mapping[str, Symbol]) -> Expr:
    """`text` as an integer expression, such as `t*T + 1`."""
    return _expect(Expr, parse_symbolic(text, symbols), text)


def parse_bool(text: str, symbols: Mapping[str, Symbol]) -> Bool:
    """`text` as a condition, such as `t >= 1`."""
    return _expect(Bool, parse_symbolic(text, symbols), text)


def _build(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Any:
    match tree:
        case ast.Name(id=name) if name in symbols:
            return Expr.of(symbols[name])
        case ast.Name(id=name) if name in _TRUTHS:
            return _TRUTHS[name]
        case ast.Name(id=name):
            raise ValueError(f"unknown step or bound `{name}`; there are {', '.join(symbols) or 'none'}")
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return Expr.of(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, symbols)
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return ~_truth(operand, symbols)
        case ast.BinOp(op=ast.Pow(), left=base, right=ast.Constant(value=int(power))):
            return _number(base, symbols) ** power
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_number(left, symbols), _number(right, symbols))
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            return conjunction(_truth(left, symbols), _truth(right, symbols))
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return disjunction(_truth(left, symbols), _truth(right, symbols))
        case ast.Compare(ops=[sign], left=left, comparators=[right]) if type(sign) in _COMPARE:
            return _COMPARE[type(sign)](_number(left, symbols), _number(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _CALLS:
            return _CALLS[name](*(_number(arg, symbols) for arg in args))
    raise ValueError(f"`{ast.unparse(tree)}` is not an expression of steps and bounds")


def _number(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Expr:
    return _expect(Expr, _build(tree, symbols), ast.unparse(tree))


def _truth(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Bool:
    return _expect(Bool, _build(tree, symbols), ast.unparse(tree))


def _expect(kind: type[Kind], value: Expr | Bool, text: str) -> Kind:
    if not isinstance(value, kind):
        raise ValueError(f"`{text}` is {_KIND_NAMES[type(value) is Expr]}, and {_KIND_NAMES[kind is Expr]} is needed here")
    return value
