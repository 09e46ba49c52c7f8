"""Symbolic boolean conditions on steps and bounds: comparisons and their connectives, in negation normal form."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tempo_core.errors import ArgumentError
from tempo_core.symbolic.expr import Bool, Expr, Extremum, IntoExpr, Symbol, compares
from tempo_core.symbolic.lazy import lazy


class Condition(Bool):
    """A condition that can be combined with others."""

    def __and__(self, other: Bool | bool) -> Bool:
        return conjunction(self, as_bool(other))

    def __or__(self, other: Bool | bool) -> Bool:
        return disjunction(self, as_bool(other))


@dataclass(frozen=True, repr=False)
class Truth(Condition):
    """A constant condition."""

    value: bool

    def __reduce__(self) -> str:
        """There is one object for each of the two: `condition is TRUE`."""
        return "TRUE" if self.value else "FALSE"

    def __invert__(self) -> Bool:
        return FALSE if self.value else TRUE

    def __bool__(self) -> bool:
        return self.value

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset()

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Bool:
        return self

    def evaluate(self, values: Mapping[Symbol, Any], minimum: Extremum = min, maximum: Extremum = max) -> bool:
        return self.value

    def __str__(self) -> str:
        return "true" if self.value else "false"


TRUE, FALSE = Truth(True), Truth(False)


@dataclass(frozen=True, repr=False)
class Comparison(Condition):
    """`expr >= 0`, `expr == 0` or `expr != 0`; `kind` is one of ">=", "==", "!=".

    `is_question` is true if the user wrote the comparison, with steps or bounds of the context (`frontend/tensor.py`).
    """

    kind: str
    expr: Expr
    is_question: bool = field(default=False, compare=False)

    def __invert__(self) -> Bool:
        if self.kind == ">=":
            return at_least_zero(-self.expr - 1)
        return compare("!=" if self.kind == "==" else "==", self.expr)

    def __bool__(self) -> bool:
        """For `==` and `!=`: whether the expressions are structurally equal (or not). Tuples and dataclasses ask this.

        A user's comparison of a step raises: `if t == 0:` would otherwise be false at every point, without a warning.
        """
        if self.kind == ">=" or (self.is_question and self.expr.steps):
            return super().__bool__()
        return self.kind == "!="

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.expr.symbols

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Bool:
        return compare(self.kind, self.expr.substitute(values))

    def evaluate(self, values: Mapping[Symbol, Any], minimum: Extremum = min, maximum: Extremum = max) -> bool:
        value = self.expr.evaluate(values, minimum, maximum)
        return {">=": lambda: value >= 0, "==": lambda: value == 0, "!=": lambda: value != 0}[self.kind]()

    def __str__(self) -> str:
        return self._text

    @lazy
    def _text(self) -> str:
        """Terms with negative coefficients on the right: `t + 5 < T` prints as `T >= t + 6`, read as `t + 6 <= T`."""
        positive, negative = self.expr.by_sign()
        if self.kind == ">=" and positive.is_constant:
            return f"{negative} <= {positive}"
        return f"{positive} {self.kind} {negative}"


@dataclass(frozen=True, repr=False)
class Connective(Condition):
    """Conditions of which all must hold (`Conjunction`), or at least one (`Disjunction`)."""

    args: tuple[Bool, ...]

    @lazy
    def _hash(self) -> int:
        return hash((type(self).__name__, self.args))

    def __hash__(self) -> int:
        return self._hash

    @property
    def all_hold(self) -> bool:
        return isinstance(self, Conjunction)

    def map(self, change: Callable[[Bool], Bool]) -> Bool:
        """The condition with a change to each of its operands."""
        return (conjunction if self.all_hold else disjunction)(*map(change, self.args))

    def __invert__(self) -> Bool:
        return self._negation

    @lazy
    def _negation(self) -> Bool:
        return (disjunction if self.all_hold else conjunction)(*(~a for a in self.args))

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(a.symbols for a in self.args))

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Bool:
        return self.map(lambda a: a.substitute(values))

    def evaluate(self, values: Mapping[Symbol, Any], minimum: Extremum = min, maximum: Extremum = max) -> bool:
        combine: Any = operator.and_ if self.all_hold else operator.or_
        result: Any = self.all_hold
        for a in self.args:
            result = combine(a.evaluate(values, minimum, maximum), result)
        return result

    def __str__(self) -> str:
        return self._text

    @lazy
    def _text(self) -> str:
        return (" & " if self.all_hold else " | ").join(f"({a})" for a in self.args)


class Conjunction(Connective):
    @property
    def parts(self) -> tuple[Bool, ...]:
        return self.args


class Disjunction(Connective): ...


def as_bool(value: object) -> Bool:
    """A condition, or a truth value as one."""
    if isinstance(value, Bool):
        return value
    if type(value).__name__ in ("bool", "bool_"):  # Python's and NumPy's
        return TRUE if value else FALSE
    raise ArgumentError(
        f"{value!r} is not a condition on steps", hint="compare steps and bounds: t >= 3. To choose by data: tp.where(mask, x, y)"
    )


@compares
@functools.lru_cache(maxsize=65536)
def compare(kind: str, expr: Expr) -> Bool:
    """`expr kind 0`, folded if `expr` is constant; both directions of `==` and `!=` give one condition."""
    if expr.is_constant:
        value = expr.constant
        return as_bool({">=": value >= 0, "==": value == 0, "!=": value != 0}[kind])
    if kind != ">=" and expr.terms[0][1] < 0:  # one form for both directions
        expr = -expr
    return Comparison(kind, expr)


def at_least_zero(expr: Expr) -> Bool:
    return compare(">=", expr)


def limit_of(part: Bool, step: Symbol) -> tuple[str, Expr] | None:
    """What a comparison says of a step: `>=`, `<=`, `==` or `!=`, and which limit without steps. None for other conditions."""
    sign = part.expr.coefficient(step) if isinstance(part, Comparison) else 0
    limit = step.expr - part.expr * sign if isinstance(part, Comparison) else step.expr
    if not isinstance(part, Comparison) or abs(sign) != 1 or limit.steps:
        return None
    return "<=" if part.kind == ">=" and sign < 0 else part.kind, limit


def facts_of(condition: Bool) -> list[Expr]:
    """Expressions that are not negative where a condition holds."""
    facts: list[Expr] = []
    for part in condition.parts:
        if isinstance(part, Comparison) and part.kind != "!=":
            facts += [part.expr] if part.kind == ">=" else [part.expr, -part.expr]
    return facts


def comparisons_of(condition: Bool) -> Iterator[Comparison]:
    """All comparisons in a condition."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Connective):
        for part in condition.args:
            yield from comparisons_of(part)


def equal(left: Expr, right: Expr) -> Bool:
    """`left == right`."""
    return TRUE if left.terms == right.terms else compare("==", left - right)


def _connect(kind: type[Conjunction] | type[Disjunction], neutral: Bool, args: tuple[Bool, ...]) -> Bool:
    flat: dict[Bool, None] = {}
    for arg in args:
        for part in arg.args if isinstance(arg, kind) else (arg,):
            if part is neutral:
                continue
            if isinstance(part, Truth):
                return part
            flat[part] = None
    if not flat:
        return neutral
    if len(flat) == 1:
        return next(iter(flat))
    return _connected(kind is Conjunction, tuple(flat))


@functools.lru_cache(maxsize=65536)
def _connected(all_hold: bool, parts: tuple[Bool, ...]) -> Bool:
    in_order = tuple(sorted(parts, key=str))
    return Conjunction(in_order) if all_hold else Disjunction(in_order)


def conjunction(*args: Bool) -> Bool:
    return _connect(Conjunction, TRUE, args)


def disjunction(*args: Bool) -> Bool:
    return _connect(Disjunction, FALSE, args)


_Limits = dict[Expr, int]  # the limit c of each expression e without a constant: e + c >= 0


def hull(condition: Bool) -> Bool:
    """A conjunction of comparisons that the condition implies; the condition itself if it is one. It is not the least one.

    >>> from tempo_core.symbolic.expr import Symbol
    >>> t = Symbol("t", "T").expr
    >>> hull(((t >= 3) & (t <= 5)) | (t == 9))
    (t <= 9) & (t >= 3)
    """
    limits = _limits(condition)
    return FALSE if limits is None else conjunction(*(at_least_zero(expr + limit) for expr, limit in limits.items()))


def _limits(condition: Bool) -> _Limits | None:
    """The limits of a hull; None for a condition that never holds."""
    if isinstance(condition, Comparison):
        return {fact - fact.constant: fact.constant for fact in facts_of(condition)}
    if isinstance(condition, Conjunction):
        both: _Limits = {}
        for part in condition.args:
            limits = _limits(part)
            if limits is None:
                return None
            both.update((expr, min(limit, both.get(expr, limit))) for expr, limit in limits.items())
        return both
    if isinstance(condition, Disjunction):
        each = [limits for limits in map(_limits, condition.args) if limits is not None]
        shared = [expr for expr in each[0] if all(expr in limits for limits in each)] if each else []
        return {expr: max(limits[expr] for limits in each) for expr in shared} if each else None
    return None if condition is FALSE else {}
