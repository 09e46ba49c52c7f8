"""Mistakes that users make: each raises its own exception, which names the user's line; the texts are under tests/golden/errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors

Mistake = Callable[[], Any]
MISTAKES: dict[str, tuple[type[errors.TempoError], Mistake]] = {}


def raises(error: type[errors.TempoError]) -> Callable[[Mistake], Mistake]:
    """Registers a program that must raise `error` at its line that ends with `# wrong`."""

    def register(mistake: Mistake) -> Mistake:
        MISTAKES[mistake.__name__] = (error, mistake)
        return mistake

    return register


class Program:
    """What most mistakes start from: steps i and t, an input x over both, of shape (3,), and one over t."""

    def __enter__(self) -> Program:
        self.ctx = tp.Context("i", "t")
        (self.i, self.I), (self.t, self.T) = self.ctx.__enter__()
        self.x = tp.input("x", (3,), domain=(self.i, self.t))
        self.y = tp.input("y", (), domain=(self.t,))
        self.bounds = {self.I: 2, self.T: 4}
        return self

    def __exit__(self, *_: object) -> None:
        self.ctx.__exit__()

    def compile(self, *outputs: tp.Tensor) -> tp.Program:
        return self.ctx.compile(self.bounds, outputs=outputs)


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


# -- shapes and dtypes ------------------------------------------------------------------------------------------------


@raises(errors.ShapeError)
def shapes_that_do_not_broadcast() -> None:
    with Program() as p:
        _ = p.x + tp.ones((2,))  # wrong


@raises(errors.ShapeError)
def symbolic_sizes_that_may_differ() -> None:
    with Program() as p:
        _ = p.y[0 : p.t + 1] * p.y[0 : p.T]  # wrong


@raises(errors.ShapeError)
def a_matmul_of_sizes_that_differ() -> None:
    with Program() as p:
        _ = tp.ones((2, 4)) @ p.x  # wrong


@raises(errors.ShapeError)
def a_matmul_with_a_number() -> None:
    with Program() as p:
        _ = p.x @ p.y  # wrong


@raises(errors.ShapeError)
def an_axis_that_is_not_there() -> None:
    with Program() as p:
        _ = p.x.sum(1)  # wrong


@raises(errors.ShapeError)
def a_reshape_to_another_count() -> None:
    with Program() as p:
        _ = p.x.reshape(2, 2)  # wrong


@raises(errors.ShapeError)
def a_reshape_whose_size_cannot_be_told() -> None:
    with Program() as p:
        _ = p.x.reshape(2, -1)  # wrong


@raises(errors.ShapeError)
def a_concatenation_of_other_shapes() -> None:
    with Program():
        _ = tp.concatenate([tp.ones((2, 3)), tp.ones((2, 4))])  # wrong


@raises(errors.ShapeError)
def a_value_of_the_wrong_shape_for_a_recurrence() -> None:
    with Program() as p:
        h = tp.recurrence((2,), domain=(p.i, p.t), name="h")
        h[p.i, p.t] = p.x  # wrong


@raises(errors.ShapeError)
def a_varying_shape_in_a_recurrence() -> None:
    with Program() as p:
        h = tp.recurrence((4,), domain=(p.t,), name="h")
        h[p.t] = p.y[0 : p.t + 1]  # wrong


@raises(errors.DTypeError)
def logic_on_floats() -> None:
    with Program() as p:
        _ = (p.x > 0) & p.x  # wrong


@raises(errors.DTypeError)
def not_of_a_float() -> None:
    with Program() as p:
        _ = ~p.x  # wrong


@raises(errors.DTypeError)
def a_dtype_that_does_not_exist() -> None:
    with Program():
        tp.zeros((2,), "float31")  # wrong


@raises(errors.DTypeError)
def a_choice_by_numbers() -> None:
    with Program() as p:
        _ = tp.where(p.x, p.x, 0.0)  # wrong


# -- inputs -----------------------------------------------------------------------------------------------------------


@raises(errors.InputError)
def an_input_that_is_not_fed() -> None:
    with Program() as p:
        z = tp.input("z", (2,), domain=(p.t,))  # wrong
        p.ctx.run(p.bounds, outputs=[z * 2])


@raises(errors.InputError)
def an_input_that_is_unknown() -> None:
    with Program() as p:
        p.ctx.run(p.bounds, outputs=[p.y * 2], inputs={"y": np.zeros(4, "float32"), "why": np.zeros(4)})  # wrong


@raises(errors.InputError)
def an_input_of_the_wrong_shape() -> None:
    with Program() as p:
        z = tp.input("z", (2,), domain=(p.t,))  # wrong
        p.ctx.run(p.bounds, outputs=[z * 2], inputs={"z": np.zeros((2, 4), "float32")})


@raises(errors.InputError)
def an_input_of_the_wrong_dtype() -> None:
    with Program() as p:
        n = tp.input("n", (), "int32", domain=(p.t,))  # wrong
        p.ctx.run(p.bounds, outputs=[n * 2], inputs={"n": np.array([0.5, 1.5, 2.5, 3.5])})


@raises(errors.TempoError)
def two_inputs_of_one_name() -> None:
    with Program():
        tp.input("x", (2,))  # wrong


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


@raises(errors.NonAffineError)
def a_quotient_of_steps_as_an_index() -> None:
    with Program() as p:
        h = tp.recurrence((), domain=(p.t,), name="h")
        h[0] = 1.0
        h[p.t + 1] = h[p.t * p.t // (p.t + 1)] * 2  # wrong
        p.compile(h)


# -- Python's own control flow ----------------------------------------------------------------------------------------


@raises(errors.SymbolicValueError)
def and_between_conditions() -> None:
    with Program() as p:
        _ = p.y[p.t > 0 and p.t < 3]  # wrong


@raises(errors.SymbolicValueError)
def not_of_a_condition() -> None:
    with Program() as p:
        _ = p.y[not p.t > 0]  # wrong


@raises(errors.SymbolicValueError)
def a_chained_comparison() -> None:
    with Program() as p:
        _ = p.y[0 < p.t < 3]  # wrong


@raises(errors.SymbolicValueError)
def the_builtin_minimum() -> None:
    with Program() as p:
        _ = p.y[p.t : min(p.t + 5, p.T)]  # wrong


@raises(errors.SymbolicValueError)
def a_loop_over_a_bound() -> None:
    with Program() as p:
        for _ in range(p.T):  # wrong
            pass


@raises(errors.SymbolicValueError)
def if_on_a_tensor() -> None:
    with Program() as p:
        if p.y > 0:  # wrong
            pass


@raises(errors.SymbolicValueError)
def a_loop_over_a_tensor() -> None:
    with Program() as p:
        for _ in p.x:  # wrong
            pass


# -- contexts, functions, options -------------------------------------------------------------------------------------


@raises(errors.TempoError)
def a_tensor_outside_of_a_context() -> None:
    tp.ones((2,))  # wrong


@raises(errors.TempoError)
def tensors_of_two_contexts() -> None:
    with Program() as p, Program() as q:
        _ = p.x + q.x  # wrong


@raises(errors.TempoError)
def an_output_that_is_no_tensor() -> None:
    with Program() as p:
        p.ctx.run(p.bounds, outputs=[3.0])  # wrong


@raises(errors.TempoError)
def a_domain_that_is_no_step() -> None:
    with Program() as p:
        tp.recurrence((2,), domain=(p.T,))  # wrong


@raises(errors.TempoError)
def a_step_with_a_name_in_capitals() -> None:
    tp.Context("T")  # wrong


@raises(errors.ShapeError)
def a_function_that_returns_another_shape() -> None:
    with Program() as p:
        (short,) = tp.udf(lambda v: (v[:2],), p.y[0 : p.T], outputs=[tp.spec((3,))], name="cut")
        p.ctx.run(p.bounds, outputs=[short], inputs={"y": np.zeros(4, "float32")})  # wrong


@raises(errors.ConfigError)
def an_unknown_option() -> None:
    tp.Config(executor="stagd")  # wrong


@raises(errors.ConfigError)
def an_unknown_pass() -> None:
    tp.Config(disable=("vectorise",))  # wrong


@raises(errors.NumericsError)
def a_value_that_is_not_finite() -> None:
    with Program() as p:
        root = tp.log(p.y) * 2  # wrong
        config = tp.Config(check_numerics=True, backend="numpy", disable=("fuse",))
        p.ctx.run(p.bounds, outputs=[root], inputs={"y": np.zeros(4, "float32")}, config=config)


# -- the checks -------------------------------------------------------------------------------------------------------


def raised(name: str) -> errors.TempoError:
    """The exception that a mistake raises."""
    error, mistake = MISTAKES[name]
    with pytest.raises(error) as caught:
        mistake()
    return caught.value


def wrong_line(mistake: Mistake) -> int:
    lines, first = inspect.getsourcelines(mistake)
    return first + next(k for k, line in enumerate(lines) if line.rstrip().endswith("# wrong"))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_raises_its_exception_at_the_users_line(name: str) -> None:
    error, mistake = MISTAKES[name]
    found = raised(name)
    assert type(found) is error
    assert found.where == f"{__file__}:{wrong_line(mistake)}"
    assert str(found).startswith(f"{found.message}\n  at {found.where}")


@pytest.mark.parametrize("name", MISTAKES)
def test_the_text_of_an_error(name: str, golden: Callable[[str, str], None]) -> None:
    text = str(raised(name)).replace(__file__, "program.py")
    golden(f"errors/{name}", re.sub(r"program\.py:\d+", "program.py", text))
