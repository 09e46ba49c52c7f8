"""What a program costs: operations, bytes moved, stores and temporaries, as polynomials in the bounds and as numbers.

Everything is counted on our own program tree: how often each statement runs follows from its points, and what one execution does
from its ops (`runtime/cost/kernels.py`). A polynomial is that of the schedule for the present bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tempo_core.report.pages.page import aligned
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.counting import Count

if TYPE_CHECKING:
    import sympy

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

    `executions` is how often statements run, all together. `stores` are the bytes of all tensors that the plan
    stores, `temporaries` the most bytes that other values take at a time.
    `numbers` has the figures for the program's bounds, by the names of the attributes.
    """

    executions: sympy.Expr
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
        rows: list[tuple[str, ...]] = [("statement", "times", "operations", "bytes moved", "temporaries")]
        largest = sorted(self.by_statement, key=lambda s: -max(s.numbers["bytes_moved"], s.numbers["operations"]))
        shown = largest if len(largest) <= SHOWN + 1 else largest[:SHOWN]
        for each in shown:
            times = ("" if each.is_exact else "≤ ") + _short(each.times, each.numbers["times"])
            moved = _short(each.bytes_moved, each.numbers["bytes_moved"])
            temporaries = _short(each.temporaries, each.numbers["temporaries"])
            rows.append((each.name, times, _short(each.operations, each.numbers["operations"]), moved, temporaries))
        if rest := largest[len(shown) :]:
            sums = (sum(each.numbers[key] for each in rest) for key in ("operations", "bytes_moved"))
            rows.append((f"{len(rest)} smaller ones", "", *(f"{number:,}" for number in sums), ""))
        lines = [*aligned(rows), "", "in all"]
        for figure in ("executions", "operations", "bytes_moved", "stores", "temporaries"):
            lines.append(f"  {figure.replace('_', ' '):11}  {self.numbers[figure]:>14,}  {getattr(self, figure)}")
        return "\n".join(lines)


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

    def of(self, expression: Expr, /) -> Any:
        values = {s: self.of(self.derived[s]) if s in self.derived else self.sympy.Symbol(s.name) for s in expression.symbols}
        return self.sympy.sympify(expression.evaluate(values, self.sympy.Min, self.sympy.Max))

    def count(self, count: Count, /) -> Any:
        return self.sympy.expand(self.of(count.numerator) / count.denominator)

    def most(self, sizes: Sequence[Expr], /) -> Any:
        return self.sympy.Max(*map(self.of, sizes)) if sizes else self.sympy.Integer(0)

    def logarithm(self, size: Expr, /) -> Any:
        return self.sympy.log(self.of(size), 2)

    def sum(self, parts: Iterable[Any], /) -> Any:
        return self.sympy.Add(*parts).expand()


class NoTranslation(Translation):
    """Zero for every expression, where numbers are enough: to import SymPy takes longer than to count a program."""

    def __init__(self) -> None:
        pass

    def of(self, *expressions: object) -> Any:
        return 0

    count = most = logarithm = sum = of
