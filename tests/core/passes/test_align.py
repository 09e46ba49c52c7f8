"""Spellings of one recurrence give one program: `v[t] = f(v[t - 1], x)`, `v[t + 1] = f(v, x[t + 1])`, and the same of an input that is moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import tempo_core as tp
from tempo_core.passes.keep.align import Align
from tests.core.passes.support import Golden, after, check, fed
from tests.core.running import assert_all_same

T = 7
SPELLINGS = ("t - 1", "t + 1", "a moved input")


@dataclass
class Spelled:
    """The point p at which values are assigned: t, or t + 1. `steps` are the program's own step and its bound."""

    spelling: str
    t: Any
    end: Any

    @property
    def p(self) -> Any:
        return self.t if self.spelling == "t - 1" else self.t + 1

    def before(self, *values: tp.Tensor, by: int = 1) -> Any:
        read = tuple(value[self.p - by] for value in values)
        return read if len(read) > 1 else read[0]

    def here(self, value: tp.Tensor) -> tp.Tensor:
        """What is computed earlier in the same iteration."""
        return value[self.p]

    def state(self, *shape: int, start: Any = 0.5, dtype: str = "float32") -> tp.Tensor:
        value = tp.recurrence(shape, dtype, domain=(self.t,))
        value[0] = start
        return value

    def input(self, *shape: int) -> tp.Tensor:
        """A function of an input at p: the function moved, or of the input moved."""
        x = tp.input(f"x{shape}", shape, domain=(self.t,))
        return tp.sin(x[self.p]) if self.spelling == "a moved input" else tp.sin(x)[self.p]

    def set(self, value: tp.Tensor, following: Any) -> None:
        value[self.p] = following


def matrix(name: str, *shape: int) -> tp.Tensor:
    return tp.input(name, shape)


def rnn(s: Spelled) -> Any:
    h = s.state(3)
    s.set(h, tp.tanh(s.before(h) @ matrix("w", 3, 3) + s.input(3)))
    return h


def last_of_an_rnn(s: Spelled) -> Any:
    return rnn(s)[s.end - 1]


def two_layers(s: Spelled) -> Any:
    h, g = s.state(3), s.state(3)
    s.set(h, tp.tanh(s.before(h) @ matrix("w", 3, 3) + s.input(3)))
    s.set(g, tp.tanh(s.before(g) @ matrix("u", 3, 3) + s.here(h)))
    return g


def gru(s: Spelled) -> Any:
    h, x = s.state(3), s.input(3)
    gate = tp.sigmoid(s.before(h) @ matrix("w", 3, 3) + x)
    s.set(h, gate * s.before(h) + (1 - gate) * tp.tanh(x))
    return h


def lstm(s: Spelled) -> Any:
    h, c = s.state(2), s.state(2)
    z = s.before(h) @ matrix("w", 2, 8) + s.input(8)
    i, f, o, g = (z.spatial[k : k + 2] for k in (0, 2, 4, 6))
    following = tp.sigmoid(f) * s.before(c) + tp.sigmoid(i) * tp.tanh(g)
    s.set(c, following)
    s.set(h, tp.sigmoid(o) * tp.tanh(following))
    return h, c


def gradient_of_an_rnn(s: Spelled) -> Any:
    h, w = s.state(3), matrix("w", 3, 3)
    s.set(h, tp.tanh(s.before(h) @ w + s.input(3)))
    return tp.grad((h[s.end - 1] ** 2).sum(), [w])[0]


def gradient_of_all_points(s: Spelled) -> Any:
    h, w = s.state(), matrix("w")
    s.set(h, tp.sin(s.before(h) * w) + s.input())
    return tp.grad((h[0 : s.end] ** 2).sum(), [w])[0]


def viterbi(s: Spelled) -> Any:
    v, path = s.state(4), tp.recurrence((), "int32", domain=(s.t,))
    path[s.end - 1] = v[s.end - 1].argmax(0)
    score = s.before(v).expand_dims(1) + matrix("a", 4, 4)
    s.set(v, score.max(0) + s.input(4))
    back = score.argmax(0)
    path[s.t] = (back[s.t + 1] if s.spelling == "t - 1" else back).index(0, path[s.t + 1])
    return path


def score_of_viterbi(s: Spelled) -> Any:
    v = s.state(4)
    s.set(v, (s.before(v).expand_dims(1) + matrix("a", 4, 4)).max(0) + s.input(4))
    return v[s.end - 1].max(0)


def hidden_markov(s: Spelled) -> Any:
    a = s.state(4)
    s.set(a, tp.logsumexp(s.before(a).expand_dims(1) + matrix("a", 4, 4), 0) + s.input(4))
    return tp.logsumexp(a[s.end - 1], 0)


def scaled_forward(s: Spelled) -> Any:
    a, total = s.state(4), s.state()
    joint = (s.before(a) @ matrix("a", 4, 4)) * tp.exp(s.input(4))
    s.set(a, joint / joint.sum(0))
    s.set(total, s.before(total) + tp.log(joint.sum(0)))
    return total[s.end - 1]


def average(s: Spelled) -> Any:
    m = s.state()
    s.set(m, 0.9 * s.before(m) + 0.1 * s.input())
    return m


def clipped_average(s: Spelled) -> Any:
    m = s.state()
    s.set(m, tp.maximum(0.9 * s.before(m) + 0.1 * s.input(), -0.1))
    return m


def kalman(s: Spelled) -> Any:
    m, p = s.state(), s.state()
    predicted = s.before(p) + 0.1
    gain = predicted / (predicted + 0.5)
    s.set(m, s.before(m) + gain * (s.input() - s.before(m)))
    s.set(p, (1 - gain) * predicted)
    return m, p[s.end - 1]


def value_iteration(s: Spelled) -> Any:
    v = s.state(3)
    q = matrix("r", 2, 3) + 0.9 * (matrix("p", 2, 3, 3) @ s.before(v))
    s.set(v, q.max(0))
    return v[s.end - 1], q.argmax(0)[s.end - 1 if s.spelling == "t - 1" else s.end - 2]


def momentum(s: Spelled) -> Any:
    m, w = s.state(3), s.state(3)
    following = 0.9 * s.before(m) + s.input(3) * s.before(w)
    s.set(m, following)
    s.set(w, s.before(w) - 0.1 * following)
    return w[s.end - 1]


def adam(s: Spelled) -> Any:
    m, v, w = s.state(3), s.state(3), s.state(3)
    g = s.before(w) * s.input(3)
    first, second = 0.9 * s.before(m) + 0.1 * g, 0.99 * s.before(v) + 0.01 * g * g
    for value, following in ((m, first), (v, second), (w, s.before(w) - 0.1 * first / (tp.sqrt(second) + 1e-3))):
        s.set(value, following)
    return w


def mutual(s: Spelled) -> Any:
    a, b = s.state(3), s.state(3)
    s.set(a, tp.sin(s.before(b)))
    s.set(b, tp.cos(s.before(a) + s.before(b)))
    return a, b


def mutual_in_one_iteration(s: Spelled) -> Any:
    a, b = s.state(3), s.state(3)
    s.set(a, tp.sin(s.before(b)) + s.input(3))
    s.set(b, tp.cos(s.here(a) * s.before(b)))
    return a, b


def sampling(s: Spelled) -> Any:
    k = s.state(start=0, dtype="int32")
    s.set(k, tp.random.categorical(matrix("w", 4, 4).index(0, s.before(k)) + s.input(4)))
    return k


def greedy(s: Spelled) -> Any:
    k = s.state(start=1, dtype="int32")
    s.set(k, matrix("w", 4, 4).index(0, s.before(k)).argmax(0))
    return k


def noise(s: Spelled) -> Any:
    x = s.state()
    s.set(x, tp.tanh(s.before(x)) + s.input())
    return x, tp.exp(x)


def knapsack(s: Spelled) -> Any:
    v = s.state(6)
    moved = tp.concatenate([tp.zeros((2,)), s.before(v).spatial[0:4]])
    s.set(v, tp.maximum(s.before(v), moved + s.input()))
    return v[s.end - 1].max(0)


def longest_run(s: Spelled) -> Any:
    run, best = s.state(start=0, dtype="int32"), s.state(start=0, dtype="int32")
    following = tp.where(s.input() > 0, s.before(run) + 1, 0)
    s.set(run, following)
    s.set(best, tp.maximum(s.before(best), following))
    return best[s.end - 1]


def greatest_part(s: Spelled) -> Any:
    here, best = s.state(), s.state()
    s.set(here, tp.maximum(s.before(here), 0.0) + s.input())
    s.set(best, tp.maximum(s.before(best), s.here(here)))
    return best[s.end - 1]


def two_points_back(s: Spelled) -> Any:
    y = s.state()
    y[1] = 0.25
    following = tp.sin(0.5 * s.before(y) - 0.3 * s.before(y, by=2)) + s.input()
    y[s.p, s.p >= 2] = following
    return y


def newton(s: Spelled) -> Any:
    x = s.state(start=1.0)
    s.set(x, s.before(x) - (s.before(x) ** 3 - 2.0) / (3.0 * s.before(x) ** 2))
    return x[s.end - 1]


def power_iteration(s: Spelled) -> Any:
    v = s.state(3)
    image = matrix("a", 3, 3) @ s.before(v)
    s.set(v, image / tp.sqrt((image * image).sum(0)))
    return v[s.end - 1]


def memory(s: Spelled) -> Any:
    m, key = s.state(3, 3), s.input(3)
    s.set(m, 0.9 * tp.tanh(s.before(m)) + key.expand_dims(0) * key.expand_dims(1))
    return m[s.end - 1]


def online_softmax(s: Spelled) -> Any:
    high, total, x = s.state(), s.state(), s.input()
    following = tp.maximum(s.before(high), x)
    s.set(high, following)
    s.set(total, s.before(total) * tp.exp(s.before(high) - following) + tp.exp(x - following))
    return tp.log(total[s.end - 1]) + high[s.end - 1]


def sum_of_states(s: Spelled) -> Any:
    h = rnn(s)
    return (h * h).sum(0)[0 : s.end].sum(0)


PROGRAMS: Sequence[Callable[[Spelled], Any]] = (
    rnn, last_of_an_rnn, two_layers, gru, lstm, gradient_of_an_rnn, gradient_of_all_points, viterbi, score_of_viterbi, hidden_markov,
    scaled_forward, average, clipped_average, kalman, value_iteration, momentum, adam, mutual, mutual_in_one_iteration, sampling, greedy,
    noise, knapsack, longest_run, greatest_part, two_points_back, newton, power_iteration, memory, online_softmax, sum_of_states,
)  # fmt: skip


def spelled(make: Callable[[Spelled], Any], spelling: str) -> tuple[tp.Context, Any, Any]:
    ctx = tp.Context("t")
    with ctx as ((t, end),):
        results = make(Spelled(spelling, t, end))
    return ctx, end, results


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_spellings_of_a_recurrence_give_one_program(make: Callable[[Spelled], Any]) -> None:
    """They run the same statements, and keep the same values in as many slots. The values are those without the pass."""
    texts, values = {}, {}
    for spelling in SPELLINGS:
        ctx, end, results = spelled(make, spelling)
        program = ctx.compile({end: T}, results, config=tp.Config(backend="numpy"))
        inputs = fed(ctx.graph, {"T": T})
        texts[spelling] = program.text("program"), program.text("memory")
        values[spelling] = program.run(inputs)
        plain = ctx.compile({end: T}, results, config=tp.Config(backend="numpy", disable=("align",)))
        assert_all_same([values[spelling]], [plain.run(inputs)])
    assert texts["t + 1"] == texts["t - 1"]
    assert texts["a moved input"] == texts["t + 1"]


def test_an_argmax_beside_a_maximum_is_computed_again_and_nothing_large_is_kept() -> None:
    """Of 4 x 4 scores at each point, the states are kept: 4 floats at 7 points, and the path, 7 integers."""
    for spelling in SPELLINGS:
        ctx, end, path = spelled(viterbi, spelling)
        assert f"in all {(4 + 1) * T * 4} bytes" in ctx.compile({end: T}, path).text("memory")


BEFORE = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=())() : float32[] over ()
%1 v = Merge(type=float32[])(%0 if t == 0, %3[t]) : float32[] over (t)
%2 a = Unary(fn="tanh")(%1[t - 1]) : float32[] over (t) where t >= 1
%3 b = Unary(fn="sin")(%2[t]) : float32[] over (t) where t >= 1
%4 = Output(position=0)(%1[0:T]) over ()
"""


def test_operations_count_from_the_first_point_that_is_needed(golden: Golden) -> None:
    check(golden, "align", BEFORE, Align())


def test_operations_that_are_read_over_ranges_stay() -> None:
    """A range over all points reads `a` at the first one too, where it has no value."""
    text = BEFORE + "%5 = Output(position=1, partial=True)(%3[0:T]) over ()\n"
    domains = {node.name: str(node.domain.condition) for node in after(text, Align()) if node.name}
    assert domains["b"] == "t >= 1"
