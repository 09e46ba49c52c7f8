"""The text of a compiled XLA program, read for a profile: which of the user's statements each of its operations computes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tempo_core.backends.scopes import Scope

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?)\s([a-z][\w\-]*)\(([^)]*)(.*)$"
)  # name, type, opcode, operands, the rest
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_NAME = re.compile(r"[\w.\-]+")
_CALLED = re.compile(r"\b(?:calls|body|condition|to_apply|(?:true|false)_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)")
_METADATA = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')

# They move no data, or call a function of a few numbers for each element.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "after-all"}
_OF_ELEMENTS = {"reduce", "reduce-window", "sort", "scatter", "select-and-scatter", "map", "all-reduce", "reduce-scatter"}


@dataclass(frozen=True)
class Instruction:
    """An operation of XLA in a computation, its `home`. It runs the computations in `calls` `trips` times.

    `size` is the number of elements of its result, `work` about how many elements it touches.
    """

    name: str
    home: str
    size: int
    work: float
    calls: tuple[str, ...]
    scope: Scope | None
    trips: int


class HloText:
    """The instructions of a program by name, those of each computation, and by computation the instruction that runs it."""

    def __init__(self, text: str):
        self.instructions: dict[str, Instruction] = {}
        self.computations: defaultdict[str, list[Instruction]] = defaultdict(list)
        self.callers: dict[str, str] = {}
        home = ""
        for line in text.splitlines():
            header, match = _COMPUTATION.match(line), _INSTRUCTION.match(line)
            home = header[1] if header else home
            if match and home:
                self._add(home, *match.groups())

    def _add(self, home: str, name: str, type: str, opcode: str, operands: str, rest: str) -> None:
        calls = () if opcode in _OF_ELEMENTS else tuple(_NAME.findall(" ".join(_CALLED.findall(rest))))
        size = sum(math.prod(map(int, filter(None, sizes.split(",")))) for sizes in _SHAPE.findall(type))
        sizes = [max(self.instructions[operand].size, 1) for operand in _NAME.findall(operands) if operand in self.instructions]
        metadata, trips = _METADATA.search(rest), _TRIPS.search(rest)
        scope = Scope.of(metadata[1]) if metadata else None
        work = _work(opcode, max(size, 1), sizes)
        self.instructions[name] = Instruction(name, home, size, work, calls, scope, int(trips[1]) if trips else 1)
        self.computations[home].append(self.instructions[name])
        self.callers.update(dict.fromkeys(calls, name))

    def scope(self, name: str) -> Scope:
        """The place of an instruction. If it has no name of its own, it belongs to the loops of the instruction that runs it."""
        instruction = self.instructions.get(name)
        while instruction is not None and instruction.scope is None:
            instruction = self.instructions.get(self.callers.get(instruction.home, ""))
        if instruction is None or instruction.scope is None:
            return Scope()
        return instruction.scope if instruction.name == name else Scope(instruction.scope.loops)

    def shares(self, name: str, measured: Collection[str]) -> Mapping[Scope, float]:
        """The places that an instruction's time belongs to, with their shares, which add up to 1.

        A kernel may hold operations of several statements. Its time is divided by the elements that these touch. A loop with operations
        that are `measured` themselves has its own time: counters and copies. Other loops are one piece of machine code, as a kernel is.
        """
        weights: defaultdict[Scope, float] = defaultdict(float)
        instruction = self.instructions.get(name)
        if instruction is not None and not any(inner.name in measured for inner in self._inside(instruction)):
            for scope, weight in self._weights(instruction, 1.0):
                weights[scope] += weight
        total = sum(weights.values())
        return {scope: weight / total for scope, weight in weights.items()} if total else {self.scope(name): 1.0}

    def _inside(self, instruction: Instruction) -> Iterator[Instruction]:
        return (inner for called in instruction.calls for inner in self.computations.get(called, ()))

    def _weights(self, instruction: Instruction, times: float) -> Iterator[tuple[Scope, float]]:
        for inner in self._inside(instruction):
            yield from self._weights(inner, times * instruction.trips)
        scope = self.scope(instruction.name)
        if not instruction.calls and instruction.work and scope.statement is not None:
            yield scope, times * instruction.work


def _work(opcode: str, size: int, operands: Sequence[int]) -> float:
    """About how many elements an instruction touches; for a product of matrices, how many pairs it multiplies."""
    if opcode == "dot" and len(operands) >= 2:
        return math.sqrt(size * operands[0] * operands[1])
    if opcode == "dynamic-update-slice" and len(operands) >= 2:
        return operands[1]
    return 0 if opcode in _FREE else max(size, *operands) if opcode in _OF_ELEMENTS and operands else size
