"""Rules that are wrong, and are found out by the check of all rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tempo_core.ir import ops
from tempo_core.ir.builder import literal
from tempo_core.ir.graph import Edge
from tempo_core.ir.types import DTYPES, FLOATS
from tempo_core.passes.clean import rules
from tempo_core.passes.clean.rules import Rule, View
from tests.core.passes.rule_checks import ROWS, check
from tests.core.passes.rule_graphs import FOLDED, NUMBERS, Draw, Generator, Make, identity, neutral


def nothing(view: View) -> Edge:
    """Zeros, for any operand."""
    type = view.node.outputs[0]
    zero = literal(view.build, type.dtype, 0)
    return view.build.add(ops.Broadcast(type.shape, ()), zero) if type.shape else zero


def with_itself(fn: str) -> Draw:
    def draw(make: Make) -> Edge:
        x = make.moved(make.input(make.sizes()))
        return make.add(ops.Binary(fn), x, x)

    return draw


def there_and_back(make: Make) -> Edge:
    inner = make.add(ops.Cast("int32"), make.input(make.sizes()))
    return make.add(ops.Cast(make.dtype), inner)


def of_inner(view: View) -> Edge | None:
    return view.inner()


def any_where(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Where(), make.input(shape, "bool"), make.input(shape), make.input(shape))


def nested(outer: str, inner: str) -> Draw:
    return lambda make: make.add(ops.Unary(outer), make.add(ops.Unary(inner), make.moved(make.input(make.sizes()))))


def max_of_sum(make: Make) -> Edge:
    inner = make.add(ops.Reduce("sum", (1,)), make.input(make.sizes(2)))
    return make.add(ops.Reduce("max", (0,)), inner)


def _max_of_sum(view: View) -> Edge | None:
    inner = view.inner()
    return None if inner is None else view.build.add(ops.Reduce("max", (0, 1)), inner)


ONE = rules._without(1, 1)
WRONG: dict[str, tuple[Rule, Generator]] = {
    "x % 1 -> x": (Rule("mod-one", ops.Binary, "x % 1 -> x", ONE, ("mod",)), Generator(neutral("mod", 1, 1), FOLDED)),
    "x // 1 -> x, of floats": (Rule("floordiv-one", ops.Binary, "x // 1 -> x", ONE, ("floordiv",)), Generator(neutral("floordiv", 1, 1), FOLDED)),
    "x ** 0 -> 0": (Rule("pow-zero", ops.Binary, "x ** 0 -> 0", nothing, ("pow",)), Generator(neutral("pow", 0, 1), NUMBERS)),
    "x * 0 -> 0": (Rule("mul-zero", ops.Binary, "x * 0 -> 0", nothing, ("mul",)), Generator(neutral("mul", 0, 1), NUMBERS)),
    "x - x -> 0": (Rule("sub-itself", ops.Binary, "x - x -> 0", nothing, ("sub",)), Generator(with_itself("sub"), NUMBERS)),
    "0 - x -> x": (Rule("zero-sub", ops.Binary, "0 - x -> x", rules._without(0, 0), ("sub",)), Generator(neutral("sub", 0, 0), FOLDED)),
    "1 / x -> x": (Rule("one-div", ops.Binary, "1 / x -> x", rules._without(0, 1), ("div",)), Generator(neutral("div", 1, 0), ("float32",))),
    "1 ** x -> x": (Rule("one-pow", ops.Binary, "1 ** x -> x", rules._without(0, 1), ("pow",)), Generator(neutral("pow", 1, 0), FOLDED)),
    "x + 0 -> x, with its sign": (Rule("add-zero", ops.Binary, "x + 0 -> x", rules._without(1, 0), ("add",)), Generator(neutral("add", 0, 1), FOLDED)),
    "cast(cast(x)) -> x": (Rule("cast-cast", ops.Cast, "cast(cast(x)) -> x", of_inner), Generator(there_and_back, ("float32",))),
    "where(c, a, b) -> a": (Rule("where-any", ops.Where, "where(c, a, b) -> a", lambda v: v.edge(1)), Generator(any_where)),
    "abs(-x) -> x": (Rule("abs-neg", ops.Unary, "abs(-x) -> x", of_inner, ("abs",)), Generator(nested("abs", "neg"), NUMBERS)),
    "abs(-x) -> -x": (Rule("abs-neg", ops.Unary, "abs(-x) -> -x", lambda v: v.edge(), ("abs",)), Generator(nested("abs", "neg"), NUMBERS)),
    "max(sum(x)) -> max(x)": (Rule("max-sum", ops.Reduce, "max(sum(x)) -> max(x)", _max_of_sum, ("max",)), Generator(max_of_sum, ("float32", "int32"))),
    "a rule that never applies": (Rule("never", ops.Identity, "identity(x) -> x", lambda v: None), Generator(identity)),
    "a rule for more dtypes than its generator says": (ROWS["identity"], Generator(identity, FLOATS)),
    "a generator without a graph": (ROWS["mul-one"], Generator(neutral("mul", 1, 1))),
    "a generator for another op": (ROWS["identity"], Generator(any_where)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found_out(name: str) -> None:
    rule, generator = WRONG[name]
    refuted = list(_refuted(rule, generator))
    assert refuted, f"the tests of rules would not see that `{name}` is wrong"


def _refuted(rule: Rule, generator: Generator) -> Iterator[str]:
    """The dtypes in which the test of a rule fails."""
    for dtype in DTYPES:
        try:
            _tested(rule, generator, dtype)
        except AssertionError:
            yield dtype


def _tested(rule: Rule, generator: Generator, dtype: str) -> None:
    @settings(max_examples=6, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(data=st.data())
    def on_examples(data: st.DataObject) -> None:
        check(rule, generator, Make(data.draw, dtype))

    on_examples()
