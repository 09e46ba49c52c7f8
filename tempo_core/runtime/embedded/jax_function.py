"""A program as a pure JAX function, for training loops of one's own: `(state, inputs) -> (state, results)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tempo_core.errors import ArgumentError, ConfigError, InputError, TempoError
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import End, Sink, Udf
from tempo_core.ir.types import is_float
from tempo_core.ir.udf import Fed
from tempo_core.runtime.embedded.jax_bounds import CallBounds, check_static, fitted, of_call
from tempo_core.runtime.feeds import InputSpec, checked_inputs, is_array, kind_of
from tempo_core.runtime.lower.one_way import marked
from tempo_core.runtime.results import Results, trimmed
from tempo_core.runtime.run_inputs import RunInputs
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.expr import Bounds, Symbol

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=jax.Array | dict[str, jax.Array] | list[jax.Array], covariant=True)
else:
    from typing import TypeVar

    R = TypeVar("R", covariant=True)  # the results of a call: an array, a dict of arrays, or a list of arrays

Carry = Mapping[str, str]  # the name of an output -> the name of the input that takes it in the next call
Gradients = Mapping[str, Mapping[str, str]]  # the name of a loss -> by input, the name of the output that is the loss' gradient
Arrays = Mapping[str, Any]
_MULTIPLIER, _INCREMENT = np.uint32(1664525), np.uint32(1013904223)  # each seed comes once in 2**32 calls (Numerical Recipes)


class JaxState(NamedTuple):
    """What a `JaxFunction` hands from one call to the next: a pytree of arrays.

    `seed`: the seed of the next call, uint32[]. `carried`: by name, the inputs that the next call takes from the results of this one.
    """

    seed: jax.Array
    carried: dict[str, jax.Array]


class Form(NamedTuple):
    """The type of one result: the `shape` of all its points in one array, and whether it has a value at each point.

    `shape` is None if it varies with a step.
    """

    shape: tuple[int, ...] | None
    dtype: str
    is_everywhere: bool


class JaxFunction(Generic[R]):
    """A pure function `(state, inputs) -> (state, results)`, as `program.as_jax()` gives it.

    A call is one device program, and gives what `program.run(inputs, seed=int(state.seed))` does, as JAX arrays. It composes with
    `jax.jit`, `jax.vmap` and `jax.grad`. Arrays of the caller are never donated.
    """

    def __init__(
        self,
        program: Callable[[Arrays, Any, tuple[Any, ...]], dict[int, Any]],
        inputs: RunInputs,
        results: Results,
        seed: int,
        carry: Carry,
        gradients: Gradients,
        of_call: Callable[[Bounds, Set[Symbol]], JaxFunction[R]],
    ):
        """`program(inputs, seed, counters)` gives the results by position; `of_call(bounds, unknown)` is the function at the capacities
        of a call; the bounds of `unknown` may be less.

        Raises ConfigError, ArgumentError and InputError.
        """
        check_static(results, inputs.bounds)
        self._of_call = of_call
        self._inputs, self._results, self._seed, self._chooses = inputs, results, seed, bool(inputs.bounds.limits)
        most, outputs = inputs.bounds.compiled, results.by_name
        forms = {name: Form(each.shape(most), each.type.dtype, each.condition is TRUE) for name, each in outputs.items()}
        self._positions = {name: position for position, name in enumerate(outputs)}
        self._carry = _checked_carry(carry, inputs, forms)

        def run(arrays: Arrays, at: Any) -> dict[int, Any]:
            values = program(arrays, *at)  # the seed and the counters
            if not self._chooses:
                return {k: result.traced(values[k], most, most) for k, result in enumerate(results.each)}
            return {**values, **{k: trimmed(values[k], result.shape(most)) for k, result in enumerate(results.each)}}

        if gradients:
            pairs = _checked_gradients(gradients, inputs.specs, forms)
            run = _with_gradients(run, pairs, inputs.specs, list(outputs))  # type: ignore[assignment]

        def call(arrays: Arrays, seed: Any, counters: tuple[Any, ...]) -> tuple[dict[int, Any], Any]:
            return run(arrays, (seed, counters)), seed * _MULTIPLIER + _INCREMENT

        self._call = jax.jit(call)

    def init(self, carried: Arrays | None = None, seed: int | jax.Array | None = None) -> JaxState:
        """The state before the first call: `carried` has the first values of the carried inputs, which are copied.

        `seed` is by default that of the program's config. JAX can trace it: `jax.vmap(lambda s: f.init(seed=s))(jnp.arange(8))`.
        Raises InputError.
        """
        names = set(self._carry.values())
        specs = {name: spec for name, spec in self._inputs.specs.items() if name in names}
        arrays = _arrays(specs, (), {} if carried is None else carried)
        chosen = self._seed if seed is None else seed
        if not is_array(chosen):
            raise ArgumentError(f"the seed is {kind_of(chosen)}, not a number", hint="f.init(seed=3)")
        number = np.uint32(int(chosen) & 0xFFFFFFFF) if isinstance(chosen, (int, np.integer)) else chosen
        return JaxState(jnp.asarray(number).astype(jnp.uint32), {name: jnp.array(array) for name, array in arrays.items()})

    def __call__(self, state: JaxState, inputs: Arrays | None = None, bounds: CallBounds | None = None) -> tuple[JaxState, R]:
        """The state after the call, and its results, in the form of the program's outputs.

        `inputs` has an array for each input by name, `[*bounds of the domain, *shape]`; not those that are bound or carried.
        Results are as those of `program.run`; where an output does not exist, it is zero. Raises InputError.

        `bounds` are those that each call chooses (`tp.upto`), by default as the shapes of the inputs tell. A traced bound is a value:
        inputs and results whose shapes have it in them are as large as its capacity, and results are zero past the end.
        Raises BoundsError.
        """
        if not isinstance(state, JaxState):
            raise ArgumentError(
                f"the state is {kind_of(state)}, not a JaxState", hint="f = program.as_jax(); f(f.init(), inputs)"
            )
        given = {} if inputs is None else inputs
        held = {**self._inputs.arrays, **state.carried}
        if isinstance(given, Mapping):
            for name in sorted(held.keys() & given.keys()):
                how = "is carried in the state" if name in state.carried else "is bound already"
                raise self._inputs.specs[name].error(how, "leave it out of the inputs")
        whole = {**given, **held} if isinstance(given, Mapping) else given
        chosen = of_call(self._inputs, bounds, whole if isinstance(whole, Mapping) else {})
        arrays = _arrays(self._inputs.specs_of(chosen.most), self._inputs.domains, whole)
        function = self._of_call(chosen.most, chosen.traced)
        if self._chooses:
            arrays = {name: fitted(function._inputs.bounds, name, array) for name, array in arrays.items()}
        values, seed = function._call(arrays, state.seed, chosen.counters)
        values = chosen.formed(self._results, values) if self._chooses else values
        carried = {name: values[self._positions[output]] for output, name in self._carry.items()}
        return JaxState(seed, carried), self._results.together(values)

    def __repr__(self) -> str:
        names = [name for name in self._inputs.needed if name not in self._carry.values()]
        return f"<JaxFunction {', '.join(names) or 'nothing'} -> {', '.join(self._positions) or 'nothing'}>"


def check_embeddable(graph: Graph, is_interpreted: bool, check_numerics: bool) -> None:
    """Raise a TempoError if a program calls functions on the host, with the line of the first one; ConfigError for options."""
    for node in graph:
        if isinstance(node.op, End):  # the device finds out where a step ends
            continue
        if isinstance(node.op, Sink):
            what, hint = f"calls the sink `{node.op.name}`", "hand the value over as an output"
        elif isinstance(node.op, Udf) and isinstance(node.op.fn, Fed):
            what, hint = f"streams the input `{node.op.fn.name}`", "declare it without streamed=True, and feed one array"
        elif isinstance(node.op, Udf) and node.op.kind == "host":
            what = f"calls the function `{node.op.name}` on the host"
            hint = 'write it in JAX, with kind="jax"; or call jax.pure_callback in a function of kind="jax"'
        else:
            continue
        raise TempoError(f"a JAX function cannot leave the device, but the program {what}", where=node.where or None, hint=hint)
    if is_interpreted:
        raise ConfigError(
            "an interpreted program is not a JAX function",
            hint='compile it with tp.Config(executor="staged"), the default, on the backend "jax" and with the pass pad',
        )
    if check_numerics:
        raise ConfigError(
            "a JAX function cannot raise NumericsError",
            hint="compile it without check_numerics, and let JAX check: jax.config.update('jax_debug_nans', True)",
        )


def _arrays(specs: Mapping[str, InputSpec], ignored: Any, inputs: Any) -> dict[str, Any]:
    """The inputs as arrays of their declared types, perhaps traced ones. Raises InputError."""
    if isinstance(inputs, Mapping):
        for name, value in inputs.items():
            if name in specs and not is_array(value):
                spec = specs[name]
                raise spec.error(f"is {kind_of(value)}; a JAX function takes arrays", f"give an array of shape {spec.whole}")
    return dict(checked_inputs(specs, ignored, inputs).arrays)


# -- carried values and declared gradients ----------------------------------------------------------------------------


def _checked_carry(carry: Carry, inputs: RunInputs, outputs: Mapping[str, Form]) -> dict[str, str]:
    usage = 'program.as_jax(carry={"next_w": "w"}): the output `next_w` is the input `w` of the next call'
    taken: dict[str, str] = {}
    for output, name in _pairs(carry, "carry", usage):
        form, spec = _output(outputs, output), _input(inputs.specs, name)
        if name in inputs.arrays:
            raise spec.error("is bound, and cannot be carried", "take the program from before it was bound")
        if name in taken.values():
            raise ArgumentError(f"two outputs are carried to the input `{name}`", hint=usage)
        if form.shape != spec.whole or form.dtype != spec.dtype or not form.is_everywhere:
            raise ArgumentError(
                f"the output `{output}` is {_shown(form)}, and cannot be carried to the input `{name}`, {spec.declared} "
                f"with the shape {spec.whole}",
                where=spec.where,
                hint="carry the value at one point: outputs={'next_w': w[I - 1]}",
            )
        varying = inputs.bounds.chosen_size(name)
        if varying is not None:
            raise ArgumentError(
                f"the output `{output}` cannot be carried to the input `{name}`: its size contains {varying}, and each call chooses {varying}",
                where=spec.where,
                hint="leave it out of carry, and give it to each call: f(state, inputs)",
            )
        taken[output] = name
    return taken


def _checked_gradients(
    gradients: Gradients, specs: Mapping[str, InputSpec], outputs: Mapping[str, Form]
) -> dict[str, dict[str, str]]:
    usage = 'program.as_jax(gradients={"loss": {"w": "dw"}}): the output `dw` is the gradient of `loss` by the input `w`'
    checked: dict[str, dict[str, str]] = {}
    for loss, by_input in _pairs(gradients, "gradients", usage):
        form = _output(outputs, loss)
        if form.shape != () or not is_float(form.dtype):
            raise ArgumentError(
                f"the output `{loss}` is {_shown(form)}; a loss is one float", hint="reduce it in the program: loss[0:T].sum()"
            )
        checked[loss] = {}
        for name, output in _pairs(by_input, f"gradients[{loss!r}]", usage):
            spec, gradient = _input(specs, name), _output(outputs, output)
            if (gradient.shape, gradient.dtype) != (spec.whole, spec.dtype) or not gradient.is_everywhere:
                raise ArgumentError(
                    f"the output `{output}` is {_shown(gradient)}; the gradient by the input `{name}` is {spec.declared} "
                    f"with the shape {spec.whole}",
                    where=spec.where,
                    hint=f"make it with tp.grad: ({output},) = tp.grad({loss}, wrt=[{name}])",
                )
            checked[loss][name] = output
        if not checked[loss] or checked[loss].keys() != next(iter(checked.values())).keys():
            raise ArgumentError("each loss needs gradients by the same inputs, and by at least one input", hint=usage)
    return checked


def _pairs(names: Any, what: str, usage: str) -> Any:
    if not isinstance(names, Mapping):
        raise ArgumentError(f"{what} is {kind_of(names)}, not a dict of names", hint=usage)
    return names.items()


def _output(outputs: Mapping[str, Form], name: str) -> Form:
    if name not in outputs:
        raise ArgumentError(f"the program has no output {name!r}", hint=f"its outputs are {', '.join(outputs) or 'none'}")
    return outputs[name]


def _input(specs: Mapping[str, InputSpec], name: str) -> InputSpec:
    if name not in specs:
        raise InputError(f"the program has no input {name!r}", hint=f"its inputs are {', '.join(specs) or 'none'}")
    return specs[name]


def _shown(form: Form) -> str:
    shape = "of a shape that varies" if form.shape is None else f"{form.dtype}[{', '.join(map(str, form.shape))}]"
    return shape + ("" if form.is_everywhere else ", not at all points")


def _with_gradients(
    run: Callable[[Arrays, Any], dict[int, Any]],
    gradients: Mapping[str, Mapping[str, str]],
    specs: Mapping[str, InputSpec],
    outputs: list[str],
) -> Callable[[Arrays, Any], dict[int, Any]]:
    """`run` with the derivatives that the program itself computes: for each loss, by input, the name of the output with its gradient.

    Derivatives of other outputs, and by other inputs, are errors.
    """
    position = {name: k for k, name in enumerate(outputs)}
    needed = sorted({position[output] for by_input in gradients.values() for output in by_input.values()})
    losses, inputs = list(gradients), list(next(iter(gradients.values())))

    def forward(arrays: Any, seed: Any) -> Any:
        values = run(arrays, seed)
        return values, {k: values[k] for k in needed}

    def backward(values: Any, cotangents: Any) -> Any:
        totals = {name: jnp.zeros(spec.whole, spec.dtype) if is_float(spec.dtype) else None for name, spec in specs.items()}
        for loss, by_input in gradients.items():
            for name, output in by_input.items():
                totals[name] = totals[name] + cotangents[position[loss]].astype(specs[name].dtype) * values[position[output]]
        return totals, None

    declared = jax.custom_vjp(run)
    declared.defvjp(forward, backward)

    def checked(arrays: Arrays, seed: Any) -> dict[int, Any]:
        by_others = {
            name: array if name in inputs else _undeclared(array, f"by the input `{name}`") for name, array in arrays.items()
        }
        values = declared(by_others, seed)
        return {
            k: value if k >= len(outputs) or outputs[k] in losses else _undeclared(value, f"of the output `{outputs[k]}`")
            for k, value in values.items()
        }

    def _undeclared(value: Any, what: str) -> Any:
        message = (
            f"the gradient {what} is not declared: as_jax(gradients=...) declares those of {_listed(losses)} by {_listed(inputs)}"
        )
        hint = "declare it; or, if it needs no gradient, use jax.lax.stop_gradient, or leave it out of what jax.grad differentiates by"
        return jax.tree.map(lambda v: marked(v, message, "", hint) if jnp.issubdtype(v.dtype, jnp.floating) else v, value)

    return checked


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
