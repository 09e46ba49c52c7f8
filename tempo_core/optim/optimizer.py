"""What optimizers share: parameters, gradients, learning rates, and state that is carried from update to update.

A parameter over steps (i, e, m) takes a new value at every point, in lexicographic order: `step()` assigns `w[i, e, m + 1]`,
and where m ends `w[i, e + 1, 0]`, and where e ends too `w[i + 1, 0, 0]`. Optimizer state is carried the same way. The state
and the arithmetic of half-precision parameters are float32.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.errors import ArgumentError, TempoError
from tempo_core.frontend.aliases import Domain
from tempo_core.frontend.arguments import checked, is_number, shown
from tempo_core.frontend.carry import carry
from tempo_core.frontend.inputs import domain_steps
from tempo_core.frontend.recurrence import Recurrence, recurrence
from tempo_core.frontend.tensor import Tensor, UserExpr, Value
from tempo_core.optim.clipping import clip_by_global_norm, clip_by_value
from tempo_core.optim.schedules import Schedule, update_count
from tempo_core.symbolic.expr import Expr, Symbol

Parameters = Mapping[str, Tensor] | Sequence[Tensor]
LearningRate = float | Tensor | UserExpr | Schedule


class Optimizer:
    """Base of optimizers.

    `params` are parameters by name (`module.parameters()`), or a sequence of recurrences, all over the same steps. `lr` is a
    number, a recurrent tensor, or a schedule of `tp.optim.schedules`. Gradients are clipped by value, then by global norm.

    Parameters may vary with steps over which they are not updated, such as the layers of a model: each point of the steps in `kept` has
    parameters of its own, and one update changes them all. The global norm is that of all of them.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Arguments of optimizers are checked by their annotations, as those of functions are."""
        super().__init_subclass__(**options)
        if inspect.isfunction(cls.__dict__.get("__init__")):
            cls.__init__ = checked(cls.__init__, cls.__name__)  # type: ignore[method-assign]

    def __init__(
        self,
        params: Parameters,
        lr: LearningRate,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
        weight_decay: float = 0.0,
        kept: Domain = (),
    ):
        if not isinstance(params, (Mapping, list, tuple)):
            hint = "pass them: model.parameters()" if hasattr(params, "parameters") else "give a list, or a dict by name: [w, b]"
            raise ArgumentError(f"an optimizer takes parameters, got {shown(params)}", hint=hint)
        named = (
            params if isinstance(params, Mapping) else {getattr(p, "name", "") or f"param{k}": p for k, p in enumerate(params)}
        )
        if not named:
            raise ArgumentError("an optimizer needs at least one parameter", hint="pass some: model.parameters()")
        if not (is_number(lr) or isinstance(lr, (Tensor, Expr)) or callable(lr)):
            raise ArgumentError(
                f"the learning rate is {shown(lr)}", hint="give a number, a tensor, or a schedule: lr=3e-4, lr=0.03 * 0.99**i"
            )
        self.params: dict[str, Recurrence] = {}
        for name, param in named.items():
            if not isinstance(param, Recurrence):
                raise TempoError(
                    f"{name} is not a recurrence; only recurrences can be updated",
                    hint="make it with tp.recurrence(...), or its module with a domain: tp.nn.Linear(4, 2, domain=(i,))",
                )
            self.params[name] = param
        first = next(iter(self.params.values()))
        with first.context:
            self.kept: tuple[Symbol, ...] = domain_steps(kept)
        self.steps = self._update_steps(first)
        for name, param in self.params.items():
            if self._update_steps(param) != self.steps:
                raise TempoError(
                    f"the parameters {first.name} over {first.domain} and {name} over {param.domain} have different domains; an optimizer updates one",
                    hint="make one optimizer for each domain: tp.optim.Adam([w]). If the step l counts layers that are updated together: "
                    "tp.optim.Adam(parameters, kept=(l,))",
                )
        self.lr = lr(update_count(self.steps)) if callable(lr) else lr
        self._schedule: Schedule | None = lr if callable(lr) else None
        self._condition: Value | None = None
        self.max_grad_norm, self.max_grad_value, self.weight_decay = max_grad_norm, max_grad_value, weight_decay

    def _update_steps(self, param: Tensor) -> tuple[Symbol, ...]:
        """The steps over which a parameter is updated."""
        return tuple(step for step in param.domain.steps if step not in self.kept)

    def _kept_of(self, param: Tensor) -> tuple[Expr, ...]:
        """The steps with which a parameter varies, and over which it is not updated."""
        return tuple(step.expr for step in param.domain.steps if step in self.kept)

    def gradients(self) -> list[Tensor]:
        """The gradients of the parameters, clipped."""
        gradients = [fn.widened(p.grad) for p in self.params.values()]
        if self.max_grad_value is not None:
            gradients = clip_by_value(gradients, self.max_grad_value)
        if self.max_grad_norm is None:
            return gradients
        return clip_by_global_norm(gradients, self.max_grad_norm, tuple(step.expr for step in self.kept))

    def decayed_gradients(self) -> list[Tensor]:
        """The clipped gradients of the loss and of `weight_decay / 2` times the squared norm of the parameters."""
        gradients = self.gradients()
        if not self.weight_decay:
            return gradients
        return [g + self.weight_decay * fn.widened(p) for p, g in zip(self.params.values(), gradients, strict=True)]

    def state(self, like: Recurrence, name: str) -> Recurrence:
        """Optimizer state of the parameter's shape: zeros at the first point of its domain.

        `name` is the parameter's name and the state's: for `policy.weight.m`, the state is `adam.m(policy.weight)`.
        """
        param, _, kind = name.rpartition(".")
        return self.carried(f"{kind}({param})", fn.zeros(like.shape, fn.widened(like).dtype), like)

    def average(self, param: Recurrence, name: str, decay: float, value: Tensor) -> Tensor:
        """`decay` times optimizer state, plus `value`: what the state becomes. It has a `name` as in `state`."""
        state = self.state(param, name)
        following = decay * state + value
        self.go_on(state, following)
        return following

    def carried(self, name: str, first: Tensor, like: Recurrence | None = None) -> Recurrence:
        """State over the steps of updates, or over those of the parameter `like`, that begins as `first`.

        Its later points are still to be assigned, by `go_on`. Its name begins with the optimizer's: `adam.m(w)`.
        """
        full_name = f"{type(self).__name__.lower()}.{name}"
        steps = self.steps if like is None else like.domain.steps
        state = recurrence(first.shape, first.dtype, [s.expr for s in steps], full_name)
        carry(state, first, kept=self._kept_of(state))
        return state

    def go_on(self, state: Recurrence, following: Tensor) -> Tensor:
        """Assign the value of a parameter, or of state, after each update: `following`, or `state` where the update is skipped."""
        after = following if self._condition is None else fn.where(self._condition, following, state)
        carry(state, following=after, kept=self._kept_of(state))
        return after

    @checked
    def step(self, where: Value | None = None) -> dict[str, Tensor]:
        """Assign the next value of every parameter. Gives these values by name, at the point from which they are computed.

        Where the bool `where` is false, the update is skipped: parameters, state and the count of a schedule stay as they are.
        """
        updated: dict[str, Tensor] = {}
        with next(iter(self.params.values())).context:
            self._condition = where
            if where is not None and self._schedule is not None:
                count = self.carried("updates", fn.constant(0, "int32"))
                self.go_on(count, count + 1)
                self.lr = self._schedule(count)
            for name, change in self.changes().items():
                param = self.params[name]
                updated[name] = self.go_on(param, (fn.widened(param) - change).astype(param.dtype))
        return updated

    def changes(self) -> dict[str, Tensor]:
        """The tensor that is subtracted from each parameter, by name."""
        raise NotImplementedError(f"{type(self).__name__} defines no changes")
