"""split: what is no recurrence before a place of a step is computed there for all points at once."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Merge
from tempo_core.passes.batch.split import Split
from tempo_core.schedule import Loop, walk
from tests.cases import fast, first
from tests.core.passes.support import Golden, after, check
from tests.core.running import assert_all_same

HEAD = """\
steps p<P t<T
%0 x = Input(name="x", dtype="float32", shape=(P, 2))() : float32[P, 2] over ()
%1 w = Input(name="w", dtype="float32", shape=(2, 2))() : float32[2, 2] over ()
%2 = Eval(value=t)() : int32[] over (t)
%3 given = Gather(axis=0)(%0, %2[t]) : float32[2] over (t)
"""

DECODER = """\
%4 token = Merge(type=float32[2])(%3[t] if t <= {place} - 1, %8[t - 1] if t >= {place}) : float32[2] over (t)
%5 keys = Dot(left_contract=(0,), right_contract=(0,))(%4[t], %1) : float32[2] over (t)
%6 = Reduce(fn="sum", axes=(0,))(%5[0:t + 1]) : float32[2] over (t)
%7 = Unary(fn="tanh")(%6[t]) : float32[2] over (t)
%8 next = Binary(fn="add")(%7[t], %4[t]) : float32[2] over (t)
%9 = Output(position=0)({result}) over ()
"""


def program(place: str = "P", result: str = "%4[0:T]") -> str:
    return HEAD + DECODER.format(place=place, result=result)


def is_split(graph: Graph) -> bool:
    return any(step.name.startswith("t_first") for step in graph.order)


def test_what_is_before_the_place_gets_a_step_of_its_own(golden: Golden):
    assert is_split(check(golden, "split", program(), Split(), bounds={"P": 3, "T": 5}))


@pytest.mark.parametrize(("P", "T"), [(1, 1), (1, 5), (5, 5), (4, 2), (3, 7)])
def test_values_do_not_depend_on_where_the_place_is(P: int, T: int, golden: Golden):
    check(golden, "split", program(), Split(), bounds={"P": P, "T": T})


def test_only_the_last_point_before_the_place_is_computed_alone():
    graph = after(program(), Split())
    alone = [node for node in graph if node.name == "next" and not node.domain.steps]
    assert len(alone) == 1, "the following token is chosen once before the place"


def test_a_number_is_a_place_if_enough_points_are_before_it():
    assert is_split(after(program("8"), Split()))
    assert not is_split(after(program("7"), Split()))


def test_a_step_that_stays_a_loop_is_not_split():
    assert not is_split(after(program(), Split(but=("t",))))


def test_a_recurrence_before_the_place_is_not_split():
    text = program().replace("%8[t - 1] if t >= P)", "%8[t - 1] if t >= P)").replace("(%4[t], %1)", "(%10[t], %1)")
    text += "%10 h = Merge(type=float32[2])(%4[t] if t == 0, %8[t - 1] if t >= 1) : float32[2] over (t)\n"
    assert not is_split(after(text, Split()))


def test_what_reads_points_after_the_place_is_not_split():
    text = program().replace("(%5[0:t + 1])", "(%3[t:min(t + 2, T)])").replace("(%4[t], %1)", "(%6[t], %1)")
    text = text.replace("(%7[t], %4[t])", "(%5[t], %4[min(t + 1, T - 1)])")
    assert not is_split(after(text, Split()))


def test_without_products_a_loop_is_not_split():
    text = program().replace("Dot(left_contract=(0,), right_contract=(0,))(%4[t], %1)", 'Unary(fn="exp")(%4[t])')
    assert not is_split(after(text, Split()))


def decoder(
    pattern: tp.nn.Pattern, ends: bool = False, forced: int | None = None
) -> tuple[tp.Context, dict[str, tp.Expr], tp.Tensor]:
    """A model of one attention layer that goes on after a prompt, and ends where its token is large, if it is to.

    An input may be added to what is read at its own point, and to what is chosen, at a number of points ahead.
    """
    ctx = tp.Context("p", "t")
    with ctx as ((p, P), (t, T)):
        prompt, w = tp.input("prompt", (4,), domain=(p,)), tp.input("w", (4, 4))
        token = tp.recurrence((4,), domain=(t,), name="token")
        given = None if forced is None else tp.input("given", (4,), domain=(t,)) * 2.0
        key, value = (token if given is None else token + given) @ w, tp.tanh(token) @ w
        (span,) = pattern.slices(t, T)
        weights = tp.softmax((key[span] * token).sum(-1), axis=0)
        chosen = tp.tanh((weights.reshape(-1, 1) * value[span]).sum(0) @ w)
        if given is not None:
            chosen = chosen + given[t + forced]
        token[t < P] = prompt[t]
        token[t] = chosen[t - 1]
        if ends:
            ctx.ends(t, when=tp.abs(token).sum() >= tp.input("most", ()))
    return ctx, {"P": P, "T": T}, token


def fed(P: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(P)
    return {"prompt": generator.normal(size=(P, 4)).astype("float32"), "w": generator.normal(size=(4, 4)).astype("float32")}


@pytest.mark.parametrize(
    "pattern", first(2, [tp.nn.causal, tp.nn.window(3), tp.nn.block(4), tp.nn.dilated(2)]), ids=lambda p: p.name
)
def test_prefill_and_decoding_are_one_program(pattern: tp.nn.Pattern):
    ctx, names, token = decoder(pattern)
    bounds = {names["P"]: 9, names["T"]: 12}
    split = ctx.compile(bounds, [token])
    assert is_split(split.graph)
    loops = [item for item in walk(split.scheduled.root) if isinstance(item, Loop)]
    assert {str(loop.start) for loop in loops if loop.counter.name == "t"} >= {"9"}, (
        "the model runs in a loop after the prompt only"
    )
    whole = ctx.compile(bounds, [token], tp.Config(disable=("split",)))
    assert_all_same(split.run(fed(9)), whole.run(fed(9)), 1e-5)


@pytest.mark.slow
def test_a_prompt_whose_length_a_run_chooses():
    ctx, names, token = decoder(tp.nn.causal)
    program = ctx.compile({names["P"]: tp.upto(8), names["T"]: tp.upto(12)}, [token])
    assert is_split(program.graph)
    for P, T in ((1, 4), (8, 12), (3, 3), (5, 2)):
        known = ctx.compile({names["P"]: P, names["T"]: T}, [token], tp.Config(disable=("split",)))
        assert_all_same(program.run(fed(P), bounds={names["T"]: T}), known.run(fed(P)), 1e-5)
    assert program.compiles == 1


def test_the_reason_is_explained():
    ctx, names, token = decoder(tp.nn.causal)
    assert "computed apart where `T_FIRST >= t + 1`" in str(ctx.compile({names["P"]: 9, names["T"]: 12}, [token]).explain())


@pytest.mark.parametrize("chosen", fast([False, True], True), ids=["known", "chosen by the run"])
def test_a_step_that_ends_early_is_split_too(chosen: bool):
    ctx, names, token = decoder(tp.nn.causal, ends=True)
    numbers = {names["P"]: 9, names["T"]: 20}
    program = ctx.compile({bound: tp.upto(n) if chosen else n for bound, n in numbers.items()}, [token])
    assert is_split(program.graph)
    dots = [node for node in program.graph if node.name == "key" and "t" in {step.name for step in node.domain.steps}]
    assert all("t >= " in str(node.domain.condition) or isinstance(node.op, Merge) for node in dots), (
        "keys of the prompt are no loop"
    )
    whole = ctx.compile(numbers, [token], tp.Config(disable=("split",)))
    lengths = set()
    for most in (0.0, 2.5, 4.0, 100.0):
        results = [np.asarray(each.run({**fed(9), "most": np.float32(most)})[0]) for each in (program, whole)]
        assert_all_same([results[0]], [results[1]], 1e-5)
        lengths.add(len(results[0]))
    assert 1 in lengths and 20 in lengths and len(lengths) > 2, "the step ends before and after the place"


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("chosen", fast([False, True], True), ids=["known", "chosen by the run"])
def test_what_is_read_ahead_of_the_prompt_where_a_step_ends_early(chosen: bool, ahead: int):
    """If the last point of the prompt reads what is computed for the next one, which may not be there, the step stays whole."""
    ctx, names, token = decoder(tp.nn.causal, ends=True, forced=ahead)
    numbers = {names["P"]: 5, names["T"]: 9}
    program = ctx.compile({bound: tp.upto(n) if chosen else n for bound, n in numbers.items()}, [token])
    assert is_split(program.graph) == (ahead == 0)
    given = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
    for P in (5, 2) if chosen else (5,):
        whole = ctx.compile({**numbers, names["P"]: P}, [token], tp.Config(disable=("split",)))
        for most in (4.0, 100.0):
            inputs = {**fed(P), "given": given, "most": np.float32(most)}
            assert_all_same(program.run(inputs, bounds={names["T"]: 9}), whole.run(inputs), 1e-5)
