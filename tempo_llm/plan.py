"""The plan of a generation by layers: what the stores of each layer, or of each stretch of layers of one kind, take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tempo_llm.attention import spelling_of
from tempo_llm.stacks import Body, Stack, prefix

if TYPE_CHECKING:
    from tempo_core.report.programs.plan import Plan

HEADER = ("layers", "kind", "stored, bytes", "bytes a layer", "weights, bytes")
COARSE = "without XLA: the true peak may be less than half, or more than twice as much; --full (in Python, full=True) asks XLA"
STATES = ("attention.", "delta.")  # how the names of a layer's stores begin


@dataclass(frozen=True)
class LayerBytes:
    """Layers of one kind: the bytes of all their keys, values and states, at a run's largest size, and of their weights."""

    layers: tuple[int, ...]
    kind: str  # the pattern of their attention, as it is written, or "Gated DeltaNet"
    stored: int
    weights: int


def by_layers(plan: Plan, stacks: Sequence[Stack], weights: Mapping[str, Any]) -> list[LayerBytes]:
    """What the layers of a program take. `weights` are those of the program, by name."""
    rows = []
    for body, repeats in ((body, stack.repeats) for stack in stacks for body in stack.bodies):
        layers = tuple(range(body.first, body.first + repeats * body.stride, body.stride))
        starts = _starts(body, stacks)
        stored = sum(tensor.bytes for tensor in plan.tensors if tensor.name.startswith(starts))
        held = sum(array.nbytes for name, array in weights.items() if _is_of(name, body, stacks))
        rows.append(LayerBytes(layers, spelling_of(body.pattern) if body.layer.delta is None else "Gated DeltaNet", stored, held))
    return sorted(rows, key=lambda row: row.layers)


def _starts(body: Body, stacks: Sequence[Stack]) -> tuple[str, ...]:
    at = prefix(body, stacks)
    return tuple(f"{at}.{state}" for state in STATES) if at else STATES


def _is_of(name: str, body: Body, stacks: Sequence[Stack]) -> bool:
    at = prefix(body, stacks)
    return name.startswith(f"{at}.") if at else not name.startswith(("embedding.", "head.", "final_norm."))


def layers_text(rows: Sequence[LayerBytes]) -> str:
    """The rows as a table."""
    cells = [
        HEADER,
        *((_numbers(row.layers), row.kind, *map(str, (row.stored, row.stored // len(row.layers), row.weights))) for row in rows),
    ]
    widths = [max(len(line[k]) for line in cells) for k in range(len(HEADER))]
    lines = []
    for line in cells:
        left, right = line[:2], line[2:]
        words = [*(cell.ljust(width) for cell, width in zip(left, widths, strict=False))]
        words += [cell.rjust(width) for cell, width in zip(right, widths[2:], strict=True)]
        lines.append(f"  {'  '.join(words)}")
    return "\n".join(["layers", *lines])


def with_layers(memory: str, rows: Sequence[LayerBytes]) -> str:
    """The memory of a plan as JSON, with the rows as `layers`."""
    return json.dumps({**json.loads(memory), "layers": [asdict(row) for row in rows]}, indent=1)


def _numbers(layers: Sequence[int]) -> str:
    """`0-3`, `0, 2, 4`, or `0, 6, ..., 24`."""
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]}-{layers[-1]}" if len(layers) > 1 else str(layers[0])
    numbers = list(map(str, layers))
    return ", ".join(numbers if len(numbers) <= 4 else [*numbers[:2], "...", numbers[-1]])
