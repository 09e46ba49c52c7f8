"""Programs with mistakes about values: shapes, dtypes, Python's control flow, arguments."""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tempo_core import errors
from tests.core.errors.mistakes import Program, raises

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


@raises(errors.ShapeError)
def a_bound_written_as_its_number() -> None:
    with Program() as p:
        _ = p.y[0 : p.T].reshape(2, 2)  # wrong


@raises(errors.ShapeError)
def a_size_that_varies_with_a_step_outside_the_domain() -> None:
    with Program() as p:
        tp.recurrence((p.i + 1,), domain=(p.t,), name="h")  # wrong


@raises(errors.ShapeError)
def an_input_whose_size_varies() -> None:
    with Program() as p:
        tp.input("z", (p.t,), domain=(p.t,))  # wrong


@raises(errors.ShapeError)
def a_negative_size() -> None:
    with Program():
        tp.zeros((2, -1))  # wrong


@raises(errors.DTypeError)
def floats_in_a_recurrence_of_integers() -> None:
    with Program() as p:
        n = tp.recurrence((), "int32", domain=(p.t,), name="n")
        n[p.t] = p.y  # wrong


@raises(errors.DTypeError)
def a_number_that_a_dtype_does_not_hold() -> None:
    with Program():
        tp.constant(300, "uint8")  # wrong


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


@raises(errors.SymbolicValueError)
def if_at_a_point() -> None:
    with Program() as p:
        if p.t == 0:  # wrong
            pass


@raises(errors.SymbolicValueError)
def numpy_of_a_tensor() -> None:
    with Program() as p:
        np.asarray(p.y)  # wrong


@raises(errors.ArgumentError)
def a_function_of_numpy() -> None:
    with Program() as p:
        np.tanh(p.y)  # wrong


# -- arguments --------------------------------------------------------------------------------------------------------


@raises(errors.ArgumentError)
def an_argument_of_another_library() -> None:
    with Program() as p:
        p.x.softmax(dim=0)  # wrong


@raises(errors.ArgumentError)
def none_as_a_tensor() -> None:
    with Program() as p:
        _ = p.x + None  # wrong


@raises(errors.ArgumentError)
def a_list_of_tensors_as_a_tensor() -> None:
    with Program() as p:
        tp.exp([p.y, p.y])  # wrong


@raises(errors.ArgumentError)
def a_tensor_as_a_size() -> None:
    with Program() as p:
        tp.arange(p.y)  # wrong


@raises(errors.ArgumentError)
def the_extremum_of_an_index_for_tensors() -> None:
    with Program() as p:
        tp.max(p.y, 0)  # wrong


@raises(errors.MissingAttributeError)
def a_method_of_another_library() -> None:
    with Program() as p:
        p.y.numpy()  # wrong


@raises(errors.MissingAttributeError)
def a_misspelt_method() -> None:
    with Program() as p:
        p.x.softmx(0)  # wrong


@raises(errors.ArgumentError)
def a_model_instead_of_its_parameters() -> None:
    with Program() as p:
        model = tp.nn.Linear(3, 1, domain=(p.i,))
        tp.optim.Adam(model)  # wrong
