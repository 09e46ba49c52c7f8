"""The rules for every graph between two passes: a structural check whose errors name the node and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tempo_core.errors import TempoError
from tempo_core.ir.dependence import same_objects
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.graph_text import edge_text
from tempo_core.ir.ops import Dataflow, Dataflowed, Input, Merge, Output
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, step_order
from tempo_core.symbolic.expr import Expr, Symbol


class InvalidGraphError(TempoError):
    """A graph that breaks a rule of the SDG: a fault of the compiler, at a node that came from the user's line."""


Verified = dict[int, tuple[Node | None, ...]]  # by id: a node and the nodes that it reads, as they were when they were checked
_ALL = -1  # in the same way, all nodes of a graph


def verify(graph: Graph, *, static: bool = False, after: str = "", verified: Verified | None = None) -> None:
    """Raise `InvalidGraphError` at the first node that breaks a rule.

    With `static`, shapes, and parameters that determine shapes, may not depend on steps (the form after `pad`). `after`
    names the pass that has just run, for the message. Nodes that are `verified` already, and read the same nodes, are not
    checked again; all others become so.
    """

    fail = _failure(after)
    bounds = set(graph.bounds())
    verified = {} if verified is None else verified
    nodes = tuple(graph.nodes.values())
    if same_objects(nodes, verified.get(_ALL, ())):
        return
    for node_id, node in graph.nodes.items():
        parts = (node, *(graph.nodes.get(edge.source) for edge in node.inputs))
        if same_objects(parts, verified.get(node_id, ())):
            continue
        fault = _Checks(fail, graph, node, bounds, static)
        if node.id != node_id:
            fault.fail(f"stands under the number %{node_id}")
        fault.check_domain()
        for slot, edge in enumerate(node.inputs):
            fault.check_edge(slot, edge)
        if isinstance(node.op, Dataflow):
            fault.check_island(node.op.body)
        fault.check_types()
        if static:
            fault.check_static()
        verified[node_id] = parts
    _check_results(graph, fail)
    _check_cycles(graph, fail)
    verified[_ALL] = nodes


def verify_cycles(graph: Graph, *, after: str = "", verified: Verified | None = None) -> None:
    """Raise `InvalidGraphError` if a cycle does not go through a `Merge`: a pass may never end on such a graph."""
    verified = {} if verified is None else verified
    nodes = tuple(graph.nodes.values())
    if not same_objects(nodes, verified.get(_ALL, ())):
        _check_cycles(graph, _failure(after))
        verified[_ALL] = nodes


def _failure(after: str) -> Callable[[Node, str], None]:
    """What raises the error about a node, after a pass."""

    def fail(node: Node, problem: str) -> None:
        label = f"{node.label} (%{node.id})" if node.name else node.label
        raise InvalidGraphError(
            f"the graph is invalid{f' after {after}' if after else ''}: {label} {problem}",
            where=node.where or "<no line of the program>",
            hint=f"this is a mistake in Tempo, not in your program. To leave the pass out: Config(disable=({after!r},))"
            if after
            else None,
        )

    return fail


@dataclass(frozen=True)
class _Read:
    """An operand as messages call it. Its text takes time, and few graphs have a fault."""

    slot: int
    edge: Edge

    def __str__(self) -> str:
        return f"operand {self.slot}, {edge_text(self.edge)}"


class _Checks:
    """The rules for one node."""

    def __init__(self, fail: Callable[[Node, str], None], graph: Graph, node: Node, bounds: set[Symbol], static: bool):
        self.graph, self.node, self.bounds, self.static = graph, node, bounds, static
        self.fail: Callable[[str], None] = lambda problem: fail(node, problem)

    def check_symbols(self, symbols: frozenset[Symbol], place: str | _Read) -> None:
        """Only the node's own steps, and bounds of the context, may appear."""
        for symbol in sorted(symbols - self.bounds - set(self.node.domain.steps), key=str):
            if symbol.is_step:
                self.fail(f"uses step {symbol} in {place}, which is not in its domain {self.node.domain}")
            if not symbol.is_step:
                self.fail(f"uses {symbol} in {place}, which is not a bound of the context")

    def check_domain(self) -> None:
        steps = self.node.domain.steps
        if any(step not in self.graph.order for step in steps):
            self.fail(f"has a domain {self.node.domain} with a step that the context lacks")
        if steps != step_order(steps, self.graph.order):
            self.fail(f"has a domain {self.node.domain} that is not in the context's order {_names(self.graph.order)}")
        self.check_symbols(self.node.domain.condition.symbols, "its domain's condition")

    def check_edge(self, slot: int, edge: Edge) -> None:
        read = _Read(slot, edge)
        source = self.graph.nodes.get(edge.source)
        if source is None:
            self.fail(f"reads %{edge.source} ({read}), which does not exist")
            return
        if not 0 <= edge.output < len(source.outputs):
            self.fail(f"reads output {edge.output} ({read}) of {source.label}, which has {len(source.outputs)}")
        if len(edge.index) != len(source.domain.steps):
            self.fail(f"has {len(edge.index)} indices in {read}, but {source.label} runs over {source.domain}")
        for index in edge.index:
            self.check_symbols(index.symbols, read)
            if isinstance(index, Range):
                if index.stride < 1:
                    self.fail(f"has a stride of {index.stride} in {read}; strides are positive")
                if index.size is not None and index.size.steps:
                    self.fail(f"has the size {index.size} in {read}, which is not static")
                if self.static and index.length.steps:
                    self.fail(f"has a range of length {index.length} in {read}, which must be static here")
        if edge.condition is not TRUE and not isinstance(self.node.op, Merge):
            self.fail(f"has a condition in {read}; only the branches of a Merge have one")
        self.check_symbols(edge.condition.symbols, read)

    def check_types(self) -> None:
        node = self.node
        inputs = self.graph.input_types(node)
        try:
            outputs = node.op.infer(inputs)
        except TempoError as error:
            self.fail(f"does not fit its operands {_listed(inputs)}: {error.message}")
        except (ValueError, IndexError) as error:  # the wrong number of operands, or of axes
            self.fail(f"does not fit its operands {_listed(inputs)}: {error}")
        else:
            if outputs != node.outputs:
                self.fail(f"is said to give {_listed(node.outputs)}, but its operands make it {_listed(outputs)}")
        self.check_symbols(node.op.symbols, "its parameters")
        self.check_symbols(frozenset().union(*(size.symbols for t in node.outputs for size in t.shape)), "its shape")
        if isinstance(node.op, Merge):
            for slot, branch in enumerate(inputs):
                if not _may_be_equal(branch, node.op.type):
                    self.fail(f"is {node.op.type}, but branch {slot} gives {branch}")

    def check_island(self, body: Dataflowed) -> None:
        inputs = self.graph.input_types(self.node)
        if body.input_types != inputs:
            self.fail(f"has a body for operands {_listed(body.input_types)}, but its operands are {_listed(inputs)}")
        filled = dict(enumerate(body.input_types))
        for op, operands, results in body.instructions:
            missing = [slot for slot in operands if slot not in filled]
            if missing:
                self.fail(f"uses slot ${missing[0]} in its body before a value is there")
            if any(slot in filled for slot in results):
                self.fail(f"gives a slot of {results} in its body twice")
            try:
                types = op.infer(tuple(filled[slot] for slot in operands))
            except (TempoError, ValueError, IndexError) as error:
                self.fail(f"holds a {type(op).__name__} that does not fit its operands: {getattr(error, 'message', error)}")
                return
            filled.update(zip(results, types, strict=True))
        if tuple(filled[slot] for slot in sorted(filled)) != body.slot_types:
            self.fail(f"has slots of types {_listed(body.slot_types)}, but its body makes {_listed(tuple(filled.values()))}")
        if any(slot not in filled for slot in body.results):
            self.fail(f"gives the slots {body.results}, which its body does not all fill")

    def check_static(self) -> None:
        for type_ in self.node.outputs:
            if not type_.is_static:
                self.fail(f"gives {type_}, whose size depends on a step; shapes must be static here")


def _check_results(graph: Graph, fail: Callable[[Node, str], None]) -> None:
    """Outputs have one position each, and fed arrays one name each."""
    seen: dict[object, Node] = {}
    for node in graph:
        if isinstance(node.op, (Output, Input)):
            key = node.op.position if isinstance(node.op, Output) else node.op.name
            if key in seen:
                fail(node, f"has the same {'position' if isinstance(node.op, Output) else 'name'} {key!r} as %{seen[key].id}")
            seen[key] = node


def _check_cycles(graph: Graph, fail: Callable[[Node, str], None]) -> None:
    """Every cycle goes through a `Merge`: without Merges, removing nodes whose operands are all gone removes every node."""
    waiting = {node.id: len(node.inputs) for node in graph if not isinstance(node.op, Merge)}
    readers: dict[int, list[int]] = {node_id: [] for node_id in graph.nodes}
    for node_id in waiting:
        for edge in graph[node_id].inputs:
            readers[edge.source].append(node_id)
    ready = [node.id for node in graph if not waiting.get(node.id)]
    while ready:
        for reader in readers[ready.pop()]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    stuck = [node_id for node_id, count in waiting.items() if count]
    if stuck:
        cycle = _cycle(graph, set(stuck))
        fail(graph[cycle[0]], f"depends on itself with no Merge between: {' <- '.join(f'%{node_id}' for node_id in cycle)}")


def _cycle(graph: Graph, stuck: set[int]) -> list[int]:
    """A cycle among `stuck` nodes, each of which reads another one: follow the reads until a node comes twice."""
    path = [min(stuck)]
    while path[-1] not in path[:-1]:
        path.append(next(edge.source for edge in graph[path[-1]].inputs if edge.source in stuck))
    return path[path.index(path[-1]) :]


def _may_be_equal(branch: TensorType, merged: TensorType) -> bool:
    """Sizes that depend on steps may be equal on the branch's own points only, so this function does not compare them."""

    def may_be_equal(a: Expr, b: Expr) -> bool:
        return bool(a.steps or b.steps) or a.terms == b.terms

    same_kind = branch.dtype == merged.dtype and branch.rank == merged.rank
    return same_kind and all(may_be_equal(a, b) for a, b in zip(branch.shape, merged.shape, strict=True))


def _names(steps: tuple[Symbol, ...]) -> str:
    return f"({', '.join(step.name for step in steps)})"


def _listed(types: tuple[TensorType, ...]) -> str:
    return ", ".join(map(str, types)) or "nothing"
