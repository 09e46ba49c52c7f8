"""Fourier transforms along an axis, by XLA's own operation: `tp.fft.rfft(x)`. Complex numbers are pairs of tensors, `tp.Complex`.

Transforms have gradients of every order, and are computed in float32, or in float64 for float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tempo_core.errors import ArgumentError
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.elsewhere import OF_FFT, missing_from
from tempo_core.frontend.functions import library
from tempo_core.frontend.library.complex import Complex
from tempo_core.frontend.methods.operands import one_axis
from tempo_core.frontend.tensor import Tensor, Value, aligned, apply, as_tensor
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr

NOMINAL_ROUNDS = 10  # the logarithm of a size that is not a number


def _transformed(name: str, parts: list[Tensor], axis: int, n: int | None, gives: str) -> list[Tensor]:
    """The transform of a real tensor, or of the real and the imaginary part of one; `n` elements of the axis are transformed.

    `gives`: "all" frequencies, those from 0 to the "half", or "real" numbers.
    """
    at = one_axis(parts[0], axis)
    wide = "float64" if parts[0].dtype == "float64" else "float32"
    operands = [part.astype(wide).moveaxis(at, -1) for part in parts]
    if n is not None and n < 1:
        raise ArgumentError(f"`{name}` of {n} elements", hint="n is 1 or more")
    if n is not None:
        count = Expr.of(n // 2 + 1 if gives == "real" else n)
        operands = [apply(ops.Slice(x.rank - 1, Expr.of(0), count), x) for x in operands]  # zeros past the end
    *batch, size = operands[0].type.shape
    size = size if gives != "real" else 2 * (size - 1) if n is None else Expr.of(n)
    rounds = math.ceil(math.log2(max(size.constant, 2))) if size.is_constant else NOMINAL_ROUNDS
    result = TensorType(wide, (*batch, size // 2 + 1 if gives == "half" else size))
    results = (result,) if gives == "real" else (result, result)
    options = {} if n is None else {"n": n}
    cost = 5 * rounds * ops.elements((*batch, size))
    return [x.moveaxis(-1, at) for x in library(f"numpy.fft.{name}", operands, *results, cost=cost, is_complex=True, **options)]


def _parts(x: Value | Complex) -> list[Tensor]:
    return aligned(x.real, x.imag) if isinstance(x, Complex) else [as_tensor(x)]


@checked
def fft(x: Value | Complex, n: int | None = None, axis: int = -1) -> Complex:
    """The discrete Fourier transform along `axis`: `sum over j of x[j] * exp(-2 * pi * i * j * k / n)` for k = 0, ..., n - 1.

    With `n`, x is cut to so many elements, or zeros follow it.
    """
    return Complex(*_transformed("fft", _parts(x), axis, n, "all"))


@checked
def ifft(x: Value | Complex, n: int | None = None, axis: int = -1) -> Complex:
    """The inverse of `fft`."""
    return Complex(*_transformed("ifft", _parts(x), axis, n, "all"))


@checked
def rfft(x: Value, n: int | None = None, axis: int = -1) -> Complex:
    """`fft` of real numbers, at the frequencies k = 0, ..., n // 2: the others are their conjugates."""
    return Complex(*_transformed("rfft", [as_tensor(x)], axis, n, "half"))


@checked
def irfft(x: Value | Complex, n: int | None = None, axis: int = -1) -> Tensor:
    """The inverse of `rfft`: `n` real numbers, of an even number by default. Give `n` for an odd one."""
    return _transformed("irfft", _parts(x), axis, n, "real")[0]


NAMES = ("fft", "ifft", "irfft", "rfft")

if not TYPE_CHECKING:  # for which it would be a name for everything
    __getattr__ = missing_from("tp.fft", NAMES, OF_FFT)
