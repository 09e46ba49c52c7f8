"""Modules: named parameters and a call. A parameter is a recurrence over the module's domain, or an input where `fed`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tempo_core.frontend.functions as fn
from tempo_core.errors import ShapeError, TempoError
from tempo_core.frontend.sources import domain_steps, input, recurrence
from tempo_core.frontend.tensor import Tensor
from tempo_core.nn.initializers import Initializer, constant, orthogonal, uniform_fan_in
from tempo_core.symbolic.expr import Expr

Domain = Iterable[Expr]


class Module:
    """Base of modules. `parameters()` maps dotted names to tensors; calling a module applies it."""

    def __init__(self, name: str = ""):
        self.name = name
        self._own: dict[str, Tensor] = {}

    def parameter(self, name: str, shape: tuple[int, ...], initial: Initializer, domain: Domain, fed: bool) -> Tensor:
        """A parameter of the module: initial value at the first point of `domain`; later points are the optimizer's."""
        full_name = f"{self.name}.{name}" if self.name else name
        if fed:
            made: Tensor = input(full_name, shape)
        else:
            steps = domain_steps(domain)
            weights = recurrence(shape, domain=[s.expr for s in steps], name=full_name)
            if not steps:
                raise TempoError(
                    f"parameter {full_name} has no steps to vary with",
                    hint="Linear(..., domain=(i,)) trains over i; fed=True takes it as an input",
                )
            weights[(0,) * len(steps)] = initial(shape)
            made = weights
        self._own[full_name] = made
        return made

    def parameters(self) -> dict[str, Tensor]:
        """Parameters by name, in the order they were made."""
        return dict(self._own)

    def __call__(self, x: Tensor) -> Tensor:
        raise AssertionError(f"{type(self).__name__} defines no call")


class Linear(Module):
    """`x @ weight + bias`: [..., n_in] to [..., n_out]. Weights are stored [n_in, n_out]; orthogonal initialisation."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        domain: Domain = (),
        gain: float | None = None,
        bias: bool = True,
        fed: bool = False,
        name: str = "linear",
    ):
        super().__init__(name)
        initial = uniform_fan_in(n_in) if gain is None else orthogonal(gain)
        steps = tuple(domain)
        self.n_in = n_in
        self.weight = self.parameter("weight", (n_in, n_out), initial, steps, fed)
        self.bias = self.parameter("bias", (n_out,), constant(0.0), steps, fed) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.rank == 0 or x.shape[-1] != self.n_in:
            raise ShapeError(f"{self.name} takes [..., {self.n_in}], got {x!r}")
        y = fn.matmul(x, self.weight)
        return y if self.bias is None else y + self.bias


class Embedding(Module):
    """Rows of a table: int32 [...] to [..., width]."""

    def __init__(self, count: int, width: int, domain: Domain = (), fed: bool = False, name: str = "embedding"):
        super().__init__(name)
        self.table = self.parameter("weight", (count, width), uniform_fan_in(1), tuple(domain), fed)

    def __call__(self, x: Tensor) -> Tensor:
        return fn.take(self.table, x)


class RMSNorm(Module):
    """`x / sqrt(mean(x²) + epsilon) * weight` over the last dimension (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

    def __init__(self, width: int, domain: Domain = (), epsilon: float = 1e-5, fed: bool = False, name: str = "norm"):
        super().__init__(name)
        self.epsilon = epsilon
        self.weight = self.parameter("weight", (width,), constant(1.0), tuple(domain), fed)

    def __call__(self, x: Tensor) -> Tensor:
        return x * fn.rsqrt(fn.mean(fn.square(x), -1, keepdims=True) + self.epsilon) * self.weight


class Lambda(Module):
    """A function without parameters, as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str = ""):
        super().__init__(name)
        self.function = function

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)


def Tanh() -> Lambda:
    return Lambda(fn.tanh, "tanh")


def Relu() -> Lambda:
    return Lambda(fn.relu, "relu")


class Sequential(Module):
    """Modules applied one after the other."""

    def __init__(self, *modules: Module, name: str = ""):
        super().__init__(name)
        self.modules = modules

    def parameters(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for module in self.modules:
            for name, parameter in module.parameters().items():
                if name in found:
                    raise TempoError(
                        f"two parameters are named {name}", hint="give the modules names: Linear(..., name='actor.0')"
                    )
                found[name] = parameter
        return found

    def __call__(self, x: Tensor) -> Tensor:
        for module in self.modules:
            x = module(x)
        return x
