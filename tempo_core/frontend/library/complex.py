"""Complex numbers: two tensors, the real and the imaginary part."""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.errors import ArgumentError
from tempo_core.frontend.aliases import Key
from tempo_core.frontend.arguments import is_value, shown
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.functions import arctan2, cos, exp, hypot, sin, zeros_like
from tempo_core.frontend.tensor import Tensor, Value, as_tensor


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor, as two tensors of one shape. Its operators are those of complex numbers, with real ones too; `z[t]` indexes steps.

    There is no complex dtype: inputs, recurrences and outputs are real, and take the two parts. Gradients are those by the parts.
    """

    real: Tensor
    imag: Tensor
    __array_priority__ = 2000  # with a tensor or an array on the left, the operator is this one

    def __post_init__(self) -> None:
        for part in (self.real, self.imag):
            if not isinstance(part, BaseTensor):
                raise ArgumentError(
                    f"a part of a complex number is {shown(part)}, not a tensor", hint="tp.Complex(tp.cos(x), tp.sin(x))"
                )

    @staticmethod
    def of(value: Value | complex | Complex) -> Complex:
        """A real tensor, or a number, as a complex one. Raises ArgumentError for anything else."""
        if isinstance(value, Complex):
            return value
        if isinstance(value, complex):
            return Complex(as_tensor(value.real), as_tensor(value.imag))
        if not is_value(value):
            raise ArgumentError(f"{shown(value)} is not a complex tensor", hint="tp.Complex(real, imag) of two tensors")
        real = as_tensor(value)
        return Complex(real, zeros_like(real))

    @staticmethod
    def polar(length: Value, angle: Value) -> Complex:
        """`length * exp(1j * angle)`."""
        return Complex(length * cos(angle), length * sin(angle))

    def __getitem__(self, key: Key) -> Complex:
        return Complex(self.real[key], self.imag[key])

    def __add__(self, other: Value | complex | Complex) -> Complex:
        other = Complex.of(other)
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Value | complex | Complex) -> Complex:
        other = Complex.of(other)
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Value | complex | Complex) -> Complex:
        if not isinstance(other, (complex, Complex)):
            return Complex(self.real * other, self.imag * other)
        other = Complex.of(other)
        return Complex(self.real * other.real - self.imag * other.imag, self.real * other.imag + self.imag * other.real)

    def __truediv__(self, other: Value | complex | Complex) -> Complex:
        if not isinstance(other, (complex, Complex)):
            return Complex(self.real / other, self.imag / other)
        other = Complex.of(other)
        return self * other.conj() / (other.real * other.real + other.imag * other.imag)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Value | complex) -> Complex:
        return Complex.of(other) - self

    def __rtruediv__(self, other: Value | complex) -> Complex:
        return Complex.of(other) / self

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def __abs__(self) -> Tensor:
        return hypot(self.real, self.imag)

    def conj(self) -> Complex:
        """The conjugate."""
        return Complex(self.real, -self.imag)

    def angle(self) -> Tensor:
        """The angle in the plane, in (-pi, pi]."""
        return arctan2(self.imag, self.real)

    def exp(self) -> Complex:
        """The exponential."""
        return Complex.polar(exp(self.real), self.imag)
