"""trim: a value that nobody reads at a step's last point is not computed there, if this saves a copy of the loop's body."""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.passes.keep.trim import Trim
from tempo_core.schedule import Execute, Loop, leaves, walk
from tests import reference
from tests.core.passes.support import Golden, after, check
from tests.core.running import assert_all_same

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t + 1)() : int32[] over (t) where T >= t + 2
%2 next = Gather(axis=0)(%0, %1[t]) : float32[2] over (t) where T >= t + 2
"""

LOOP = """\
%3 h = Merge(type=float32[2])(%0[] if t == 0, %6[t - 1] if t >= 1) : float32[2] over (t)
%4 a = Unary(fn="tanh")(%3[t]) : float32[2] over (t)
%5 b = Unary(fn="exp")(%4[t]) : float32[2] over (t)
%6 c = Binary(fn="add")(%5[t], %2[t]) : float32[2] over (t) where T >= t + 2
%7 = Output(position=0)(%3[0:T]) over ()
"""


def conditions(graph: Graph) -> dict[str, str]:
    return {node.name: str(node.domain.condition) for node in graph if node.name}


def with_start(text: str) -> str:
    """The loop starts from the input's first element."""
    start = "%8 = Eval(value=0)() : int32[] over ()\n%9 first = Gather(axis=0)(%0, %8) : float32[2] over ()\n"
    return HEAD + start + text.replace("%0[] if", "%9 if")


def test_what_leads_to_the_next_point_ends_before_the_last(golden: Golden):
    loops = conditions(check(golden, "trim", with_start(LOOP), Trim()))
    assert loops["a"] == loops["b"] == loops["c"] == "T >= t + 2"
    assert loops["h"] == "true", "the results need all points of it"


def test_what_is_read_at_the_last_point_stays():
    read = '%10 last = Unary(fn="neg")(%4[T - 1]) : float32[2] over ()\n%11 = Output(position=1)(%10) over ()\n'
    loops = conditions(after(with_start(LOOP + read), Trim()))
    assert loops["a"] == "true"


def test_a_step_is_left_alone_where_most_is_needed_to_the_end():
    read = "%10 = Output(position=1)(%4[0:T]) over ()\n%11 = Output(position=2)(%5[0:T]) over ()\n"
    text = with_start(LOOP + read)
    assert conditions(after(text, Trim())) == conditions(after(text))


def test_an_update_ends_before_the_last_point_whatever_else_is_needed_there():
    """Else each iteration would copy the value into which it writes."""
    text = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T,))() : float32[T] over ()
%1 zeros = Input(name="zeros", dtype="float32", shape=(9,))() : float32[9] over ()
%2 at = Eval(value=t)() : int32[] over (t)
%3 table = Merge(type=float32[9])(%1 if t == 0, %7[t - 1] if t >= 1) : float32[9] over (t)
%4 value = Gather(axis=0)(%0, %2[t]) : float32[] over (t)
%5 read = Gather(axis=0)(%3[t], %2[t]) : float32[] over (t)
%6 new = Binary(fn="add")(%4[t], %5[t]) : float32[] over (t)
%7 next = WRITE : float32[9] over (t)
%8 = Output(position=0)(%6[0:T]) over ()
"""
    update, other = 'Update(fn="set", axis=0)(%3[t], %6[t], %2[t])', 'Unary(fn="tanh")(%3[t])'
    assert conditions(after(text.replace("WRITE", update), Trim()))["next"] == "T >= t + 2"
    assert conditions(after(text.replace("WRITE", other), Trim()))["next"] == "true"


def test_nothing_is_trimmed_where_everything_is_a_result():
    read = "".join(f"%{n + 6} = Output(position={n - 3})(%{n}[0:T]) over ()\n" for n in (4, 5, 6))
    text = with_start(LOOP + read).replace(" where T >= t + 2", "").replace("value=t + 1", "value=t")
    assert conditions(after(text, Trim())) == conditions(after(text))


def test_a_recurrence_ends_at_the_last_point_that_a_result_reads():
    """An end that is a number, or depends on bounds; a result of the start needs no recurrence."""
    for point, condition in (("5", "t <= 5"), ("T//2", "(T//2) >= t")):
        loops = conditions(after(with_start(LOOP.replace("%3[0:T]", f"%3[{point}]")), Trim()))
        assert loops["h"] == condition
    assert conditions(after(with_start(LOOP.replace("%3[0:T]", "%3[0]")), Trim())).keys() == {"x", "first", "h"}


def test_a_recurrence_backwards_begins_at_the_first_point_that_a_result_reads():
    turned = "%3 h = Merge(type=float32[2])(%9[] if t == T - 1, %6[t + 1] if t <= T - 2) : float32[2] over (t)\n"
    text = with_start(LOOP.replace(LOOP.splitlines()[0], turned.strip()).replace("%3[0:T]", "%3[T - 7]"))
    text = text.replace(" where T >= t + 2", "").replace("value=t + 1", "value=t")
    assert conditions(after(text, Trim()))["h"] == "t + 7 >= T"


def decoding():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = x[0]
        seen = h[0 : t + 1]
        mixed = (seen * tp.exp(seen @ h).expand_dims(1)).sum(0).tanh()
        h[t + 1] = mixed + x[t + 1]
    return ctx, T, h


def test_the_body_of_a_decoding_loop_is_there_once():
    ctx, T, h = decoding()
    trimmed = ctx.compile({T: 6}, [h])
    whole = ctx.compile({T: 6}, [h], tp.Config(disable=("trim",)))

    def outside(program: tp.Program) -> int:
        """The number of statements outside of the loop over t, without moves of values."""
        inside = {id(leaf) for item in walk(program.scheduled.root) if isinstance(item, Loop) for leaf in leaves(item)}
        return sum(isinstance(x, Execute) and x.branch is None and id(x) not in inside for x in leaves(program.scheduled.root))

    assert outside(trimmed) < outside(whole)
    data = {"x": np.random.default_rng(0).normal(size=(6, 3)).astype("float32")}
    expected = reference.evaluate(ctx, [h], {T: 6}, data)
    assert_all_same(trimmed.run(data), expected)
    for bound in (1, 2):
        numbers, few = {T: bound}, {"x": data["x"][:bound]}
        results = ctx.run(numbers, [h], few, tp.Config(backend="numpy"))
        assert_all_same(results, reference.evaluate(ctx, [h], numbers, few))


def test_what_has_too_many_ends_to_be_trimmed_keeps_what_it_reads() -> None:
    """A branch that only points without a reader need goes only if those points go."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.tanh(tp.input("x", (2,), domain=(i, t)))
        g, h = (tp.recurrence((2,), domain=(i, t), name=name) for name in "gh")
        g[i, t, (i >= t) | (i + 1 >= I)] = x
        g[i, t] = g[i + 1, t] * 0.5 + x
        inner = h * 0.9
        past = (inner @ tp.constant([[0.3, -0.5], [0.7, 0.2]]))[tp.max(i - 1, 0), t]
        following = tp.tanh(past + inner)
        h[i, t, i < tp.min(T, I)] = 0.7
        h[i, t] = following[i - 1, t] * 0.8 + 0.1
        outputs = [h[tp.min(1, I - 1), T // 2], g[tp.min(i + 1, I - 1) : I, tp.min(t + i, T - 1)].prod(0)]
    inputs = {"x": np.random.default_rng(0).normal(size=(6, 4, 2)).astype("float32")}
    result = ctx.run({I: 6, T: 4}, outputs, inputs, tp.Config(backend="numpy"))
    assert_all_same(result, reference.evaluate(ctx, outputs, {I: 6, T: 4}, inputs))
