"""The context that users hold: the steps of a program, and the methods that compile and run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, overload

from tempo_core.compiler import Outputs, Recent, compile_context
from tempo_core.config import Config
from tempo_core.errors import ArgumentError, DTypeError, user_location
from tempo_core.frontend.aliases import Array, Inputs
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.programs.copies import copied
from tempo_core.frontend.tensor import Bounds, Tensor, UserExpr
from tempo_core.ir.ops import End, Input
from tempo_core.program import Program
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain as Points
from tempo_core.symbolic.domain import step_order
from tempo_core.symbolic.expr import Expr, Symbol


class Copies(NamedTuple):
    """Many copies of a program: their context, their step and its bound, and the tensors that were asked for."""

    context: Context
    step: UserExpr
    bound: UserExpr
    tensors: dict[str, Tensor]


class Context(BaseContext):
    """A program's steps. `Context("i", "t")` has the steps i, t with the bounds I, T; `Context(num_dims=2)` names them d0, d1.

    `with ctx as ((i, I), (t, T)):` gives each step and its bound as symbolic expressions; recurrent tensors are made inside
    of the `with`. The order of the steps is the order of all domains and of the leading dimensions of results.
    """

    parameters: dict[str, Tensor]

    def __init__(self, *names: str, num_dims: int | None = None):
        super().__init__(*names, num_dims=num_dims)
        self._recent = Recent()

    def __enter__(self) -> tuple[tuple[UserExpr, UserExpr], ...]:
        super().__enter__()
        return tuple((UserExpr(step.expr), UserExpr(step.bound_expr)) for step in self.steps)

    @checked
    def ends(self, step: Expr, when: Tensor, each: Expr | tuple[Expr, ...] = ()) -> None:
        """End a step early: points after the first one at which `when` holds do not exist, and the step's bound is the true end.

        `when` is a bool at each point of the step; of several rows, in dimensions or other steps, all must hold. In expressions, `T` is the
        true end: `x[T - 1]` is the last point there is, and `x[t:T]` ends with it. The number that a bound has when the program is compiled,
        or that a run chooses, is then the most.

        With `each`, the step is an inner one, and ends at another place for each point of the steps in `each`, which come before it: with
        `ctx.ends(k, when=error < 1e-6, each=t)`, the loop over k runs for each t as often as it must. `K` varies with t then, and
        `x[t, K - 1]` is the last point that t has. Call `ends` before `K` stands in an expression.

        Raises ArgumentError and DTypeError; `compile` raises CausalityError for an end that depends on itself.
        """
        if not isinstance(step, Expr):
            raise ArgumentError(f"`ends` takes a step, got {step!r}", hint="ctx.ends(t, when=x < 0.1)")
        symbol, outer = self._step(step), tuple(map(self._step, each if isinstance(each, tuple) else (each,)))
        if any(isinstance(node.op, End) and node.op.bound.terms == symbol.bound_expr.terms for node in self.graph):
            raise ArgumentError(f"the step {symbol} has an end already", hint="join the conditions: ctx.ends(t, when=a | b)")
        self._check_outer(symbol, outer)
        over = ", ".join(s.name for s in (*outer, symbol))
        usage = f"ctx.ends({symbol}, when=x < 0.1{f', each={outer[0]}' if outer else ''}), for an x over ({over if outer else f'{over},'})"
        if when.context is not self or not {*outer, symbol} <= set(when.domain.steps) or when.domain.condition is not TRUE:
            raise ArgumentError(f"{when!r} is not a condition at every point of {over}", hint=usage)
        if when.dtype != "bool":
            raise DTypeError(f"the condition of an end must be a bool, not {when!r}", hint=usage)
        own = (*outer, symbol)
        others = [s for s in when.domain.steps if s not in own]
        holds = when[tuple(s.expr if s in own else slice(None) for s in when.domain.steps)] if others else when
        if holds.type.rank:
            holds = holds.all(None)
        op = End(name=f"end of {symbol}", bound=symbol.bound_expr)
        self.graph.add(op, [holds.edge], domain=Points(step_order(own, self.steps)), name=op.name, where=user_location())
        if outer:
            self.outer[symbol.bound_symbol] = outer

    def _step(self, step: Expr) -> Symbol:
        """A step of this context, from the user's expression. Raises ArgumentError for another one."""
        symbol = next((s for s in self.steps if step.plain.single_atom == s), None)
        if symbol is None:
            names = ", ".join(s.name for s in self.steps)
            raise ArgumentError(f"`{step}` is not a step of this context", hint=f"its steps are {names}")
        return symbol

    def _check_outer(self, symbol: Symbol, outer: Sequence[Symbol]) -> None:
        """Raise ArgumentError unless a step may end at another place for each point of `outer`."""
        for step in outer:
            if self.steps.index(step) >= self.steps.index(symbol):
                raise ArgumentError(
                    f"{symbol} is not inside of {step}: steps are nested in the order of the context",
                    hint=f'put {step} first: tp.Context("{step}", "{symbol}")',
                )
            if any(step in steps or step.bound_symbol == bound for bound, steps in self.outer.items()) or any(
                isinstance(node.op, End) and step.bound_symbol in node.op.bound.symbols for node in self.graph
            ):
                raise ArgumentError(
                    f"{step} has an inner step that ends already, or ends itself: one step ends for each of its points",
                    hint="write the other one with a condition in its recurrence: tp.where(done, x, following)",
                )
        users = (node for node in self.graph if outer and symbol.bound_symbol in node.symbols and not isinstance(node.op, Input))
        if (node := next(users, None)) is not None:
            raise ArgumentError(
                f"{node.label} uses {symbol.bound} before it is said where {symbol} ends: {node.where}",
                hint=f"put ctx.ends({symbol}, ...) above this line",
            )

    @checked
    def copies(self, step: str, tensors: Mapping[str, Tensor] | None = None, inputs: Sequence[str] = ()) -> Copies:
        """The program of this context, many times: in a context with one more step, the outermost one, of which each point is a copy.

        The copy s is the program run alone with the seed `seed + s`, up to rounding. `inputs` names inputs that differ between copies: their
        arrays have the copies as first dimension. The result has the new `context`, its `step` and `bound`, and its tensors for `tensors`.
        All copies are computed at once, in one program, which does not become longer with their number.

        A function or a sink on the host is called for each copy in turn. If it, or the object whose method it is, has an attribute
        `takes_copies = True`, it is called once for all: its arrays, and its results, have the copies as first dimension. A function with
        state needs this. Raises ArgumentError for a function that lacks it, and for steps that end early, at another place in each copy.
        """
        new = Context(step, *(other.name for other in self.steps))
        s = new.steps[0]
        return Copies(new, UserExpr(s.expr), UserExpr(s.bound_expr), copied(self, new, tensors or {}, inputs))

    @overload
    def compile(self, bounds: Bounds, outputs: Tensor, config: Config | None = None) -> Program[Array]: ...
    @overload
    def compile(
        self, bounds: Bounds, outputs: Mapping[str, Tensor], config: Config | None = None
    ) -> Program[dict[str, Array]]: ...
    @overload
    def compile(self, bounds: Bounds, outputs: Iterable[Tensor] = (), config: Config | None = None) -> Program[list[Array]]: ...
    def compile(self, bounds: Bounds, outputs: Outputs = (), config: Config | None = None) -> Program[Any]:
        """The program that computes `outputs` (tensors, a dict of tensors, or one tensor) and runs the sinks.

        `bounds` gives each bound a number >= 1, or a capacity if each run chooses it: `tp.upto(4096)`.

        Raises a `tempo_core.errors.TempoError` that names the user's line, if something is wrong with the program.
        """
        return compile_context(self, bounds, outputs, config)

    @overload
    def run(
        self, bounds: Bounds, outputs: Tensor, inputs: Inputs | None = None, config: Config | None = None, seed: int | None = None
    ) -> Array: ...
    @overload
    def run(
        self,
        bounds: Bounds,
        outputs: Mapping[str, Tensor],
        inputs: Inputs | None = None,
        config: Config | None = None,
        seed: int | None = None,
    ) -> dict[str, Array]: ...
    @overload
    def run(
        self,
        bounds: Bounds,
        outputs: Iterable[Tensor] = (),
        inputs: Inputs | None = None,
        config: Config | None = None,
        seed: int | None = None,
    ) -> list[Array]: ...
    def run(
        self,
        bounds: Bounds,
        outputs: Outputs = (),
        inputs: Inputs | None = None,
        config: Config | None = None,
        seed: int | None = None,
    ) -> Array | dict[str, Array] | list[Array]:
        """Compile the program and run it: gives a list with one array for each output. The steps of its domain are its first dimensions.

        A dict of tensors as `outputs` gives a dict of arrays; one tensor gives one array. A program that was run before (the
        same graph, outputs and config) is not compiled again; with other bounds, only parts of it are. `tempo_core.typing.Array`
        describes a result whose shape varies with a step, and a result that is not defined at every point.
        """
        program: Program[Any] = self._recent.program(self, bounds, outputs, config)
        results: Array | dict[str, Array] | list[Array] = program.run(
            inputs, seed if seed is not None or config is None else config.seed
        )
        return results
