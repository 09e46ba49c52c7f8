"""Graphs and schedules as bytes, to be read by the same version of the compiler in another process.

The user's functions and lines are left out: they are numbers, and the reader puts its own in their place. What objects remember besides
their fields (hashes, sets, texts) is left out too: hashes of steps are addresses.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import pickle
from typing import Any

from tempo_core.ir.graph import Graph
from tempo_core.ir.partial import Traced, traced_again
from tempo_core.store.fingerprint import Functions, Lines, is_compilers, is_of_library
from tempo_core.symbolic.condition import Truth
from tempo_core.symbolic.expr import Symbol


class PickleError(ValueError):
    """Raised for a value that cannot be written, and for bytes that cannot be read."""


def dumps(value: Any, functions: Functions, lines: Lines | None = None) -> bytes:
    """Dataclasses of the compiler, and what is in them, as bytes. Raises PickleError, as for a function that is not one of `functions`."""
    stream = io.BytesIO()
    try:
        _Pickler(stream, functions, lines).dump(value)
    except (pickle.PickleError, TypeError, AttributeError, RecursionError) as error:
        raise PickleError(str(error)) from error
    return stream.getvalue()


def loads(data: bytes, functions: Functions, lines: Lines | None = None) -> Any:
    """The value that `dumps` wrote, with `functions` and `lines` in the places of those of the writer. Raises PickleError."""
    try:
        return _Unpickler(io.BytesIO(data), functions, lines).load()
    except Exception as error:  # damaged bytes may raise anything
        raise PickleError(str(error)) from error


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, functions: Functions, lines: Lines | None):
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._references: dict[str, Functions | Lines] = {"function": functions, **({} if lines is None else {"line": lines})}

    def persistent_id(self, value: Any) -> tuple[str, int] | None:
        for kind, references in self._references.items():
            number = references.number(value)
            if number is not None:
                return kind, number
        return None

    def reducer_override(self, value: Any) -> Any:
        """How an object is made again. Only objects that `loads` accepts are written."""
        if is_of_library(value) or isinstance(value, (type, Symbol, Truth)):
            return NotImplemented  # by name, or by their own `__reduce__`
        if isinstance(value, Traced):
            return traced_again, (value.division, value.is_early)
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple, (list(value),)  # such as the sizes of a user's tensor
        if not is_compilers(value):
            raise pickle.PicklingError(
                f"the {type(value).__name__} {value!r} is neither the compiler's nor one of the program's functions"
            )
        state = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        if isinstance(value, Graph):
            state |= {"facts": {}, "changes": 0}  # what is asked about it is computed again
        return copyreg.__newobj__, (type(value),), state  # type: ignore[attr-defined]


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, functions: Functions, lines: Lines | None):
        super().__init__(stream)
        self._references = {"function": functions, "line": lines}

    def persistent_load(self, reference: Any) -> Any:
        kind, number = reference
        references = self._references[kind]
        assert references is not None, "a file with lines is read with lines"
        return references.each[number]

    def find_class(self, module: str, name: str) -> Any:
        """Classes and functions of the compiler, tuples, and what stands for objects of which there is one."""
        if module.startswith("tempo_core."):
            named = super().find_class(module, name)
            if dataclasses.is_dataclass(named) or is_of_library(named):
                return named
        if (module, name) == ("builtins", "tuple"):
            return tuple
        raise pickle.UnpicklingError(f"{module}.{name} is not a class of the compiler")
