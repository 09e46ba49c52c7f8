"""Stochastic gradient descent and Adam over parameters that are recurrences.

A parameter over steps (i, e, m) takes a new value at every point, in lexicographic order: `step()` assigns `w[i, e, m + 1]`,
and where m ends `w[i, e + 1, 0]`, and where e ends too `w[i + 1, 0, 0]`. Optimizer state is carried the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.errors import TempoError
from tempo_core.frontend.sources import Recurrence, recurrence
from tempo_core.frontend.tensor import Tensor


def carry(state: Recurrence, update: Tensor) -> None:
    """Assign `update`, the value after each point, to the lexicographically next point of `state`'s domain."""
    steps = state.domain.steps
    for k in reversed(range(len(steps))):
        outer, step, inner = steps[:k], steps[k], steps[k + 1 :]
        target = (*(s.expr for s in outer), step.expr + 1, *(0 for _ in inner))
        value = update
        present = update.domain.steps
        if any(s in present for s in inner):
            value = update[tuple(s.bound_expr - 1 if s in inner else s.expr for s in present)]
        state[target] = value


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all elements of all tensors."""
    squares = [fn.total(fn.square(g)) for g in tensors]
    norm = squares[0]
    for square in squares[1:]:
        norm = norm + square
    return fn.sqrt(norm)


def clip_by_global_norm(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """Gradients scaled so that their global norm is at most `max_norm` (Pascanu et al., 2013, arXiv:1211.5063)."""
    scale = fn.minimum_of(max_norm / (global_norm(gradients) + 1e-6), 1.0)
    return [g * scale for g in gradients]


class Optimizer:
    """Base of optimizers: parameters, their gradients and the learning rate (a number or a recurrent tensor)."""

    def __init__(self, params: Mapping[str, Tensor] | Sequence[Tensor], lr: Any, max_grad_norm: float | None = None):
        named = params if isinstance(params, Mapping) else {p.name or f"param{k}": p for k, p in enumerate(params)}
        if not named:
            raise TempoError("an optimizer needs at least one parameter")
        self.params: dict[str, Recurrence] = {}
        for name, param in named.items():
            if not isinstance(param, Recurrence):
                raise TempoError(
                    f"{name} is not a recurrence; only recurrences can be updated",
                    hint="tp.nn modules with domain=(i,), or tp.recurrence",
                )
            self.params[name] = param
        self.lr, self.max_grad_norm = lr, max_grad_norm

    def gradients(self) -> list[Tensor]:
        found = [p.grad for p in self.params.values()]
        return found if self.max_grad_norm is None else clip_by_global_norm(found, self.max_grad_norm)

    def state(self, like: Recurrence, name: str) -> Recurrence:
        """Optimizer state: zeros at the first point of the parameter's domain."""
        made = recurrence(like.shape, like.dtype, [s.expr for s in like.domain.steps], name)
        made[(0,) * len(like.domain.steps)] = fn.zeros(like.shape, like.dtype)
        return made

    def step(self) -> dict[str, Tensor]:
        """Assign the next value of every parameter; gives those values by name, at the point that they are computed from."""
        raise AssertionError(f"{type(self).__name__} defines no step")


class SGD(Optimizer):
    """Gradient descent, with heavy-ball momentum: `v = momentum * v + g; w = w - lr * v`."""

    def __init__(self, params: Any, lr: Any, momentum: float = 0.0, max_grad_norm: float | None = None):
        super().__init__(params, lr, max_grad_norm)
        self.momentum = momentum

    def step(self) -> dict[str, Tensor]:
        updated: dict[str, Tensor] = {}
        for (name, param), gradient in zip(self.params.items(), self.gradients(), strict=True):
            if self.momentum:
                velocity = self.state(param, f"{name}.velocity")
                gradient = self.momentum * velocity + gradient
                carry(velocity, gradient)
            updated[name] = param - self.lr * gradient
            carry(param, updated[name])
        return updated


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015, arXiv:1412.6980, algorithm 1), with bias correction."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        max_grad_norm: float | None = None,
    ):
        super().__init__(params, lr, max_grad_norm)
        self.betas, self.eps = betas, eps

    def step(self) -> dict[str, Tensor]:
        updated: dict[str, Tensor] = {}
        first_decay, second_decay = self.betas
        corrections = self._bias_corrections()
        for (name, param), gradient in zip(self.params.items(), self.gradients(), strict=True):
            first, second = self.state(param, f"{name}.m"), self.state(param, f"{name}.v")
            new_first = first_decay * first + (1 - first_decay) * gradient
            new_second = second_decay * second + (1 - second_decay) * fn.square(gradient)
            step_size = self.lr * (new_first / corrections[0])
            carry(first, new_first)
            carry(second, new_second)
            updated[name] = param - step_size / (fn.sqrt(new_second / corrections[1]) + self.eps)
            carry(param, updated[name])
        return updated

    def _bias_corrections(self) -> list[Tensor]:
        """`1 - beta**n` at the n-th update, n counted from 1 over the whole domain, as powers carried along."""
        any_param = next(iter(self.params.values()))
        corrections = []
        for beta, name in zip(self.betas, ("beta1_power", "beta2_power"), strict=True):
            powers = recurrence((), any_param.dtype, [s.expr for s in any_param.domain.steps], name)
            powers[(0,) * len(any_param.domain.steps)] = fn.constant(beta)
            corrections.append(1 - powers)
            carry(powers, powers * beta)
        return corrections
