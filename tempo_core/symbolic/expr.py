"""Immutable symbolic integer expressions over steps and bounds, in a canonical form.

An `Expr` is a polynomial with integer coefficients over *atoms*: a `Symbol` (a step such as `t` or a bound such as `T`),
or one of `Minimum`, `Maximum`, `FloorDivide`, `Modulo` of expressions. Equal polynomials have equal terms, so `t + 1 - t`
is the constant `1`, and structural equality decides most questions without a solver.

Comparisons build a `Bool` (see `symbolic/condition.py` for the connectives). `a == b` is a `Bool` too. Its truth value
says whether the two are *structurally* equal: sets, dicts and tuples of expressions need that. The expressions of users
(`frontend/tensor.py`) refuse a truth value where steps are compared.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, Union
from weakref import WeakValueDictionary

from tempo_core.errors import ArgumentError, DivisionError, SymbolicValueError
from tempo_core.symbolic.lazy import lazy

IntoExpr = Union[int, "Expr"]
N = TypeVar("N")  # numbers, or traced arrays
F = TypeVar("F", bound="Callable[..., Any]")
R = TypeVar("R", "Expr", "Bool")


@dataclass(frozen=True, eq=False)
class Symbol:
    """A step (`t`, which runs over 0 <= t < T) or, if `bound` is None, a bound (`T`). Equal symbols are one object."""

    name: str
    bound: str | None = None

    _all: ClassVar[WeakValueDictionary[tuple[str, str | None], Symbol]] = WeakValueDictionary()

    def __new__(cls, name: str, bound: str | None = None) -> Symbol:
        return cls._all.setdefault((name, bound), super().__new__(cls))

    def __reduce__(self) -> tuple[type[Symbol], tuple[str, str | None]]:
        return Symbol, (self.name, self.bound)

    @lazy
    def is_step(self) -> bool:
        return self.bound is not None

    @lazy
    def expr(self) -> Expr:
        return Expr.of_atom(self)

    @lazy
    def bound_symbol(self) -> Symbol:
        """The bound of this step."""
        if self.bound is None:
            raise ValueError(f"{self.name} is a bound, and has no bound of its own")
        return Symbol(self.bound)

    @lazy
    def bound_expr(self) -> Expr:
        """The bound of this step, as an expression."""
        return Expr.of_atom(self.bound_symbol)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class _Extremum:
    args: tuple[Expr, ...]

    name: ClassVar[str]

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


class Minimum(_Extremum):
    name = "min"


class Maximum(_Extremum):
    name = "max"


@dataclass(frozen=True)
class _Division:
    numerator: Expr
    denominator: Expr

    sign: ClassVar[str]

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.numerator, self.denominator

    def __str__(self) -> str:
        return f"{_wrapped(self.numerator)}{self.sign}{_wrapped(self.denominator)}"


class FloorDivide(_Division):
    sign = "//"


class Modulo(_Division):
    sign = "%"


Bounds = dict[Symbol, int]  # a number for each bound
StepValues = Mapping[Symbol, Any]  # values of steps, loop counters and bounds: numbers, or traced scalars
Atom = Symbol | Minimum | Maximum | FloorDivide | Modulo
Monomial = tuple[tuple[Atom, int], ...]


def _wrapped(expression: Expr) -> str:
    text = str(expression)
    return text if text.replace("_", "").isalnum() else f"({text})"


@functools.lru_cache(maxsize=65536)
def _monomial_key(monomial: Monomial) -> tuple[int, str]:
    """Higher degrees and steps first, the constant last: `t*T + t + T + 1`."""
    degree = -sum(power for _, power in monomial)
    steps = "".join(f"{'0' if isinstance(a, Symbol) and a.is_step else '1'}{a}^{p};" for a, p in monomial)
    return degree, steps


Extremum = Callable[..., Any]  # the least or greatest of numbers, or of traced values


class Bool:
    """A symbolic condition; combine with `& | ~`. Only constant conditions and equalities have a truth value in Python.

    The conditions are in `symbolic/condition.py`: each of them defines the methods that raise here.
    """

    def __and__(self, other: Bool | bool) -> Bool:
        raise AssertionError("each condition defines its own conjunctions")

    def __or__(self, other: Bool | bool) -> Bool:
        raise AssertionError("each condition defines its own disjunctions")

    def __rand__(self, other: Bool | bool) -> Bool:
        return self & other

    def __ror__(self, other: Bool | bool) -> Bool:
        return self | other

    def __invert__(self) -> Bool:
        raise AssertionError("each condition defines its own negation")

    def __bool__(self) -> bool:
        raise SymbolicValueError(
            f"the condition `{self}` depends on the timestep, so Python cannot tell here whether it is true",
            hint="write x[t > 0] instead of `if t > 0`; & | ~ instead of `and`, `or`, `not`; tp.min instead of `min`; "
            "and (0 < t) & (t < 3) instead of `0 < t < 3`",
        )

    @property
    def symbols(self) -> frozenset[Symbol]:
        raise AssertionError("each condition defines its own symbols")

    @lazy
    def steps(self) -> frozenset[Symbol]:
        return frozenset(s for s in self.symbols if s.is_step)

    @property
    def parts(self) -> tuple[Bool, ...]:
        """The operands of a conjunction; the condition itself if it is not a conjunction. All of them must hold."""
        return (self,)

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Bool:
        raise AssertionError("each condition defines its own substitution")

    def evaluate(self, values: Mapping[Symbol, Any], minimum: Extremum = min, maximum: Extremum = max) -> bool:
        """The truth value at `values`; with traced values, a traced boolean."""
        raise AssertionError("each condition defines its own evaluation")

    def __repr__(self) -> str:
        return str(self)


def _operator(of_tensors: Callable[[Any, Any], Any]) -> Callable[[Callable[[Expr, Expr], R]], Callable[[Expr, IntoExpr], R]]:
    """Decorator of an operator's method. With a number that is not whole, it is the operator of the tensors of an expression's values."""

    def decorator(of_expressions: Callable[[Expr, Expr], R]) -> Callable[[Expr, IntoExpr], R]:
        def method(self: Expr, other: Any) -> Any:
            if type(other) is not Expr:
                if not _is_integer(other):
                    return self._through_tensor(other, of_tensors)
                other = Expr.of(other)
            return of_expressions(self, other)

        return method

    return decorator


def _swapped(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: operation(b, a)


# Sums and products of the same expressions are computed again and again, so they are kept. Equal results are then mostly one object,
# whose comparisons are quick.


@functools.lru_cache(maxsize=4096)
def _number(value: int) -> Expr:
    return Expr((((), value),)) if value else Expr(())


def _added(left: Expr, right: Expr, sign: int = 1) -> Expr:
    if not right.terms:
        return left
    total = dict(left.terms)
    for monomial, coefficient in right.terms:
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return Expr.of_terms(total)


def _subtracted(left: Expr, right: Expr) -> Expr:
    """The difference, computed anew: a lookup may compare expressions, and that takes their difference."""
    return _added(left, right, -1)


_sum = functools.lru_cache(maxsize=65536)(_added)
_difference = functools.lru_cache(maxsize=65536)(_subtracted)


@functools.lru_cache(maxsize=65536)
def _negated(expression: Expr) -> Expr:
    return Expr(tuple((m, -c) for m, c in expression.terms))


@functools.lru_cache(maxsize=65536)
def _product(left: Expr, right: Expr) -> Expr:
    total: dict[Monomial, int] = {}
    for first, a in left.terms:
        for second, b in right.terms:
            powers: dict[Atom, int] = dict(first)
            for atom, power in second:
                powers[atom] = powers.get(atom, 0) + power
            monomial = tuple(sorted(powers.items(), key=lambda item: _monomial_key((item,))))
            total[monomial] = total.get(monomial, 0) + a * b
    return Expr.of_terms(total)


def _quotient(numerator: Expr, divisor: Expr) -> Expr:
    if divisor.is_constant:
        if divisor.constant == 0:
            raise DivisionError(f"`({numerator}) // 0` divides by zero")
        if divisor.constant < 0:
            return (-numerator) // (-divisor)
        if all(c % divisor.constant == 0 for _, c in numerator.terms):
            return Expr(tuple((m, c // divisor.constant) for m, c in numerator.terms))
        if numerator.is_constant:
            return Expr.of(numerator.constant // divisor.constant)
        whole = numerator.constant // divisor.constant  # (t + 5) // 3 = (t + 2) // 3 + 1
        if whole:
            return (numerator - whole * divisor.constant) // divisor + whole
    elif numerator == divisor:
        return Expr.of(1)
    return Expr.of_atom(FloorDivide(numerator, divisor))


def _remainder(numerator: Expr, divisor: Expr) -> Expr:
    if not divisor.is_constant:
        return Expr.of_atom(Modulo(numerator, divisor))
    if divisor.constant <= 0:
        raise DivisionError(f"`({numerator}) % {divisor}`: the modulus must be positive")
    reduced = Expr.of_terms({m: c % divisor.constant for m, c in numerator.terms})
    return reduced if reduced.is_constant else Expr.of_atom(Modulo(reduced, divisor))


@dataclass(frozen=True, eq=False)
class Expr:
    """A polynomial: `terms` maps monomials to non-zero coefficients, in a fixed order.

    Supports `+ - * // %` with expressions and ints, comparisons (giving `Bool`), and hashing. Arithmetic with
    floats, such as `t * 0.5` or `0.5**t`, makes a recurrent tensor; the function decorated with `@makes_tensors` makes it, and
    the one decorated with `@compares` makes conditions.
    """

    terms: tuple[tuple[Monomial, int], ...]

    _to_tensor: ClassVar[Callable[[Expr], Any] | None] = None
    _compare: ClassVar[Callable[[str, Expr], Bool]]
    _truth: ClassVar[Bool]  # the condition `0 == 0`, at hand: to look it up would compare expressions again

    @lazy
    def _hash(self) -> int:
        return hash(tuple((m, 2 * c + 1) for m, c in self.terms))  # odd numbers: Python's hash of -1 is that of -2

    # -- construction -------------------------------------------------------------------------------------------------

    @staticmethod
    def of(value: IntoExpr | Symbol) -> Expr:
        """`value` as an expression; ints (and NumPy integers) become constants."""
        if isinstance(value, Expr):
            return value.plain
        if isinstance(value, Symbol):
            return Expr.of_atom(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ArgumentError(
                f"{value!r} is neither an int nor an expression of steps and bounds",
                hint="write ints, steps and bounds with + - * // %, tp.min and tp.max: tp.min(t + 1, T)",
            )
        return _number(value.__index__())

    @staticmethod
    def of_atom(atom: Atom) -> Expr:
        return Expr(((((atom, 1),), 1),))

    @staticmethod
    def of_terms(terms: Mapping[Monomial, int]) -> Expr:
        """The sum of monomials times coefficients."""
        nonzero = [(m, c) for m, c in terms.items() if c]
        return Expr(tuple(sorted(nonzero, key=lambda term: _monomial_key(term[0]))))

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def plain(self) -> Expr:
        """The expression as the compiler keeps it. Expressions of users have another class, `UserExpr`."""
        return self

    def by_sign(self) -> tuple[Expr, Expr]:
        """The terms with positive coefficients, and the negated terms with negative coefficients."""
        positive = Expr(tuple((m, c) for m, c in self.terms if c > 0))
        return positive, Expr(tuple((m, -c) for m, c in self.terms if c < 0))

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def constant(self) -> int:
        """The constant term (the whole value where `is_constant`)."""
        for monomial, coefficient in self.terms:
            if not monomial:
                return coefficient
        return 0

    @lazy
    def atoms(self) -> tuple[Atom, ...]:
        """The distinct atoms, in order of appearance."""
        return tuple(dict.fromkeys(atom for monomial, _ in self.terms for atom, _ in monomial))

    @lazy
    def single_atom(self) -> Atom | None:
        """The atom, if this expression is one atom with coefficient one and nothing added; else None."""
        if len(self.terms) == 1 and self.terms[0][1] == 1:
            monomial = self.terms[0][0]
            if len(monomial) == 1 and monomial[0][1] == 1:
                return monomial[0][0]
        return None

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        symbols: set[Symbol] = set()
        for atom in self.atoms:
            symbols |= {atom} if isinstance(atom, Symbol) else set().union(*(part.symbols for part in atom.parts))
        return frozenset(symbols)

    @lazy
    def steps(self) -> frozenset[Symbol]:
        return frozenset(s for s in self.symbols if s.is_step)

    def coefficient(self, atom: Atom) -> int:
        """The coefficient of the term that consists of `atom` alone (0 if there is no such term)."""
        for monomial, value in self.terms:
            if monomial == ((atom, 1),):
                return value
        return 0

    def __int__(self) -> int:
        if not self.is_constant:
            raise SymbolicValueError(
                f"`{self}` is symbolic: it has no number while the program is built",
                hint="do not loop over time in Python; write a recurrence over a step: x[t + 1] = x + 1",
            )
        return self.constant

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    if not TYPE_CHECKING:  # with `__iter__`, type checkers accept an expression as a domain

        def __iter__(self) -> NoReturn:
            raise SymbolicValueError(
                f"cannot iterate over `{self}`",
                hint="a domain of one step needs a comma: domain=(t,). A loop over time is a recurrence: x[t + 1] = x + 1",
            )

    def __bool__(self) -> bool:
        """Whether a constant is not 0. A symbolic expression has no truth value, because its number is not known yet."""
        if not self.is_constant:
            raise SymbolicValueError(
                f"`{self}` is symbolic: it is neither true nor false while the program is built",
                hint="compare it, and index with the comparison: x[t > 0]. To choose between two tensors: tp.where(t > 0, x, y)",
            )
        return self.constant != 0

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Expr:
        """This expression with all symbols replaced at once (not one after the other)."""
        if not any(s in values for s in self.symbols):
            return self
        return self._fold(lambda symbol: Expr.of(values[symbol]) if symbol in values else symbol.expr)

    def without_modulo(self) -> Expr:
        """The same expression with `a - a // n * n` in place of `a % n`."""
        return self._fold(lambda symbol: symbol.expr, modulo=lambda a, b: a - a // b * b)

    def is_by_blocks(self, step: Symbol, size: Expr) -> bool:
        """Whether the expression mentions a step only in `step // size`, so that it is the same at all points of a block."""
        if step not in self.symbols:
            return True
        atoms = self.without_modulo().atoms
        division = FloorDivide(step.expr, size)
        return step not in atoms and all(
            isinstance(atom, Symbol) or atom == division or all(part.is_by_blocks(step, size) for part in atom.parts)
            for atom in atoms
        )

    def evaluate(
        self,
        values: Mapping[Symbol, N],
        minimum: Callable[[N, N], N] = min,  # type: ignore[assignment]
        maximum: Callable[[N, N], N] = max,  # type: ignore[assignment]
    ) -> N:
        """The number at `values`. They may be traced arrays, with array `minimum` and `maximum`."""
        if self.is_constant:
            return int(self.constant)  # type: ignore[return-value]
        atom = self.single_atom
        if isinstance(atom, Symbol):
            return values[atom]
        low, high = (lambda *args, join=join: functools.reduce(join, args) for join in (minimum, maximum))
        return self._fold(lambda symbol: values[symbol], low, high, of_int=int)

    def _fold(self, of_symbol: Any, low: Any = None, high: Any = None, modulo: Any = operator.mod, of_int: Any = None) -> Any:
        """Rebuild the value bottom-up with the given operations. By default it is an expression again."""
        low, high, of_int = low or minimum, high or maximum, of_int or Expr.of

        def of_expr(expression: Expr) -> Any:
            total: Any = None
            for monomial, coefficient in expression.terms:
                product: Any = None
                for atom, power in monomial:
                    value = of_atom(atom)
                    for _ in range(power):
                        product = value if product is None else product * value
                if product is None:
                    product = of_int(coefficient)
                elif coefficient != 1:
                    product = product * coefficient
                total = product if total is None else total + product
            return of_int(0) if total is None else total

        def of_atom(atom: Atom) -> Any:
            if isinstance(atom, Symbol):
                return of_symbol(atom)
            parts = [of_expr(part) for part in atom.parts]
            if isinstance(atom, Minimum):
                return low(*parts)
            if isinstance(atom, Maximum):
                return high(*parts)
            return operator.floordiv(*parts) if isinstance(atom, FloorDivide) else modulo(*parts)

        return of_expr(self)

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    @_operator(operator.add)
    def __add__(self, other: Expr) -> Expr:
        return _sum(self, other)

    @_operator(_swapped(operator.add))
    def __radd__(self, other: Expr) -> Expr:
        return _sum(other, self)

    @_operator(operator.sub)
    def __sub__(self, other: Expr) -> Expr:
        return _difference(self, other)

    @_operator(_swapped(operator.sub))
    def __rsub__(self, other: Expr) -> Expr:
        return _difference(other, self)

    @_operator(operator.mul)
    def __mul__(self, other: Expr) -> Expr:
        return _product(self, other)

    @_operator(_swapped(operator.mul))
    def __rmul__(self, other: Expr) -> Expr:
        return _product(other, self)

    @_operator(operator.floordiv)
    def __floordiv__(self, other: Expr) -> Expr:
        return _quotient(self, other)

    @_operator(_swapped(operator.floordiv))
    def __rfloordiv__(self, other: Expr) -> Expr:
        return _quotient(other, self)

    @_operator(operator.mod)
    def __mod__(self, other: Expr) -> Expr:
        return _remainder(self, other)

    @_operator(_swapped(operator.mod))
    def __rmod__(self, other: Expr) -> Expr:
        return _remainder(other, self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return maximum(self, -self)

    def __neg__(self) -> Expr:
        return _negated(self)

    def __truediv__(self, other: object) -> Any:
        return self._through_tensor(other, operator.truediv)

    def __rtruediv__(self, other: object) -> Any:
        return self._through_tensor(other, _swapped(operator.truediv))

    def __pow__(self, other: int) -> Expr:
        if isinstance(other, int) and not isinstance(other, bool) and other >= 0:
            return math.prod([self] * other, start=Expr.of(1))
        return self._through_tensor(other, operator.pow)

    def __rpow__(self, other: object) -> Any:
        return self._through_tensor(other, _swapped(operator.pow))

    def _through_tensor(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """A step used as a number: the operation on the recurrent tensor of this expression's values."""
        if Expr._to_tensor is None:
            return NotImplemented
        return operation(Expr._to_tensor(self), Expr._to_tensor(other) if isinstance(other, Expr) else other)

    # -- comparisons --------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Bool:  # type: ignore[override]
        if isinstance(other, Expr) and self.terms == other.terms:
            return Expr._truth
        if not _is_integer(other):
            return NotImplemented
        return Expr._compare("==", _subtracted(self, Expr.of(other)))  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Bool:  # type: ignore[override]
        result = self.__eq__(other)
        return result if result is NotImplemented else ~result

    @_operator(operator.ge)
    def __ge__(self, other: Expr) -> Bool:
        return Expr._compare(">=", _difference(self, other))

    @_operator(operator.le)
    def __le__(self, other: Expr) -> Bool:
        return Expr._compare(">=", _difference(other, self))

    @_operator(operator.gt)
    def __gt__(self, other: Expr) -> Bool:
        return Expr._compare(">=", _difference(self, other) - 1)

    @_operator(operator.lt)
    def __lt__(self, other: Expr) -> Bool:
        return Expr._compare(">=", _difference(other, self) - 1)

    def __hash__(self) -> int:
        return self._hash

    # -- text ---------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self._text

    @lazy
    def _text(self) -> str:
        text = ""
        leading = next((term for term in self.terms if term[1] > 0), None)  # `T - t` rather than `-t + T`
        for monomial, coefficient in sorted(self.terms, key=lambda term: term is not leading):
            factors = [_factor_text(atom) if power == 1 else f"{_factor_text(atom)}**{power}" for atom, power in monomial]
            magnitude = abs(coefficient)
            if magnitude != 1 or not factors:
                factors.insert(0, str(magnitude))
            product = "*".join(factors)
            if not text:
                text = f"-{product}" if coefficient < 0 else product
            else:
                text += f" - {product}" if coefficient < 0 else f" + {product}"
        return text or "0"

    def __repr__(self) -> str:
        return str(self)


def makes_tensors(function: F) -> F:
    """Decorator of the function that turns an expression into a tensor, where the expression is used as a number."""
    Expr._to_tensor = staticmethod(function)
    return function


def compares(function: F) -> F:
    """Decorator of the function that makes the condition `expr kind 0`, such as `t - 1 >= 0`."""
    Expr._compare = staticmethod(function)
    Expr._truth = function("==", Expr(()))
    return function


def _factor_text(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, (FloorDivide, Modulo)) else str(atom)


def _is_integer(value: object) -> bool:
    return isinstance(value, Expr) or (
        hasattr(value, "__index__") and not isinstance(value, bool) and not hasattr(value, "dtype")
    )


def _extremum(kind: type[Minimum] | type[Maximum], sign: int, values: tuple[IntoExpr, ...]) -> Expr:
    """Flatten nested extrema, drop arguments that another one beats by a constant, and sort the rest."""
    if not values:
        raise ArgumentError("min and max need at least one argument", hint="tp.min(t + 5, T)")
    flat: list[Expr] = []
    for value in map(Expr.of, values):
        atom = value.single_atom
        flat.extend(atom.args if isinstance(atom, kind) else (value,))
    arguments: list[Expr] = []
    for value in flat:
        is_superfluous = False
        for index, other in enumerate(arguments):
            difference = value - other
            if difference.is_constant:
                if sign * difference.constant > 0:
                    arguments[index] = value
                is_superfluous = True
                break
        if not is_superfluous:
            arguments.append(value)
    if len(arguments) == 1:
        return arguments[0]
    return Expr.of_atom(kind(tuple(sorted(arguments, key=lambda e: (not e.steps, str(e))))))


def minimum(*values: IntoExpr) -> Expr:
    """The least of some expressions: `minimum(t + 5, T)`."""
    return _extremum(Minimum, -1, values)


def maximum(*values: IntoExpr) -> Expr:
    """The greatest of some expressions: `maximum(t - 3, 0)`."""
    return _extremum(Maximum, 1, values)
