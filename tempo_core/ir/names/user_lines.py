"""The user's lines for statements, in plans and drawings: the lines of the tensors in a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tempo_core.ir.graph import Node
from tempo_core.ir.names.source_lines import short_file, split_line
from tempo_core.ir.ops import Dataflow, Output, Udf

BranchLines = Mapping[tuple[str, str], Sequence[str]]  # by name and line of a recurrence: the lines that assign its branches


@dataclass(frozen=True)
class Sources:
    """The user's lines: one for each name, and one for each branch of a recurrence."""

    names: Mapping[str, str] = field(default_factory=dict)
    branches: BranchLines = field(default_factory=dict)

    def of(self, node: Node, branch: int | None = None) -> list[str]:
        """The lines of a node, or of a branch of a recurrence, each a `file:line`."""
        if branch is not None:
            assigned = self.branches.get((node.name, node.where), ())
            return [assigned[branch]] if len(assigned) == len(node.inputs) else []
        if isinstance(node.op, Output):
            return []
        if isinstance(node.op, Udf) and node.op.results:
            return self._lines_of(node.op.results)[:1] or [node.where]
        if isinstance(node.op, Dataflow) and node.op.body.origins:
            origins = node.op.body.origins
            named = self._lines_of(node.name.split(", ")) or self._lines_of([name for name, _ in origins])
            return named or [where for _, where in origins if where]
        return [self.names.get(node.name, node.where)]

    def of_value(self, node: Node, output: int) -> str:
        """The line of one value of a node; "" if there is none."""
        if isinstance(node.op, Dataflow) and node.op.body.origins:
            name, where = node.op.body.origins[output]
            return self.names.get(name, where)
        return next(iter(self.of(node)), node.where)

    def _lines_of(self, names: Sequence[str]) -> list[str]:
        return [self.names[name] for name in names if name in self.names]


def span(where: Sequence[str]) -> str:
    """`agent.py:31`, or `agent.py:31-36` for several lines of a file; of several files, only the lines in the first one."""
    places = [(short_file(file), line) for file, line in map(split_line, where) if line]
    if not places:
        return ""
    file = places[0][0]
    numbers = [line for other, line in places if other == file]
    first, last = min(numbers), max(numbers)
    return f"{file}:{first}" if first == last else f"{file}:{first}-{last}"
