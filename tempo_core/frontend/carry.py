"""State that goes on to the next point: over one step, over nested loops, from the last point to the first."""

from __future__ import annotations

from tempo_core.errors import ArgumentError, ContextError
from tempo_core.frontend.aliases import Domain
from tempo_core.frontend.arguments import checked, is_recurrence, shown
from tempo_core.frontend.inputs import domain_steps
from tempo_core.frontend.recurrence import Recurrence
from tempo_core.frontend.tensor import Tensor, Value, as_tensor
from tempo_core.symbolic.expr import Expr, Symbol


@checked
def carry(
    x: Recurrence, start: Value | None = None, following: Value | None = None, kept: Domain = (), reverse: bool = False
) -> None:
    """Assign all points of the recurrence `x`: the first value is `start`, and the value after each point is `following` there.

    The steps of x are loops, the last one innermost; after the last point of a loop comes the first point of the next iteration
    around it. Over (i, t) this is

        x[0, 0] = start
        x[i, t + 1] = following
        x[i + 1, 0] = following[i, T - 1]

    `kept` are the steps of x along which nothing is carried: each of their points has a state of its own, which begins as
    `start` at that point. With kept=(i,), the three lines become `x[i, 0] = start` and `x[i, t + 1] = following`. With
    `reverse`, the loops run from their last points to their first: `x[T - 1] = start`, `x[t - 1] = following`.

    `start` has x's shape, and may vary with the steps in `kept`; `following` may vary with all steps of x, and is usually
    computed from x itself. Either may be left out, and assigned by another call or by hand. For example, a parameter first gets
    its start, and after differentiation a following value that is computed from its gradient:

        w = tp.recurrence((3,), domain=(i,), name="w")
        tp.carry(w, tp.zeros((3,)))
        loss.backward()
        tp.carry(w, following=w - 0.1 * w.grad)

    Raises ArgumentError if x is not a recurrence, if all of its steps are kept, or if there is nothing to assign; ContextError
    for a kept step that x does not have; IndexingError if `start` varies with a loop, or `following` with a step that x does not
    have; DTypeError and ShapeError as an assignment does.
    """
    if not is_recurrence(x):
        raise ArgumentError(
            f"tp.carry assigns a recurrence, not {shown(x)}", hint='make one: x = tp.recurrence((3,), domain=(t,), name="x")'
        )
    if start is None and following is None:
        raise ArgumentError(
            f"tp.carry of {x!r} has neither a start nor a following value",
            hint="give one of them, or both: tp.carry(x, start, following)",
        )
    loops = _loops(x, kept)
    if start is not None:
        x[_key(x, {step: _first(step, reverse) for step in loops})] = start
    if following is not None:
        _go_on(x, following, loops, reverse)


def _go_on(x: Recurrence, following: Value, loops: list[Symbol], reverse: bool) -> None:
    """Assign the value after each point to the next point; where inner loops end, to their first point, one iteration on."""
    with x.context:
        after = as_tensor(following, x)
    for depth in reversed(range(len(loops))):
        step, inner = loops[depth], loops[depth + 1 :]
        ended = {s: _first(s, not reverse) for s in inner}
        value = after[_key(after, ended)] if set(inner) & set(after.domain.steps) else after
        advanced = step.expr - 1 if reverse else step.expr + 1
        x[_key(x, {step: advanced} | {s: _first(s, reverse) for s in inner})] = value


def _loops(x: Recurrence, kept: Domain) -> list[Symbol]:
    """The steps along which `x` is carried, in the order of its domain."""
    with x.context:
        parallel = domain_steps(kept)
    names = ", ".join(step.name for step in x.domain.steps)
    for step in parallel:
        if step not in x.domain.steps:
            raise ContextError(
                f"kept names the step {step}, but {x!r} has no such step",
                hint=f"its steps are {names}" if names else "it has no steps: give the recurrence a domain",
            )
    loops = [step for step in x.domain.steps if step not in parallel]
    if not loops:
        raise ArgumentError(
            f"{x!r} has no step left to loop over",
            hint="leave the loop's step out of kept: tp.carry(x, start, following, kept=())"
            if names
            else "give the recurrence a domain: domain=(t,)",
        )
    return loops


def _first(step: Symbol, reverse: bool) -> Expr:
    """The point at which a loop begins."""
    return step.bound_expr - 1 if reverse else Expr.of(0)


def _key(x: Tensor, points: dict[Symbol, Expr]) -> tuple[Expr, ...]:
    """An index of `x`: the entries of `points` for their steps, the same point for the others."""
    return tuple(points.get(step, step.expr) for step in x.domain.steps)
