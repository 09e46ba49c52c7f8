"""Modules made of others, and functions as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.frontend.tensor import Tensor
from tempo_core.nn.module import Module


class Sequential(Module):
    """Modules applied one after the other. Those without a name are called by their position: `0.weight`, `2.weight`."""

    def __init__(self, *layers: Module, name: str | None = None):
        super().__init__(name)
        for position, layer in enumerate(layers):
            self.child(str(position), layer)

    @property
    def layers(self) -> tuple[Module, ...]:
        return tuple(self._children.values())

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Lambda(Module):
    """A function without parameters, as a module."""

    def __init__(self, function: Callable[..., Any], name: str = ""):
        super().__init__(name)
        self.function = function

    def forward(self, *operands: Any, **options: Any) -> Any:
        return self.function(*operands, **options)


def _activation(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[], Lambda]:
    def make() -> Lambda:
        return Lambda(function, name)

    make.__name__ = name.capitalize()
    make.__doc__ = f"`tp.{name}` as a module."
    return make


Tanh, Relu, Gelu = _activation("tanh", fn.tanh), _activation("relu", fn.relu), _activation("gelu", fn.gelu)
Silu, Sigmoid = _activation("silu", fn.silu), _activation("sigmoid", fn.sigmoid)
Softplus = _activation("softplus", fn.softplus)
