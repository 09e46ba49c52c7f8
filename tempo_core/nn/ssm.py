"""A diagonal state-space layer, as recurrences whose coefficients do not depend on the state: Tempo computes them as scans."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tempo_core.frontend.functions as fn
from tempo_core.frontend import random
from tempo_core.frontend.tensor import Tensor
from tempo_core.nn.attention import time_step
from tempo_core.nn.initializers import Initializer, Shape, normal, ones
from tempo_core.nn.linear import check_width
from tempo_core.nn.module import Domain, Module
from tempo_core.nn.recurrent import carry_along, state_over
from tempo_core.symbolic.expr import Expr, Symbol


class DiagonalSSM(Module):
    """A linear state-space model for each of `width` channels, with `state` independent modes (S4D; Gu et al., 2022, arXiv:2206.11893).

    In continuous time s' = A s + u, y = 2 Re(C s) + D u (C s + D u where A is real), with u held constant over steps of
    length dt: s[t] = exp(A dt) s[t - 1] + (exp(A dt) - 1) / A u[t]. A = -rate + i frequency begins as S4D-Lin
    (-1/2 + i pi n), or as S4D-Real (-(n + 1)) where not `oscillating`; dt is log-uniform in `steps`.

    `ssm(x, over=t)`: x [..., width] at each point to [..., width]. A mode that oscillates is carried in a frame that turns with
    it: there its coefficient is the real number exp(-rate dt), its real and imaginary parts do not mix, and each is a scan.
    The angle frequency * dt * t is a float32 number: it has a relative error of 1e-7, and so is good for about 10^5 turns.
    """

    default_name = "ssm"

    def __init__(
        self,
        width: int,
        state: int = 16,
        domain: Domain = (),
        oscillating: bool = False,
        steps: tuple[float, float] = (0.001, 0.1),
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name, domain, fed, dtype)
        self.width, self.modes, self.oscillating = width, state, oscillating
        rates = np.full(state, 0.5) if oscillating else np.arange(1, state + 1)
        self.log_rate = self.parameter("log_rate", (width, state), _repeated(np.log(rates)))
        if oscillating:
            self.frequency = self.parameter("frequency", (width, state), _repeated(math.pi * np.arange(state)))
        self.log_step = self.parameter("log_step", (width,), _log_uniform(*steps))
        self.output = self.parameter("output", (width, state), normal(state**-0.5))
        if oscillating:
            self.output_imaginary = self.parameter("output_imaginary", (width, state), normal(state**-0.5))
        self.skip = self.parameter("skip", (width,), ones())

    def forward(self, x: Tensor, over: Expr) -> Tensor:
        step = time_step(x, over, self)
        check_width(self, x, self.width, f"DiagonalSSM({x.shape[-1]}) takes this operand" if x.rank else None)
        rate, dt = fn.exp(self.log_rate), fn.expand_dims(fn.exp(self.log_step), 1)  # (width, modes), (width, 1)
        decay = fn.exp(-rate * dt)
        u = fn.expand_dims(x, x.rank)  # (..., width, 1)
        if not self.oscillating:
            modes = self._scanned(step, decay, u * ((1 - decay) / rate), "state")
            return (modes * self.output).sum(-1) + x * self.skip

        turn = self.frequency * dt  # per step
        gain = self._held_input(rate, decay, turn)
        angle = turn * step.expr
        cosine, sine = fn.cos(angle), fn.sin(angle)
        real = self._scanned(step, decay, u * (gain[0] * cosine + gain[1] * sine), "real")  # exp(-i angle) gain u
        imaginary = self._scanned(step, decay, u * (gain[1] * cosine - gain[0] * sine), "imaginary")
        back = real * cosine - imaginary * sine, real * sine + imaginary * cosine  # exp(i angle) z
        return 2 * (back[0] * self.output - back[1] * self.output_imaginary).sum(-1) + x * self.skip

    def _scanned(self, step: Symbol, decay: Tensor, term: Tensor, name: str) -> Tensor:
        """z[t] = decay * z[t - 1] + term[t], from zero."""
        start, others = fn.zeros(term.shape, self.dtype), {*term.domain.steps, *decay.domain.steps}
        before = state_over(step, start, self.dtype, others, f"{self.name}.{name}_before")
        after = (decay * before + term).named(f"{self.name}.{name}")
        carry_along(step, before, start, after)
        return after

    def _held_input(self, rate: Tensor, decay: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
        """(exp(A dt) - 1) / A as its real and imaginary part."""
        real, imaginary = decay * fn.cos(turn) - 1, decay * fn.sin(turn)
        size = fn.square(rate) + fn.square(self.frequency)  # times conj(A) = -rate - i frequency
        return (imaginary * self.frequency - real * rate) / size, (-real * self.frequency - imaginary * rate) / size


def _repeated(row: Any) -> Initializer:
    """The same row of initial values for each channel."""
    return lambda shape: fn.broadcast_to(fn.constant(np.asarray(row, np.float32)), shape)


def _log_uniform(low: float, high: float) -> Initializer:
    def initialize(shape: Shape) -> Tensor:
        return random.uniform(shape, math.log(low), math.log(high))

    return initialize
