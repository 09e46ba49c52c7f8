"""The names of statements and values in texts that people read: plans, listings, drawings, errors.

A tensor has the user's name: its own (recurrences, inputs, parameters, `x.named("x")`), or the variable that holds it. A fused
island is named after the tensors in it: `action, log_prob`. A value without a name is named after its recurrence
(`first policy.0.weight`, `next h`), or after its operation and its line (`sum in log_prob`). Where the line has no name, or cannot be
read, the tensor or the result to which the value leads is named instead (`mul in h`, `exp in result 0`). Equal names get numbers:
`loss`, `loss#2`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tempo_core.ir.dependence import strongly_connected
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.names.source_lines import targets
from tempo_core.ir.ops import Constant, Dataflow, Input, Merge, Op, Output, Sink, Udf

MOST = 4  # the most tensors that the name of an island lists
FIRST, NEXT = "first ", "next "
PART = " in "  # `sum in loss`: a value on the way to the loss
K = TypeVar("K", bound=Hashable)


def names(graph: Graph) -> dict[int, str]:
    """The name of each node's statements."""
    return Naming(graph).statements()


def value_names(graph: Graph) -> dict[tuple[int, int], str]:
    """The name of each output's value; plans use it for the store."""
    return Naming(graph).values()


def exact_names(graph: Graph) -> dict[int, str]:
    """The users' names, each for the node with the named value.

    After a pass, several nodes may carry one name: the node with the value, and parts that lead to it. The recurrence
    of the name has the value; without one, the nodes that no other node of the name reads have it.
    """
    nodes_by_name: dict[str, list[Node]] = defaultdict(list)
    for node in graph:
        if node.name and not isinstance(node.op, (Input, Constant, Output)):
            nodes_by_name[node.name].append(node)
    exact: dict[int, str] = {}
    for name, nodes in nodes_by_name.items():
        merges = [node for node in nodes if isinstance(node.op, Merge)]
        read = {edge.source for node in nodes for edge in node.inputs if edge.source != node.id}
        last = [node for node in nodes if node.id not in read]
        exact |= {node.id: name for node in merges or last or nodes}
    return exact


def label(names: Iterable[str]) -> str:
    """Several tensors in a few words: one name for the tensors of one module or object; of many names, the first and last ones."""
    distinct = list(dict.fromkeys(names))
    heads = Counter(map(head, distinct))
    short = list(dict.fromkeys(head(name) if heads[head(name)] > 1 else name for name in distinct))
    return ", ".join(short if len(short) <= MOST else (*short[:2], "…", *short[-2:]))


def head(name: str) -> str:
    """The module, optimizer or object that a name belongs to: `policy` of `policy.0.weight`, `adam` of `adam.m(policy.0.weight)`."""
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
    """A value's role in a recurrence: its first value (`kind` is `FIRST`), or a value that follows from earlier ones (`NEXT`)."""

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
        names = {node.id: self._statement(node) for node in self.graph}
        numbered = {n: name for n, name in names.items() if not isinstance(self.graph[n].op, (Input, Constant, Output))}
        return names | self._distinct(numbered, {n: n for n in numbered})

    def values(self) -> dict[tuple[int, int], str]:
        nodes = [node for node in self.graph if not isinstance(node.op, (Input, Constant))]
        names = {(node.id, k): self._value(node, k) for node in nodes for k in range(len(node.outputs))}
        return self._distinct(names, {key: key[0] for key in names})

    def _distinct(self, names: Mapping[K, str], nodes: Mapping[K, int]) -> dict[K, str]:
        """The same names, with `#2`, `#3`, ... after a name that is already in use. Recurrences come first."""
        distinct: dict[K, str] = {}
        used: set[str] = set()
        for key in sorted(names, key=lambda k: not isinstance(self.graph[nodes[k]].op, Merge)):  # stable: others keep their order
            name, number = names[key], 1
            while (candidate := name if number == 1 else f"{name}#{number}") in used:
                number += 1
            used.add(candidate)
            distinct[key] = candidate
        return distinct

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
        """The name of an island in which no tensor has a name: it follows from the names of the island's results."""
        results = [self._value(node, k) for k in range(len(node.outputs))]
        names = [name for name in results if "%" not in name]
        whole = [name for name in names if PART not in name]
        if whole or not names:
            return label(whole) or f"dataflow%{node.id}"
        kinds, lines = zip(*(name.split(PART, 1) for name in names), strict=True)
        return f"{label(kinds)}{PART}{label(lines)}"

    def _value(self, node: Node, output: int) -> str:
        """The name of an output's value, before equal names get numbers."""
        name = self._user_name(node, output)
        if name:
            return name
        role = self._role_of_value(node, output)
        if role:
            return role
        result = self.result(node)
        if result:
            return result
        suffix = f".{output}" if len(node.outputs) > 1 else ""
        if isinstance(node.op, Udf) and node.name:
            return f"{node.name}{suffix}"
        op, where = _origin(node, output)
        place = ", ".join(targets(where)) or self._destinations.get(node.id, "")
        return f"{kind_of(op)}{PART}{place}" if place else f"{kind_of(node.op)}%{node.id}{suffix}"

    @cached_property
    def _destinations(self) -> dict[int, str]:
        """For each node, the named tensor or the result that it leads to on the shortest way."""
        names = dict(self.exact)
        names |= {node.id: f"result {node.name or node.op.position}" for node in self.graph if isinstance(node.op, Output)}
        names |= {node.id: node.op.name for node in self.graph if isinstance(node.op, Sink)}
        waiting = deque(names)
        while waiting:
            reader = waiting.popleft()
            for edge in self.graph[reader].inputs:
                if edge.source not in names:
                    names[edge.source] = names[reader]
                    waiting.append(edge.source)
        return names

    def _user_name(self, node: Node, output: int) -> str:
        """The user's name for the value of an output, or ""."""
        if isinstance(node.op, Dataflow):
            return node.op.body.origins[output][0] if node.op.body.origins else self._single_name(node)
        if isinstance(node.op, Udf) and node.op.results:
            return node.op.results[output]
        return self._single_name(node)

    def _single_name(self, node: Node) -> str:
        return self.exact.get(node.id, "") if len(node.outputs) <= 1 else ""

    def result(self, node: Node) -> str:
        """`result loss` for a value that only a result of the program reads; else ""."""
        readers = [reader for reader, _ in self.users[node.id]]
        if len(readers) != 1 or not isinstance(readers[0].op, Output) or len(node.outputs) > 1:
            return ""
        return f"result {readers[0].name or readers[0].op.position}"

    # -- the purpose of a value --------------------------------------------------------------------------------------

    def role_of(self, node: Node, branch: int) -> str:
        """The kind of a branch of a recurrence: a first value, or a value that follows from the recurrence itself."""
        return NEXT if self._component[node.inputs[branch].source] == self._component[node.id] else FIRST

    def _role_of_value(self, node: Node, output: int) -> str:
        """`next h` for a value that is a branch of the recurrence h; `first policy, adam` for a branch of several recurrences."""
        roles = [
            Role(self.role_of(reader, slot), reader.name)
            for reader, slot in self.users[node.id]
            if isinstance(reader.op, Merge) and reader.name and reader.inputs[slot].output == output
        ]
        return f"{roles[0].kind}{label(r.recurrence for r in roles if r.kind == roles[0].kind)}" if roles else ""

    def purpose(self, node: Node) -> Role | None:
        """The role that all values of a node lead to, with its modules: `first policy, value`. None for several kinds of roles."""
        roles = sorted(self._leads_to(node.id) or (), key=str)
        if len({role.kind for role in roles}) != 1:
            return None
        return Role(roles[0].kind, ", ".join(dict.fromkeys(head(role.recurrence) for role in roles)))

    def _leads_to(self, node_id: int) -> frozenset[Role] | None:
        """The roles that a node's values lead to, through nodes without a name; None if they lead anywhere else."""
        if node_id not in self._roles:
            self._roles[node_id] = None  # a cycle that no named recurrence cuts
            roles: frozenset[Role] | None = frozenset()
            for reader, slot in self.users[node_id]:
                if isinstance(reader.op, Merge) and reader.name:
                    further: frozenset[Role] | None = frozenset({Role(self.role_of(reader, slot), reader.name)})
                else:
                    further = None if reader.id in self.exact or not reader.outputs else self._leads_to(reader.id)
                roles = None if roles is None or further is None else roles | further
            self._roles[node_id] = roles
        return self._roles[node_id]


def _origin(node: Node, output: int) -> tuple[Op, str]:
    """The operation that gives an output, and the user's line."""
    if not isinstance(node.op, Dataflow):
        return node.op, node.where
    body = node.op.body
    slot = body.results[output]
    op = next((op for op, _, results in body.instructions if slot in results), node.op)
    return op, body.origins[output][1] if body.origins else node.where
