"""Gradient descent, Adam, AdamW and RMSProp. Their formulas are PyTorch's."""

from __future__ import annotations

import tempo_core.frontend.functions as fn
from tempo_core.errors import TempoError
from tempo_core.frontend.aliases import Domain
from tempo_core.frontend.tensor import Tensor
from tempo_core.optim.optimizer import LearningRate, Optimizer, Parameters


class SGD(Optimizer):
    """Gradient descent: `w = w - lr * g`; with momentum `v = momentum * v + g; w = w - lr * v`.

    With `nesterov` (Sutskever et al., 2013) `w = w - lr * (g + momentum * v)`. `weight_decay * w` is added to g first.
    """

    def __init__(
        self,
        params: Parameters,
        lr: LearningRate,
        momentum: float = 0.0,
        max_grad_norm: float | None = None,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        max_grad_value: float | None = None,
        kept: Domain = (),
    ):
        super().__init__(params, lr, max_grad_norm, max_grad_value, weight_decay, kept)
        if nesterov and not momentum:
            raise TempoError("nesterov=True without momentum", hint="SGD(..., momentum=0.9, nesterov=True)")
        self.momentum, self.nesterov = momentum, nesterov

    def changes(self) -> dict[str, Tensor]:
        changes: dict[str, Tensor] = {}
        for (name, param), gradient in zip(self.params.items(), self.decayed_gradients(), strict=True):
            direction = gradient
            if self.momentum:
                direction = self.average(param, f"{name}.velocity", self.momentum, gradient)
                if self.nesterov:
                    direction = gradient + self.momentum * direction
            changes[name] = self.lr * direction
        return changes


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015, arXiv:1412.6980, algorithm 1), with bias correction. `weight_decay * w` is added to g first."""

    def __init__(
        self,
        params: Parameters,
        lr: LearningRate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        max_grad_norm: float | None = None,
        weight_decay: float = 0.0,
        max_grad_value: float | None = None,
        kept: Domain = (),
    ):
        super().__init__(params, lr, max_grad_norm, max_grad_value, weight_decay, kept)
        self.betas, self.eps = betas, eps

    def changes(self) -> dict[str, Tensor]:
        return self.adaptive_changes(self.decayed_gradients())

    def adaptive_changes(self, gradients: list[Tensor]) -> dict[str, Tensor]:
        """`lr * m / (sqrt(v) + eps)` of the corrected moments m and v."""
        changes: dict[str, Tensor] = {}
        first_decay, second_decay = self.betas
        corrections = self._bias_corrections()
        for (name, param), gradient in zip(self.params.items(), gradients, strict=True):
            first, second = self.state(param, f"{name}.m"), self.state(param, f"{name}.v")
            new_first = first_decay * first + (1 - first_decay) * gradient
            new_second = second_decay * second + (1 - second_decay) * fn.square(gradient)
            step_size = self.lr * (new_first / corrections[0])
            self.go_on(first, new_first)
            self.go_on(second, new_second)
            changes[name] = step_size / (fn.sqrt(new_second / corrections[1]) + self.eps)
        return changes

    def _bias_corrections(self) -> list[Tensor]:
        """`1 - beta**n` at the n-th update, n counted from 1 over the whole domain. The powers are state."""
        dtype = fn.widened(next(iter(self.params.values()))).dtype
        corrections = []
        for beta, name in zip(self.betas, ("beta1_power", "beta2_power"), strict=True):
            powers = self.carried(name, fn.constant(beta, dtype))
            corrections.append(1 - powers)
            self.go_on(powers, powers * beta)
        return corrections


class AdamW(Adam):
    """Adam whose weight decay does not pass through the moments: `w = w - lr * weight_decay * w - adam` (arXiv:1711.05101)."""

    def __init__(
        self,
        params: Parameters,
        lr: LearningRate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        max_grad_norm: float | None = None,
        weight_decay: float = 0.01,
        max_grad_value: float | None = None,
        kept: Domain = (),
    ):
        super().__init__(params, lr, betas, eps, max_grad_norm, weight_decay, max_grad_value, kept)

    def changes(self) -> dict[str, Tensor]:
        adaptive = self.adaptive_changes(self.gradients())
        shrinking = self.lr * self.weight_decay
        return {name: change + shrinking * fn.widened(self.params[name]) for name, change in adaptive.items()}


class RMSProp(Optimizer):
    """`s = decay * s + (1 - decay) * g²; w = w - lr * g / (sqrt(s) + eps)` (Tieleman and Hinton, 2012).

    With `centered`, s less the square of the mean gradient (Graves, 2013, arXiv:1308.0850); with momentum,
    `v = momentum * v + g / (sqrt(s) + eps); w = w - lr * v`. `weight_decay * w` is added to g first.
    """

    def __init__(
        self,
        params: Parameters,
        lr: LearningRate = 1e-2,
        decay: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        max_grad_norm: float | None = None,
        weight_decay: float = 0.0,
        max_grad_value: float | None = None,
        kept: Domain = (),
    ):
        super().__init__(params, lr, max_grad_norm, max_grad_value, weight_decay, kept)
        self.decay, self.eps, self.momentum, self.centered = decay, eps, momentum, centered

    def changes(self) -> dict[str, Tensor]:
        changes: dict[str, Tensor] = {}
        for (name, param), gradient in zip(self.params.items(), self.decayed_gradients(), strict=True):
            spread = self.average(param, f"{name}.squares", self.decay, (1 - self.decay) * fn.square(gradient))
            if self.centered:
                mean = self.average(param, f"{name}.mean", self.decay, (1 - self.decay) * gradient)
                spread = fn.maximum(spread - fn.square(mean), 0.0)  # rounding may bring it below zero
            direction = gradient / (fn.sqrt(spread) + self.eps)
            if self.momentum:
                direction = self.average(param, f"{name}.velocity", self.momentum, direction)
            changes[name] = self.lr * direction
        return changes
