"""The interpreter on small graphs, written as text or by hand, on both backends."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.errors import DTypeError, NumericsError, UncoveredPointError
from tempo_core.ir.builder import constant_op
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import (
    Binary,
    Broadcast,
    Constant,
    Eval,
    Gather,
    Input,
    Iota,
    Merge,
    Output,
    Random,
    Reduce,
    Sink,
    Udf,
    Unary,
)
from tempo_core.ir.types import TensorType
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.interpreted.interpreter import Interpreter
from tempo_core.runtime.interpreted.stores import Stores
from tempo_core.runtime.numerics import Watch, find
from tempo_core.schedule import schedule
from tempo_core.symbolic.domain import Domain, Point, Range, identity
from tempo_core.symbolic.expr import Expr, Symbol, maximum

i, t = Symbol("i", "I"), Symbol("t", "T")
I, T = Symbol("I"), Symbol("T")
BACKENDS = {"numpy": NumpyBackend, "jax": JaxBackend}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]()


def interpreter(graph, bounds, backend, dealloc=True, **options):
    return Interpreter(schedule(graph, bounds, dealloc=dealloc), backend, **options)


def growth():
    """x[0] = 1, x[t] = x[t - 1] * d[t - 1]: the graph, the node x, and the node of the product."""
    graph = Graph((t,))
    whole = Domain((t,))
    start = graph.add(Constant("float32", (), np.float32(1).tobytes()))
    factors = graph.add(Input("d", "float32", (T.expr,)), name="d")
    at = graph.add(Eval(t.expr), name="at")
    now = graph.add(Gather(0), [Edge(factors.id), Edge(at.id, identity(whole))], name="now")
    x = graph.add(Merge(TensorType.of("float32")), domain=whole, name="x", where="user.py:3")
    after = graph.add(Binary("mul"), [Edge(x.id, identity(whole)), Edge(now.id, identity(whole))], name="next")
    branches = (Edge(start.id, condition=t.expr == 0), Edge(after.id, (Point(t.expr - 1),)))
    graph.put(replace(x, inputs=branches))
    graph.add(Output(0), [Edge(x.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    return graph, x, after


def test_a_recurrence(backend):
    graph, _, _ = growth()
    factors = np.array([2, 3, 4, 5], np.float32)
    result = interpreter(graph, {T: 4}, backend).run(Feeds({"d": factors}, {}))
    np.testing.assert_array_equal(result[0], [1, 2, 6, 24])
    assert isinstance(result[0], np.ndarray) and result[0].dtype == np.float32


@pytest.mark.parametrize("dealloc", [False, True])
def test_a_recurrence_of_one_step(backend, dealloc):
    graph, _, _ = growth()
    result = interpreter(graph, {T: 1}, backend, dealloc=dealloc).run(Feeds({"d": np.ones(1, np.float32)}, {}))
    np.testing.assert_array_equal(result[0], [1])


def test_stepping_shows_statements_points_and_values(backend):
    graph, _, _ = growth()
    ready = interpreter(graph, {T: 3}, backend)
    seen = list(ready.steps(ready.state(Feeds({"d": np.array([2, 3, 4], np.float32)}, {}))))
    by_text = {step.statement: step for step in seen}
    assert len(by_text) == len(seen)
    branches = [step.statement for step in seen if step.statement.startswith("x|")]
    assert branches == ["x|0[0]", "x|1[1]", "x|1[2]"]
    assert by_text["x|1[2]"].point == (2,)
    assert float(by_text["x|1[2]"].values[0]) == 6.0
    order = [step.statement for step in seen]
    assert order.index("x|0[0]") < order.index("next[0]") < order.index("x|1[1]")


@pytest.mark.parametrize("dealloc", [False, True])  # freed by slots, and by statements
def test_values_are_freed(backend, dealloc, monkeypatch):
    graph, _, after = growth()
    output = next(n for n in graph if isinstance(n.op, Output))
    graph.put(replace(output, inputs=(Edge(after.id, (Point(T.expr - 1),)),)))  # only the last value is needed
    kept = []
    put = Stores.put
    monkeypatch.setattr(Stores, "put", lambda self, *args: (put(self, *args), kept.append(self.count()))[0])
    result = interpreter(graph, {T: 30}, backend, dealloc=dealloc).run(Feeds({"d": np.full(30, 2, np.float32)}, {}))
    assert float(result[0]) == 2.0**30
    assert len(kept) == 30 * 4 and max(kept) < 10


def test_values_stay_while_they_are_needed(backend):
    """y[t] = x[t] + x[max(t - 2, 0)] reads a window of three values."""
    graph = Graph((t,))
    x = graph.add(Eval(t.expr * t.expr), name="x")
    reads = [Edge(x.id, (Point(t.expr),)), Edge(x.id, (Point(maximum(t.expr - 2, 0)),))]
    y = graph.add(Binary("add"), reads, name="y")
    graph.add(Output(0), [Edge(y.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    for dealloc in (False, True):
        results = interpreter(graph, {T: 6}, backend, dealloc=dealloc).run()[0]
        np.testing.assert_array_equal(results, [0, 1, 4 + 0, 9 + 1, 16 + 4, 25 + 9])


def ranges(index, x_domain=(i, t)):
    """`x[i, t] = 10 i + t`, read once at `index`."""
    graph = Graph((i, t))
    value = 10 * i.expr + t.expr if i in x_domain else t.expr
    x = graph.add(Eval(value), domain=Domain(x_domain), name="x")
    graph.add(Output(0), [Edge(x.id, index)], domain=Domain(()))
    return graph


@pytest.mark.parametrize("along_t, expected", [
    (Range(Expr.of(0), T.expr), [0, 1, 2, 3, 4]),
    (Range(Expr.of(1), T.expr, 2), [1, 3]),
    (Range(Expr.of(1), Expr.of(4), 1, Expr.of(6)), [1, 2, 3, 0, 0, 0]),
    (Range(Expr.of(0), T.expr, 2, T.expr), [0, 2, 4, 0, 0]),
    (Range(Expr.of(2), Expr.of(2), 1, Expr.of(2)), [0, 0]),
    (Range(Expr.of(2), Expr.of(2)), []),
    (Point(T.expr - 1), 4),
])  # fmt: skip
def test_reads(backend, along_t, expected):
    result = interpreter(ranges((along_t,), (t,)), {I: 1, T: 5}, backend).run()
    np.testing.assert_array_equal(result[0], expected)
    assert result[0].dtype == np.int32
    two = interpreter(ranges((Range(Expr.of(0), I.expr, 1, Expr.of(3)), along_t)), {I: 2, T: 5}, backend).run()
    rows = np.zeros((3, *np.shape(expected)), np.int32)
    rows[0], rows[1] = expected, np.asarray(expected, np.int32) + 10
    if not isinstance(along_t, Point) and along_t.size is not None:
        rows[1] -= 10 * (np.arange(rows.shape[1]) >= along_t.true_length.evaluate({T: 5}))  # padding stays zero
    np.testing.assert_array_equal(two[0], rows)


def test_padding_is_zero_for_what_reads_it(backend):
    graph = Graph((t,))
    x = graph.add(Eval(t.expr + 1), name="x")
    window = Edge(x.id, (Range(t.expr, T.expr, 1, T.expr),))
    total = graph.add(Reduce("sum", (0,)), [window], domain=Domain((t,)), name="total")
    graph.add(Output(0), [Edge(total.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    result = interpreter(graph, {T: 4}, backend).run()
    np.testing.assert_array_equal(result[0], [10, 9, 7, 4])


def test_an_output_with_steps_of_its_own(backend):
    graph = Graph((i, t))
    x = graph.add(Eval(10 * i.expr + t.expr), name="x")
    graph.add(Output(3), [Edge(x.id, (Point(i.expr), Range(Expr.of(0), T.expr)))], domain=Domain((i,)))
    result = interpreter(graph, {I: 2, T: 3}, backend).run()
    np.testing.assert_array_equal(result[3], [[0, 1, 2], [10, 11, 12]])


def test_ragged_values_come_as_lists(backend):
    graph = Graph((i, t))
    x = graph.add(Iota(t.expr + 1), domain=Domain((i, t)), name="x")
    graph.add(Output(0), [Edge(x.id, (Range(Expr.of(0), I.expr), Range(Expr.of(0), T.expr)))], domain=Domain(()))
    result = interpreter(graph, {I: 2, T: 3}, backend).run()
    assert [[list(map(int, x)) for x in row] for row in result[0]] == [[[0], [0, 1], [0, 1, 2]]] * 2


def test_points_that_do_not_run_are_zero_in_outputs(backend):
    graph = Graph((t,))
    x = graph.add(Eval(t.expr + 1), domain=Domain((t,), t.expr % 2 == 0), name="x")
    graph.add(Output(0), [Edge(x.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    np.testing.assert_array_equal(interpreter(graph, {T: 5}, backend).run()[0], [1, 0, 3, 0, 5])


def test_sinks_and_host_functions_run_in_order(backend):
    calls, delivered = [], []

    def counted(x):
        calls.append(int(x))
        return (np.asarray(len(calls), np.int32),)

    def keep(value, number, **steps):
        value += 100  # a sink may write into its copy
        delivered.append((int(value), int(number), steps))

    graph = Graph((i, t))
    domain = Domain((i, t))
    x = graph.add(Eval(10 * i.expr + t.expr), name="x")
    count = graph.add(Udf(counted, (TensorType.of("int32"),), "host", True), [Edge(x.id, identity(domain))], name="count")
    sunk = [Edge(x.id, identity(domain)), Edge(count.id, identity(domain))]
    graph.add(Sink(keep), sunk, domain=Domain((i, t), t.expr >= 1))
    graph.add(Output(0), [Edge(x.id, (Point(I.expr - 1), Point(T.expr - 1)))], domain=Domain(()))
    result = interpreter(graph, {I: 2, T: 3}, backend).run()
    assert calls == [0, 1, 2, 10, 11, 12]
    assert delivered == [
        (101, 2, {"i": 0, "t": 1}), (102, 3, {"i": 0, "t": 2}), (111, 5, {"i": 1, "t": 1}), (112, 6, {"i": 1, "t": 2}),
    ]  # fmt: skip
    assert int(result[0]) == 12


def test_wrong_host_functions_are_named(backend):
    graph = Graph((t,))
    x = graph.add(Udf(lambda: (np.zeros(()),), (TensorType.of("float32"),), "host", name="reset"), domain=Domain((t,)))
    graph.add(Output(0), [Edge(x.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    with pytest.raises(DTypeError, match="`reset` returned as output 0 an array of dtype float64"):
        interpreter(graph, {T: 2}, backend).run()


def noise():
    graph = Graph((t,))
    at = graph.add(Eval(t.expr))
    x = graph.add(Random("bits", 4, (Expr.of(2),)), [Edge(at.id, identity(Domain((t,))))], name="x")
    graph.add(Output(0), [Edge(x.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    return graph


def test_random_numbers_depend_on_the_seed_alone():
    results = [interpreter(noise(), {T: 3}, make(), seed=seed).run()[0] for make in BACKENDS.values() for seed in (0, -1)]
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
    assert len(set(np.concatenate(results[:2]).reshape(-1).tolist())) == 12


def test_jax_compiles_each_op_once(compilations):
    def run(bound, seed, backend):
        graph, _, _ = growth()
        before = compilations()
        result = interpreter(graph, {T: bound}, backend, seed=seed).run(Feeds({"d": np.ones(bound, np.float32)}, {}))
        assert result[0].shape == (bound,)
        return compilations() - before

    JaxBackend().to_host(
        JaxBackend().kernel(constant_op("float32", 0.5), (), {})[0]
    )  # JAX's own program for scalars, once a process
    assert 0 < run(11, 0, JaxBackend()) <= 3  # Eval, Gather and mul, and not one program per point
    assert run(11, 1, JaxBackend()) == 0


@pytest.fixture
def compilations():
    events = []

    def listen(event, *_, **__):
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield lambda: len(events)
    jax.monitoring.unregister_event_duration_listener(listen)


# -- errors -----------------------------------------------------------------------------------------------------------


def test_reading_what_no_branch_defines(backend):
    graph, x, _ = growth()
    graph.put(replace(graph[x.id], inputs=(graph[x.id].inputs[0],)))  # only x[0]
    with pytest.raises(
        UncoveredPointError, match=r"next \(mul\) at \(t=1\) reads x \(Merge\) at \(t=1\), which no branch defines"
    ):
        interpreter(graph, {T: 3}, backend).run(Feeds({"d": np.ones(3, np.float32)}, {}))


def test_reads_outside_the_domain_give_zeros(backend):
    graph = Graph((t,))
    x = graph.add(Eval(t.expr), name="x")
    y = graph.add(Unary("neg"), [Edge(x.id, (Point(t.expr + 1),))], domain=Domain((t,)), name="y", where="user.py:7")
    graph.add(Output(0), [Edge(y.id, (Range(Expr.of(0), T.expr),))], domain=Domain(()))
    results = interpreter(graph, {T: 3}, backend).run()[0]
    assert results.tolist() == [
        -1,
        -2,
        0,
    ]  # a mask follows a read outside that a pass makes; a user's reads are checked when compiled


def checked(graph, bounds, backend, fed):
    """An interpreter that checks for values that are not finite, and reports where they begin."""

    def search(watch):
        again = Interpreter(schedule(graph, bounds), backend, repeated=watch.returned)
        find(graph, bounds, fed, watch.returned, again.steps(again.state(Feeds(fed, {}))))

    return Interpreter(schedule(graph, bounds), backend, watch=Watch(search))


def test_numerics_are_checked_where_asked(backend):
    graph, _, _ = growth()
    factors = np.array([1, 1e30, 1e30, 2, 2], np.float32)
    results = interpreter(graph, {T: 5}, backend).run(Feeds({"d": factors}, {}))[0]
    assert np.isinf(results[-1])
    with pytest.raises(NumericsError, match=r"`next` \(mul\) is infinite at t = 2; it reaches the recurrence `x` at t = 3"):
        checked(graph, {T: 5}, backend, {"d": factors}).run(Feeds({"d": factors}, {}))


def test_masks_may_be_infinite(backend):
    def written(value, fn):
        graph = Graph((t,))
        mask = graph.add(Constant("float32", (), np.float32(value).tobytes()))
        wide = graph.add(Broadcast((Expr.of(2),), ()), [Edge(mask.id)], domain=Domain(()), name="wide")
        result = graph.add(fn, [Edge(wide.id)] * (2 if isinstance(fn, Binary) else 1), domain=Domain(()), name="result")
        graph.add(Output(0), [Edge(result.id)], domain=Domain(()))
        return checked(graph, {T: 1}, backend, {})

    np.testing.assert_array_equal(written(-np.inf, Unary("exp")).run()[0], [0, 0])
    with pytest.raises(
        NumericsError, match=r"`result` \(sub\) is not a number: 2 of 2 elements, the first at \[0\]; it reaches output 0"
    ):
        written(-np.inf, Binary("sub")).run()
    with pytest.raises(NumericsError, match=r"`result` \(log\) is not a number"):
        written(-1.0, Unary("log")).run()
