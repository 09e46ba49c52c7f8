"""What statements and values are called where people read of them: plans, listings, drawings, errors.

A tensor is called as the user calls it: by its own name (recurrences, inputs, parameters, `x.named("x")`), or by the variable that
holds it. A fused island is called by the tensors in it: `action, log_prob`. What has no name is called after the recurrence that it
is a value of (`first policy.0.weight`, `next h`), or after its operation and its line (`sum in log_prob`). No two are called the
same: `loss`, `loss#2`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tempo_core.ir.dependence import strongly_connected
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.lines import targets
from tempo_core.ir.ops import Constant, Dataflow, Input, Merge, Op, Output, Sink, Udf

MOST = 4  # tensors that the name of an island lists
FIRST, NEXT = "first ", "next "
PART = " in "  # `sum in loss`: a value on the way to it
K = TypeVar("K", bound=Hashable)


def names(graph: Graph) -> dict[int, str]:
    """What each node's statements are called."""
    return Naming(graph).statements()


def value_names(graph: Graph) -> dict[tuple[int, int], str]:
    """What the value of each node's outputs is called: a store, in a plan."""
    return Naming(graph).values()


def exact_names(graph: Graph) -> dict[int, str]:
    """The names that users gave, each for what has that value.

    Passes leave a node's name with the node that replaces it, and with the parts that lead there: what no other node of the name
    reads has the value, and a recurrence has it.
    """
    alike: dict[str, list[Node]] = defaultdict(list)
    for node in graph:
        if node.name and not isinstance(node.op, (Input, Constant, Output)):
            alike[node.name].append(node)
    exact: dict[int, str] = {}
    for name, nodes in alike.items():
        merges = [node for node in nodes if isinstance(node.op, Merge)]
        read = {edge.source for node in nodes for edge in node.inputs if edge.source != node.id}
        last = [node for node in nodes if node.id not in read]
        exact |= {node.id: name for node in merges or last or nodes}
    return exact


def label(several: Iterable[str]) -> str:
    """Several tensors in a few words: those of one object or module as one, the first ones and the last."""
    listed = list(dict.fromkeys(several))
    heads = Counter(map(head, listed))
    short = list(dict.fromkeys(head(name) if heads[head(name)] > 1 else name for name in listed))
    return ", ".join(short if len(short) <= MOST else (*short[:2], "…", *short[-2:]))


def head(name: str) -> str:
    """The module, optimizer or object that a name is of: `policy` of `policy.0.weight`, `adam` of `adam.m(policy.0.weight)`."""
    for prefix in (FIRST, NEXT):
        if name.startswith(prefix):
            return prefix + head(name.removeprefix(prefix))
    return name.split("(", 1)[0].split("#", 1)[0].split(".", 1)[0]


def kind_of(op: Op) -> str:
    """`tanh` for the tanh of a value, `slice` for a slice."""
    function = getattr(op, "fn", None)
    return function if isinstance(function, str) else op.name if isinstance(op, (Udf, Sink)) else type(op).__name__.lower()


@dataclass(frozen=True)
class Role:
    """What a value is to a recurrence: its first value (`kind` is `FIRST`), or one that follows from those before (`NEXT`)."""

    kind: str
    recurrence: str

    def __str__(self) -> str:
        return self.kind + self.recurrence


class Naming:
    """The names of a graph's statements and values."""

    def __init__(self, graph: Graph):
        self.graph, self.exact, self.users = graph, exact_names(graph), graph.users()
        self._roles: dict[int, frozenset[Role] | None] = {}
        reads = [(node.id, edge.source) for node in graph for edge in node.inputs]
        components = strongly_connected([node.id for node in graph], reads)
        self._component = {node_id: number for number, component in enumerate(components) for node_id in component}

    def statements(self) -> dict[int, str]:
        called = {node.id: self._statement(node) for node in self.graph}
        apart = {n: name for n, name in called.items() if not isinstance(self.graph[n].op, (Input, Constant, Output))}
        return called | self._told_apart(apart, {n: n for n in apart})

    def values(self) -> dict[tuple[int, int], str]:
        nodes = [node for node in self.graph if not isinstance(node.op, (Input, Constant))]
        called = {(node.id, k): self._value(node, k) for node in nodes for k in range(len(node.outputs))}
        return self._told_apart(called, {key: key[0] for key in called})

    def _told_apart(self, called: Mapping[K, str], nodes: Mapping[K, int]) -> dict[K, str]:
        """The same names, with `#2`, `#3`, ... behind those that others have before them. Recurrences come first."""
        told: dict[K, str] = {}
        used: set[str] = set()
        for key in sorted(called, key=lambda k: not isinstance(self.graph[nodes[k]].op, Merge)):  # stable: else in their order
            name, number = called[key], 1
            while (apart := name if number == 1 else f"{name}#{number}") in used:
                number += 1
            used.add(apart)
            told[key] = apart
        return told

    def _statement(self, node: Node) -> str:
        if isinstance(node.op, Output):
            return f"output {node.name or node.op.position}"
        if isinstance(node.op, Input):
            return node.name or node.op.name
        if node.id in self.exact:
            return self.exact[node.id]
        if isinstance(node.op, Dataflow):
            return self._island(node)
        return self._value(node, 0)

    def _island(self, node: Node) -> str:
        """The name of an island in which no tensor has a name: of what its results are values, or parts."""
        results = [self._value(node, k) for k in range(len(node.outputs))]
        called = [name for name in results if "%" not in name]
        whole = [name for name in called if PART not in name]
        if whole or not called:
            return label(whole) or f"dataflow%{node.id}"
        kinds, lines = zip(*(name.split(PART, 1) for name in called), strict=True)
        return f"{label(kinds)}{PART}{label(lines)}"

    def _value(self, node: Node, output: int) -> str:
        """The name of an output's value, not yet told apart from others'."""
        name = self._given(node, output)
        if name:
            return name
        role = self._role_of_value(node, output)
        if role:
            return role
        result = self.result(node)
        if result:
            return result
        several = f".{output}" if len(node.outputs) > 1 else ""
        if isinstance(node.op, Udf) and node.name:
            return f"{node.name}{several}"
        op, where = _origin(node, output)
        at = targets(where)
        return f"{kind_of(op)}{PART}{', '.join(at)}" if at else f"{kind_of(node.op)}%{node.id}{several}"

    def _given(self, node: Node, output: int) -> str:
        """The name that the user gave to the value of an output."""
        if isinstance(node.op, Dataflow):
            return node.op.body.origins[output][0] if node.op.body.origins else self._alone(node)
        if isinstance(node.op, Udf) and node.op.results:
            return node.op.results[output]
        return self._alone(node)

    def _alone(self, node: Node) -> str:
        return self.exact.get(node.id, "") if len(node.outputs) <= 1 else ""

    def result(self, node: Node) -> str:
        """`result loss`, for what only a result of the program reads."""
        readers = [reader for reader, _ in self.users[node.id]]
        if len(readers) != 1 or not isinstance(readers[0].op, Output) or len(node.outputs) > 1:
            return ""
        return f"result {readers[0].name or readers[0].op.position}"

    # -- what a value is for ------------------------------------------------------------------------------------------

    def role_of(self, node: Node, branch: int) -> str:
        """Whether a branch of a recurrence is a first value, or follows from the recurrence itself."""
        return NEXT if self._component[node.inputs[branch].source] == self._component[node.id] else FIRST

    def _role_of_value(self, node: Node, output: int) -> str:
        """`next h`, for a value that the recurrence h reads as its branch; `first policy, adam` for one that several read."""
        roles = [
            Role(self.role_of(reader, slot), reader.name)
            for reader, slot in self.users[node.id]
            if isinstance(reader.op, Merge) and reader.name and reader.inputs[slot].output == output
        ]
        return f"{roles[0].kind}{label(r.recurrence for r in roles if r.kind == roles[0].kind)}" if roles else ""

    def purpose(self, node: Node) -> Role | None:
        """The one kind of values that all of a node leads to, and of which modules: `first policy, value`."""
        roles = sorted(self._leads_to(node.id) or (), key=str)
        if len({role.kind for role in roles}) != 1:
            return None
        return Role(roles[0].kind, ", ".join(dict.fromkeys(head(role.recurrence) for role in roles)))

    def _leads_to(self, node_id: int) -> frozenset[Role] | None:
        """The roles of all that becomes of a node's values, through what has no name; None where it becomes something else."""
        if node_id not in self._roles:
            self._roles[node_id] = None  # a cycle that no named recurrence cuts
            found: frozenset[Role] | None = frozenset()
            for reader, slot in self.users[node_id]:
                if isinstance(reader.op, Merge) and reader.name:
                    more: frozenset[Role] | None = frozenset({Role(self.role_of(reader, slot), reader.name)})
                else:
                    more = None if reader.id in self.exact or not reader.outputs else self._leads_to(reader.id)
                found = None if found is None or more is None else found | more
            self._roles[node_id] = found
        return self._roles[node_id]


def _origin(node: Node, output: int) -> tuple[Op, str]:
    """The operation that gives an output, and the user's line."""
    if not isinstance(node.op, Dataflow):
        return node.op, node.where
    body = node.op.body
    slot = body.results[output]
    op = next((op for op, _, results in body.instructions if slot in results), node.op)
    return op, body.origins[output][1] if body.origins else node.where
