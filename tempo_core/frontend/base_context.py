"""The context: the steps of a program, in their order, and the graph that its recurrent tensors build."""

from __future__ import annotations

import dis
import keyword
from collections.abc import Iterable
from types import CodeType, TracebackType
from typing import Any

from tempo_core.errors import ArgumentError, ContextError, user_location
from tempo_core.frontend.array_uses import refused
from tempo_core.frontend.variables import Variable, builder, remember
from tempo_core.ir.graph import Edge, Graph
from tempo_core.symbolic.expr import Symbol


class BaseContext:
    """A program's steps. `Context("i", "t")` has the steps i, t with the bounds I, T; `Context(num_dims=2)` names them d0, d1.

    `with ctx as ((i, I), (t, T)):` gives each step and its bound as symbolic expressions; recurrent tensors are made inside
    of the `with`. The order of the steps is the order of all domains and of the leading dimensions of results.
    """

    _active: list[BaseContext] = []

    def __init__(self, *names: str, num_dims: int | None = None):
        if num_dims is not None:
            if names:
                raise ArgumentError(
                    "Context takes step names or num_dims, not both", hint='write tp.Context("i", "t") or tp.Context(num_dims=2)'
                )
            if not isinstance(num_dims, int) or isinstance(num_dims, bool) or num_dims < 0:
                raise ArgumentError(f"num_dims is {num_dims!r}, not a number of steps", hint="Context(num_dims=2)")
            names = tuple(f"d{k}" for k in range(num_dims))
        for name in names:
            valid = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
            if not valid or name.upper() == name or name.startswith("_"):
                shown = f"`{name}`" if isinstance(name, str) else repr(name)
                raise ArgumentError(
                    f"{shown} cannot name a step",
                    hint='name a step in lower case (its bound has the same name in capitals): tp.Context("t")',
                )
        for k, name in enumerate(names):
            if name.upper() in {other.upper() for other in names[:k]}:
                raise ArgumentError(
                    f"the steps {', '.join(names)} share the name {name} or its bound {name.upper()}",
                    hint='give each step a name of its own: tp.Context("i", "t")',
                )
        self.steps = tuple(Symbol(name, name.upper()) for name in names)
        self.graph = Graph(self.steps)
        self.gradients: dict[tuple[int, int], Edge] = {}  # of leaves, by node and output
        self.leaves: list[int] = []  # the nodes of inputs with requires_grad
        self.inputs: dict[str, tuple[Symbol, ...]] = {}  # the steps of each input, by name
        self.parameters: dict[str, Any] = {}  # the tensors that are parameters of modules, by full name
        self.recurrences: list[int] = []  # their nodes
        self.branch_lines = self.graph.branch_lines
        self.outer: dict[
            Symbol, tuple[Symbol, ...]
        ] = {}  # by bound: the steps at each point of which the bound is another number
        self.builders: list[CodeType | None] = []  # the code of the functions whose `with` entered the context
        self.variables: dict[tuple[int, int], Variable] = {}  # the user's names for tensors, by node and output
        self._streams = 0

    def __enter__(self) -> object:
        BaseContext._active.append(self)
        self.builders.append(builder())
        return None

    def __exit__(self, _: object = None, error: object = None, place: TracebackType | None = None) -> None:
        if self.builders[-1] is not None:
            remember(self)
        self.builders.pop()
        del BaseContext._active[len(BaseContext._active) - 1 - BaseContext._active[::-1].index(self)]  # it may be entered twice
        if isinstance(error, ValueError) and place is not None and place.tb_next is None and _is_unpacked_there(place):
            raise ContextError(
                "`with` gives a pair (step, bound) for each step", self.usage, where=user_location(place)
            ) from None
        if (meant := refused(error, place)) is not None:
            raise meant from error  # type: ignore[misc]

    @property
    def usage(self) -> str:
        """The `with` of this context."""
        pairs = ", ".join(f"({step}, {step.bound})" for step in self.steps)
        return f"with ctx as ({pairs}{',' * (len(self.steps) == 1)}): ..." if pairs else "with ctx: ..."

    @classmethod
    def current(cls) -> BaseContext:
        """The innermost active context."""
        if not cls._active:
            raise ContextError(
                "tensors are made inside a context, and no context is open",
                hint="open one: with tp.Context('t') as ((t, T),): ...",
            )
        return cls._active[-1]

    @classmethod
    def innermost(cls) -> BaseContext | None:
        """The innermost active context, if there is one."""
        return cls._active[-1] if cls._active else None

    def around(self, symbols: Iterable[Symbol]) -> frozenset[Symbol]:
        """The steps that some bounds vary with."""
        return frozenset(step for symbol in symbols if symbol in self.outer for step in self.outer[symbol])

    def next_stream(self) -> int:
        """A number for the next random call. Calls draw independent numbers, and a program that is built again draws the same ones."""
        self._streams += 1
        return self._streams


def _is_unpacked_there(place: TracebackType) -> bool:
    """Whether an exception was raised where a `with` unpacks what it gets, before its first statement."""
    before = [each for each in dis.get_instructions(place.tb_frame.f_code) if each.offset <= place.tb_lasti]
    while before and before[-1].opname.startswith(("UNPACK_", "STORE_", "EXTENDED_ARG", "NOP")):
        before.pop()
    names = [each.opname for each in before[-2:]]
    return "BEFORE_WITH" in names[-1:] or names == ["LOAD_SPECIAL", "CALL"]  # the second since Python 3.14
