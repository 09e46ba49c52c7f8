"""The text of a compiled XLA program, read for a profile: which of the user's statements each of its operations computes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tempo_core.backends.scopes import Scope

_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"(?:^|\s)([a-z][\w\-]*)\(")
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_NAMES = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"\b(?:calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_WORD = re.compile(r"[\w.\-]+")
_METADATA = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')

# They move no data, or call a function of a few numbers for each element.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "after-all"}
_OF_ELEMENTS = {"reduce", "reduce-window", "sort", "scatter", "select-and-scatter", "map", "all-reduce", "reduce-scatter"}


@dataclass(frozen=True)
class Instruction:
    """One operation of XLA. `size` is the number of elements of its result, `calls` are the computations that it runs `trips` times."""

    name: str
    opcode: str
    size: int
    operands: tuple[str, ...]
    calls: tuple[str, ...]
    scope: Scope | None
    trips: int


@dataclass
class HloText:
    """The instructions of a program, by name."""

    instructions: dict[str, Instruction] = field(default_factory=dict)
    computations: dict[str, list[str]] = field(default_factory=dict)
    callers: dict[str, str] = field(default_factory=dict)  # by computation: the instruction that runs it
    homes: dict[str, str] = field(default_factory=dict)  # by instruction: its computation

    @staticmethod
    def of(text: str) -> HloText:
        read = HloText()
        computation = ""
        for line in text.splitlines():
            header = _HEADER.match(line)
            if header:
                computation = header[1]
                read.computations[computation] = []
                continue
            match = _LINE.match(line)
            opcode = _OPCODE.search(match[2]) if match else None
            if match and opcode and computation:
                read._add(computation, match[1], match[2], opcode)
        return read

    def _add(self, computation: str, name: str, text: str, opcode: re.Match[str]) -> None:
        kind, end = opcode[1], text.find(")", opcode.end())
        calls = () if kind in _OF_ELEMENTS else (*_CALLED.findall(text), *_WORD.findall(" ".join(_BRANCHES.findall(text))))
        metadata, trips = _METADATA.search(text), _TRIPS.search(text)
        self.instructions[name] = Instruction(
            name,
            kind,
            sum(math.prod(map(int, filter(None, sizes.split(",")))) for sizes in _SHAPE.findall(text[: opcode.start()])),
            tuple(_NAMES.findall(text[opcode.end() : end])),
            calls,
            Scope.of(metadata[1]) if metadata else None,
            int(trips[1]) if trips else 1,
        )
        self.computations[computation].append(name)
        self.homes[name] = computation
        self.callers.update(dict.fromkeys(calls, name))

    # -- questions ----------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> Scope:
        """The place of an instruction. If it has no name of its own, it belongs to the loops of the instruction that runs it."""
        instruction = self.instructions.get(name)
        seen: set[str] = set()
        while instruction is not None and instruction.name not in seen:
            if instruction.scope is not None:
                return instruction.scope if not seen else Scope(instruction.scope.loops)
            seen.add(instruction.name)
            instruction = self.instructions.get(self.callers.get(self.homes[instruction.name], ""))
        return Scope()

    def shares(self, name: str, measured: Collection[str]) -> Mapping[Scope, float]:
        """The places that an instruction's time belongs to, with their shares, which add up to 1.

        A kernel may hold operations of several statements. Its time is divided by the elements that these touch. A loop with operations
        that are `measured` themselves has its own time: counters and copies. Other loops are one piece of machine code, as a kernel is.
        """
        weights: dict[Scope, float] = {}
        instruction = self.instructions.get(name)
        if instruction is not None and not self._is_measured_inside(instruction, measured):
            for scope, weight in self._weights(instruction, 1.0, frozenset()):
                weights[scope] = weights.get(scope, 0.0) + weight
        total = sum(weights.values())
        return {scope: weight / total for scope, weight in weights.items()} if total else {self.scope(name): 1.0}

    def _is_measured_inside(self, instruction: Instruction, measured: Collection[str]) -> bool:
        return any(inner in measured for called in instruction.calls for inner in self.computations.get(called, ()))

    def _weights(self, instruction: Instruction, times: float, outer: frozenset[str]) -> Iterator[tuple[Scope, float]]:
        if instruction.name in outer:
            return
        for called in instruction.calls:
            for inner in self.computations.get(called, ()):
                yield from self._weights(self.instructions[inner], times * instruction.trips, outer | {instruction.name})
        if not instruction.calls and instruction.opcode not in _FREE:
            scope = self.scope(instruction.name)
            if scope.statement is not None:
                yield scope, times * self._work(instruction)

    def _work(self, instruction: Instruction) -> float:
        """About how many elements an instruction touches; for a product of matrices, how many pairs it multiplies."""
        sizes = [max(self.instructions[n].size, 1) for n in instruction.operands if n in self.instructions]
        size = max(instruction.size, 1)
        if instruction.opcode == "dot" and len(sizes) >= 2:
            return math.sqrt(size * sizes[0] * sizes[1])
        if instruction.opcode == "dynamic-update-slice" and len(sizes) >= 2:
            return sizes[1]
        return max(size, *sizes) if instruction.opcode in _OF_ELEMENTS and sizes else size
