"""Modules that contain others, and functions as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.frontend.tensor import Tensor, Value
from tempo_core.nn.module import Module, Out


class Sequential(Module):
    """Modules applied one after the other. Those without a name are called by their position: `0.weight`, `2.weight`."""

    def __init__(self, *layers: Module, name: str | None = None):
        super().__init__(name)
        for position, layer in enumerate(layers):
            self.child(str(position), layer)

    @property
    def layers(self) -> tuple[Module[object], ...]:
        """The modules, in their order."""
        return tuple(self._children.values())

    def forward(self, x: Value) -> Tensor:
        """The last module's value."""
        for layer in self.layers:
            x = layer(x)  # type: ignore[assignment]  # each module takes the result of the one before it
        return x  # type: ignore[return-value]


class Lambda(Module[Out]):
    """A function without parameters, as a module."""

    def __init__(self, function: Callable[..., Out], name: str = ""):
        super().__init__(name)
        self.function = function

    def forward(self, *operands: Any, **options: Any) -> Out:
        return self.function(*operands, **options)


class Tanh(Lambda[Tensor]):
    """`tp.tanh` as a module."""

    def __init__(self) -> None:
        super().__init__(fn.tanh, "tanh")


class Relu(Lambda[Tensor]):
    """`tp.relu` as a module."""

    def __init__(self) -> None:
        super().__init__(fn.relu, "relu")


class Gelu(Lambda[Tensor]):
    """`tp.gelu` as a module."""

    def __init__(self) -> None:
        super().__init__(fn.gelu, "gelu")


class Silu(Lambda[Tensor]):
    """`tp.silu` as a module."""

    def __init__(self) -> None:
        super().__init__(fn.silu, "silu")


class Sigmoid(Lambda[Tensor]):
    """`tp.sigmoid` as a module."""

    def __init__(self) -> None:
        super().__init__(fn.sigmoid, "sigmoid")


class Softplus(Lambda[Tensor]):
    """`tp.softplus` as a module."""

    def __init__(self) -> None:
        super().__init__(fn.softplus, "softplus")
