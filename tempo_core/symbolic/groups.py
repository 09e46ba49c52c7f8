"""Things that belong together, directly or through others (union-find)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Groups(Generic[T]):
    """Disjoint groups, each with a representative: `groups.of(a) == groups.of(b)` says whether a and b are in one group.

    A member that was never joined is a group of its own.

    >>> groups = Groups([1, 2, 3])
    >>> groups.join(1, 3)
    >>> [groups.of(n) == groups.of(1) for n in (1, 2, 3)]
    [True, False, True]
    """

    def __init__(self, members: Iterable[T] = ()):
        self._parent: dict[T, T] = {member: member for member in members}

    def of(self, member: T) -> T:
        """The representative of a member's group."""
        parent = self._parent
        while parent.setdefault(member, member) != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, member: T, other: T) -> None:
        """Join the groups of `member` and `other`. The representative of `other` represents the joined group."""
        self._parent[self.of(member)] = self.of(other)
