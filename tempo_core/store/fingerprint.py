"""Fingerprints: equal for equal values, in every process. Two values with one fingerprint have the same structure and content.

Python's own hashes will not do: those of strings change from process to process, and those of functions and steps are addresses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Op
from tempo_core.ir.partial import Traced
from tempo_core.ir.udf import Custom, Fed, Library
from tempo_core.symbolic.expr import Symbol


class Functions:
    """The user's functions in a graph, numbered in the order in which they first occur. Equal functions have one number.

    A function is its number in fingerprints and files: its code is not part of them. Functions of the library are not the user's: they
    have names, and the library's version tells their code.
    """

    def __init__(self, graph: Graph):
        self.each: list[Callable[..., Any]] = []
        self._numbers: dict[int, int] = {}  # by the functions' addresses; the graph keeps the functions alive
        self._graph = graph
        equal: dict[Any, int] = {}
        for function in (base for node in graph for base in _functions(node.op)):
            try:
                number = equal.setdefault(function, len(self.each))
            except TypeError:  # it has no hash
                number = self._numbers.get(id(function), len(self.each))
            if number == len(self.each):
                self.each.append(function)
            self._numbers[id(function)] = number

    def number(self, value: Any) -> int | None:
        """The number of a function; None for other values."""
        return self._numbers.get(id(value))


class Lines:
    """The user's lines in a graph as written (`file:line`), numbered in the order in which they first occur.

    A line is its number in fingerprints and files: a program that moves to other lines is the same program as long as what stood on one
    line still does. No pass looks into the text of a line, so that its result for the lines here is its result for the lines there, with
    one put in the place of the other.
    """

    def __init__(self, graph: Graph):
        assigned = (line for lines in graph.branch_lines.values() for line in lines)
        of_nodes = (line for node in graph for line in (node.where, getattr(node.op, "where", "")))
        self.each = [line for line in dict.fromkeys((*of_nodes, *assigned)) if line]
        self._numbers = {line: number for number, line in enumerate(self.each)}

    def number(self, value: Any) -> int | None:
        """The number of a line; None for other values."""
        return self._numbers.get(value) if type(value) is str else None


def _functions(op: Op) -> Iterator[Callable[..., Any]]:
    """The user's functions in an op."""
    for function in (unwrapped(getattr(part, "fn", None)) for part in op.parts):
        if is_users(function) and not isinstance(function, Fed):
            yield function


def unwrapped(function: Any) -> Any:
    """A function without what gradients and passes wrapped around it. A function of pytrees, with its rules, is one function."""
    while is_compilers(function) and not isinstance(function, Custom):
        inner = function.division.fn if isinstance(function, Traced) else getattr(function, "fn", None)
        if inner is None:
            break
        function = inner
    return function


def is_users(function: Any) -> bool:
    """Whether an op's function, unwrapped, is code of the user's."""
    return callable(function) and not isinstance(function, Library) and not is_of_library(function)


def is_of_library(function: Any) -> bool:
    """Whether a function stands in a module of the compiler under its own name, so that it has no state."""
    if not isinstance(function, FunctionType) or not function.__module__.startswith("tempo_core."):
        return False
    return getattr(sys.modules.get(function.__module__), function.__qualname__, None) is function


def is_compilers(value: Any) -> bool:
    """Whether a value is an instance of a dataclass of the compiler, and not of the user."""
    return dataclasses.is_dataclass(value) and type(value).__module__.startswith("tempo_core.")


def fingerprint(value: Any, functions: Functions | None = None, lines: Lines | None = None) -> str:
    """The fingerprint of dataclasses of the compiler, and of tuples, dicts, sets, texts and numbers.

    Fields take part even if they do not count for equality; of `lines`, only which of them are the same. Raises TypeError for a value of
    another kind, such as a function that is not one of `functions`.
    """
    return _Walk(functions, lines).of(value).hex()


class _Walk:
    """Fingerprints of values and their parts. Objects that occur several times are visited once."""

    def __init__(self, functions: Functions | None, lines: Lines | None):
        self.functions, self.lines = functions, lines
        self.done: dict[int, tuple[Any, bytes]] = {}  # by address, with the object, which so stays alive

    def of(self, value: Any) -> bytes:
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            line = None if self.lines is None else self.lines.number(value)
            if line is not None:
                return _digest("line", str(line).encode())
            data = value if isinstance(value, bytes) else repr(value).encode()
            return _digest(type(value).__name__, data)
        if id(value) in self.done:
            return self.done[id(value)][1]
        result = self._parts(value)
        self.done[id(value)] = (value, result)
        return result

    def _parts(self, value: Any) -> bytes:
        number = None if self.functions is None else self.functions.number(value)
        if number is not None:
            return _digest("function", str(number).encode())
        if is_of_library(value):
            return _digest("library", self.of(value.__module__), self.of(value.__qualname__))
        if isinstance(value, Symbol):
            return _digest("Symbol", self.of(value.name), self.of(value.bound))
        if isinstance(value, (tuple, list)):
            return _digest("sequence", *map(self.of, value))
        if isinstance(value, (set, frozenset)):
            return _digest("set", *sorted(map(self.of, value)))
        if isinstance(value, Mapping):
            return _digest("mapping", *(part for key, item in value.items() for part in (self.of(key), self.of(item))))
        if isinstance(value, np.generic):
            return _digest("number", str(value.dtype).encode(), value.tobytes())
        if is_compilers(value):
            fields = (getattr(value, each.name) for each in dataclasses.fields(value))
            return _digest(f"{type(value).__module__}.{type(value).__qualname__}", *map(self.of, fields))
        raise TypeError(f"a {type(value).__name__} has no fingerprint")


def _digest(kind: str, *parts: bytes) -> bytes:
    total = hashlib.sha256(f"{kind} {len(parts)}\n".encode())
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.digest()
