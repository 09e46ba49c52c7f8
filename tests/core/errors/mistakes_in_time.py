"""Programs with mistakes about points in time: reads outside of a domain, branches, cycles, bounds, indices."""

from __future__ import annotations

import tempo_core as tp
from tempo_core import errors
from tests.core.errors.mistakes import Program, raises

# -- points that are not there ----------------------------------------------------------------------------------------


@raises(errors.OutOfDomainError)
def a_read_past_the_end() -> None:
    with Program() as p:
        after = p.y[p.t + 1] * 2  # wrong
        p.compile(after)


@raises(errors.OutOfDomainError)
def a_slice_before_the_start() -> None:
    with Program() as p:
        window = p.y[p.t - 3 : p.t + 1].sum(0)  # wrong
        p.compile(window)


@raises(errors.OutOfDomainError)
def a_slice_that_ends_before_it_starts() -> None:
    with Program() as p:
        window = p.y[p.t : p.t // 2].sum(0)  # wrong
        p.compile(window)


@raises(errors.IndexingError)
def a_distance_that_is_a_power_of_a_step() -> None:
    with Program() as p:
        p.y[p.t - 2**p.t]  # wrong


@raises(errors.ShapeError)
def a_size_that_is_a_power_of_a_step() -> None:
    with Program() as p:
        tp.zeros((3, 2**p.t))  # wrong


@raises(errors.OutOfDomainError)
def a_branch_that_reads_outside() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[p.T - 1] = 0.0
        h[p.t] = h[p.t - 1] + p.y  # wrong
        p.compile(h)


@raises(errors.OutOfDomainError)
def a_read_where_a_condition_does_not_hold() -> None:
    with Program() as p:
        even = (p.y * 2)[p.t % 2 == 0]
        total = even + p.y  # wrong
        p.compile(total)


@raises(errors.UncoveredPointError)
def a_point_that_no_branch_defines() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[p.t + 1] = h + p.y  # wrong
        p.compile(h)


@raises(errors.UncoveredPointError)
def a_recurrence_that_is_never_assigned() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")  # wrong
        p.compile(h)


@raises(errors.EmptyBranchError)
def a_branch_after_one_that_covers_all() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[p.t] = p.y
        h[0] = 1.0  # wrong
        p.compile(h)


@raises(errors.EmptyBranchError)
def a_branch_outside_of_the_domain() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[p.T] = 1.0  # wrong
        h[p.t] = p.y
        p.compile(h)


@raises(errors.OutOfDomainError)
def steps_in_the_wrong_order() -> None:
    with Program() as p:
        swapped = p.x[p.t, p.i] * 2  # wrong
        p.compile(swapped)


# -- values that depend on themselves ---------------------------------------------------------------------------------


@raises(errors.CausalityError)
def a_cycle_with_no_delay() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[0] = 0.0
        h[p.t] = h * 2 + p.y  # wrong
        p.compile(h)


@raises(errors.CausalityError)
def a_cycle_through_two_recurrences() -> None:
    with Program() as p:
        a, b = tp.recurrence((), domain=(p.t,), name="a"), tp.recurrence((), domain=(p.t,), name="b")
        a[p.t] = b[p.t] + 1  # wrong
        b[p.t] = a[p.t] * p.y
        p.compile(a)


@raises(errors.CausalityError)
def a_cycle_through_the_future() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[0] = 0.0
        h[p.t + 1] = h[0 : p.T].sum(0)  # wrong
        p.compile(h)


# -- bounds -----------------------------------------------------------------------------------------------------------


@raises(errors.BoundsError)
def a_bound_that_is_not_given() -> None:
    with Program() as p:
        p.ctx.run({p.T: 4}, outputs=[p.y])  # wrong


@raises(errors.BoundsError)
def a_bound_of_another_context() -> None:
    other = tp.Context("k")
    with Program() as p, other as ((_, K),):
        p.ctx.run({p.I: 2, p.T: 4, K: 3}, outputs=[p.y])  # wrong


@raises(errors.BoundsError)
def a_bound_of_zero() -> None:
    with Program() as p:
        p.ctx.run({p.I: 2, p.T: 0}, outputs=[p.y])  # wrong


@raises(errors.BoundsError)
def a_bound_that_is_no_integer() -> None:
    with Program() as p:
        p.ctx.run({p.I: 2, p.T: 4.0}, outputs=[p.y])  # wrong


@raises(errors.BoundsError)
def a_bound_too_small_for_an_index() -> None:
    with Program() as p:
        late = p.y[7] * 2  # wrong
        p.compile(late)


@raises(errors.BoundsError)
def a_bound_too_small_for_a_slice() -> None:
    with Program() as p:
        first = p.y[0:6].sum(0)  # wrong
        p.compile(first)


@raises(errors.BoundsError)
def a_bound_that_is_too_large() -> None:
    with Program() as p:
        p.ctx.run({p.I: 2, p.T: 2**31}, outputs=[p.y])  # wrong


@raises(errors.BoundsError)
def bounds_as_a_list() -> None:
    with Program() as p:
        p.ctx.run([2, 4], outputs=[p.y])  # wrong


# -- indices ----------------------------------------------------------------------------------------------------------


@raises(errors.IndexingError)
def an_assignment_to_what_is_no_recurrence() -> None:
    with Program() as p:
        double = p.x * 2
        double[0, 0] = tp.ones((3,))  # wrong


@raises(errors.IndexingError)
def an_assignment_over_a_slice() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[0 : p.t] = p.y  # wrong


@raises(errors.IndexingError)
def an_assignment_at_a_multiple() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[p.t * 2] = p.y  # wrong


@raises(errors.IndexingError)
def an_assignment_at_another_step() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.i, p.t), name="h")
        h[p.t, p.t] = p.y  # wrong


@raises(errors.IndexingError)
def an_assigned_value_with_another_step() -> None:
    with Program() as p:
        h = tp.recurrence((3,), domain=(p.i,), name="h")
        h[p.i] = p.x  # wrong


@raises(errors.IndexingError)
def an_assigned_value_that_varies_with_a_fixed_step() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[0] = p.y  # wrong


@raises(errors.IndexingError)
def a_negative_point() -> None:
    with Program() as p:
        _ = p.y[-1]  # wrong


@raises(errors.IndexingError)
def a_negative_end_of_a_slice() -> None:
    with Program() as p:
        _ = p.y[0:-1]  # wrong


@raises(errors.IndexingError)
def a_negative_stride() -> None:
    with Program() as p:
        _ = p.y[0 : p.T : -1]  # wrong


@raises(errors.IndexingError)
def more_indices_than_steps() -> None:
    with Program() as p:
        _ = p.y[0, 1]  # wrong


@raises(errors.IndexingError)
def a_step_indexed_by_a_tensor() -> None:
    with Program() as p:
        _ = p.x[0, p.y.astype("int32")]  # wrong


@raises(errors.IndexingError)
def a_step_indexed_by_a_float() -> None:
    with Program() as p:
        _ = p.y[0.5]  # wrong


@raises(errors.IndexingError)
def a_slice_of_what_is_ragged() -> None:
    with Program() as p:
        prefixes = p.y[0 : p.t + 1] * 2
        _ = prefixes[0 : p.T]  # wrong


@raises(errors.IndexingError)
def a_slice_over_holes() -> None:
    with Program() as p:
        even = p.y[p.t % 2 == 0]
        _ = even[0 : p.T]  # wrong


@raises(errors.IndexingError)
def more_spatial_indices_than_dimensions() -> None:
    with Program() as p:
        _ = p.x.spatial[0, 1]  # wrong


@raises(errors.IndexingError)
def a_spatial_slice_of_negative_length() -> None:
    with Program() as p:
        rest = p.x.spatial[p.t :].sum(0)  # wrong
        p.ctx.run({p.I: 1, p.T: 5}, outputs=[rest])


@raises(errors.IndexingError)
def a_slice_to_where_data_says() -> None:
    with Program() as p:
        _ = p.y[0 : p.y.astype("int32")]  # wrong


@raises(errors.IndexingError)
def a_position_outside_of_an_axis() -> None:
    with Program() as p:
        _ = p.x.spatial[3]  # wrong


@raises(errors.IndexingError)
def a_mask_as_an_index() -> None:
    with Program() as p:
        _ = p.x.spatial[p.x > 0]  # wrong


@raises(errors.IndexingError)
def an_assignment_to_an_element() -> None:
    with Program() as p:
        p.x.spatial[0] = 1.0  # wrong


@raises(errors.DivisionError)
def an_index_that_divides_by_zero() -> None:
    with Program() as p:
        _ = p.y[p.t // 0]  # wrong


@raises(errors.NonAffineError)
def a_quotient_of_steps_as_an_index() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[0] = 1.0
        h[p.t + 1] = h[p.t * p.t // (p.t + 1)] * 2  # wrong
        p.compile(h)
