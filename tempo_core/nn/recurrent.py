"""Recurrent cells: one step of a recurrence, and the recurrence over a step of the program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.errors import ShapeError
from tempo_core.frontend.carry import carry
from tempo_core.frontend.recurrence import Recurrence, recurrence
from tempo_core.frontend.tensor import Tensor, Value
from tempo_core.nn.attention import time_step
from tempo_core.nn.initializers import Initializer, uniform_fan_in
from tempo_core.nn.linear import Linear, check_width
from tempo_core.nn.module import Domain, Module, Out
from tempo_core.symbolic.domain import step_order
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol

State = tuple[Tensor, ...]
Initial = Value | Sequence[Value | None] | None  # of a state, or of its parts


def state_over(step: Symbol, initial: Tensor, dtype: str, also: Iterable[Symbol], name: str) -> Recurrence:
    """A recurrence for state that is carried along `step`. It has initial's shape, and also varies with initial's steps and `also`."""
    steps = step_order({step, *initial.domain.steps, *also}, initial.context.steps)
    return recurrence(initial.shape, dtype, [s.expr for s in steps], name)


def carry_along(step: Symbol, state: Recurrence, start: Tensor, following: Tensor, reverse: bool = False) -> None:
    """`tp.carry` along one step: each point of the other steps has a state of its own."""
    carry(state, start, following, kept=[s.expr for s in state.domain.steps if s != step], reverse=reverse)


class Cell(Module[Out]):
    """A recurrent cell: `cell(x, *state)` gives the state after one step.

    `cell.recurrence(x, over=t)` gives the state after each point of t, as recurrences: h[t] = cell(x[t], h[t - 1]). Gradients
    flow back through it (back-propagation through time).
    """

    states: tuple[str, ...]  # the names of the parts of the state
    gates: int  # the number of hidden vectors that the maps give

    def __init__(
        self,
        n_in: int,
        hidden: int,
        domain: Domain = (),
        bias: bool = True,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
    ):
        """The maps of the operand and of the hidden state give all gates. They start uniform in ±1/sqrt(hidden), as PyTorch's."""
        super().__init__(name, domain, fed, dtype)
        self.n_in, self.hidden = n_in, hidden
        start = initial or uniform_fan_in(hidden)
        options: dict[str, Any] = {
            "domain": self.domain, "bias": bias, "fed": fed, "dtype": dtype, "initial": start, "initial_bias": start,
        }  # fmt: skip
        self.input, self.state = (Linear(width, self.gates * hidden, **options) for width in (n_in, hidden))

    def gate(self, gates: Tensor, number: int) -> Tensor:
        return gates.spatial[..., number * self.hidden : (number + 1) * self.hidden]

    def next_state(self, x: Tensor, state: State) -> State:
        """The state after one step: each part [..., hidden]."""
        raise NotImplementedError(f"{type(self).__name__} is a kind of recurrent network without `next_state`")

    def forward(self, x: Tensor, *state: Tensor) -> Out:
        """The state after one step: a tensor, or a tuple where the state has several parts."""
        check_width(self, x, self.n_in, f"{type(self).__name__}({x.shape[-1]}, {self.hidden}) takes it" if x.rank else None)
        if len(state) != len(self.states):
            raise ShapeError(
                f"{self.name} takes the operand and {len(self.states)} state(s), got {len(state)}",
                hint=f"give every state: cell(x, {', '.join(self.states)}). Or let the cell keep them: cell.recurrence(x, over=t)",
            )
        for part in state:
            check_width(self, part, self.hidden)
        after = self.next_state(x, state)
        return self._as_one(after)

    def _as_one(self, state: State) -> Out:
        return state[0] if len(state) == 1 else state  # type: ignore[return-value]

    def recurrence(self, x: Tensor, over: Expr, initial: Initial = None, reverse: bool = False) -> Out:
        """The state after each point of the step `over`: a tensor, or a tuple where the state has several parts.

        x [..., n_in] varies with the step. `initial` is the state before the first point (zeros by default): a tensor, or a
        tuple of them, that does not vary with the step. With `reverse`, it runs from the last point to the first.
        """
        step = time_step(x, over, self)
        check_width(self, x, self.n_in)
        shape: tuple[IntoExpr, ...] = (*x.shape[:-1], self.hidden)
        initial_parts = tuple(initial) if isinstance(initial, (tuple, list)) else (initial,)
        if initial is None:
            initial_parts *= len(self.states)
        if len(initial_parts) != len(self.states):
            raise ShapeError(
                f"{self.name} has the states {', '.join(self.states)}; {len(initial_parts)} initial value(s) were passed",
                hint=f"initial=({', '.join(self.states)})" if len(self.states) > 1 else "initial=h",
            )
        first = [fn.zeros(shape, self.dtype) if g is None else fn.broadcast_to(fn.as_tensor(g), shape) for g in initial_parts]
        others = {s for p in self.parameters().values() for s in p.domain.steps} | set(x.domain.steps)
        others |= {s for f in first for s in f.domain.steps}
        names = [f"{self.name}.{state}" for state in self.states]
        before = [state_over(step, f, self.dtype, others, f"{name}_before") for f, name in zip(first, names, strict=True)]
        after = [a.astype(self.dtype).named(name) for a, name in zip(self.next_state(x, tuple(before)), names, strict=True)]
        for state, start, following in zip(before, first, after, strict=True):
            carry_along(step, state, start, following, reverse)
        return self._as_one(tuple(after))


class GRUCell(Cell[Tensor]):
    """Gated recurrent unit (Cho et al., 2014, arXiv:1406.1078), with the reset gate behind the hidden map, as in PyTorch:

        r, z = sigmoid(W x + U h),   n = tanh(W_n x + r * (U_n h)),   h' = (1 - z) * n + z * h

    Weights hold the gates r, z, n side by side: `input.weight` [n_in, 3 hidden], `state.weight` [hidden, 3 hidden].
    """

    default_name = "gru"
    states = ("h",)
    gates = 3

    def next_state(self, x: Tensor, state: State) -> State:
        (h,) = state
        from_input, from_state = self.input(x), self.state(h)
        reset = fn.sigmoid(self.gate(from_input, 0) + self.gate(from_state, 0))
        update = fn.sigmoid(self.gate(from_input, 1) + self.gate(from_state, 1))
        new = fn.tanh(self.gate(from_input, 2) + reset * self.gate(from_state, 2))
        return ((1 - update) * new + update * h,)


class LSTMCell(Cell[tuple[Tensor, Tensor]]):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997) with a forget gate (Gers et al., 2000):

        i, f, o = sigmoid(W x + U h),   g = tanh(W_g x + U_g h),   c' = f * c + i * g,   h' = o * tanh(c')

    Weights hold the gates i, f, g, o side by side, as in PyTorch. The state is (h, c).
    """

    default_name = "lstm"
    states = ("h", "c")
    gates = 4

    def next_state(self, x: Tensor, state: State) -> State:
        h, c = state
        inner = self.input(x) + self.state(h)
        admit, forget, emit = (fn.sigmoid(self.gate(inner, k)) for k in (0, 1, 3))
        cell = forget * c + admit * fn.tanh(self.gate(inner, 2))
        return emit * fn.tanh(cell), cell
