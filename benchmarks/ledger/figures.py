"""The figures of a program in the ledger, their comparison with the recorded ones, and what explains them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import jax

import tempo_core as tp
from benchmarks.hlo import Module, WhileLoop, parse
from tempo_core.schedule import Execute, leaves

RECORD = Path(__file__).parent / "figures.json"
SLACK = 0.05  # XLA's fusions differ a little from patch to patch and from CPU to CPU
Figures = dict[str, Any]


def jax_version() -> str:
    """JAX's minor version, under which HLO operations are recorded: XLA fuses differently in the next one."""
    return ".".join(jax.__version__.split(".")[:2])


def exact(program: tp.Program[Any]) -> Figures:
    """The figures that do not depend on XLA."""
    cost, places = program.cost(), Counter(program.plan().device_programs)
    return {
        "statements": sum(isinstance(leaf, Execute) for leaf in leaves(program.scheduled.root)),
        "executions": cost.numbers["executions"],
        "bytes moved": cost.numbers["bytes_moved"],
        "launches": {place or "once": number for place, number in sorted(places.items())},
    }


def modules(program: tp.Program[Any]) -> list[Module]:
    """The optimized HLO of each device program."""
    staged = program._staged
    assert staged is not None, "an interpreted program has no device programs"
    staged.lower_all()
    return [parse(segment.lowered.compile().as_text()) for segment in staged.segments]


def compiled(program: tp.Program[Any]) -> Figures:
    """The HLO operations outside of loops, and those of each loop's body, the largest first."""
    of_loops, outside = [], 0
    for module in modules(program):
        outside += sum(1 for _ in module.operations(module.entry))
        of_loops += [sum(1 for _ in module.operations(loop.body)) for loop in module.loops()]
    return {"operations outside of loops": outside, "operations in loops": sorted(of_loops, reverse=True)}


def risen(recorded: Figures, figures: Figures, slack: float = 0.0) -> list[str]:
    """The figures that are higher than the recorded ones. Of a list, each figure is compared with that of its rank."""
    higher = []
    for name, value in figures.items():
        before = recorded.get(name)
        if isinstance(value, dict):
            higher += [f"{name}, {line}" for line in risen(before or {}, value, slack)]
        elif isinstance(value, list):
            ranks = [*(before or []), *[0] * len(value)]
            pairs = [(a, b) for a, b in zip(ranks, value, strict=False) if b > _allowed(a, slack)]
            higher += [f"{name}: {b} instead of {a}" for a, b in pairs]
        elif value > _allowed(before or 0, slack):
            higher.append(f"{name}: {value:,} instead of {before or 0:,}")
    return higher


def _allowed(before: int, slack: float) -> int:
    return before if slack == 0 or before == 0 else max(math.floor(before * (1 + slack)), before + 1)


def recorded() -> dict[str, Figures]:
    figures: dict[str, Figures] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return figures


def record(figures: dict[str, Figures]) -> None:
    RECORD.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def explanation(program: tp.Program[Any]) -> str:
    """The program, its launches and costs, and the HLO operations of each loop with what they are made of."""
    parts = [f"program\n{program.text('program')}", f"costs\n{program.cost()}"]
    launches = exact(program)["launches"]
    parts.append("launches\n" + "\n".join(f"  {number} {place}" for place, number in launches.items()))
    for number, module in enumerate(modules(program)):
        parts.append(f"device program {number}, outside of loops\n{_operations(module, module.entry)}")
        parts += [f"device program {number}, loop {loop.label}\n{_body(module, loop)}" for loop in module.loops()]
    return "\n\n".join(parts)


def _body(module: Module, loop: WhileLoop) -> str:
    return _operations(module, loop.body)


def _operations(module: Module, computation: str) -> str:
    """One line for each operation, with its bytes and JAX's name, after their number by kind."""
    each = list(module.operations(computation))
    kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(i.opcode for i in each).most_common())
    lines = [f"  {len(each)} operations: {kinds or 'none'}"]
    return "\n".join([*lines, *(f"  {i.bytes:>12,} bytes  {i.name}  {i.op_name}" for i in each)])
