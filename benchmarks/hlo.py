"""Optimized HLO as data: computations, instructions with the bytes of their results, and the loops with what runs in their bodies.

module = parse(compiled.as_text())
for loop in module.loops():
    print(loop.label, Counter(i.opcode for i in module.operations(loop.body)))
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ITEM_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "c64": 64, "c128": 128, "token": 0}
NO_WORK = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id"})
INLINE = frozenset({"call", "conditional"})  # run the instructions of their computations as their own

_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_SHAPE = re.compile(r"([a-z]+[0-9]*(?:e\dm\d\w*)?)\[([0-9,]*)\]")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|branch_computations|true_computation|false_computation)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OP_NAME = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True)
class Shape:
    """The dtype and sizes of one array."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        bits = ITEM_BITS.get(self.dtype) if self.dtype in ITEM_BITS else int("".join(re.findall(r"\d+", self.dtype)[:1]) or 0)
        return math.prod(self.sizes) * int(bits or 0) // 8

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


@dataclass(frozen=True)
class Instruction:
    """One instruction: `shapes` are its results (several for a tuple), `called` the computations by attribute (`body`, `calls`, ...).

    `op_name` is JAX's name of the operation, such as `jit(f)/while/body/tanh`. `trip_count` is that of a `while`, if XLA knows it.
    """

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    called: Mapping[str, tuple[str, ...]]
    op_name: str = ""
    trip_count: int | None = None
    is_root: bool = False

    @property
    def bytes(self) -> int:
        """The bytes of the results."""
        return sum(shape.bytes for shape in self.shapes)

    def __str__(self) -> str:
        where = f"  # {self.op_name}" if self.op_name else ""
        return f"{self.name} = {', '.join(map(str, self.shapes))} {self.opcode}({', '.join(self.operands)}){where}"


@dataclass(frozen=True)
class Computation:
    """Instructions in the order in which they stand; the last one is the root."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def root(self) -> Instruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])

    def by_name(self) -> dict[str, Instruction]:
        return {i.name: i for i in self.instructions}


@dataclass(frozen=True)
class WhileLoop:
    """A `while` instruction. `parents` are the loops around it, outermost first."""

    instruction: Instruction
    body: str
    condition: str
    parents: tuple[WhileLoop, ...] = ()

    @property
    def label(self) -> str:
        """The loop's place: the trip counts of the loops around it and its own (? if XLA does not know it), and JAX's name."""
        counts = (loop.instruction.trip_count for loop in (*self.parents, self))
        return f"{' x '.join('?' if n is None else str(n) for n in counts)} ({self.instruction.op_name or self.instruction.name})"


@dataclass(frozen=True)
class Module:
    computations: Mapping[str, Computation]
    entry: str

    def operations(self, computation: str) -> Iterator[Instruction]:
        """What runs when a computation runs once: one instruction for each kernel, loop or call of a library.

        Computations of calls and conditions count as a part of it, each branch of a condition too. Fusions are one
        instruction, and so are loops. Instructions that do no work (tuples, parameters, bitcasts) are left out.
        """
        for instruction in self.computations[computation].instructions:
            if instruction.opcode in INLINE:
                for names in instruction.called.values():
                    for name in names:
                        yield from self.operations(name)
            elif instruction.opcode not in NO_WORK:
                yield instruction

    def loops(self, computation: str | None = None, parents: tuple[WhileLoop, ...] = ()) -> Iterator[WhileLoop]:
        """All loops that a computation (by default the whole program) runs, each before the loops in its body."""
        for instruction in self.operations(computation or self.entry):
            if instruction.opcode == "while":
                (body,), (condition,) = instruction.called["body"], instruction.called["condition"]
                loop = WhileLoop(instruction, body, condition, parents)
                yield loop
                yield from self.loops(body, (*parents, loop))

    def inside(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions of a fusion, without those that do no work; any other instruction itself."""
        if instruction.opcode != "fusion":
            return (instruction,)
        (name,) = instruction.called["calls"]
        return tuple(i for i in self.computations[name].instructions if i.opcode not in NO_WORK)


def parse(text: str) -> Module:
    """The module of an optimized HLO text (`compiled.as_text()`)."""
    computations: dict[str, Computation] = {}
    entry = name = ""
    instructions: list[Instruction] = []
    for line in text.splitlines():
        if name and line.startswith("}"):
            computations[name] = Computation(name, tuple(instructions))
            name, instructions = "", []
        elif name:
            instructions.append(_instruction(line))
        elif header := _COMPUTATION.match(line):
            name = header[2]
            entry = name if header[1] else entry
    return Module(computations, entry)


def _instruction(line: str) -> Instruction:
    match = _INSTRUCTION.match(line)
    assert match is not None, f"not an instruction: {line}"
    rest = match[3]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")  # a tuple's type holds spaces
    opening = rest.index("(", end)
    closing = _closing(rest, opening)
    opcode, attributes = rest[end:opening].strip(), rest[closing + 1 :]
    operands = rest[opening + 1 : closing] if opcode not in ("constant", "parameter") else ""
    called = {key: tuple(re.findall(r"%?([\w.\-]+)", names.strip("{}"))) for key, names in _CALLED.findall(attributes)}
    trip_count, op_name = _TRIP_COUNT.search(attributes), _OP_NAME.search(attributes)
    return Instruction(
        match[2],
        opcode,
        tuple(Shape(dtype, tuple(int(n) for n in sizes.split(",") if n)) for dtype, sizes in _SHAPE.findall(rest[:end])),
        tuple(part.split("%")[-1].strip() for part in _parts(operands)),
        called,
        op_name[1] if op_name else "",
        int(trip_count[1]) if trip_count else None,
        bool(match[1]),
    )


def _closing(text: str, opening: int) -> int:
    """The position of the bracket that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise AssertionError(f"no closing bracket in {text}")


def _parts(operands: str) -> list[str]:
    """The operands, which stand between commas; a comma inside of brackets belongs to an operand's type."""
    text = re.sub(r"/\*.*?\*/", "", operands)
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part.strip()]
