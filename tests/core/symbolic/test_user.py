"""Users' expressions of steps and bounds: arithmetic and comparisons as in the compiler, and truth values only where they exist."""

from __future__ import annotations

import operator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import SymbolicValueError
from tempo_core.frontend.tensor import UserExpr

OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip


def users_expressions(value: Any, seen: set[int]) -> list[UserExpr]:
    """All users' expressions inside a value."""
    if isinstance(value, UserExpr):
        return [value]
    if id(value) in seen:
        return []
    seen.add(id(value))
    parts: list[Any] = []
    if is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)]
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    return [expression for part in parts for expression in users_expressions(part, seen)]


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda f: f.__name__)
def test_operators_give_what_they_give_of_plain_expressions(operation: Any) -> None:
    with tp.Context("i", "t") as ((i, _), (t, T)):
        for left, right in [(t, 3), (T, t), (t + 1, i), (2 * t, t.plain), (t.plain, T - 1), (5, t)]:
            if isinstance(left, int) and operation is operator.mod:
                continue
            plain = [side.plain if isinstance(side, tp.Expr) else side for side in (left, right)]
            result = operation(left, right)
            assert str(result) == str(operation(*plain))
            assert isinstance(result, UserExpr) == isinstance(result, tp.Expr)


def test_truth_depends_on_what_is_compared_and_not_on_who_asks() -> None:
    with tp.Context("i", "t") as ((i, _), (t, _T)):
        questions = [
            lambda: bool(t == 0),
            lambda: 1 if t == 0 else 2,
            lambda: [t == 0] == [True] or t == 0 or 1,
            lambda: 0 in (i, t),
        ]
        questions += [lambda: any([t % 2 == 1]), lambda: max(t, 0), lambda: bool(t), lambda: (t, 1) == (i + 1, 1)]
        for ask in questions:
            with pytest.raises(SymbolicValueError):
                ask()
        assert not bool(t.plain == 0)  # the compiler's comparison: are these the same expression?
        assert bool(t + 1 == 1 + t) and bool(t + 1 != t + 2)  # for every t
        assert {t + 1: "a", 2 * t: "b", -t: "c", i: "d"}[1 + t] == "a"


def test_no_expression_of_a_user_gets_into_the_graph() -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (3, T), domain=(i, t))
        h = tp.recurrence((T,), domain=(i, t), name="h")
        h[i, 0] = tp.zeros(T)
        h[i, t + 1, t % 2 == 0] = (h + t * 0.5 + tp.where((t > 3) & (i == t), x, 0.0).sum(0))[i, t]
        h[i, t + 1] = x.spatial[0] + h.spatial[t].expand_dims(0) + tp.minimum(t, 3) + x[i, tp.min(t + 1, T - 1)].index(1, t).max()
        past = x[i, tp.max(t - 2, 0) : t + 1].roll(t, 2).spatial[:, 0, 0:t].sum(0).sum()
        parts = tp.arange(t + 1).astype("float32").sum() + tp.one_hot(tp.constant(1), t + 2).sum() + tp.full((t + 1,), 1.0).sum()
        drawn = tp.random.normal((t + 1,), domain=(t,)).sum() + tp.concatenate([tp.ones(T), tp.ones(t + 1)]).reshape(-1).sum()
        both = tp.pad(x, ((0, 0), (0, t))).split([t], 1)[0].sum() + tp.repeat(tp.ones(T), t + 1).sum() + tp.eye(T, t + 1).sum()
        tp.sink(lambda *_, **__: None, h, when=(t == 3) | (i >= I - 1))
        model = tp.nn.GroupedQueryAttention(4, 2, 1, domain=(i,), pattern=tp.nn.window(3))
        y = model(tp.ones((4,)) * t, over=t).sum() + 0.99**i
        outputs = [h, past, parts, drawn, both, y]
        assert users_expressions([*ctx.graph, *[o.domain for o in outputs], *[o.edge for o in outputs]], set()) == []
        assert users_expressions((t, 1), set()) == [t]  # the helper finds them
        assert np.isfinite(ctx.run({I: 1, T: 4}, parts, {"x": np.zeros((1, 4, 3, 4))}, tp.Config(backend="numpy"))).all()
