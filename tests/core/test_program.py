"""Programs as values: the forms of their results, other inputs and bounds without compiling, their descriptions."""

from __future__ import annotations

import logging
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import compiler, errors
from tempo_core.config import PASSES
from tests.core.running import SETTINGS, Case, assert_all_same, assert_same, compiled, evaluated

every_setting = pytest.mark.parametrize("setting", SETTINGS)
NUMPY = SETTINGS["numpy"]
GRID = np.arange(6.0, dtype="float32").reshape(2, 3)


# -- results ----------------------------------------------------------------------------------------------------------


def test_results_have_the_form_in_which_they_are_asked_for() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = x * 2
    bounds, fed, doubled = {T: 2}, {"x": [1.0, 2.0]}, np.array([2, 4], "float32")
    single = ctx.run(bounds, y, fed, NUMPY)
    assert isinstance(single, np.ndarray)
    assert_same(single, doubled)
    named = ctx.run(bounds, {"two": y, "one": x, "again": y}, fed, NUMPY)
    assert list(named) == ["two", "one", "again"]
    assert_all_same(list(named.values()), [doubled, doubled / 2, doubled])
    for several in ([y], (y,), (tensor for tensor in [y])):
        results = ctx.run(bounds, several, fed, NUMPY)
        assert isinstance(results, list)
        assert_all_same(results, [doubled])
    assert ctx.run(bounds, [], fed, NUMPY) == []
    assert ctx.run(bounds, {}, fed, NUMPY) == {}
    assert ctx.compile(bounds, y, NUMPY).run(fed).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (3.0, "outputs are 3.0"),
        ([1.0], "output 0 is 1.0, not a tensor of this context"),
        ({"a": "b"}, "output `a` is 'b', not a tensor of this context"),
        ("h", "output 0 is 'h', not a tensor"),
        ({3: "h"}, "the name of an output is 3, not a string"),
        ({"h"}, "outputs are {'h'}, not tensors"),
    ],
)
def test_outputs_that_are_none(wrong: Any, text: str) -> None:
    ctx = tp.Context("t")
    with pytest.raises(errors.TempoError, match=text):
        ctx.compile({"T": 2}, wrong)


def test_a_step_is_not_an_output() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        pass
    with pytest.raises(errors.ArgumentError, match="outputs are t, not tensors"):
        ctx.compile({T: 2}, t)


def test_outputs_of_another_context() -> None:
    ctx, other = tp.Context("t"), tp.Context("t")
    with other as ((t, T),):
        x = tp.input("x", domain=(t,))
    with pytest.raises(errors.TempoError, match="output 0 is <Tensor x"):
        ctx.compile({T: 2}, [x])


def _shapes() -> Case:
    """Static and varying shapes of all kinds, read at points, constants, ranges, and under conditions."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", domain=(i, t))
        past = x[i, 0 : t + 1] * 2
        both = tp.broadcast_to(x.reshape(1, 1), (i + 1, t + 1))
        outputs = {
            "past": past, "both": both, "corner": x[0 : i + 1, 0 : t + 1], "future": x[i, t:T], "last": past[0, T - 1],
            "column": both[i, 2], "scalar": x[0:I, 0:T].sum(), "point": x[1, 2], "constant": tp.constant([1, 2]),
            "narrow": x.astype("bfloat16"), "flag": x > 2, "count": (x * 3).astype("int8"), "step": t * 1.0,
            "even": x[i, t, t % 2 == 0], "next": (x[i, t + 1] - x)[i, t, t < T - 1], "pairs": (x.reshape(1) * 2)[i, t, i == 1],
            "some": past[i, t, t % 2 == 0], "few": both[i, t, (i == 1) & (t >= 1)], "never": x[i, t, t > T],
        }  # fmt: skip
    return Case(ctx, {I: 2, T: 3}, outputs, [], {"x": GRID})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config",
    [
        tp.Config(),
        NUMPY,
        tp.Config(executor="interpreted"),
        tp.Config(disable=("pad",)),
        tp.Config(backend="numpy", disable=PASSES),
    ],
    ids=["staged", "numpy", "jax", "not padded", "no passes"],
)
def test_results_of_every_shape(config: tp.Config) -> None:
    case = _shapes()
    expected = evaluated(Case(case.context, case.bounds, list(case.outputs.values()), [], case.inputs))  # type: ignore[attr-defined]
    results = compiled(case, config)
    for name, one in zip(results, expected, strict=True):  # type: ignore[arg-type]
        assert_same(results[name], one, where=name)  # type: ignore[call-overload]


def test_what_those_results_are() -> None:
    """The same results as above, by hand."""
    results: Any = compiled(_shapes(), NUMPY)
    assert [[row.tolist() for row in rows] for rows in results["past"]] == [[[0], [0, 2], [0, 2, 4]], [[6], [6, 8], [6, 8, 10]]]
    assert [row.shape for row in results["both"][1]] == [(2, 1), (2, 2), (2, 3)]
    assert results["corner"][1][1].tolist() == [[0, 1], [3, 4]]
    assert results["last"].tolist() == [0, 2, 4]
    assert [part.shape for part in results["column"]] == [(1, 3), (2, 3)]
    assert (results["scalar"].shape, float(results["scalar"]), float(results["point"])) == ((), 15.0, 5.0)
    assert results["narrow"].dtype == ml_dtypes.bfloat16
    assert (results["flag"].dtype, results["count"].dtype) == (np.bool_, np.int8)
    assert results["step"].tolist() == [0, 1, 2]
    assert results["even"].tolist() == [[0, None, 2], [3, None, 5]]
    assert results["even"].data.tolist() == [[0, 0, 2], [3, 0, 5]]  # zeros at points that do not exist
    assert results["next"].tolist() == [[1, 1, None]] * 2
    assert results["pairs"].mask[:, :, 0].tolist() == [[True] * 3, [False] * 3]
    assert [part is None for part in results["some"][0]] == [False, True, False]
    assert [[part is None for part in row] for row in results["few"]] == [[True] * 3, [True, False, False]]
    assert results["never"].mask.all()


@pytest.mark.parametrize("disable", [("pad", "lift", "vectorize"), PASSES], ids=["not lifted", "no passes"])
def test_ranges_that_vary_are_read_without_padding(disable: tuple[str, ...]) -> None:
    """No value has a shape that varies, only the ranges that the reductions read, and their gradients."""
    ctx, data = tp.Context("i", "t"), np.arange(10, dtype="float32").reshape(2, 5)
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", domain=(i, t))
        past, ahead = x[i, 0 : t + 1].discounted_sum(0.5), x[i, t:T].max(0)
        (by_x,) = tp.grad(ahead, wrt=[x])
    program = ctx.compile({I: 2, T: 5}, {"past": past, "ahead": ahead, "by_x": by_x}, tp.Config(disable=disable))
    results = program.run({"x": data})
    halves = 0.5 ** np.arange(5)
    np.testing.assert_allclose(results["past"], [[row[: k + 1] @ halves[: k + 1] for k in range(5)] for row in data])
    np.testing.assert_array_equal(results["ahead"], data[:, [4] * 5])
    np.testing.assert_array_equal(results["by_x"], [[0, 0, 0, 0, 5]] * 2)


def test_results_are_the_callers_own() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        whole = tp.input("whole", (2,))
        program = ctx.compile({T: 2}, [x, whole, tp.constant([1.0, 2.0]), x[0:T]], NUMPY)
    fed = {"x": np.ones(2, "float32"), "whole": np.ones(2, "float32")}
    for result in program.run(fed):
        if result.flags.writeable:
            result[:] = 7
    assert fed["x"].tolist() == fed["whole"].tolist() == [1, 1]
    assert [result.tolist() for result in program.run(fed)] == [[1, 1], [1, 1], [1, 2], [1, 1]]


def test_parts_of_varying_sizes_are_cut_out_without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of an array of JAX is a device program for each size."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        program = ctx.compile({T: 5}, x[0 : t + 1] * 2)
    fed = {"x": np.arange(5, dtype="float32")}
    first = program.run(fed)
    assert [part.tolist() for part in first] == [[2.0 * k for k in range(t + 1)] for t in range(5)]
    monkeypatch.setattr(type(jax.numpy.zeros(1)), "__getitem__", None)
    second = program.run(fed)
    second[1][:] = 7
    assert [part.tolist() for part in second[:3]] == [[0], [7, 7], [0, 2, 4]] and first[1].tolist() == [0, 2]


# -- programs that are used again -------------------------------------------------------------------------------------


class Growth:
    """h[t + 1] = 2 h[t] + x[t + 1], and a function on the host: several device programs."""

    def __init__(self) -> None:
        self.ctx = tp.Context("i", "t")
        with self.ctx as ((i, I), (t, T)):
            self.I, self.T = I, T
            self.x = tp.input("x", domain=(t,))
            h = tp.recurrence((), domain=(i, t), name="h")
            h[i, 0] = self.x[0]
            h[i, t + 1] = h * 2 + self.x[t + 1]
            (self.seen,) = tp.udf(lambda v: (v + 1,), h, outputs=[tp.spec()], kind="host", stateful=True, name="seen")
            self.total = self.seen[i, 0:T].sum(0)

    def run(self, i: int, t: int, outputs: Any = None, config: tp.Config | None = None, **options: Any) -> Any:
        return self.ctx.run({self.I: i, self.T: t}, outputs or self.total, {"x": np.ones(t)}, config, **options)


def total(t: int) -> float:
    return float(sum(2 ** (k + 1) for k in range(t)))


@pytest.fixture(scope="module")
def growth() -> Growth:
    return Growth()


def test_running_again_compiles_nothing(growth: Growth, monkeypatch: pytest.MonkeyPatch) -> None:
    assert growth.run(2, 3).tolist() == [total(3)] * 2
    (first,) = growth.ctx._recent.programs
    program = first[1]
    compiles = program.compiles
    monkeypatch.setattr(compiler, "compile_context", None)
    with growth.ctx:
        growth.x * 3  # what the program does not need may be added
    assert growth.run(2, 3, seed=5).tolist() == [total(3)] * 2
    assert growth.run(2, 3, config=tp.Config(seed=7)).tolist() == [total(3)] * 2
    assert program.compiles == compiles > 0
    assert [kept for _, kept in growth.ctx._recent.programs] == [program]


def test_other_bounds_use_what_they_can(growth: Growth, caplog: pytest.LogCaptureFixture) -> None:
    growth.run(2, 3)
    with caplog.at_level(logging.INFO, "tempo"):
        assert growth.run(3, 3).tolist() == [total(3)] * 3
        assert growth.run(3, 3).tolist() == [total(3)] * 3
    program = growth.ctx._recent.programs[-1][1]
    count = len(program.plan().device_programs)
    assert 0 < program.compiles < count  # programs that depend on t alone are reused
    (record,) = (record for record in caplog.records if record.name == "tempo")
    text = record.getMessage()
    assert text.startswith("I: 2 -> 3: passes reused, scheduled anew in ")
    assert text.endswith(f"; {program.compiles} of {count} XLA programs recompiled")
    assert program.message == text


def test_other_bounds_of_an_input_that_a_launch_does_not_use() -> None:
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        x = tp.input("x", (3,), domain=(i,))
        h = tp.recurrence((3,), domain=(i,), name="h")
        h[i, i + 1 < I] = x[i + 1] * 0.5
        h[i] = x
        program = ctx.compile({I: 5}, outputs=h[tp.min(3, I - 1)], config=tp.Config(launch_seconds=0.0))
    for rows in (5, 6):
        values = np.arange(3.0 * rows, dtype="float32").reshape(rows, 3)
        np.testing.assert_array_equal(program.with_bounds({I: rows}).run({"x": values}), values[4] * np.float32(0.5))


def test_with_bounds(growth: Growth) -> None:
    program = growth.ctx.compile({growth.I: 1, growth.T: 2}, growth.total)
    other = program.with_bounds({growth.T: 4})
    assert {str(bound): number for bound, number in program.bounds.items()} == {"I": 1, "T": 2}
    assert {str(bound): number for bound, number in other.bounds.items()} == {"I": 1, "T": 4}
    assert other.message.startswith("T: 2 -> 4: ")
    assert other.run({"x": np.ones(4)}).tolist() == [total(4)]
    assert program.run({"x": np.ones(2)}).tolist() == [total(2)]
    assert other.with_bounds({growth.T: 4}) is other
    with pytest.raises(errors.InputError, match=r"has shape \(2,\)"):
        other.run({"x": np.ones(2)})
    with pytest.raises(errors.BoundsError, match="the bound T is 0"):
        program.with_bounds({growth.T: 0})


def test_bounds_are_checked_anew() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        program = ctx.compile({T: 4}, [x[3]], NUMPY)
    assert program.with_bounds({T: 5}).run({"x": np.arange(5.0)})[0] == 3
    with pytest.raises(errors.BoundsError, match=r"the bound T = 3 is too small: the program reads x\[3\]"):
        program.with_bounds({T: 3})
    assert program.run({"x": np.arange(4.0)})[0] == 3


def test_outputs_that_can_be_read_only_once() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        doubled = tp.input("x", domain=(t,)) * 2
    for _ in range(2):
        (result,) = ctx.run({T: 3}, (tensor for tensor in [doubled[2]]), {"x": np.arange(3.0)}, NUMPY)
        assert result == 4


def test_an_interpreted_program_has_nothing_to_compile() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        program = ctx.compile({T: 2}, [t * 1.0 + 0], NUMPY)
    assert program.with_bounds({T: 3}).message.endswith("interpreted, nothing to compile")


def test_what_changes_a_program_makes_another() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        h[t, t < 3] = x * 10
    fed = {"x": np.arange(3.0)}

    def run(outputs: Any, **options: Any) -> Any:
        return ctx.run({T: 3}, outputs, fed, tp.Config(backend="numpy", **options))

    assert run(h).tolist() == [0, 10, 20]
    assert len(ctx._recent.programs) == 1
    with ctx:
        h[t] = x  # one more branch, for larger bounds
    assert ctx.run({T: 4}, h, {"x": np.arange(4.0)}, NUMPY).tolist() == [0, 10, 20, 3]
    assert len(ctx._recent.programs) == 2
    assert [r.tolist() for r in run([h])] == [[0, 10, 20]]  # another form
    assert run(h[T - 1]).tolist() == run(h[T - 1]).tolist() == 20
    assert run(h[1]).tolist() == 10
    assert run(h, disable=("fuse",)).tolist() == [0, 10, 20]
    assert len(ctx._recent.programs) == 6
    for k in range(20):
        run(h + float(k))
    assert len(ctx._recent.programs) == compiler.KEPT


def test_a_repeated_call_is_recognised_by_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    with_outputs = compiler.with_outputs
    monkeypatch.setattr(compiler, "with_outputs", lambda *args: (built.append(args), with_outputs(*args))[1])
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        h[t, t < 3] = x * 10
    fed = {"x": np.arange(4.0)}

    def run(bound: int, outputs: Any, config: tp.Config = NUMPY) -> Any:
        built.clear()
        return ctx.run({T: bound}, outputs, {"x": fed["x"][:bound]}, config), len(built)

    (first, builds), (second, none) = run(3, {"h": h}), run(3, {"h": h})
    assert first["h"].tolist() == second["h"].tolist() == [0, 10, 20] and builds > 0 and none == 0
    for outputs in (h, [h], {"other": h}, {"h": x}):
        assert run(3, outputs)[1] > 0, outputs  # another form, or another tensor
    (result,), none = run(3, iter([h]))
    assert result.tolist() == [0, 10, 20] and none == 0  # the tensors of a list from before
    assert run(2, {"h": h})[1] > 0 and run(3, {"h": h}, tp.Config(backend="numpy", disable=("fuse",)))[1] > 0
    assert run(3, {"h": h})[1] == 0
    with ctx:
        h[t] = x  # one more branch, for larger bounds
    assert run(3, {"h": h})[1] > 0
    assert run(4, {"h": h})[0]["h"].tolist() == [0, 10, 20, 3]


def test_a_graph_does_not_grow_by_being_run() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
    before = len(ctx.graph)
    for _ in range(3):
        assert ctx.run({T: 2}, x[T - 1], {"x": np.arange(2.0)}, NUMPY) == 1
        ctx.compile({T: 2}, x[T - 1 - t], NUMPY)
    assert len(ctx.graph) == before


# -- what they say ----------------------------------------------------------------------------------------------------


def test_a_program_describes_itself(growth: Growth) -> None:
    program = growth.ctx.compile({growth.I: 2, growth.T: 3}, {"all": growth.seen, "total": growth.total})
    count = program.plan().compiles
    assert repr(program) == f"<Program I=2, T=3: x -> all, total; {count} XLA programs>"
    assert {name: str(result) for name, result in program.outputs.items()} == {
        "all": "float32[] over (i, t)", "total": "float32[] over (i)",
    }  # fmt: skip
    slow = growth.ctx.compile({growth.I: 2, growth.T: 3}, [growth.seen, growth.total, growth.x[0]], NUMPY)
    assert repr(slow) == "<Program I=2, T=3: x -> seen, 1, x; interpreted with numpy>"


def test_texts(growth: Growth) -> None:
    program = growth.ctx.compile({growth.I: 2, growth.T: 3}, growth.total, NUMPY)
    assert "for i in 0:2:" in program.text()
    assert program.text("sdg").startswith("steps i<I t<T\n")
    assert "Merge" in program.text("source")
    for kind in ("schedule", "memory", "plan"):
        assert program.text(kind)
    with pytest.raises(errors.TempoError, match="no text 'plna'") as raised:
        program.text("plna")
    assert raised.value.hint == "one of program, schedule, memory, plan, peak, sdg, source: program.text('plan')"


# -- what does not depend on bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"tile": {"t": 2}}, {"disable": PASSES}, {"disable": ("vectorize",)}], ids=str)
def test_a_program_for_other_bounds_is_the_one_that_compiling_gives(options: dict[str, Any]) -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", domain=(i, t))
        h = tp.recurrence((), domain=(i, t), name="h")
        h[i, 0] = x[i, 0]
        h[i, t + 1] = tp.tanh(h + x[i, t + 1])
        outputs = [h, h[i, 0 : t + 1].sum(0), x[i, t : tp.min(t + 2, T)].max(0), h[I - 1, T - 1], x[0:I, t].sum(0)]
    config = tp.Config(backend="numpy", **options)
    first = ctx.compile({I: 1, T: 1}, outputs, config)
    for sizes in ((2, 5), (3, 1), (1, 4)):
        bounds, fed = dict(zip((I, T), sizes, strict=True)), {"x": np.arange(sizes[0] * sizes[1]).reshape(sizes) / 10}
        other, fresh = first.with_bounds(bounds), ctx.compile(bounds, outputs, config)
        for kind in ("program", "plan", "schedule"):
            assert other.text(kind) == fresh.text(kind)
        assert_all_same(other.run(fed), fresh.run(fed), tolerance=0)
        assert_all_same(other.run(fed), evaluated(Case(ctx, bounds, outputs, [], fed)))


def test_a_program_compiled_again_after_questions_about_it_is_the_same() -> None:
    """isl rewrites the sets that it is asked about; a schedule of new sets does not depend on what was asked before."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", domain=(i, t))
        y = tp.clip(tp.norm(x[i, t:T] + 1, 0), -0.7, 0.8)
        chosen = tp.recurrence((), domain=(i, t), name="chosen")
        chosen[i, t, t >= i] = y
        chosen[i, t, (t < 1) | (t > 3)] = y
        chosen[i, t, (t + 1) % 4 == 0] = x
        chosen[i, t, t >= 1] = x
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = tp.ones(())
        h[t + 1] = h
        outputs = [tp.tanh(chosen * h).sum()[0:I, t].sum()]
    bounds, config = {I: 7, T: 4}, tp.Config(executor="interpreted")
    first = ctx.compile(bounds, outputs, config)
    text = first.text("program")
    first.cost()
    assert ctx.compile(bounds, outputs, config).text("program") == text


@pytest.mark.parametrize(("first", "then"), [(8, 4), (4, 8), (9, 12)])
def test_what_known_bounds_decide_is_decided_anew_for_others(first: int, then: int) -> None:
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        y = tp.where(T >= 8, x * 2, x * 3)
        program = context.compile({T: first}, [y[0:T]])
    for each, count in ((program, first), (program.with_bounds({T: then}), then)):
        values = np.arange(count, dtype="f4")
        np.testing.assert_array_equal(each.run({"x": values})[0], values * (2 if count >= 8 else 3))
