"""Names in the metadata of XLA's operations: the loop, the statement and the operation in an island that each of them comes from.

They have names only in a program that is lowered for its profile (`report/programs/profile_staged.py`): `with naming() as scopes: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

import jax

_NAME = re.compile(r"\btempo_([lsi])(\d+)(?:b(\d+))?\b")


@dataclass(frozen=True)
class Scope:
    """The place of an operation: the loops around it by number, its statement (a node and a branch), its place in the node's island."""

    loops: tuple[int, ...] = ()
    statement: tuple[int, int | None] | None = None
    instruction: int | None = None

    @staticmethod
    def of(name: str) -> Scope | None:
        """The place that the name of an operation in XLA's metadata has; None if it has none."""
        parts = _NAME.findall(name)
        if not parts:
            return None
        loops = tuple(int(number) for kind, number, _ in parts if kind == "l")
        statement, instruction = None, None
        for kind, number, branch in parts:
            if kind == "s":
                statement, instruction = (int(number), int(branch) if branch else None), None
            elif kind == "i":
                instruction = int(number)
        return Scope(loops, statement, instruction)


@dataclass
class Scopes:
    """The labels of loops, by number; `digest` is a text that no other program has."""

    digest: str = ""
    loops: list[str] = field(default_factory=list)

    def number(self, label: str) -> int:
        if label not in self.loops:
            self.loops.append(label)
        return self.loops.index(label)


_SCOPES: ContextVar[Scopes | None] = ContextVar("scopes", default=None)


@contextmanager
def naming(digest: str = "") -> Iterator[Scopes]:
    """What is lowered inside has the names of its loops, statements and operations in islands, and names for its device programs."""
    scopes = Scopes(digest)
    token = _SCOPES.set(scopes)
    try:
        yield scopes
    finally:
        _SCOPES.reset(token)


def loop_scope(label: str) -> AbstractContextManager[object]:
    """The scope of a loop, under `naming`."""
    scopes = _SCOPES.get()
    return nullcontext() if scopes is None else jax.named_scope(f"tempo_l{scopes.number(label)}")


def statement_scope(node: int, branch: int | None) -> AbstractContextManager[object]:
    """The scope of a statement, under `naming`: a node, or a branch of a recurrence."""
    return _scope(f"tempo_s{node}" if branch is None else f"tempo_s{node}b{branch}")


def instruction_scope(number: int) -> AbstractContextManager[object]:
    """The scope of an operation in an island, under `naming`."""
    return _scope(f"tempo_i{number}")


def _scope(name: str) -> AbstractContextManager[object]:
    return nullcontext() if _SCOPES.get() is None else jax.named_scope(name)


def program_name(number: int) -> str:
    """The name of a device program. Under `naming` no other device program has it, so that no cache gives another one's."""
    scopes = _SCOPES.get()
    return "program" if scopes is None else f"tempo_{scopes.digest}_{number}"
