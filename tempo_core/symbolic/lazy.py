"""Attributes that are computed when they are first asked for: `functools.cached_property` without its lock.

Expressions, types and reads are made by the ten thousand, and the lock costs more than most of what they compute. Two threads that ask at the
same time compute the same value twice.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    lazy = cached_property
else:

    class lazy:
        """Decorator of a method without arguments. Its result takes its place among the object's attributes."""

        def __init__(self, compute):
            self.compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.compute(instance)
            return value
