"""vectorize: a step becomes a dimension if no dependence forbids it, and if it is worth it."""

from __future__ import annotations

import pytest

from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Binary, Dot, Merge, Permute, Random, Reduce, Udf, Where
from tempo_core.passes.batch.vectorize import Vectorize
from tempo_core.passes.clean.simplify import Simplify
from tests.core.passes.support import Golden, after, check, ops_of, outputs
from tests.core.running import assert_all_same
from tests.graph_parser import parse

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(I, T, 2))() : float32[I, T, 2] over ()
%1 = Eval(value=i)() : int32[] over (i)
%2 = Eval(value=t)() : int32[] over (t)
%3 = Gather(axis=0)(%0, %1[i]) : float32[T, 2] over (i)
%4 x = Gather(axis=0)(%3[i], %2[t]) : float32[2] over (i, t)
"""


def domains(graph: Graph) -> dict[str, str]:
    return {node.name: str(node.domain) for node in graph if node.name}


ELEMENTWISE = """\
%5 y = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%6 total = Reduce(fn="sum", axes=(0,))(%5[i, 0:T]) : float32[2] over (i)
%7 = Output(position=0)(%6[0:I]) over ()
"""


def test_elementwise(golden: Golden):
    graph = check(golden, "vectorize", HEAD + ELEMENTWISE, Vectorize())
    assert set(domains(graph).values()) == {"()"}
    assert not ops_of(graph, Permute)  # values lie as inputs do


def test_a_step_can_be_left_out():
    assert domains(after(HEAD + ELEMENTWISE, Vectorize(but=("i",))))["y"] == "(i)"
    assert domains(after(HEAD + ELEMENTWISE, Vectorize(but=("i", "t"))))["y"] == "(i, t)"


LOOP = """\
%5 h = Merge(type=float32[2])(%4[i, t] if t == 0, %7[i, t - 1] if t >= 1) : float32[2] over (i, t)
%6 inside = Unary(fn="tanh")(%5[i, t]) : float32[2] over (i, t)
%7 next = Binary(fn="add")(%6[i, t], %4[i, min(t + 1, T - 1)]) : float32[2] over (i, t)
%8 after = Unary(fn="exp")(%5[i, t]) : float32[2] over (i, t)
%9 total = Reduce(fn="sum", axes=(0, 1))(%8[0:I, 0:T]) : float32[2] over ()
%10 = Output(position=0)(%9) over ()
"""


@pytest.mark.parametrize(("first", "y"), [("%5[i, 0]", "()"), ("%9", "(t)")])
def test_what_is_read_before_a_loop_too_leaves_it(first: str, y: str) -> None:
    """It would be a loop of its own, before the one that reads it. What only the loop reads stays there."""
    program = f"""\
%5 y = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%6 h = Merge(type=float32[2])({first} if t == 0, %7[i, t - 1] if t >= 1) : float32[2] over (i, t)
%7 next = Binary(fn="add")(%6[i, t], %5[i, t + 1]) : float32[2] over (i, t) where t + 2 <= T
%8 = Output(position=0)(%6[0:I, T - 1]) over ()
%9 start = Input(name="start", dtype="float32", shape=(2,))() : float32[2] over ()
"""
    assert domains(after(HEAD + program, Vectorize()))["y"] == y


def test_a_loop_stays_and_what_follows_it_does_not(golden: Golden):
    """The dependences decide which step is a loop. Here t is a loop, and i is not."""
    domains_after = domains(check(golden, "vectorize_loop", HEAD + LOOP, Vectorize()))
    assert domains_after["h"] == domains_after["inside"] == domains_after["next"] == "(t)"
    assert domains_after["after"] == domains_after["total"] == "()"


def test_no_step_is_special():
    """The same program with i as the loop."""
    turned = LOOP.replace("t == 0", "i == 0").replace("i, t - 1] if t >= 1", "i - 1, t] if i >= 1")
    domains_after = domains(after(HEAD + turned.replace("%4[i, min(t + 1, T - 1)]", "%4[min(i + 1, I - 1), t]"), Vectorize()))
    assert domains_after["h"] == domains_after["inside"] == domains_after["next"] == "(i)"
    assert domains_after["after"] == "()"


def test_both_steps_are_loops_where_a_dependence_moves_along_both():
    both = LOOP.replace("%7[i, t - 1] if t >= 1", "%7[i, t - 1] if i == 0, %7[i - 1, t] if t >= 1")
    domains_after = domains(after(HEAD + both, Vectorize()))
    assert domains_after["h"] == "(i, t)"
    assert domains_after["after"] == "()"


STENCIL = """\
%5 u = Merge(type=float32[2])(%4[i, t] if t == 0, %5[0, t - 1] if (i == 0) & (t >= 1), %8[i, t - 1] if t >= 1) : float32[2] over (i, t)
%6 left = Unary(fn="tanh")(%5[i - 1, t]) : float32[2] over (i, t) where i >= 1
%7 right = Unary(fn="exp")(%5[min(i + 1, I - 1), t]) : float32[2] over (i, t)
%8 next = Binary(fn="add")(%6[i, t], %7[i, t]) : float32[2] over (i, t) where i >= 1
%9 = Output(position=0)(%5[0:I, T - 1]) over ()
"""


def test_neighbours_at_an_earlier_point_of_another_step_are_slices(golden: Golden):
    """t carries every read of a neighbour along i. Borders are selections in the region where they apply."""
    graph = check(golden, "vectorize_stencil", HEAD + STENCIL, Vectorize(), Simplify())
    assert domains(graph)["u"] == domains(graph)["next"] == "(t)"


def test_a_condition_on_both_steps_at_once_is_a_mask():
    text = HEAD + STENCIL.replace("(i == 0) & (t >= 1)", "((i == 0) | (i == t)) & (t >= 1)")
    assert domains(after(text, Vectorize()))["u"] == "(t)"
    same(text, 4)


TRIANGLE = """\
%5 longer = Unary(fn="tanh")(%7[i, t - 1]) : float32[2] over (i, t) where CONDITION
%6 other = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%7 u = Merge(type=float32[2])(%5[i, t] if CONDITION, %6[i, t]) : float32[2] over (i, t)
%8 = Output(position=0)(%7[0:I, 0:T]) over ()
"""


@pytest.mark.parametrize("condition", ["t >= i + 1", "t >= i + 2", "(t >= i + 1) & (t <= 2)", "(t >= i + 1) | (t >= 3)"])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_box_reads_only_where_its_triangle_does(condition: str, steps: int) -> None:
    """What is left of `t > i` without i is `t >= 1`: there is a point before."""
    graph = same(HEAD + TRIANGLE.replace("CONDITION", condition), steps)
    assert domains(graph)["u"] == "(t)"
    assert "t >= " in domains(graph)["longer"]


ELSEWHERE = """\
%5 later = Unary(fn="tanh")(%7[i, t + 1]) : float32[2] over (i, t) where (t <= i - 1) & (t <= T - 2)
%6 other = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%7 u = Merge(type=float32[2])(%6[i, t] if (t >= i) | (t >= T - 1), %5[i, t]) : float32[2] over (i, t)
%8 = Output(position=0)(%7[0:I, 0:T]) over ()
"""


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_branch_of_all_other_points_reads_only_there(steps: int) -> None:
    """At the last t, all points have the other branch: nothing of the box reads the point after it."""
    graph = same(HEAD + ELSEWHERE, steps)
    assert domains(graph)["u"] == "(t)"


PREFIX = """\
%5 longest = Reduce(fn="max", axes=(0,))(%7[i, 0:t to T]) : float32[2] over (i, t)
%6 next = Unary(fn="tanh")(%5[i, t]) : float32[2] over (i, t)
%7 u = Merge(type=float32[2])(%4[i, t] if CONDITION, %6[i, t]) : float32[2] over (i, t)
%8 = Output(position=0)(%7[0:I, 0:T]) over ()
"""


@pytest.mark.parametrize("condition", ["i == 0", "t <= i"])
def test_a_recurrence_without_a_first_point_stays_one(condition: str) -> None:
    """It reads all earlier points, of which there are none at the first: its branches are masks alone, but a cycle needs a `Merge`."""
    graph = same(HEAD + PREFIX.replace("CONDITION", condition), 4)
    assert [str(n.domain) for n in graph if isinstance(n.op, Merge)] == ["(t)"]


def test_work_at_a_diagonal_stays_in_the_loop() -> None:
    """A box around it would have a product at each of its points. An elementwise operation beside others costs little."""
    diagonal = TRIANGLE.replace("CONDITION", "t == i + 1").replace("tanh", "exp")
    products = """\
%9 m = Input(name="m", dtype="float32", shape=(2, 400))() : float32[2, 400] over ()
%10 wide = Dot(left_contract=(0,), right_contract=(0,), left_batch=(), right_batch=())(%7[i, t - 1], %9) : float32[400] over (i, t) where t == i + 1
%11 back = Dot(left_contract=(0,), right_contract=(1,), left_batch=(), right_batch=())(%10[i, t], %9) : float32[2] over (i, t) where t == i + 1
"""
    assert domains(after(HEAD + diagonal, Vectorize()))["u"] == "(t)"
    many = HEAD + diagonal.replace("%5[i, t] if", "%11[i, t] if") + products
    assert domains(after(many, Vectorize()))["u"] == "(i, t)"


FED = """\
%5 h = Merge(type=float32[2])(%4[i, t] if t == 0, %7[i, t - 1] if t >= 1) : float32[2] over (i, t)
%6 needed = Unary(fn="tanh")(%5[i, t]) : float32[2] over (i, t)
%7 next = Binary(fn="add")(%6[i, t], %4[i, t]) : float32[2] over (i, t)
%8 shown = Unary(fn="exp")(%5[i, t]) : float32[2] over (i, t)
%9 free = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%10 = Output(position=0)(%8[0:I, 0:T]) over ()
%11 = Output(position=1)(%9[0:I, 0:T]) over ()
"""


def test_results_of_a_loop_are_made_as_it_goes():
    """Otherwise all their operands would be kept to the end. A value that does not depend on a loop is computed at once."""
    domains_after = domains(after(HEAD + FED, Vectorize(but=("i",))))
    assert domains_after["shown"] == "(i, t)"
    assert domains_after["free"] == "(i)"


MERGED = """\
%5 y = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%6 chosen = Merge(type=float32[2])(%5[i, t] if t == 0, %4[i, t - 1] if (t >= 1) & (t <= 3), %5[i, 0] if true) : float32[2] over (i, t)
%7 total = Reduce(fn="sum", axes=(0,))(%6[i, 0:T]) : float32[2] over (i)
%8 = Output(position=0)(%7[0:I]) over ()
"""


def test_branches_on_the_step_are_selected_elementwise(golden: Golden):
    text = (HEAD + MERGED).replace(" if true", "")
    graph = check(golden, "vectorize_merge", text, Vectorize(but=("i",)), Simplify())
    assert not ops_of(graph, Merge)
    assert len(ops_of(graph, Where)) == 2


def test_branches_on_another_step_stay_branches():
    text = (HEAD + MERGED).replace(" if true", "").replace("if t == 0", "if i == 0").replace("(t >= 1) & (t <= 3)", "i == 1")
    graph = after(text.replace("%4[i, t - 1]", "%4[i, t]"), Vectorize(but=("i",)))
    assert [str(e.condition) for node in graph if isinstance(node.op, Merge) for e in node.inputs] == ["i == 0", "i == 1", "true"]


def test_conditions_on_two_steps_are_masks():
    text = (HEAD + MERGED).replace(" if true", "").replace("if t == 0", "if t == i")
    assert domains(same(text, 3))["chosen"] == "()"


READS = {
    "mirrored": "T - t - 1",
    "shifted": "max(t - 1, 0)",
    "repeated": "(t//2)",
    "wrapped": "(t%3)",
    "constant": "T - 1",
}


@pytest.mark.parametrize("name", READS)
def test_points_that_move(golden: Golden, name: str):
    text = HEAD + ELEMENTWISE.replace("%5[i, 0:T]", "%8[i, 0:T]").replace(
        "%6 total", f'%8 moved = Binary(fn="mul")(%5[i, {READS[name]}], %5[i, t]) : float32[2] over (i, t)\n%6 total'
    )
    check(golden, f"vectorize_{name}", text, Vectorize(but=("i",)), Simplify())


RANGES = {
    "window": "max(t - 2, 0):t + 1 to min(3, T)",
    "block": "(t//2)*2:min((t//2)*2 + 2, T) to min(2, T)",
    "strided": "(t%2):t + 1:2 to (T + 1)//2",
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_that_move(golden: Golden, name: str):
    size = RANGES[name].split(" to ")[1]
    text = HEAD + ELEMENTWISE.replace("%5[i, 0:T]", "%9[i, 0:T]").replace(
        "%6 total",
        f'%8 part = Unary(fn="tanh")(%5[i, {RANGES[name]}]) : float32[{size}, 2] over (i, t)\n'
        '%9 sum = Reduce(fn="sum", axes=(0,))(%8[i, t]) : float32[2] over (i, t)\n%6 total',
    )
    check(golden, f"vectorize_{name}", text, Vectorize(but=("i",)), Simplify())


TWO_MOVING = """\
%5 y = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%6 square = Unary(fn="tanh")(%5[min(t, I - 1), max(t - 1, 0):t + 1 to min(2, T)]) : float32[min(2, T), 2] over (t)
%7 total = Reduce(fn="sum", axes=(0, 1))(%6[0:T]) : float32[2] over ()
%8 = Output(position=0)(%7) over ()
"""


def test_two_indices_that_move_together(golden: Golden):
    check(golden, "vectorize_two_moving", HEAD + TWO_MOVING, Vectorize(), Simplify())


def function(a, b):
    return a * b, (a - b).sum()


FUNCTIONS = """\
%5 w = Input(name="w", dtype="float32", shape=(2,))() : float32[2] over ()
%6 mapped = Udf(fn="function", types=(float32[2], float32[]))(%4[i, t], %5) : float32[2], float32[] over (i, t)
%7 hosted = Udf(fn="function", types=(float32[2], float32[]), kind="host")(%4[i, t], %5) : float32[2], float32[] over (i, t)
%8 counted = Udf(fn="function", types=(float32[2], float32[]), stateful=True)(%4[i, t], %5) : float32[2], float32[] over (i, t)
%9 empty = Udf(fn="function", types=(float32[2], float32[]))() : float32[2], float32[] over (t)
%10 a = Reduce(fn="sum", axes=(0, 1))(%6[0:I, 0:T]) : float32[2] over ()
%11 b = Reduce(fn="sum", axes=(0, 1))(%6[0:I, 0:T].1) : float32[] over ()
%12 c = Reduce(fn="sum", axes=(0, 1))(%7[0:I, 0:T].1) : float32[] over ()
%13 d = Reduce(fn="sum", axes=(0, 1))(%8[0:I, 0:T].1) : float32[] over ()
%14 e = Reduce(fn="sum", axes=(0,))(%9[0:T].1) : float32[] over ()
%15 = Output(position=0)(%10) over ()
%16 = Output(position=1)(%11) over ()
%17 = Output(position=2)(%12) over ()
%18 = Output(position=3)(%13) over ()
%19 = Output(position=4)(%14) over ()
"""


def test_functions_are_mapped_unless_they_run_on_the_host_or_have_a_state():
    graph = after(HEAD + FUNCTIONS, Vectorize(), functions={"function": function})
    domains_after = domains(graph)
    assert (domains_after["mapped"], domains_after["hosted"], domains_after["counted"], domains_after["empty"]) == (
        "()",
        "(i, t)",
        "(i, t)",
        "(t)",
    )
    (mapped,) = [op for op in ops_of(graph, Udf) if op.fn is not function]
    assert mapped.fn.in_axes == (0, None)
    assert mapped.fn.fn.in_axes == (0, None)


def test_random_numbers_are_always_drawn_at_once():
    """Random numbers are functions of their coordinates, so they can be vectorized even in a loop whose results stay in it."""
    text = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 drawn = Random(kind="normal", stream=1, shape=(2,))(%0[t]) : float32[2] over (t)
%2 total = Reduce(fn="sum", axes=(0,))(%1[0:T]) : float32[2] over ()
%3 = Output(position=0)(%2) over ()
"""
    graph = after(text, Vectorize())
    assert [str(n.outputs[0]) for n in graph if isinstance(n.op, Random)] == ["float32[T, 2]"]


GRADIENT = """\
%5 g = Input(name="g", dtype="float32", shape=(I, T, 3))() : float32[I, T, 3] over ()
%6 = Gather(axis=0)(%5, %1[i]) : float32[T, 3] over (i)
%7 = Gather(axis=0)(%6[i], %2[t]) : float32[3] over (i, t)
%8 product = Dot(left_contract=(), right_contract=())(%4[i, t], %7[i, t]) : float32[2, 3] over (i, t)
%9 total = Reduce(fn="sum", axes=(0, 1))(%8[0:I, 0:T]) : float32[2, 3] over ()
%10 = Output(position=0)(%9) over ()
"""


def test_a_sum_of_outer_products_is_one_product(golden: Golden):
    """The gradient of a weight over all points is a contraction over them."""
    graph = check(golden, "vectorize_gradient", HEAD + GRADIENT, Vectorize(), Simplify())
    assert len(ops_of(graph, Dot)) == 1
    assert not ops_of(graph, Reduce, Binary)


@pytest.mark.parametrize(
    ("other", "reader", "is_at_once"),
    [
        ("%0", "Permute(order=(1, 0))(%4[0:T]) : float32[3, T]", True),
        ("%2[t]", "Permute(order=(1, 0))(%4[0:T]) : float32[3, T]", False),
        ("%2[t]", 'Reduce(fn="sum", axes=(0,))(%4[0:T]) : float32[3]', True),
    ],
)
def test_products_of_what_a_loop_makes_are_at_once_where_they_become_larger(other: str, reader: str, is_at_once: bool):
    """A product with one matrix for all points is faster at once. A product of two values of each point is not: it would keep both.

    A sum of such products over all points is one product.
    """
    text = f"""\
steps t<T
%0 w = Input(name="w", dtype="float32", shape=(3, 3))() : float32[3, 3] over ()
%1 h = Merge(type=float32[3, 3])(%0 if t == 0, %2[t - 1] if t >= 1) : float32[3, 3] over (t)
%2 = Unary(fn="tanh")(%1[t]) : float32[3, 3] over (t)
%4 = Dot(left_contract=(0,), right_contract=(1,), left_batch=(1,), right_batch=(0,))(%1[t], {other}) : float32[3] over (t)
%5 = {reader} over ()
%6 = Output(position=0)(%5) over ()
"""
    (dot,) = [node for node in after(text, Vectorize()) if isinstance(node.op, Dot)]
    assert ("t" not in map(str, dot.domain.steps)) == is_at_once


def borders(condition: str, value: str = "%5[i, t]", otherwise: str = "%6[i, t]") -> str:
    return f"""\
%5 y = Unary(fn="exp")(%4[i, t]) : float32[2] over (i, t)
%6 zero = Constant(float32[2], 0.0)() : float32[2] over (i, t)
%7 chosen = Merge(type=float32[2])({value} if {condition}, {otherwise}) : float32[2] over (i, t)
%8 total = Reduce(fn="sum", axes=(0,))(%7[i, 0:T]) : float32[2] over (i)
%9 = Output(position=0)(%8[0:I]) over ()
"""


@pytest.mark.parametrize("condition", ["t >= 1", "t == 0", "T >= t + 2", "(t >= 1) & (T >= t + 2)", "t != 0", "t >= 4", "t == 2"])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_zeros_at_a_border_are_padding(condition: str, steps: int) -> None:
    text = (HEAD + borders(condition)).replace("Constant(float32[2], 0.0)()", "Broadcast(shape=(2,), axes=())(%10)")
    text = text.replace("%5 y", "%10 = Constant(float32[], 0.0)() : float32[] over ()\n%5 y")
    assert not ops_of(same(text, steps), Where)
    assert ops_of(after(text, Vectorize(masked=("t",))), Where), "tiles need a mask"
    swapped = text.replace("%5[i, t] if", "%6[i, t] if").replace(", %6[i, t])", ", %5[i, t])")
    is_left = condition in ("t >= 1", "t == 0", "T >= t + 2", "t != 0", "t >= 4")
    assert bool(ops_of(same(swapped, steps), Where)) != is_left


def same(text: str, steps: int) -> Graph:
    """The vectorized graph, which has the values of the graph of `text`."""
    before, graph, bounds = parse(text), after(text, Vectorize()), {"I": 2, "T": steps}
    assert_all_same(outputs(graph, bounds), outputs(before, bounds))
    return graph


@pytest.mark.parametrize("condition", ["t % 2 == 0", "(t == 0) | (t == 2)", "2*t >= 3", "t != 2"])
def test_other_branches_are_selected(condition: str) -> None:
    text = (HEAD + borders(condition)).replace("Constant(float32[2], 0.0)()", "Broadcast(shape=(2,), axes=())(%10)")
    text = text.replace("%5 y", "%10 = Constant(float32[], 0.0)() : float32[] over ()\n%5 y")
    assert ops_of(after(text, Vectorize()), Where)
