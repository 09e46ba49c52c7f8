"""Symbolic reverse-mode differentiation of the graph, across time.

For `y[p] = f(x[φ(p)])`, `∇x[q] = Σ_{p ∈ φ⁻¹(q)} f'(∇y[p])` (paper, section 3). The gradient rule of each op is a row of
`frontend/autodiff/gradients.py`; here contributions are brought back through the edges' inverse indices and summed. Cycles (a
recurrence that depends on itself) are cut at their `Merge`: its gradient is a recurrence too, so that back-propagation
through time comes out of the inverse dependence.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from tempo_core.collector import without_collector
from tempo_core.errors import GradientError, MissingRow
from tempo_core.frontend.arguments import checked, shown
from tempo_core.frontend.autodiff.contributions import as_cases, overflows, sums_later, uses_values
from tempo_core.frontend.autodiff.gradients import gradient_of
from tempo_core.frontend.autodiff.range_reductions import lifted
from tempo_core.frontend.autodiff.reader_sums import ReaderSum, at_all_points, fit_shape
from tempo_core.frontend.autodiff.ring_gradients import ring_read
from tempo_core.frontend.autodiff.slopes import NoGradient, Zero
from tempo_core.frontend.autodiff.window_gradients import scattered_read
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import ones, scatter_add, where, zeros
from tempo_core.frontend.tensor import Tensor, apply, differentiates, evaluate, of_node, view
from tempo_core.ir.dependence import ancestors, feeding, reached, strongly_connected
from tempo_core.ir.graph import Edge, Key, Node
from tempo_core.ir.ops import Broadcast, Eval, Identity, Input, Merge, Reshape, Udf, Where, product
from tempo_core.ir.types import is_float
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, Comparison, disjunction
from tempo_core.symbolic.domain import Domain, Index, Point
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.inverse import Inverse, hulls, invert
from tempo_core.symbolic.isl.relation import uncovered
from tempo_core.symbolic.proof import unless_obvious


@differentiates
def backward(loss: Tensor) -> None:
    """`loss.backward()`."""
    context = loss.context
    cyclic = _cyclic_merges(context)
    of_loss = ancestors(context.graph, [loss.edge.source])
    nodes = [*(r for r in context.recurrences if r not in cyclic), *context.leaves]
    leaves = [of_node(context, context.graph[node]) for node in nodes if node in of_loss]
    leaves = [leaf for leaf in leaves if is_float(leaf.dtype)]
    if not leaves:
        raise GradientError(
            f"{loss!r} depends on nothing that gets a gradient",
            hint="backward() gives gradients to inputs with requires_grad=True, and to recurrences without an update so far. "
            "For any other tensor: tp.grad(loss, [x])",
        )
    for leaf, gradient in zip(leaves, grad(loss, leaves), strict=True):
        key = (leaf.edge.source, leaf.edge.output)
        previous = context.gradients.get(key)
        context.gradients[key] = (gradient if previous is None else view(context, previous) + gradient).edge


@checked
def grad(loss: Tensor, wrt: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of `loss`, summed over its points and elements, with respect to each tensor of `wrt`.

    Each has the shape, dtype and domain of its tensor; tensors that the loss does not depend on get zeros.
    """
    if not is_float(loss.dtype):
        raise GradientError(
            f"{loss!r} is not of a float dtype, so it has no gradient", hint='convert the loss: loss.astype("float32")'
        )
    for target in wrt:
        if not isinstance(target, BaseTensor):
            raise GradientError(
                f"cannot differentiate with respect to {shown(target)}: it is not a tensor",
                hint="list tensors: tp.grad(loss, [x, y])",
            )
        if target.context is not loss.context:
            raise GradientError(
                f"{target!r} and {loss!r} belong to different contexts",
                hint="build the loss and the tensor in one context: with ctx as ((t, T),): ...",
            )
        if not is_float(target.dtype):
            raise GradientError(
                f"cannot differentiate with respect to {target!r}: it is not of a float dtype",
                hint="differentiate with respect to floats: tp.grad(loss, [x])",
            )
    targets = [t.materialized() for t in wrt]
    return _Reverse(loss.context, loss.materialized(), targets).run()


def _cyclic_merges(context: BaseContext) -> set[int]:
    """Recurrences that already depend on themselves."""
    return {m for m in context.recurrences if m in feeding(context.graph, [context.graph[m]])}


def _op_name(node: Node) -> str:
    """The name of an op in errors: its function, if it has one, else its class."""
    return f"`{getattr(node.op, 'fn', None) or type(node.op).__name__}`"


Read = tuple[Domain, tuple[Index, ...], Bool]  # the reader's domain, where it reads, and under which condition


class _Reverse:
    """One reverse pass over the active nodes: those on a path from a target to the loss."""

    def __init__(self, context: BaseContext, loss: Tensor, targets: list[Tensor]):
        self.context, self.graph, self.loss, self.targets = context, context.graph, loss, targets
        self.active = self._active_nodes()
        self.partial: dict[Key, list[Tensor]] = {}  # contributions to a value's gradient
        self.support: dict[Key, Bool] = {}  # where a gradient may be other than zero
        self.waiting: dict[Key, dict[Read, tuple[Node, Edge, Tensor, Bool, Bool]]] = {}  # contributions of each read of a value
        self.placeholders: dict[int, Tensor] = {}  # gradients of merges that lie on cycles
        self.filled: set[int] = set()  # gradients with zeros at the points at which nothing reads their value
        self.overflowing: dict[int, bool] = {}  # whether a node may be infinite at points where its value is not needed

    @without_collector
    def run(self) -> list[Tensor]:
        seed = ones(self.loss.type.shape, self.loss.dtype)
        self._contribute((self.loss.edge.source, self.loss.edge.output), seed, TRUE)
        self._walk(self.active)
        return [self._result(t) for t in self.targets]

    def _walk(self, nodes: set[int]) -> None:
        """Differentiate nodes, readers before their sources. A cycle is cut at its merge, whose gradient is a recurrence."""
        order, cut = self._order(nodes)
        for node_id in cut:
            merge = self.graph[node_id]
            type = merge.outputs[0]
            node = self.graph.add(Merge(type), domain=merge.domain, name=f"grad_{merge.name or merge.id}", where=merge.where)
            self.placeholders[node_id] = of_node(self.context, node)
        for node_id in order:
            self._differentiate(self.graph[node_id])
        for node_id in cut:
            placeholder = self.placeholders[node_id]
            total = self._total((node_id, 0))
            node = self.graph[placeholder.edge.source]
            value = total if total is not None else zeros(placeholder.type.shape, placeholder.dtype)
            self.graph.put(replace(node, inputs=(value.edge,)))

    def _result(self, target: Tensor) -> Tensor:
        key = (target.edge.source, target.edge.output)
        if target.edge.source in self.placeholders:
            return self.placeholders[target.edge.source]
        total = self._total(key)
        gradient = zeros(target.type.shape, target.dtype) if total is None else total
        domain = target.domain
        # A gradient may vary with fewer steps than its target.
        return gradient if gradient.domain.steps == domain.steps else apply(Identity(), gradient, domain=domain)

    def _active_nodes(self) -> set[int]:
        """Nodes between the targets and the loss, along reads that carry a gradient back."""
        users = self.graph.users()

        def sources(node_id: int) -> list[int]:
            node = self.graph[node_id]
            return [edge.source for edge in node.inputs if self._carries_gradient(node, edge)]

        def readers(node_id: int) -> list[int]:
            reads = ((reader, reader.inputs[slot]) for reader, slot in users[node_id] if reader.id in of_loss)
            return [reader.id for reader, edge in reads if self._carries_gradient(reader, edge)]

        of_loss = reached([self.loss.edge.source], sources)
        return reached({target.edge.source for target in self.targets} & of_loss, readers)

    def _carries_gradient(self, reader: Node, edge: Edge) -> bool:
        op = reader.op
        if not is_float(self.graph[edge.source].outputs[edge.output].dtype):
            return False
        if isinstance(op, Identity) and op.stop_gradient:
            return False
        if isinstance(op, Udf) and (op.kind != "jax" or op.stateful):
            return False
        # An op without a gradient is an error only where its gradient is needed.
        return isinstance(op, Merge) or not isinstance(gradient_of(op), Zero)

    def _order(self, nodes: set[int]) -> tuple[list[int], list[int]]:
        """The nodes, readers before their sources; and the merges at which cycles are cut. Reads of these merges do not count."""
        cut = [n for n in nodes if isinstance(self.graph[n].op, Merge) and self._on_cycle(n)]
        order: list[int] = []
        done: set[int] = set()
        for start in sorted(nodes, reverse=True):
            stack = [(start, False)]
            while stack:  # sources first: a reader comes after all of its sources, then the list is reversed
                node_id, ready = stack.pop()
                if ready:
                    order.append(node_id)
                elif node_id not in done:
                    done.add(node_id)
                    stack.append((node_id, True))
                    sources = {e.source for e in self.graph[node_id].inputs} & nodes
                    stack += [(s, False) for s in sources if s not in done and s not in cut]
        for node_id in cut:  # their gradients are placeholders, which exist from the start: they come first
            order.remove(node_id)
        return cut + list(reversed(order)), cut

    def _on_cycle(self, node_id: int) -> bool:
        def sources(each: int) -> list[int]:
            return [edge.source for edge in self.graph[each].inputs if edge.source in self.active]

        return node_id in reached(sources(node_id), sources)

    @functools.cached_property
    def _cycles(self) -> dict[int, int]:
        """For each node, the number of its strongly connected component. Gradients read these nodes, and no node reads a gradient."""
        reads = [(node.id, edge.source) for node in self.graph for edge in node.inputs]
        components = strongly_connected(list(self.graph.nodes), reads)
        return {node_id: number for number, members in enumerate(components) for node_id in members}

    def _is_on_cycle_through(self, reader: Node, edge: Edge) -> bool:
        """Whether the value that a node reads depends on the node itself."""
        if reader.id not in self._cycles or edge.source not in self._cycles:  # a copy that this gradient made
            return reader.id in ancestors(self.graph, [edge.source])
        return self._cycles[reader.id] == self._cycles[edge.source]

    def _contribute(self, key: Key, contribution: Tensor, where: Bool) -> None:
        self.partial.setdefault(key, []).append(contribution)
        self.support[key] = self.support.get(key, FALSE) | where

    def _total(self, key: Key) -> Tensor | None:
        for read in self.waiting.pop(key, {}).values():
            self._bring_back(*read)
        parts = self.partial.get(key)
        if not parts:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.partial[key] = [total]
        return total

    def _differentiate(self, node: Node) -> None:
        """Pass the gradient of a node's outputs on to its sources."""
        if node.id in self.placeholders:
            gradients: list[Tensor | None] = [self.placeholders[node.id]]
        else:
            gradients = [self._total((node.id, k)) for k in range(len(node.outputs))]
        if all(g is None for g in gradients):
            return
        needs_gradient = [e.source in self.active and self._carries_gradient(node, e) for e in node.inputs]
        if not any(needs_gradient):
            return
        if isinstance(node.op, Merge):
            assert gradients[0] is not None
            remaining: Bool = TRUE
            for edge in node.inputs:
                if edge.source in self.active:
                    self._pull_back(node, edge, gradients[0], edge.condition & remaining)
                remaining = remaining & ~edge.condition
            return
        first = self.graph.next_id
        value = lifted(self.context, node)
        if value is not None and gradients[0] is not None:
            self._differentiate_lifted(value, gradients[0], first)
            return
        rule = gradient_of(node.op)
        if isinstance(rule, NoGradient):
            message = f"{_op_name(node)} has no gradient: {rule.why}"
            raise GradientError(message, where=node.where or None, hint=rule.hint) from (
                MissingRow(message) if rule.missing else None
            )
        assert not isinstance(rule, Zero), "gradients flow along reads that carry them"
        operands = [view(self.context, e) for e in node.inputs]
        results = [of_node(self.context, node, k) for k in range(len(node.outputs))]
        within: Bool = TRUE
        if len(gradients) == 1 and gradients[0] is not None:
            gradients[0], within = self._without_zeros(node, gradients[0])
        contributions = rule(node.op, operands, results, gradients)
        support = self._support(node)
        unsafe = support is not TRUE and uses_values(node.op) and self._may_overflow(node.id)
        for slot, (edge, contribution) in enumerate(zip(node.inputs, contributions, strict=True)):
            if needs_gradient[slot] and contribution is not None:
                if unsafe:  # the value may be infinite where it is not needed: zero times infinity is NaN
                    contribution = where(evaluate(support), contribution, 0)
                self._pull_back(node, edge, contribution, within, support & self._chosen(node, slot))

    def _without_zeros(self, node: Node, gradient: Tensor) -> tuple[Tensor, Bool]:
        """A gradient without the zeros that `_zero_elsewhere` gave it, and the condition under which it exists then.

        Only in recurrences: a loop would keep, merge and multiply the zeros. Elsewhere, all points at once are one operation. And only where
        the condition is one of limits: schedules of domains with other conditions take long to find.
        """
        if gradient.edge.source not in self.filled or not self._on_cycle(node.id):
            return gradient, TRUE
        filled = self.graph[gradient.edge.source]
        if not all(
            isinstance(part, Comparison) and part.kind != "!=" and len(part.steps) == 1
            for part in filled.inputs[0].condition.parts
        ):
            return gradient, TRUE
        within, value = filled.inputs[0].condition, view(self.context, replace(filled.inputs[0], condition=TRUE))
        return apply(Identity(), value, domain=Domain(filled.domain.steps, within)), within

    def _differentiate_lifted(self, value: Tensor, gradient: Tensor, first: int) -> None:
        """Pass a gradient on through a value whose nodes, numbered `first` or later, are new."""
        new = reached([value.edge.source], lambda n: [edge.source for edge in self.graph[n].inputs if edge.source >= first])
        for node_id in sorted(new):  # sources come before their readers
            node = self.graph[node_id]
            if any(edge.source in self.active and self._carries_gradient(node, edge) for edge in node.inputs):
                self.active.add(node_id)
        self._contribute((value.edge.source, 0), gradient, TRUE)
        self._walk(new & self.active)

    def _support(self, node: Node) -> Bool:
        """The condition under which a node's gradients may be other than zero."""
        if node.id in self.placeholders:
            return TRUE
        return unless_obvious(disjunction(*(self.support.get((node.id, k), FALSE) for k in range(len(node.outputs)))))

    def _chosen(self, node: Node, slot: int) -> Bool:
        """The condition on steps under which a node takes its operand `slot`: a selection, where steps alone decide it."""
        if not isinstance(node.op, Where) or slot == 0:
            return TRUE
        edge, at = node.inputs[0], {step: step.expr for step in node.domain.steps}
        while all(isinstance(read, Point) for read in edge.index):
            decides = self.graph[edge.source]
            reads = (read.expr.substitute(at) for read in edge.index if isinstance(read, Point))
            at = dict(zip(decides.domain.steps, reads, strict=True))
            if isinstance(decides.op, Eval) and isinstance(decides.op.value, Bool):
                condition = decides.op.value.substitute(at)
                return condition if slot == 1 else ~condition
            if not isinstance(decides.op, (Broadcast, Reshape)):
                break
            edge = decides.inputs[0]
        return TRUE

    def _may_overflow(self, node_id: int) -> bool:
        """Whether an op between the last branching tensors and a value may give an infinity for finite operands."""
        if node_id not in self.overflowing:
            node = self.graph[node_id]
            self.overflowing[node_id] = not isinstance(node.op, (Merge, Input)) and (
                overflows(self.graph, node) or any(self._may_overflow(e.source) for e in node.inputs)
            )
        return self.overflowing[node_id]

    def _pull_back(self, reader: Node, edge: Edge, contribution: Tensor, branch: Bool, support: Bool = TRUE) -> None:
        """Add the contributions of all reader points to the gradient of the source.

        Contributions exist where `branch` and the condition of the reader's domain hold; outside of `support` they are zero. The
        contributions of equal reads are added up first.
        """
        if not sums_later(edge, reader.domain, contribution):
            self._bring_back(reader, edge, contribution, branch, support)
            return
        reads = self.waiting.setdefault((edge.source, edge.output), {})
        read = (reader.domain, edge.index, branch)
        if read in reads:
            _, _, others, _, other_support = reads[read]
            contribution, support = others + contribution, other_support | support
        reads[read] = (reader, edge, contribution, branch, support)

    def _bring_back(self, reader: Node, edge: Edge, contribution: Tensor, branch: Bool, support: Bool) -> None:
        """Sum the contributions of all reader points to a source point, and add the sum to the source's gradient."""
        source = self.graph[edge.source]
        domain = Domain(reader.domain.steps, reader.domain.condition & branch)
        ring = ring_read(edge, source.domain, domain)
        if ring is not None and (ring.is_carried or not self._is_on_cycle_through(reader, edge)):
            turned = ring.turned(at_all_points(contribution, domain), self.graph.order)
            self._bring_back(replace(reader, domain=turned.domain), ring.straight(edge), turned, TRUE, TRUE)
            return
        inner = self._ended_inside(edge, domain)
        if inner is not None:  # first the sum over the points of the inner step, of which each outer point has another number
            every = at_all_points(contribution, domain)
            of_inner = apply(Identity(), every, domain=Domain(domain.steps))
            summed = of_inner[tuple(slice(Expr.of(0), s.bound_expr, 1) if s == inner else s.expr for s in domain.steps)].sum(0)
            left = Domain(tuple(s for s in domain.steps if s != inner))
            self._bring_back(replace(reader, domain=left), replace(edge, condition=TRUE), summed, TRUE, TRUE)
            return
        exact, inverses = True, tuple[Inverse, ...]()
        try:
            inverses = (invert(domain, edge.index, source.domain),)
        except GradientError:
            cases = as_cases(edge)
            for case, holds in cases:  # x[max(t - 1, 0)] is x[t - 1] where t >= 1, and x[0] elsewhere
                self._bring_back(reader, case, contribution, branch & holds, support)
            exact, inverses = False, () if cases else hulls(domain, edge.index, source.domain)
        scattered = scattered_read(edge, source.domain, domain, inverses)
        if scattered is not None and not self._is_on_cycle_through(reader, edge):
            self._scatter_back(edge, contribution, domain, scattered)
            return
        for inverse in inverses:
            readers = ReaderSum(self.context, edge, domain, inverse, exact)
            summed = readers.of(contribution, lambda: self._is_on_cycle_through(reader, edge))
            summed = self._zero_elsewhere(source, inverse.condition, summed)
            self._contribute((edge.source, edge.output), summed, inverse.condition & readers.condition(support))

    def _ended_inside(self, edge: Edge, readers: Domain) -> Symbol | None:
        """A step of the readers that ends at another place for each outer point, where all its points read the same."""
        for bound, outer in self.context.outer.items():
            step = next((s for s in readers.steps if s.bound_symbol == bound), None)
            if step is not None and set(outer) <= set(readers.steps) and step not in edge.steps:
                return step
        return None

    def _scatter_back(self, edge: Edge, contribution: Tensor, domain: Domain, step: Symbol) -> None:
        """Add each reader's contribution at the point of `step` that it reads; the other steps of the source are read at own points."""
        source = self.graph[edge.source]
        points = edge.points(source.domain)
        keys = tuple(s.expr if s in points and s != step else slice(Expr.of(0), s.bound_expr, 1) for s in domain.steps)
        every = apply(Identity(), at_all_points(contribution, domain), domain=Domain(domain.steps))
        positions = apply(Identity(), evaluate(points[step]), domain=Domain(domain.steps))
        values, places = every[keys], positions[keys]
        values = values.reshape((product(places.type.shape), *values.type.shape[places.rank :]))
        gathered = scatter_add(values, places.reshape((product(places.type.shape),)), step.bound_expr, 0)
        gathered = fit_shape(gathered.index(0, step.expr), source.outputs[edge.output].shape)
        self._contribute((edge.source, edge.output), gathered, TRUE)

    def _zero_elsewhere(self, source: Node, condition: Bool, value: Tensor) -> Tensor:
        """`value` at the source's points where `condition` holds, zeros elsewhere."""
        guarded = condition & value.domain.condition
        if guarded is TRUE or uncovered(source.domain, [guarded]) is None:
            return value
        type = source.outputs[0] if len(source.outputs) == 1 else value.type
        node = self.graph.add(Merge(value.type), domain=Domain(source.domain.steps), name="", where=source.where)
        nothing = zeros(value.shape, type.dtype)
        self.graph.put(replace(node, inputs=(replace(value.edge, condition=guarded), nothing.edge)))
        self.filled.add(node.id)
        return of_node(self.context, node)
