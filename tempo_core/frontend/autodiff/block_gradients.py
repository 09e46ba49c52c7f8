"""Gradients of reductions of blocks, `y[t] = reduce(f(x[t // w * w : t // w * w + w]))`: once a block, not once a reader.

The readers of a point are the points of its own block. Where f is a function of the point (and of what all readers in a block share),
the contributions to a point are sums over its block, which `lift` takes once a block (`passes/ranges/window_reductions.py`).
"""

from __future__ import annotations

from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import cast, equal, total
from tempo_core.frontend.tensor import Tensor, apply, of_node, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Elements, Reads, reduced_ranges, without
from tempo_core.ir.ranges.step_blocks import block_of
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain


def contributions_in_blocks(context: BaseContext, node: Node, g: Tensor) -> list[tuple[Tensor, Tensor]] | None:
    """The contribution of a sum, maximum or minimum of a block, with the gradient `g`, to the element at each point; else None.

    It is for a new node: the element, at each point of the node's domain.
    """
    op = node.op
    if not isinstance(op, ops.Reduce) or op.fn not in ("sum", "max", "min"):
        return None
    if node.domain.condition is not TRUE or g.domain.condition is not TRUE:
        return None
    for reads in reduced_ranges(context.graph, node):
        if reads.step not in node.domain or block_of(reads.index, reads.step) is None:
            continue
        if _element(context.graph.copy(), node, reads) is None:  # a search leaves nodes behind: search in a copy first
            return None
        edge = _element(context.graph, node, reads)
        assert edge is not None
        domain = Domain(node.domain.steps)
        element = apply(ops.Identity(), view(context, edge), domain=domain)
        g = apply(ops.Identity(), g, domain=domain)
        return [(element, _to_element(context, node, reads, g, element))]
    return None


def _element(graph: Graph, node: Node, reads: Reads) -> Edge | None:
    """The element at each point of the range, with the other dimensions that the node reduces."""
    return Elements(graph, node, reads.step, reads.index).of(node.inputs[0], reads.axes[0])


def _to_element(context: BaseContext, node: Node, reads: Reads, g: Tensor, x: Tensor) -> Tensor:
    assert isinstance(node.op, ops.Reduce)
    rest = without(node.op.axes, reads.axes[0])  # the other dimensions that the node reduces
    readers = _over_block(reads, g)
    if node.op.fn == "sum":
        return _spread(readers, rest, x)
    y = _spread(of_node(context, node), rest, x)
    is_extreme = cast(equal(x, y), g.dtype)
    count = _over_block(reads, total(is_extreme, rest) if rest else is_extreme)  # equal extremes share the gradient
    return _spread(readers / count, rest, x) * is_extreme


def _over_block(reads: Reads, x: Tensor) -> Tensor:
    """The sum of `x` over the block of each point, which holds the point's readers."""
    block = slice(reads.index.start, reads.index.stop, 1)
    return total(x[tuple(block if s == reads.step else s.expr for s in x.domain.steps)], 0)


def _spread(x: Tensor, axes: tuple[int, ...], like: Tensor) -> Tensor:
    """`x`, which lacks `axes`, in the shape of `like`."""
    if not axes:
        return x
    return apply(ops.Broadcast(tuple(like.type.shape), tuple(a for a in range(like.rank) if a not in axes)), x)
