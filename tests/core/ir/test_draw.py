"""Pictures of graphs: every node and read is in them, and nothing overlaps."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tempo_core.errors import ConfigError
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Merge
from tempo_core.report.graphs.draw import draw, layout, to_dot, to_svg
from tempo_core.report.graphs.picture import boxes
from tests.core.ir.strategies import graphs
from tests.graph_parser import parse

COUNTER = """\
steps t<T
%0 start = Constant(float32[], 0.0)() : float32[] over ()
%1 step = Constant(float32[], 1.5)() : float32[] over ()
%2 a "counter" = Merge(type=float32[])(%0 if t == 0, %3[t - 1] if t >= 1) : float32[] over (t) @ "a<b>.py:1"
%3 = Binary(fn="add")(%2[t], %1) : float32[] over (t)
%4 = Output(position=0)(%3[0:T]) over ()
""".replace('a "counter"', '"a \\"counter\\""')


def test_dot_holds_every_node_and_read(golden):
    golden("ir/counter.dot", to_dot(boxes(parse(COUNTER))))


def test_svg_holds_every_node_and_read():
    picture = ElementTree.fromstring(to_svg(boxes(parse(COUNTER))))
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"%0 start", '%2 a "counter"', "[t - 1] if t >= 1", "[0:T]", "over (t)", 'Binary(fn="add")'} <= set(texts)
    arrows = [element for element in picture.iter() if element.get("marker-end")]
    assert len(arrows) == 5
    assert sum(element.get("stroke-dasharray") is not None for element in arrows) == 1  # the read that closes the cycle
    assert [element.text for element in picture.iter() if element.tag.endswith("title")].count("a<b>.py:1") == 1


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graphs())
def test_boxes_do_not_overlap_and_reads_run_down(graph: Graph):
    places = layout(boxes(graph))
    assert set(places) == set(graph.nodes)
    for (x0, y0, w0, h0), (x1, y1, w1, h1) in combinations(places.values(), 2):
        assert abs(x0 - x1) >= (w0 + w1) / 2 or abs(y0 - y1) >= (h0 + h1) / 2
    for node in graph:
        for edge in node.inputs:
            assert places[edge.source][1] < places[node.id][1] or isinstance(node.op, Merge)
    ElementTree.fromstring(to_svg(boxes(graph)))


def test_files_by_their_ending(tmp_path: Path):
    graph = parse(COUNTER)
    draw(graph, tmp_path / "graph.svg")
    draw(graph, str(tmp_path / "graph.dot"))
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == to_svg(boxes(graph))
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8") == to_dot(boxes(graph))
    with pytest.raises(ConfigError, match=r"cannot draw the graph as graph\.png: only \.svg or \.dot is written"):
        draw(graph, tmp_path / "graph.png")


@pytest.mark.parametrize("kind", ["svg", "dot"])
def test_a_picture_into_nowhere(kind: str, tmp_path: Path):
    (tmp_path / f"held.{kind}").mkdir()
    for name, why in (
        ("none/graph", f"there is no directory {tmp_path / 'none'}"),
        ("held", "cannot be written: there is something that is no regular file"),
    ):
        with pytest.raises(ConfigError, match=why):
            draw(parse(COUNTER), tmp_path / f"{name}.{kind}")


def test_an_empty_graph_has_a_picture():
    assert ElementTree.fromstring(to_svg(boxes(Graph(())))).tag.endswith("svg")
