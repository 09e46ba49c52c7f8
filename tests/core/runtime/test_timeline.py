"""The profiler's timeline: nested operations, several threads, marks of the host, and the rest. Nothing is counted twice or lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tempo_core.backends.scopes import Scope, Scopes, naming, program_name
from tempo_core.report.programs.hlo import HloText
from tempo_core.report.programs.timeline import Timeline, _fill


@dataclass
class Event:
    name: str
    start_ns: float
    duration_ns: float
    stats: tuple[tuple[str, Any], ...] = ()


@dataclass
class Line:
    name: str
    events: list[Event]


@dataclass
class Plane:
    name: str
    lines: list[Line] = field(default_factory=list)


def op(name: str, start: float, end: float, module: str = "m") -> Event:
    return Event(name, start, end - start, (("hlo_op", name), ("hlo_module", module)))


def mark(name: str, start: float, end: float) -> Event:
    return Event(name, start, end - start)


def filled(*lines: list[Event], device: tuple[Line, ...] = ()) -> Timeline:
    timeline = Timeline()
    host = Plane("/host:CPU", [Line("thread", events) for events in lines])
    _fill(timeline, [host, Plane("/device:GPU:0", list(device))] if device else [host])
    sums = sum(timeline.operations.values()) + sum(timeline.marks.values()) + timeline.idle
    assert sums == pytest.approx(timeline.total)
    return timeline


def test_an_operation_has_the_time_that_those_inside_it_leave() -> None:
    timeline = filled(
        [mark("tempo run", 0, 100)], [op("while", 10, 60), op("dot", 20, 30), op("dot", 40, 50), op("copy", 50, 55)]
    )
    assert timeline.operations == {("m", "while"): 25, ("m", "dot"): 20, ("m", "copy"): 5}
    assert timeline.idle == 50


def test_operations_at_the_same_time_share_it() -> None:
    timeline = filled([mark("tempo run", 0, 100)], [op("a", 0, 40)], [op("b", 20, 60)], [op("b", 20, 40)])
    assert timeline.operations[("m", "a")] == pytest.approx(20 + 20 / 3)
    assert timeline.operations[("m", "b")] == pytest.approx(2 * 20 / 3 + 20)


def test_a_launch_has_the_time_in_which_nothing_works() -> None:
    marks = [mark("tempo run", 0, 100), mark("tempo launch 3", 10, 50), mark("tempo call 7", 60, 70)]
    timeline = filled(marks, [op("a", 20, 40), op("a", 65, 75)])
    assert timeline.marks == {"tempo launch 3": 20, "tempo call 7": 7.5}
    assert timeline.operations == {("m", "a"): 20 + 2.5 + 5}
    assert timeline.counts == {"tempo launch 3": 1, "tempo call 7": 1}


def test_what_is_outside_of_the_run_does_not_count() -> None:
    timeline = filled([mark("tempo run", 10, 20)], [op("a", 0, 12), op("b", 18, 30), op("c", 40, 50), mark("end: a", 12, 13)])
    assert timeline.operations == {("m", "a"): 2, ("m", "b"): 2}
    assert timeline.total == 10


def test_an_accelerator_has_streams() -> None:
    kernel = Event("gemm", 10, 5, (("hlo_op", "dot.1"), ("hlo_module", "jit_m")))
    streams = (Line("Stream #13(Compute)", [kernel, Event("MemcpyD2H", 20, 5)]), Line("XLA Ops", [op("dot.1", 10, 15, "jit_m")]))
    timeline = filled([mark("tempo run", 0, 100)], device=streams)
    assert timeline.operations == {("jit_m", "dot.1"): 5, ("", "MemcpyD2H"): 5}


# -- the text of a program --------------------------------------------------------------------------------------------

TEXT = """HloModule jit_m

%fused (p: f32[8,4], q: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %q = f32[8,4]{1,0} parameter(1)
  %sin = f32[8,4]{1,0} sine(%p), metadata={op_name="jit(m)/tempo_l0/while/body/tempo_s5/tempo_i2/sin"}
  %c = f32[] constant(2), metadata={op_name="jit(m)/tempo_l0/while/body/tempo_s9/c"}
  ROOT %cos = f32[8,4]{1,0} cosine(%sin), metadata={op_name="jit(m)/tempo_l0/while/body/tempo_s6b1/cos"}
}

%body (t: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %t = (s32[], f32[8,4]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,4]{1,0} get-tuple-element(%t), index=1
  %copy.1 = f32[8,4]{1,0} copy(%x)
  %fusion.1 = f32[8,4]{1,0} fusion(%copy.1, %x), kind=kLoop, calls=%fused, metadata={op_name="jit(m)/tempo_l0/while/body/tempo_s6b1/cos"}
  ROOT %out = (s32[], f32[8,4]) tuple(%i, %fusion.1)
}

%cond (t.1: (s32[], f32[8,4])) -> pred[] {
  %t.1 = (s32[], f32[8,4]) parameter(0)
  ROOT %lt = pred[] constant(true)
}

ENTRY %main (a: f32[8,16], b: f32[16,4]) -> (s32[], f32[8,4]) {
  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[16,4]{1,0} parameter(1)
  %dot.1 = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, metadata={op_name="jit(m)/tempo_s1/dot_general"}
  %zero = s32[] constant(0)
  %tuple.1 = (s32[], f32[8,4]) tuple(%zero, %dot.1)
  ROOT %while.1 = (s32[], /*index=1*/f32[8,4]{1,0}) while(%tuple.1), condition=%cond, body=%body, METADATA
}
""".replace("METADATA", 'metadata={op_name="jit(m)/tempo_l0/while"}, backend_config={"known_trip_count":{"n":"3"}}')


def test_a_kernel_is_divided_among_its_statements() -> None:
    text = HloText(TEXT)
    shares = text.shares("fusion.1", {"fusion.1"})
    assert shares == {Scope((0,), (5, None), 2): 0.5, Scope((0,), (6, 1)): 0.5}
    assert text.shares("dot.1", set()) == {Scope((), (1, None)): 1.0}


def test_a_loop_has_its_own_time_if_its_operations_are_measured() -> None:
    text = HloText(TEXT)
    assert text.shares("while.1", {"while.1", "fusion.1"}) == {Scope((0,)): 1.0}
    assert set(text.shares("while.1", {"while.1"})) == {Scope((0,), (5, None), 2), Scope((0,), (6, 1))}


def test_an_operation_without_a_name_belongs_to_its_loop() -> None:
    text = HloText(TEXT)
    assert text.shares("copy.1", set()) == {Scope((0,)): 1.0}
    assert text.shares("unknown", set()) == {Scope(): 1.0}


def test_the_work_of_a_product_is_the_number_of_its_pairs() -> None:
    text = HloText(TEXT)
    assert text.instructions["dot.1"].work == 8 * 16 * 4
    assert text.instructions["while.1"].trips == 3


def test_names_are_read_back() -> None:
    assert Scope.of("jit(m)/tempo_l2/while/body/tempo_l0/while/body/tempo_s7b3/tempo_i11/mul") == Scope((2, 0), (7, 3), 11)
    assert Scope.of("jit(m)/while/body/mul") is None
    with naming("abc") as scopes:
        assert program_name(2) == "tempo_abc_2"
        assert [scopes.number(text) for text in ("for t", "for i", "for t")] == [0, 1, 0]
    assert program_name(2) == "program"
    assert Scopes().loops == []
