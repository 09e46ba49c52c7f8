"""Smaller programs with the same failure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.script import Program


def shrink(program: Program, fails: Callable[[Program], bool], tries: int = 400) -> Program:
    """A program with fewer units, outputs, lines and options, and smaller bounds, that still fails. At most `tries` are run."""
    changed = True
    while changed:
        changed = False
        for candidate in smaller(program):
            tries -= 1
            if tries < 0:
                return program
            if fails(candidate):
                program, changed = candidate, True
                break
    return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs that are simpler in one respect, the greatest simplifications first."""
    for check in program.checks:
        yield replace(program, checks=tuple(other for other in program.checks if other != check))
    for k in reversed(range(len(program.units))):
        yield program.without(k)
    if len(program.outputs) > 1 and not program.leaf:
        for output in program.outputs:
            yield replace(program, outputs=(output,))
    if len(program.outputs) > 2:
        yield replace(program, outputs=program.outputs[:2])
    if program.leaf:
        for output in program.outputs:
            yield replace(program, outputs=(output,), leaf="")
    for config in _simpler_configs(program.config):
        yield replace(program, config=config)
    for step, bound in program.bounds.items():
        if bound > 1:
            yield replace(program, bounds={**program.bounds, step: bound - 1})
    for k, unit in enumerate(program.units):
        lines = unit.split("\n")
        if len(lines) > 1:
            for number in range(1, len(lines)):
                yield _with_unit(program, k, "\n".join(lines[:number] + lines[number + 1 :]))
        for simpler in _simpler_texts(unit):
            yield _with_unit(program, k, simpler)


def _with_unit(program: Program, k: int, unit: str) -> Program:
    return replace(program, units=(*program.units[:k], unit, *program.units[k + 1 :]))


def _simpler_configs(config: str) -> Iterator[str]:
    """The options without one of them, or with one more pass switched on."""
    call = ast.parse(config, mode="eval").body
    assert isinstance(call, ast.Call)
    options = {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
    for name, value in options.items():
        yield _config({**options, name: None})
        if isinstance(value, tuple) and len(value) > 1:
            for item in value:
                yield _config({**options, name: tuple(other for other in value if other != item)})


def _config(options: dict[str, Any]) -> str:
    return f"tp.Config({', '.join(f'{name}={value!r}' for name, value in options.items() if value is not None)})"


def _simpler_texts(unit: str) -> Iterator[str]:
    """The unit with a call of one argument replaced by that argument, or `a + b` by `a`."""
    for match in re.finditer(r"tp\.\w+\((\w+)\)", unit):
        yield unit[: match.start()] + match[1] + unit[match.end() :]
    for match in re.finditer(r" [-+*] [\w.]+(?=\n|$)", unit):
        yield unit[: match.start()] + unit[match.end() :]
