"""align: a recurrence costs the same however it is spelled, `v[t] = f(v[t - 1])`, `v[t + 1] = f(v)`, or with an input that is shifted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tempo_core as tp
from tempo_core import nn
from tempo_core.compiler import with_outputs
from tempo_core.ir.graph_text import to_text
from tempo_core.passes.keep.align import Align
from tempo_core.symbolic.expr import Symbol
from tests import reference
from tests.core.passes.support import Golden, check, fed
from tests.core.running import assert_all_same

SPELLINGS = ("t - 1", "t + 1", "shifted input")
N, S = 7, 3


@dataclass
class Spelled:
    """The same equations in one spelling. `last(v)` is the point before, `new(x)` the value at the point that is being defined."""

    form: str
    t: Any
    T: Any

    def value(self, *shape: int, dtype: str = "float32", name: str = "x") -> tp.Tensor:
        return tp.input(name, shape, dtype, (self.t,))

    def last(self, v: tp.Tensor, distance: int = 1) -> tp.Tensor:
        return v[self.t + 1 - distance] if self.form == "t + 1" else v[self.t - distance]

    def new(self, x: tp.Tensor, f: Callable[[tp.Tensor], tp.Tensor] = tp.tanh) -> tp.Tensor:
        """`f(x)` at the point that is being defined."""
        if self.form == "t + 1":
            return f(x)[self.t + 1]
        return f(x) if self.form == "t - 1" else f(x[self.t + 1])[self.t - 1]

    def follow(self, v: tp.Tensor, value: tp.Tensor) -> tp.Tensor:
        if self.form == "t + 1":
            v[self.t + 1] = value
        else:
            v[self.t] = value
        return v

    def state(self, *shape: int, dtype: str = "float32", start: Any = None, name: str = "v") -> tp.Tensor:
        v = tp.recurrence(shape, dtype, domain=(self.t,), name=name)
        v[0] = start if start is not None else tp.zeros(shape, dtype)
        return v


Make = Callable[[Spelled], list[tp.Tensor]]
PROGRAMS: dict[str, Make] = {}


def program(make: Make) -> Make:
    PROGRAMS[make.__name__] = make
    return make


@program
def running_sum(s: Spelled) -> list[tp.Tensor]:
    v = s.state()
    return [s.follow(v, s.last(v) + s.new(s.value()))]


@program
def decay(s: Spelled) -> list[tp.Tensor]:
    v = s.state(S)
    return [s.follow(v, s.last(v) * 0.9 + s.new(s.value(S)))]


@program
def nonlinear(s: Spelled) -> list[tp.Tensor]:
    v = s.state(S)
    return [s.follow(v, tp.sin(s.last(v)) * s.new(s.value(S), tp.exp))]


@program
def recurrent_network(s: Spelled) -> list[tp.Tensor]:
    w, u = tp.input("w", (S, S)), tp.input("u", (S, S))
    h = s.state(S)
    return [s.follow(h, tp.tanh(s.last(h) @ w + s.new(s.value(S)) @ u))]


@program
def only_its_last_state(s: Spelled) -> list[tp.Tensor]:
    w = tp.input("w", (S, S))
    h = s.state(S)
    return [s.follow(h, tp.tanh(s.last(h) @ w + s.new(s.value(S))))[s.T - 1]]


@program
def gated(s: Spelled) -> list[tp.Tensor]:
    w = tp.input("w", (S, S))
    h, x = s.state(S), s.value(S)
    gate = tp.sigmoid(s.last(h) @ w)
    return [s.follow(h, gate * s.last(h) + (1 - gate) * s.new(x))]


@program
def starts_with_an_input(s: Spelled) -> list[tp.Tensor]:
    x = s.value(S)
    v = s.state(S, start=tp.tanh(x)[0])
    return [s.follow(v, tp.maximum(s.last(v), s.new(x)))]


@program
def viterbi(s: Spelled) -> list[tp.Tensor]:
    a, e = tp.input("a", (S, S)), s.value(S)
    v = s.state(S, start=tp.tanh(e)[0])
    s.follow(v, (s.last(v).expand_dims(1) + a).max(0) + s.new(e))
    return [v, v[s.T - 1].argmax(0)]


@program
def viterbi_path(s: Spelled) -> list[tp.Tensor]:
    """Back pointers are computed where the scores are, and read by a recurrence that runs backwards."""
    a, e = tp.input("a", (S, S)), s.value(S)
    v = s.state(S, start=tp.tanh(e)[0])
    score = s.last(v).expand_dims(1) + a
    back = score.argmax(0)
    s.follow(v, score.max(0) + s.new(e))
    path = tp.recurrence((), "int32", domain=(s.t,))
    path[s.T - 1] = v[s.T - 1].argmax(0)
    path[s.t] = (back if s.form == "t + 1" else back[s.t + 1]).index(0, path[s.t + 1])
    return [path]


@program
def forward_algorithm(s: Spelled) -> list[tp.Tensor]:
    a, e = tp.input("a", (S, S)), s.value(S)
    v = s.state(S)
    scores = s.last(v).expand_dims(1) + a
    top = scores.max(0)
    return [s.follow(v, tp.log(tp.exp(scores - top.expand_dims(0)).sum(0)) + top + s.new(e))]


@program
def two_that_feed_each_other(s: Spelled) -> list[tp.Tensor]:
    a, b, x = s.state(S, name="a"), s.state(S, start=tp.ones((S,)), name="b"), s.new(s.value(S))
    s.follow(a, s.last(b) * 0.5 + x)
    s.follow(b, tp.tanh(s.last(a)))
    return [a, b]


@program
def one_after_the_other(s: Spelled) -> list[tp.Tensor]:
    """Two layers: the second reads the first at its own point."""
    a, b = s.state(S, name="a"), s.state(S, name="b")
    s.follow(a, tp.tanh(s.last(a) + s.new(s.value(S))))
    s.follow(b, tp.tanh(s.last(b) + (a[s.t + 1] if s.form == "t + 1" else a)))
    return [b]


@program
def lstm(s: Spelled) -> list[tp.Tensor]:
    w = tp.input("w", (S, 4 * S))
    h, c = s.state(S, name="h"), s.state(S, name="c")
    gates = s.last(h) @ w + s.new(s.value(4 * S))
    i, f, g, o = (gates.reshape(4, S).index(0, k) for k in range(4))
    cell = tp.sigmoid(f) * s.last(c) + tp.sigmoid(i) * tp.tanh(g)
    s.follow(c, cell)
    s.follow(h, tp.sigmoid(o) * tp.tanh(cell))
    return [h]


@program
def momentum(s: Spelled) -> list[tp.Tensor]:
    w, m, x = s.state(S, name="w"), s.state(S, name="m"), s.new(s.value(S))
    step = 0.9 * s.last(m) + 2 * (s.last(w) - x)
    s.follow(m, step)
    s.follow(w, s.last(w) - 0.1 * step)
    return [w]


@program
def adam(s: Spelled) -> list[tp.Tensor]:
    w, m, v, x = s.state(S, name="w"), s.state(S, name="m"), s.state(S, name="v"), s.new(s.value(S))
    g = s.last(w) - x
    first, second = 0.9 * s.last(m) + 0.1 * g, 0.99 * s.last(v) + 0.01 * g * g
    s.follow(m, first)
    s.follow(v, second)
    s.follow(w, s.last(w) - 0.1 * first / (tp.sqrt(second) + 1e-3))
    return [w]


@program
def two_points_back(s: Spelled) -> list[tp.Tensor]:
    v = s.state(S)
    v[1] = tp.ones((S,))
    return [s.follow(v, s.last(v) - 0.5 * s.last(v, 2) + s.new(s.value(S)))]


@program
def a_chain_of_three(s: Spelled) -> list[tp.Tensor]:
    """Each reads the state of the one before at its own point."""
    levels = [s.state(S, name=name) for name in "abc"]
    below = s.new(s.value(S))
    for level in levels:
        s.follow(level, tp.tanh(s.last(level) * 0.5 + below))
        below = level[s.t + 1] if s.form == "t + 1" else level
    return [levels[-1]]


@program
def kalman(s: Spelled) -> list[tp.Tensor]:
    m, p, x = s.state(name="m"), s.state(start=tp.ones(()), name="p"), s.new(s.value())
    predicted = s.last(p) + 0.1
    gain = predicted / (predicted + 0.5)
    s.follow(m, s.last(m) + gain * (x - s.last(m)))
    s.follow(p, (1 - gain) * predicted)
    return [m, p]


@program
def largest_so_far_and_where(s: Spelled) -> list[tp.Tensor]:
    v, at, x = s.state(name="v"), s.state(dtype="int32", name="at"), s.new(s.value())
    is_new = x > s.last(v)
    s.follow(v, tp.where(is_new, x, s.last(v)))
    s.follow(at, s.last(at) + is_new.astype("int32"))
    return [v, at]


@program
def counts(s: Spelled) -> list[tp.Tensor]:
    v = s.state(dtype="int32")
    return [s.follow(v, s.last(v) * 3 % 7 + s.new(s.value(dtype="int32"), lambda x: x + 1))]


@program
def a_flag(s: Spelled) -> list[tp.Tensor]:
    v = s.state(dtype="bool")
    return [s.follow(v, s.last(v) | (s.new(s.value()) > 0.5))]


@program
def sum_of_a_function_of_states(s: Spelled) -> list[tp.Tensor]:
    v = s.state(S)
    s.follow(v, tp.tanh(s.last(v) + s.new(s.value(S))))
    return [(v * v)[0 : s.T].sum(0)]


@program
def outer_products(s: Spelled) -> list[tp.Tensor]:
    """Linear attention: a state of keys and values, read by queries."""
    k, q = s.value(S, name="k"), s.value(S, name="q")
    m = s.state(S, S)
    s.follow(m, tp.sin(s.last(m)) + s.new(k).expand_dims(1) * s.new(k).expand_dims(0))
    return [(q.expand_dims(0) @ m).sum(0)]


@program
def a_product_of_matrices(s: Spelled) -> list[tp.Tensor]:
    m = s.state(S, S, start=tp.ones((S, S)))
    return [s.follow(m, s.last(m) @ s.new(s.value(S, S)))]


@program
def euler(s: Spelled) -> list[tp.Tensor]:
    place, speed, x = s.state(S, name="place"), s.state(S, name="speed"), s.new(s.value(S))
    s.follow(speed, s.last(speed) - 0.1 * tp.sin(s.last(place)) + x)
    s.follow(place, s.last(place) + 0.1 * s.last(speed))
    return [place]


@program
def a_mirrored_state(s: Spelled) -> list[tp.Tensor]:
    v = s.state(S, start=tp.ones((S,)))
    return [s.follow(v, tp.tanh(s.last(v) + s.last(v).flip(0) * s.new(s.value(S))))]


@program
def softmax_of_states(s: Spelled) -> list[tp.Tensor]:
    w = tp.input("w", (S, S))
    v = s.state(S)
    return [s.follow(v, tp.softmax(s.last(v) @ w + s.new(s.value(S)), 0))]


@program
def gradient_of_a_loss(s: Spelled) -> list[tp.Tensor]:
    w = tp.input("w", (S, S))
    h = s.state(S)
    s.follow(h, tp.tanh(s.last(h) @ w + s.new(s.value(S))))
    return tp.grad((h[s.T - 1] ** 2).sum(), [w])


@program
def gradient_of_every_state(s: Spelled) -> list[tp.Tensor]:
    w = tp.input("w", (S, S))
    h = s.state(S)
    s.follow(h, tp.sin(s.last(h) @ w + s.new(s.value(S))))
    return tp.grad((h[0 : s.T] ** 2).sum(), [w])


@program
def a_module(s: Spelled) -> list[tp.Tensor]:
    layer = nn.Linear(S, S, name="layer", fed=True)
    h = s.state(S)
    return [s.follow(h, tp.tanh(layer(s.last(h)) + s.new(s.value(S))))]


@program
def random_walk(s: Spelled) -> list[tp.Tensor]:
    v = s.state(S)
    return [s.follow(v, tp.clip(s.last(v) + s.new(s.value(S)), -1.0, 1.0))]


@program
def exchange_of_two(s: Spelled) -> list[tp.Tensor]:
    a, b = s.state(name="a"), s.state(start=tp.ones(()), name="b")
    s.follow(a, s.last(b) + s.new(s.value()))
    s.follow(b, s.last(a))
    return [a + b]


def compiled(name: str, form: str) -> tp.Program:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        results = PROGRAMS[name](Spelled(form, t, T))
    return ctx.compile({T: N}, results)


LABEL = re.compile(r"^(\s*(?:if [^:]*: )?)(?!for |if |output )([^\[|:]+)", re.MULTILINE)


def plain(program: tp.Program) -> str:
    """The statements of a program, and the kinds and sizes of its stores, with numbers for names."""
    numbers: dict[str, int] = {}
    statements = LABEL.sub(lambda found: f"{found[1]}#{numbers.setdefault(found[2], len(numbers))}", program.text())
    stores = sorted(line.split()[-4:] for line in program.text("memory").splitlines()[1:] if line.split()[-1:][0].isdigit())
    return "\n".join([statements, *map(" ".join, stores)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_spellings_of_a_recurrence_give_one_program(name: str) -> None:
    programs = [compiled(name, form) for form in SPELLINGS]
    first, *others = map(plain, programs)
    assert others == [first, first]
    inputs = fed(programs[0].source, {"T": N})
    for program in programs:
        expected = reference.evaluate(program.source, None, {Symbol("T"): N}, inputs)
        results = program.run(inputs)
        assert_all_same(results, expected, 1e-4)


RECURRENCE = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T,))() : float32[T] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[] over (t)
%3 = Constant(float32[], 0.0)() : float32[] over ()
%4 v = Merge(type=float32[])(%3 if t == 0, %6[t]) : float32[] over (t)
%5 = Unary(fn="tanh")(%4[t - 1]) : float32[] over (t) where t >= 1
%6 = Binary(fn="add")(%5[t], %2[t]) : float32[] over (t) where t >= 1
%7 = Output(position=0)(%4[0:T]) over ()
"""


def test_an_operation_runs_where_what_it_reads_is_new(golden: Golden) -> None:
    check(golden, "align", RECURRENCE, Align())


def test_what_only_feeds_a_recurrence_runs_with_its_readers(golden: Golden) -> None:
    check(golden, "align_fed", RECURRENCE, Align(), Align(fed=True))


@pytest.mark.parametrize("fed_too", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_aligned_again_nothing_moves(name: str, fed_too: bool) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        graph = with_outputs(ctx, PROGRAMS[name](Spelled("t - 1", t, T)))
    once = Align(fed_too).apply(graph)
    assert to_text(Align(fed_too).apply(once)) == to_text(once)
