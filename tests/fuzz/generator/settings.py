"""The options for compiling and running a random program."""

from __future__ import annotations

from tempo_core.config import CHOICES, PASSES
from tests.fuzz.generator.drawing import Drawing

EXECUTORS = ("numpy", "staged", "interpreted")
CHANCE_OF_HOST = 25  # percent of programs that keep a part of their values on the host


def config(d: Drawing, executor: str) -> str:
    """The text of a `Config`: passes off, steps not vectorized, launches, tiles, seed, checks, checkpoints."""
    parts = {"numpy": ['backend="numpy"'], "interpreted": ['executor="interpreted"'], "staged": []}[executor]
    d.features.add(f"executor: {executor}")
    kind = d.choices.integer(0, 3)
    optional = [p for p in (*PASSES, *CHOICES) if not (executor == "staged" and p == "pad")]
    off = [] if kind < 2 else [p for p in optional if d.chance(40 if kind == 2 else 85)]
    d.features.update(f"pass off: {name}" for name in off)
    if "vectorize" not in off and d.chance(15):
        off.append(f"vectorize({d.step()})")
        d.features.add("pass off: vectorize(step)")
    if executor == "staged":
        off += [name for name in CHOICES if d.chance(15)]
        d.features.update(f"pass off: {name}" for name in off if name in CHOICES)
    if off:
        parts.append(f"disable={tuple(off)!r}")
    if d.chance(20):
        parts.append(f"tile={{{d.step()!r}: {d.choices.pick((1, 2, 3, 4))}}}")
        d.features.add("setting: tile")
    if executor == "staged" and d.chance(25):
        parts.append("launch_seconds=0.0")  # each iteration of a loop on the device is a launch
        d.features.add("setting: launch_seconds")
    if executor == "staged" and d.chance(20):
        parts.append('devices="auto"')  # of four
        d.features.add("setting: devices")
    if d.chance(20):
        parts.append(f"seed={d.choices.integer(1, 99)}")
        d.features.add("setting: seed")
    if executor != "staged" and d.chance(8) and not d.has_inner:
        parts.append("check_numerics=True")
        d.features.add("setting: check_numerics")
    if d.chance(20):
        parts.append(f"checkpoint={{{d.step()!r}: {d.choices.pick((2, 3, 1, (3, 2), (4, 2)))}}}")
        d.features.add("setting: checkpoint")
    if executor == "staged" and d.chance(CHANCE_OF_HOST):
        parts.append(f"host={{{d.step()!r}: {d.choices.pick((1, 2, 3))}}}")
        d.features.add("setting: host")
    return f"tp.Config({', '.join(parts)})"
