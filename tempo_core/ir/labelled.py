"""Values whose dimensions have labels: their products, functions and reductions by label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.symbolic.expr import Expr

Label = str | int
Labels = tuple[Any, ...]  # a label for each dimension


@dataclass(frozen=True)
class Labelled:
    """A value whose dimensions have labels."""

    edge: Edge
    labels: Labels

    def renamed(self, old: Label, new: Label) -> Labelled:
        return replace(self, labels=tuple(new if label == old else label for label in self.labels))


def contraction(left: Labels, right: Labels, summed: Labels, order: Labels = ()) -> tuple[ops.Dot, Labels]:
    """The contraction of values with these labels over the labels `summed`, and its labels.

    Others that both have are shared dimensions: those in `order` first, in that order.
    """
    places_in_order = {label: place for place, label in enumerate(order)}
    both = [label for label in left if label in right and label not in summed]
    shared = tuple(sorted(both, key=lambda label: places_in_order.get(label, len(order))))
    places = [tuple(labels.index(label) for label in group) for group in (summed, shared) for labels in (left, right)]
    return ops.Dot(*places), (*shared, *(label for label in (*left, *right) if label not in (*shared, *summed)))


def product(build: Builder, left: Labelled, right: Labelled, summed: Sequence[Label]) -> Labelled:
    """The contraction of two values over some labels."""
    op, labels = contraction(left.labels, right.labels, tuple(summed))
    return Labelled(build.add(op, left.edge, right.edge), labels)


def combined(build: Builder, fn: str, left: Labelled, right: Labelled) -> Labelled:
    """A function of two values, each repeated along the labels that it lacks."""
    labels = (*left.labels, *(label for label in right.labels if label not in left.labels))
    sizes = {label: size for v in (left, right) for label, size in zip(v.labels, build.type(v.edge).shape, strict=True)}
    shape = tuple(sizes[label] for label in labels)
    return Labelled(build.add(ops.Binary(fn), *(repeated(build, value, labels, shape) for value in (left, right))), labels)


def repeated(build: Builder, value: Labelled, labels: Labels, shape: tuple[Expr, ...]) -> Edge:
    """The value with these labels in this order, repeated along those that it lacks."""
    order = tuple(value.labels.index(label) for label in labels if label in value.labels)
    edge = value.edge if order == tuple(range(len(order))) else build.add(ops.Permute(order), value.edge)
    places = tuple(k for k, label in enumerate(labels) if label in value.labels)
    return edge if len(places) == len(labels) else build.add(ops.Broadcast(shape, places), edge)


def reduced(build: Builder, fn: str, value: Labelled, kept: Sequence[Label]) -> Labelled:
    """The value, reduced over all labels but some."""
    axes = tuple(k for k, label in enumerate(value.labels) if label not in kept)
    labels = tuple(label for label in value.labels if label in kept)
    return Labelled(build.add(ops.Reduce(fn, axes), value.edge), labels) if axes else value
