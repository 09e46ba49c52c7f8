"""Normalisation over the last dimension, and dropout. Half-precision operands are normalised in float32."""

from __future__ import annotations

import tempo_core.frontend.functions as fn
from tempo_core.errors import TempoError
from tempo_core.frontend import random
from tempo_core.frontend.tensor import Tensor
from tempo_core.nn.initializers import ones, zeros
from tempo_core.nn.linear import check_width
from tempo_core.nn.module import Domain, Module
from tempo_core.symbolic.condition import Bool


class LayerNorm(Module):
    """`(x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias` over the last dimension (Ba et al., 2016, arXiv:1607.06450)."""

    default_name = "norm"

    def __init__(
        self,
        width: int,
        domain: Domain = (),
        epsilon: float = 1e-5,
        bias: bool = True,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name, domain, fed, dtype)
        self.width, self.epsilon = width, epsilon
        self.weight = self.parameter("weight", (width,), ones())
        self.bias = self.parameter("bias", (width,), zeros()) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        check_width(self, x, self.width, f"{type(self).__name__}({x.shape[-1]}) takes this operand" if x.rank else None)
        wide = fn.widened(x)
        centred = wide - fn.mean(wide, -1, keepdims=True)
        scaled = (centred * fn.rsqrt(fn.mean(fn.square(centred), -1, keepdims=True) + self.epsilon)).astype(x.dtype)
        scaled = scaled * self.weight
        return scaled if self.bias is None else scaled + self.bias


class RMSNorm(Module):
    """`x / sqrt(mean(x²) + epsilon) * weight` over the last dimension (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

    default_name = "norm"

    def __init__(
        self,
        width: int,
        domain: Domain = (),
        epsilon: float = 1e-5,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name, domain, fed, dtype)
        self.width, self.epsilon = width, epsilon
        self.weight = self.parameter("weight", (width,), ones())

    def forward(self, x: Tensor) -> Tensor:
        check_width(self, x, self.width, f"{type(self).__name__}({x.shape[-1]}) takes this operand" if x.rank else None)
        wide = fn.widened(x)
        return (wide * fn.rsqrt(fn.mean(fn.square(wide), -1, keepdims=True) + self.epsilon)).astype(x.dtype) * self.weight


class Dropout(Module):
    """Zeroes each element with probability `rate` while training, and scales the others by `1 / (1 - rate)`.

    New elements are drawn at each point of the operand's domain, and of `domain` if that is wider: an operand that does
    not vary with the training iteration needs `domain=(i,)`. Evaluation (`eval()`, `training=False`) leaves `x` as it is; with
    a condition on steps, elements are zeroed where it holds. (Srivastava et al., 2014.)
    """

    default_name = "dropout"

    def __init__(self, rate: float, domain: Domain = (), name: str | None = None):
        super().__init__(name, domain)
        if not 0 <= rate < 1:
            raise TempoError(f"the dropout rate is {rate}", hint="use a rate from 0 to below 1: tp.nn.Dropout(0.1)")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0 or (isinstance(self.training, bool) and not self.training):
            return x
        steps = [s.expr for s in x.domain.steps]
        drawn = random.uniform(x.shape, domain=[*steps, *(s for s in self.domain if s not in steps)])
        dropped = fn.where(drawn >= self.rate, x * (1 / (1 - self.rate)), 0)
        return fn.where(self.training, dropped, x) if isinstance(self.training, Bool) else dropped
