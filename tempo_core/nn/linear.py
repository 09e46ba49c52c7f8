"""Linear maps, tables, and the gated feed-forward layer."""

from __future__ import annotations

from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.errors import DTypeError, ShapeError
from tempo_core.frontend.methods.indexing import at_position
from tempo_core.frontend.tensor import Positions, Tensor
from tempo_core.ir.types import is_float
from tempo_core.nn.initializers import Initializer, normal, orthogonal, uniform_fan_in, zeros
from tempo_core.nn.module import Domain, Module


def check_width(module: Module[Any], x: Tensor, width: int, hint: str | None = None) -> None:
    """Raises ShapeError unless the last dimension of `x` is `width`."""
    if x.rank == 0 or x.shape[-1] != width:
        raise ShapeError(f"{module.name or type(module).__name__} takes [..., {width}], got {x!r}", hint=hint)


class Linear(Module):
    """`x @ weight + bias`: [..., n_in] to [..., n_out]. Weights are stored [n_in, n_out].

    Their initial values are uniform in ±1/sqrt(n_in), orthogonal if a `gain` is given, or those of `initial`. Biases
    begin at zero.
    """

    default_name = "linear"

    def __init__(
        self,
        n_in: int,
        n_out: int,
        domain: Domain = (),
        gain: float | None = None,
        bias: bool = True,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
        initial_bias: Initializer | None = None,
    ):
        super().__init__(name, domain, fed, dtype)
        if initial is None:
            initial = uniform_fan_in(n_in) if gain is None else orthogonal(gain)
        self.n_in, self.n_out = n_in, n_out
        self.weight = self.parameter("weight", (n_in, n_out), initial)
        self.bias = self.parameter("bias", (n_out,), initial_bias or zeros()) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        fits = f"Linear({x.shape[-1]}, {self.n_out}) takes this operand" if x.rank else "give it a dimension: x.expand_dims(0)"
        check_width(self, x, self.n_in, fits)
        y = fn.matmul(x, self.weight)
        return y if self.bias is None else y + self.bias


class Embedding(Module):
    """Rows of a table: integers [...] to [..., width]. Initial values are standard normal, or those of `initial`."""

    default_name = "embedding"

    def __init__(
        self,
        count: int,
        width: int,
        domain: Domain = (),
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
    ):
        super().__init__(name, domain, fed, dtype)
        self.weight = self.parameter("weight", (count, width), initial or normal())

    def forward(self, x: Positions) -> Tensor:
        if isinstance(x, Tensor) and is_float(x.dtype):
            raise DTypeError(f"{self.name} takes integers, got {x!r}", hint='convert it: x.astype("int32")')
        return at_position(self.weight, 0, x)


class SwiGLU(Module):
    """`down(silu(gate(x)) * up(x))`: [..., width] to [..., width], through `hidden` (Shazeer, 2020, arXiv:2002.05202)."""

    default_name = "swiglu"

    def __init__(
        self,
        width: int,
        hidden: int,
        domain: Domain = (),
        bias: bool = False,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
    ):
        super().__init__(name, domain, fed, dtype)
        options: dict[str, Any] = {"domain": self.domain, "bias": bias, "fed": fed, "dtype": dtype, "initial": initial}
        self.gate = Linear(width, hidden, **options)
        self.up = Linear(width, hidden, **options)
        self.down = Linear(hidden, width, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(fn.silu(self.gate(x)) * self.up(x))
