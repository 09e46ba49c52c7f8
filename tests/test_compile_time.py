"""The work of the compiler, counted: what is computed once stays so, and no count grows faster than the program. No clock."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from benchmarks import compile_programs as programs
from benchmarks.compile_time import empty_caches
from benchmarks.ledger.programs import PROGRAMS
from tempo_core import compiler
from tempo_core.errors import TempoError
from tempo_core.frontend.autodiff import backward as autodiff
from tempo_core.ir import dependence, ops, verify
from tempo_core.ir.ranges import elements
from tempo_core.passes.batch import regions
from tempo_core.passes.keep import fuse, needed
from tempo_core.schedule import polyhedral, storage
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl import sets
from tests.cases import slow


class Counter:
    """Counts the calls of a function of a module or class, for which it stands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str):
        self.calls = 0
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    def of(self, run: Callable[[], object]) -> int:
        """The calls during a run."""
        before = self.calls
        run()
        return self.calls - before


def compiled(example: programs.Traced) -> tp.Program[Any]:
    return example.context.compile(example.bounds, example.outputs)


# -- shared analyses --------------------------------------------------------------------------------------------------


def test_nests_of_ppo_share_their_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """55 nests are asked for. Before they shared anything, 24 took 198 searches of strongly connected components, in graphs of 700 nodes."""
    asked = Counter(monkeypatch, dependence, "_dependences")
    searches = Counter(monkeypatch, dependence, "strongly_connected")
    whole = Counter(monkeypatch, dependence, "_Dependences")
    PROGRAMS["ppo functional"]()
    assert asked.calls <= 60
    assert 0 < whole.calls <= asked.calls / 4
    assert 0 < searches.calls <= 3 * asked.calls


def test_a_nest_is_kept_until_a_node_changes() -> None:
    example = programs.alternating(2, gradient=False)
    graph = example.context.graph
    nest = dependence.loop_nest(graph, graph.order)
    assert dependence.loop_nest(graph.copy(), list(graph.order)) is nest
    changed = graph.copy()
    merge = next(node for node in graph if isinstance(node.op, ops.Merge))
    start = merge.inputs[0]
    changed.put(replace(merge, inputs=(start,)))
    assert len(dependence.loop_nest(changed, graph.order).vertices) == len(nest.vertices) - len(merge.inputs) + 1
    assert len(dependence.loop_nest(graph, graph.order).vertices) == len(nest.vertices)


@pytest.mark.slow
def test_equal_conditions_are_cut_into_regions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parameters of an optimizer have branches under the same conditions."""

    def steps_of_adam(parameters: int) -> Callable[[], object]:
        return lambda: compiled(adam(parameters))

    empty_caches()
    applying = Counter(monkeypatch, regions, "_applying")
    few = applying.of(steps_of_adam(2))
    empty_caches()
    assert 0 < applying.of(steps_of_adam(6)) == few


def test_values_that_are_used_alike_are_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = Counter(monkeypatch, storage._Folding, "_slots")
    few = folded.of(lambda: compiled(adam(2)))
    assert 0 < folded.of(lambda: compiled(adam(6))) == few


def test_points_that_are_read_alike_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    empty_caches()
    computed = Counter(monkeypatch, needed, "_narrowed")
    few = computed.of(lambda: compiled(adam(2)))
    empty_caches()
    assert 0 < computed.of(lambda: compiled(adam(6))) <= few + 2


def adam(parameters: int) -> programs.Traced:
    """Some parameters that learn in a loop over epochs inside a loop over iterations."""
    ctx = tp.Context("i", "e")
    with ctx as ((i, I), (e, E)):
        x = tp.input("x", (4,), domain=(i, e))
        weights = []
        for k in range(parameters):
            w = tp.recurrence((4,), domain=(i, e), name=f"w{k}")
            w[0, 0] = tp.input(f"start{k}", (4,))
            w[i, 0] = w[i - 1, E - 1] * 0.5
            w[i, e] = w[i, e - 1] - 0.1 * tp.tanh(w[i, e - 1] * x)
            weights.append(w)
        return programs.Traced(ctx, {I: 3, E: 4}, [w[I - 1, E - 1] for w in weights])


@pytest.mark.parametrize("name", [pytest.param("ppo functional", marks=pytest.mark.slow), "rnn gradient", "llama 1 row"])
def test_sharing_changes_no_storage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled = PROGRAMS[name]().scheduled
    fresh = itertools.count()
    monkeypatch.setattr(storage._Folding, "_pattern", lambda self, node_id, reads: next(fresh))
    assert storage.fold(scheduled.schedule, scheduled.bounds) == scheduled.storage


# -- growth -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("owner", "name"), [(fuse, "_joins"), (fuse.Groups, "of"), (verify._Checks, "check_types")])
def test_layers_cost_in_proportion(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the layers: about twice the calls."""
    counter = Counter(monkeypatch, owner, name)
    few, many = (counter.of(lambda layers=layers: compiled(programs.stacked(layers))) for layers in (4, 8))  # type: ignore[misc]
    assert 0 < many <= 2.4 * few


def test_ranges_are_searched_in_the_layer_that_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dimension of another size than all ranges is not followed back through all layers. In those that are, paths stay short."""
    steps = Counter(monkeypatch, elements, "source_of")
    few, many = (steps.of(lambda layers=layers: compiled(programs.stacked(layers))) for layers in (4, 8))  # type: ignore[misc]
    assert 0 < many <= 2.2 * few


def test_cycles_are_searched_once_for_all_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Counter(monkeypatch, autodiff, "strongly_connected")
    assert [searches.of(lambda layers=layers: programs.stacked(layers)) for layers in (1, 6)] == [1, 1]  # type: ignore[misc]


def test_layers_alike_ask_isl_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces of isl: each set or relation that is built needs one. Layers alike need none of their own."""
    spaces = Counter(monkeypatch, sets, "Frame")

    def frames(layers: int) -> int:
        empty_caches()
        return spaces.of(lambda: compiled(programs.stacked(layers)))

    few, many = frames(2), frames(6)
    assert few > 0
    assert many <= few + 4 * 12


def test_masks_of_equal_operands_are_built_once() -> None:
    iotas = []
    for layers in (1, 4):
        graphs: dict[str, Any] = {}
        example = programs.stacked(layers, gradient=False)
        passes = compiler.pipeline.pipeline()
        graph = compiler.with_outputs(example.context, example.outputs)
        compiler.pipeline.run(graph, passes, lambda each, after, _, graphs=graphs: graphs.setdefault(each.name, after))
        iotas.append(sum(isinstance(node.op, ops.Iota) for node in graphs["pad"]))
    assert 0 < iotas[0] == iotas[1]


# -- expressions ------------------------------------------------------------------------------------------------------


def test_equal_sums_are_one_object() -> None:
    t, T = Symbol("t", "T").expr, Symbol("T").expr
    assert (t + 1) is (t + 1) and (T - t) is (T - t) and (2 * t) is (2 * t) and -t is -t


def test_different_expressions_have_different_hashes() -> None:
    """Python's hashes of -1 and -2 are the same."""
    i, t = Symbol("i", "I").expr, Symbol("t", "T").expr
    each = [a * i + b * t + c for a, b, c in itertools.product(range(-3, 4), repeat=3)]
    assert len({hash(expr) for expr in each}) == len(each) == len(set(each))


def test_rows_that_agree() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        rows = [tuple(None if n == 3 else int(n) for n in row) for row in random.integers(0, 4, (random.integers(0, 5), 3))]
        expected = any(
            all(a is None or b is None or a == b for a, b in zip(x, y, strict=True)) for x, y in itertools.combinations(rows, 2)
        )
        assert polyhedral._some_agree(rows, 0) == expected


# -- checks and the collector -----------------------------------------------------------------------------------------


def test_a_graph_that_stays_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = programs.alternating(2, gradient=False).context.graph
    verified: verify.Verified = {}
    checks, cycles = Counter(monkeypatch, verify, "_Checks"), Counter(monkeypatch, verify, "_check_cycles")
    verify.verify(graph, verified=verified)
    verify.verify(graph.copy(), verified=verified)
    assert checks.calls == len(graph) and cycles.calls == 1


def test_the_collector_rests_while_programs_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    original = compiler.check_program

    def noted(*args: Any) -> None:
        states.append(gc.isenabled())
        original(*args)

    monkeypatch.setattr(compiler, "check_program", noted)
    assert gc.isenabled()
    compiled(programs.alternating(1, gradient=False))
    assert states == [False] and gc.isenabled()
    example = programs.alternating(1, gradient=False)
    with pytest.raises(TempoError):
        example.context.compile({}, example.outputs)
    assert gc.isenabled()
    gc.disable()
    try:
        compiled(example)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(("name", "most"), [slow(("mixed", 160)), ("spans", 190), slow(("diagonals", 160))])
def test_gradients_of_branches_stay_in_few_pieces(name: str, most: int) -> None:
    """Eight branches under conditions with `|` and `~`. Domains with such conditions once made 980 statements of the third."""
    program = compiled(programs.branches(name, 8))
    lines = {line.strip() for line in program.text("program").splitlines()}
    assert 0 < sum(bool(line) and not line.endswith(":") for line in lines) <= most
