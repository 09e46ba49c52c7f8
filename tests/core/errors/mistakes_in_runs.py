"""Programs with mistakes around a run: inputs, functions on the host, contexts, options, memory, numerics."""

from __future__ import annotations

from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core import errors
from tests.core.errors.mistakes import Program, raises

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


@raises(errors.ArgumentError)
def two_inputs_of_one_name() -> None:
    with Program():
        tp.input("x", (2,))  # wrong


# -- contexts, functions, options -------------------------------------------------------------------------------------


@raises(errors.ContextError)
def a_tensor_outside_of_a_context() -> None:
    tp.ones((2,))  # wrong


@raises(errors.ContextError)
def tensors_of_two_contexts() -> None:
    with Program() as p, Program() as q:
        _ = p.x + q.x  # wrong


@raises(errors.ArgumentError)
def an_output_that_is_no_tensor() -> None:
    with Program() as p:
        p.ctx.run(p.bounds, outputs=[3.0])  # wrong


@raises(errors.ContextError)
def a_domain_that_is_no_step() -> None:
    with Program() as p:
        tp.recurrence((2,), domain=(p.T,))  # wrong


@raises(errors.ArgumentError)
def a_step_with_a_name_in_capitals() -> None:
    tp.Context("T")  # wrong


@raises(errors.ShapeError)
def a_function_that_returns_another_shape() -> None:
    with Program() as p:
        (short,) = tp.udf(lambda v: (v[:2],), p.y[0 : p.T], outputs=[tp.spec((3,))], name="cut")  # wrong
        p.ctx.run(p.bounds, outputs=[short], inputs={"y": np.zeros(4, "float32")})


@raises(errors.ConfigError)
def an_unknown_option() -> None:
    tp.Config(executor="stagd")  # wrong


@raises(errors.ConfigError)
def an_unknown_pass() -> None:
    tp.Config(disable=("vectorise",))  # wrong


# -- functions of the user's ------------------------------------------------------------------------------------------


def _fails(*_: Any, **__: Any) -> Any:
    raise ValueError("the door is closed\nand so is the window")


def _branches(value: Any) -> Any:
    return (value if value > 0 else -value,)


@raises(errors.FunctionError)
def a_host_function_that_raises() -> None:
    with Program() as p:
        (out,) = tp.udf(_fails, p.y, outputs=[tp.spec()], kind="host", name="door")  # wrong
        p.ctx.run(p.bounds, outputs=[out], inputs={"y": np.zeros(4)})


@raises(errors.FunctionError)
def a_sink_that_raises() -> None:
    with Program() as p:
        tp.sink(_fails, p.y, when=p.t == 2, name="logger")  # wrong
        p.ctx.run(p.bounds, inputs={"y": np.zeros(4)}, config=tp.Config(backend="numpy"))


@raises(errors.FunctionError)
def a_traced_function_that_branches() -> None:
    with Program() as p:
        (out,) = tp.udf(_branches, p.y, outputs=[tp.spec()], name="absolute")  # wrong
        p.ctx.run(p.bounds, outputs=[out], inputs={"y": np.zeros(4)})


@raises(errors.ShapeError)
def a_function_that_returns_no_tuple() -> None:
    with Program() as p:
        (out,) = tp.udf(lambda v: v, p.y, outputs=[tp.spec()], kind="host", name="same")  # wrong
        p.ctx.run(p.bounds, outputs=[out], inputs={"y": np.zeros(4)}, config=tp.Config(backend="numpy"))


@raises(errors.DTypeError)
def a_function_that_returns_another_dtype() -> None:
    with Program() as p:
        (out,) = tp.udf(lambda v: (float(v),), p.y, outputs=[tp.spec()], kind="host", name="same")  # wrong
        p.ctx.run(p.bounds, outputs=[out], inputs={"y": np.zeros(4)}, config=tp.Config(backend="numpy"))


# -- what a run meets -------------------------------------------------------------------------------------------------


@raises(errors.NumericsError)
def a_value_that_is_not_finite() -> None:
    with Program() as p:
        root = tp.log(p.y) * 2  # wrong
        config = tp.Config(check_numerics=True)
        p.ctx.run(p.bounds, outputs=[root], inputs={"y": np.array([1, 2, 0, 0])}, config=config)


@raises(errors.NumericsError)
def an_input_that_is_no_number() -> None:
    with Program() as p:
        z = tp.input("z", (2,), domain=(p.t,))  # wrong
        fed = np.array([[0, 1], [2, 3], [4, np.nan], [np.nan, 5]])
        p.ctx.run(p.bounds, outputs=[z.sum()], inputs={"z": fed}, config=tp.Config(check_numerics=True, backend="numpy"))


@raises(errors.OutOfMemoryPlanError)
def a_plan_that_does_not_fit() -> None:
    with Program() as p:
        h = tp.recurrence((100,), domain=(p.t,), name="h")
        h[0] = 0.0
        h[p.t + 1] = h * 0.5 + p.y
        p.ctx.compile(p.bounds, outputs=[h], config=tp.Config(memory_limit=1000, disable=("lift",)))  # wrong


# -- more options -----------------------------------------------------------------------------------------------------


@raises(errors.ConfigError)
def an_option_that_does_not_exist() -> None:
    tp.Config(backed="jax")  # wrong


@raises(errors.ConfigError)
def a_step_that_does_not_exist_in_an_option() -> None:
    with Program() as p:
        p.ctx.compile(p.bounds, outputs=[p.y], config=tp.Config(disable=("vectorize(q)",)))  # wrong


@raises(errors.ConfigError)
def options_as_a_dict() -> None:
    with Program() as p:
        p.ctx.run(p.bounds, outputs=[p.y], config={"backend": "numpy"})  # wrong


@raises(errors.InputError)
def inputs_as_a_list() -> None:
    with Program() as p:
        p.ctx.run(p.bounds, outputs=[p.y], inputs=[np.zeros(4)])  # wrong
