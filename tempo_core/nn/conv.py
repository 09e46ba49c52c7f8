"""Convolutions over one and two dimensions, channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tempo_core.frontend.functions as fn
from tempo_core.errors import ShapeError
from tempo_core.frontend.functions.contractions import Padding
from tempo_core.frontend.tensor import Tensor
from tempo_core.nn.initializers import Initializer, uniform_fan_in, zeros
from tempo_core.nn.module import Domain, Module


class Convolution(Module):
    """A convolution with a bias. Weights are stored [*kernel, n_in // groups, n_out].

    Initial weights are uniform in ±1/sqrt(fan_in), or those of `initial`; biases begin at zero. `padding`, `stride`,
    `dilation` and `groups` are those of `tp.conv`; "CAUSAL" pads so that no output depends on later elements.
    """

    default_name = "conv"
    dimensions: int

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: int | Sequence[int],
        domain: Domain = (),
        stride: int | Sequence[int] = 1,
        padding: Padding = "SAME",
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
    ):
        super().__init__(name, domain, fed, dtype)
        extent, gaps = self._per_dimension("kernel", kernel), self._per_dimension("dilation", dilation)
        if groups < 1 or n_in % groups or n_out % groups:
            raise ShapeError(f"{n_in} channels and {n_out} features do not divide into {groups} groups")
        if isinstance(padding, str) and padding.upper() == "CAUSAL":
            padding = [(gap * (taps - 1), 0) for taps, gap in zip(extent, gaps, strict=True)]
        self.n_in, self.n_out, self.groups = n_in, n_out, groups
        self.stride, self.padding, self.dilation = stride, padding, dilation
        start = initial or uniform_fan_in(math.prod(extent) * n_in // groups)
        self.weight = self.parameter("weight", (*extent, n_in // groups, n_out), start)
        self.bias = self.parameter("bias", (n_out,), zeros()) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if x.rank < self.dimensions + 1 or x.shape[-1] != self.n_in:
            sizes = ("length",) if self.dimensions == 1 else ("height", "width")
            raise ShapeError(
                f"{self.name} takes [..., {', '.join(sizes)}, {self.n_in}], got {x!r}",
                hint=f"channels come last; {type(self).__name__}({x.shape[-1] if x.rank else '...'}, {self.n_out}, ...) takes this operand",
            )
        y = fn.conv(x, self.weight, self.stride, self.padding, self.dilation, self.groups)
        return y if self.bias is None else y + self.bias

    def _per_dimension(self, what: str, value: int | Sequence[int]) -> tuple[int, ...]:
        numbers = (value,) * self.dimensions if isinstance(value, int) else tuple(value)
        if len(numbers) != self.dimensions or any(v < 1 for v in numbers):
            raise ShapeError(
                f"{type(self).__name__} cannot have the {what} {value}",
                hint=f"give a positive int, or {self.dimensions} of them: {what}={(3,) * self.dimensions}",
            )
        return numbers


class Conv1d(Convolution):
    """Convolution over one dimension: [..., length, n_in] to [..., length', n_out]."""

    dimensions = 1


class Conv2d(Convolution):
    """Convolution over two dimensions: [..., height, width, n_in] to [..., height', width', n_out]."""

    dimensions = 2
