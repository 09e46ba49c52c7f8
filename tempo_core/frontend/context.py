"""The context: the steps of a program, in their order, and the graph that its recurrent tensors build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tempo_core.errors import TempoError
from tempo_core.ir.graph import Graph
from tempo_core.symbolic.expr import Expr, Symbol


class Context:
    """A program's steps. `Context("i", "t")` has the steps i, t with the bounds I, T; `Context(num_dims=2)` names them d0, d1.

    Used as `with ctx as ((i, I), (t, T)):`, it gives each step and its bound as symbolic expressions; recurrent tensors are
    made inside the `with`. The order of the steps is the order of all domains and of the leading dimensions of results.
    """

    _active: list[Context] = []
    _compile: Callable[..., Any] | None = None  # the compiler, handed down by the package's facade

    def __init__(self, *names: str, num_dims: int | None = None):
        if num_dims is not None:
            if names:
                raise TempoError("Context takes step names or num_dims, not both")
            names = tuple(f"d{k}" for k in range(num_dims))
        for name in names:
            if not name.isidentifier() or name.upper() == name or name.startswith("_"):
                raise TempoError(f"`{name}` cannot name a step", hint='use lower-case names such as "t": its bound is then T')
        if len(set(names)) != len(names):
            raise TempoError(f"the steps {names} are not distinct")
        self.steps = tuple(Symbol(name, name.upper()) for name in names)
        self.graph = Graph(self.steps)
        self.gradients: dict[tuple[int, int], Any] = {}
        self.leaves: list[Any] = []  # inputs with requires_grad
        self.recurrences: list[Any] = []
        self.branch_lines: dict[int, list[str]] = {}  # where each branch of a recurrence was assigned
        self._streams = 0

    def __enter__(self) -> tuple[tuple[Expr, Expr], ...]:
        Context._active.append(self)
        return tuple((step.expr, step.bound_expr) for step in self.steps)

    def __exit__(self, *_: object) -> None:
        Context._active.remove(self)

    @classmethod
    def current(cls) -> Context:
        """The innermost active context."""
        if not cls._active:
            raise TempoError("recurrent tensors are made inside a context", hint="with tp.Context('t') as ((t, T),): ...")
        return cls._active[-1]

    def next_stream(self) -> int:
        """A number for the next random call, so that calls draw independent numbers and rebuilding repeats them."""
        self._streams += 1
        return self._streams

    def compile(self, bounds: Mapping[Expr, int], outputs: Sequence[Any] = (), config: Any = None) -> Any:
        """The program that computes `outputs` and runs the sinks. `bounds` gives each bound a number >= 1.

        Raises a `tempo_core.errors.TempoError` for whatever is wrong with the program, naming the user's line.
        """
        assert Context._compile is not None
        return Context._compile(self, bounds, outputs, config)

    def run(
        self,
        bounds: Mapping[Expr, int],
        outputs: Sequence[Any] = (),
        inputs: Mapping[str, Any] | None = None,
        config: Any = None,
    ) -> list[Any]:
        """`compile`, then run: a list with one array an output, the dimensions of its domain leading."""
        return self.compile(bounds, outputs, config).run(inputs or {})
