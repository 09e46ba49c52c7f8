"""What a program costs: operations, bytes moved, stores and temporaries, as polynomials in the bounds and as numbers.

Everything is counted on our own program tree: how often each statement runs follows from its points, and what one execution does
from its ops (`runtime/kernels.py`). A polynomial is that of the schedule for the present bounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tempo_core.symbolic.counting import Count
from tempo_core.symbolic.expr import Atom, Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol

if TYPE_CHECKING:
    import sympy

FIGURES = ("operations", "bytes_read", "bytes_written", "stores", "temporaries")
SHOWN = 20  # statements in the table; the rest share a row
WIDTH = 44  # of a polynomial in the table


@dataclass(frozen=True)
class StatementCost:
    """A statement in all of its executions, of which there are `times`. `temporaries` are its most bytes at a time, without its results.

    If it `is_exact` is false, the number of executions is an upper bound. `numbers` are the figures for the program's bounds.
    """

    name: str
    times: sympy.Expr
    operations: sympy.Expr
    bytes_read: sympy.Expr
    bytes_written: sympy.Expr
    temporaries: sympy.Expr
    is_exact: bool
    numbers: Mapping[str, int] = field(repr=False)

    @property
    def bytes_moved(self) -> sympy.Expr:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Cost:
    """The costs of a program, as SymPy expressions of its bounds: `cost.operations.subs("T", 100)`.

    `stores` are the bytes of all tensors that the plan stores. `temporaries` are the most bytes that other values take at a time.
    `numbers` has the figures for the program's bounds, by the names of the attributes.
    """

    operations: sympy.Expr
    bytes_read: sympy.Expr
    bytes_written: sympy.Expr
    stores: sympy.Expr
    temporaries: sympy.Expr
    by_statement: tuple[StatementCost, ...]
    numbers: Mapping[str, int]

    @property
    def bytes_moved(self) -> sympy.Expr:
        """The bytes that are read from memory and written to it; values inside a fused operation are not."""
        return self.bytes_read + self.bytes_written

    @property
    def is_exact(self) -> bool:
        """Whether each number of executions is exact. The others are upper bounds, with ≤ in the table."""
        return all(each.is_exact for each in self.by_statement)

    def __str__(self) -> str:
        rows = [("statement", "times", "operations", "bytes moved", "temporaries")]
        largest = sorted(self.by_statement, key=lambda s: -max(s.numbers["bytes_moved"], s.numbers["operations"]))
        shown = largest if len(largest) <= SHOWN + 1 else largest[:SHOWN]
        for each in shown:
            times = ("" if each.is_exact else "≤ ") + _short(each.times, each.numbers["times"])
            figures = (
                (each.operations, "operations"), (each.bytes_moved, "bytes_moved"), (each.temporaries, "temporaries"),
            )  # fmt: skip
            rows.append((each.name, times, *(_short(value, each.numbers[key]) for value, key in figures)))
        if rest := largest[len(shown) :]:
            sums = (sum(each.numbers[key] for each in rest) for key in ("operations", "bytes_moved"))
            rows.append((f"{len(rest)} smaller ones", "", *(f"{number:,}" for number in sums), ""))
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        in_all = (
            ("operations", self.operations), ("bytes moved", self.bytes_moved), ("stores", self.stores),
            ("temporaries", self.temporaries),
        )  # fmt: skip
        sums = [f"{name:11}  {self.numbers[name.replace(' ', '_')]:>14,}  {value}" for name, value in in_all]
        return "\n".join([*lines, "", "in all", *(f"  {line}" for line in sums)])


def _short(value: Any, number: int) -> str:
    """A polynomial; if it is long, the number."""
    text = str(value)
    return text if len(text) <= WIDTH else f"{number:,}"


# -- from expressions of the compiler to SymPy ------------------------------------------------------------------------


class Translation:
    """Expressions of bounds in SymPy. `derived` bounds are those of steps that passes added."""

    def __init__(self, derived: Mapping[Symbol, Expr]):
        import sympy

        self.sympy, self.derived = sympy, derived
        self._atoms: dict[Atom, Any] = {}

    def of(self, expression: Expr) -> Any:
        parts = []
        for monomial, coefficient in expression.terms:
            factors = [self._atom(atom) ** power for atom, power in monomial]
            parts.append(self.sympy.Mul(coefficient, *factors))
        return self.sympy.Add(*parts)

    def count(self, count: Count) -> Any:
        return self.sympy.expand(self.of(count.numerator) / count.denominator)

    def sorts(self, sorts: Sequence[tuple[Expr, Expr]]) -> Any:
        """Operations times the logarithms of sizes."""
        return self.sympy.Add(*(self.of(number) * self.sympy.log(self.of(size), 2) for number, size in sorts))

    def most(self, sizes: Sequence[Expr]) -> Any:
        return self.sympy.Max(*map(self.of, sizes)) if sizes else self.sympy.Integer(0)

    def number(self, value: Any, bounds: Mapping[Symbol, int]) -> int:
        """The value for these bounds, rounded up."""
        at = value.subs({self.sympy.Symbol(bound.name): number for bound, number in bounds.items()})
        return math.ceil(float(at)) if not at.is_Integer else int(at)

    def _atom(self, atom: Atom) -> Any:
        if atom not in self._atoms:
            self._atoms[atom] = self._new_atom(atom)
        return self._atoms[atom]

    def _new_atom(self, atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return self.of(self.derived[atom]) if atom in self.derived else self.sympy.Symbol(atom.name)
        if isinstance(atom, (Minimum, Maximum)):
            combine = self.sympy.Min if isinstance(atom, Minimum) else self.sympy.Max
            return combine(*map(self.of, atom.args))
        assert isinstance(atom, (FloorDivide, Modulo))
        numerator, denominator = self.of(atom.numerator), self.of(atom.denominator)
        return self.sympy.floor(numerator / denominator) if isinstance(atom, FloorDivide) else numerator % denominator


def total(parts: Sequence[Any], sympy: Any) -> Any:
    """The sum, multiplied out."""
    return functools.reduce(lambda a, b: a + b, parts, sympy.Integer(0)).expand()
