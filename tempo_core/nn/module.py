"""The base of modules: named parameters, inner modules, and the training mode.

A parameter is a recurrence over the steps of the module's domain; an optimizer assigns its later values. With `fed`, it is an
input of the same name over those steps.
"""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, overload

from tempo_core.errors import ArgumentError, ShapeError, TempoError
from tempo_core.frontend.aliases import Domain, Key
from tempo_core.frontend.arguments import checked, shown
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.carry import carry
from tempo_core.frontend.inputs import domain_steps, input
from tempo_core.frontend.recurrence import recurrence
from tempo_core.frontend.tensor import Tensor
from tempo_core.ir import ops
from tempo_core.ir.graph import Node
from tempo_core.nn.initializers import Initializer
from tempo_core.symbolic.condition import Bool

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Out = TypeVar("Out", default=Tensor, covariant=True)
    M = TypeVar("M", bound="Module[object]")
else:
    from typing import TypeVar

    Out, M = TypeVar("Out", covariant=True), TypeVar("M")

Training = bool | Bool  # a condition on steps: trains at the points where it holds
P = ParamSpec("P")


class _Forward(Protocol[P, Out]):
    def forward(self, *operands: P.args, **options: P.kwargs) -> Out: ...


class Module(Generic[Out]):
    """Named parameters and a call. Subclasses call `super().__init__`, make parameters and modules, and define `forward`.

    ```python
    class Block(tp.nn.Module):
        def __init__(self, width, domain):
            super().__init__(domain=domain)
            self.norm = tp.nn.LayerNorm(width, domain=domain)
            self.scale = self.parameter("scale", (width,), tp.nn.ones())

        def forward(self, x):
            return x + self.scale * self.norm(x)
    ```

    A module that does not give a tensor names the type of its value: `class Pair(tp.nn.Module[tuple[tp.Tensor, tp.Tensor]])`.

    A module that is assigned to an attribute belongs to this module, and its parameters are named after the attribute:
    `norm.weight`, or `block.norm.weight` if this module is called `block`. A module with a name of its own keeps that name.
    """

    default_name = ""  # the name of a module without a name that belongs to no other module

    def __init_subclass__(cls, **options: Any) -> None:
        """Arguments of modules are checked by their annotations, as those of functions are."""
        super().__init_subclass__(**options)
        for name in ("__init__", "forward"):
            if inspect.isfunction(cls.__dict__.get(name)):
                setattr(cls, name, checked(cls.__dict__[name], cls.__name__))

    def __init__(self, name: str | None = None, domain: Domain = (), fed: bool = False, dtype: str = "float32"):
        self._parameters: dict[str, Tensor] = {}  # by their names in this module
        self._children: dict[str, Module[object]] = {}
        self._parent: Module[object] | None = None
        self._is_named = name is not None
        self._local = _free_name(self.default_name) if name is None else name
        self.domain, self.fed, self.dtype = tuple(domain), fed, dtype
        self.training: Training = True

    # -- parameters ---------------------------------------------------------------------------------------------------

    def parameter(self, name: str, shape: tuple[int, ...], initial: Initializer) -> Tensor:
        """A parameter: `initial(shape)` at the first point of the module's domain; an optimizer assigns the later points.

        Raises TempoError if another parameter has the name, or if the module has no domain and is not fed.
        """
        full_name = _joined(self.name, name)
        _check_free(full_name)
        steps = domain_steps(self.domain)
        if self.fed:
            tensor: Tensor = input(full_name, shape, self.dtype, domain=[s.expr for s in steps])
        else:
            if not steps:
                raise TempoError(
                    f"the parameter {full_name} has no step to be trained over",
                    hint=f"to train it over i: {type(self).__name__}(..., domain=(i,)). To feed it as an input: {type(self).__name__}(..., fed=True)",
                )
            weights = recurrence(shape, self.dtype, domain=[s.expr for s in steps], name=full_name)
            carry(weights, initial(shape))  # an optimizer assigns the later points
            tensor = weights
        self._parameters[name] = tensor
        tensor.context.parameters[full_name] = tensor
        return tensor

    def parameters(self) -> dict[str, Tensor]:
        """Parameters by full name, in the order of their creation: this module's own, then those of its inner modules."""
        parameters = {_joined(self.name, name): parameter for name, parameter in self._parameters.items()}
        for child in self._children.values():
            for name, parameter in child.parameters().items():
                if parameters.setdefault(name, parameter) is not parameter:
                    raise _duplicate_name(name)
        return parameters

    # -- names --------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The full name: the names of the modules around this one and its own, joined by dots."""
        return self._local if self._parent is None else _joined(self._parent.name, self._local)

    def child(self, name: str, module: M) -> M:
        """Make `module` an inner module under `name`. It keeps a name of its own, or the name that it has in another module."""
        if not isinstance(module, Module):
            raise ArgumentError(
                f"{shown(module)} is not a module",
                hint="to wrap a function: tp.nn.Lambda(f). To make a module of a class: tp.nn.Tanh()",
            )
        self._children[name] = module
        if module._parent is None and module is not self:
            old_names = [(owner, local_name, owner.name) for owner in module.modules() for local_name in owner._parameters]
            module._parent = self
            if not module._is_named:
                module._local = name
            _rename(old_names)
        return module

    def modules(self) -> list[Module[object]]:
        """This module and all modules inside of it, each once."""
        by_id: dict[int, Module[object]] = {id(self): self}
        for child in self._children.values():
            by_id.update((id(module), module) for module in child.modules())
        return list(by_id.values())

    if not TYPE_CHECKING:  # type checkers know attributes by their assignments

        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, Module) and name != "_parent":
                if "_children" not in self.__dict__:
                    raise TempoError(
                        f"{type(self).__name__} gets the module `{name}` before it is initialised",
                        hint="call super().__init__() first",
                    )
                self.child(name, value)
            object.__setattr__(self, name, value)

    # -- calls --------------------------------------------------------------------------------------------------------

    def forward(self, *operands: Any, **options: Any) -> Out:
        """The module's value for its operands. Subclasses define it; users call the module."""
        raise TempoError(f"{type(self).__name__} defines no method `forward`", hint="define it: def forward(self, x): ...")

    @overload
    def __call__(self, *operands: Any, training: Training | None, **options: Any) -> Out: ...
    @overload
    def __call__(self: _Forward[P, Out], *operands: P.args, **options: P.kwargs) -> Out: ...
    def __call__(self, *operands: Any, training: Training | None = None, **options: Any) -> Any:  # type: ignore[misc]
        """Calls `forward`. `training` overrides the mode of this module, and of all modules inside of it, for this call."""
        if training is None:
            return self.forward(*operands, **options)
        before = [(module, module.training) for module in self.modules()]
        self.train(training)
        try:
            return self.forward(*operands, **options)
        finally:
            for module, mode in before:
                module.training = mode

    def train(self: M, mode: Training = True) -> M:
        """Set whether this module and all modules inside of it train: True, False, or a condition on steps such as `i % 10 != 0`."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Stop training: `train(False)`."""
        return self.train(False)

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise ArgumentError(
                f"cannot iterate over the module {self.name or type(self).__name__}",
                hint="loop over its parts: module.parameters() or module.modules()",
            )

    def __getitem__(self: M, index: Key) -> M:
        """The module with its parameters read at one point of their domain: `model[I - 1](x)`."""

        def read(name: str, parameter: Tensor) -> tuple[Tensor, Tensor]:
            at = parameter[index] if parameter.domain.steps else parameter
            return at, at

        return _replaced(self, read, {})

    def using(self: M, parameters: Mapping[str, Tensor]) -> M:
        """The module with other tensors in place of its parameters, by full name: of a target network, or averages of weights.

            average = {name: tp.recurrence(w.shape, domain=(i,), name=f"average.{name}") for name, w in model.parameters().items()}
            y = model.using(average)(x)

        Parameters that are not named stay. The tensors may have other domains. Raises ArgumentError for a name that is not a
        parameter of the module, and ShapeError for another shape or dtype.
        """
        ours = self.parameters()
        for name, tensor in parameters.items():
            if name not in ours:
                near = ", ".join(difflib.get_close_matches(name, ours, n=1) or ours)
                raise ArgumentError(f"{self.name or type(self).__name__} has no parameter {name}", hint=f"it has {near}")
            if (tensor.shape, tensor.dtype) != (ours[name].shape, ours[name].dtype):
                raise ShapeError(
                    f"{tensor!r} cannot take the place of the parameter {name}: its shape or dtype is not that of {ours[name]!r}"
                )

        def other(name: str, parameter: Tensor) -> tuple[Tensor, Tensor]:
            tensor = parameters.get(name, parameter)
            return tensor, tensor

        return _replaced(self, other, {})

    def updated(self: M, over: Domain, dtype: str | None = None) -> M:
        """The module with parameters that an optimizer updates over the steps `over`. They begin as the values that are fed.

        The module is `fed`; steps with which its inputs vary, such as layers, stay: `model = Model(domain=(l,), fed=True).updated((i,))` has
        parameters over (i, l), for `tp.optim.Adam(model.parameters(), kept=(l,))`. With `dtype`, the parameters have that dtype, and are
        converted where the module computes with them: float32 parameters keep the small updates of a bfloat16 module.
        Raises TempoError for a module that is not fed.
        """
        for module in self.modules():
            if module._parameters and not module.fed:
                raise TempoError(
                    f"the parameters of {module.name or type(module).__name__} are not fed: they have initial values already",
                    hint=f"make it with {type(module).__name__}(..., fed=True), or leave updated((i,)) out: {type(module).__name__}(..., domain=(i,))",
                )

        def begun(name: str, fed: Tensor) -> tuple[Tensor, Tensor]:
            inner = [s.expr for s in fed.domain.steps]
            weights = recurrence(fed.shape, dtype or fed.dtype, [*(s.expr for s in domain_steps(over)), *inner], name)
            carry(weights, fed.astype(weights.dtype), kept=inner)
            fed.context.parameters[name] = weights
            return weights, weights.astype(fed.dtype)

        return _replaced(self, begun, {})


def _replaced(module: M, replacement: Callable[[str, Tensor], tuple[Tensor, Tensor]], views: dict[int, Module[object]]) -> M:
    """The module with other tensors in place of its parameters.

    From a parameter's full name and itself, `replacement` gives the new parameter, and the tensor that the module computes with.
    """
    if id(module) in views:
        return views[id(module)]  # type: ignore[return-value]
    view = copy.copy(module)
    views[id(module)] = view
    tensors = {id(p): replacement(_joined(module.name, name), p) for name, p in module._parameters.items()}
    view.__dict__["_parameters"] = {name: tensors[id(p)][0] for name, p in module._parameters.items()}
    view.__dict__["_children"] = {name: _replaced(child, replacement, views) for name, child in module._children.items()}
    for attribute, value in module.__dict__.items():
        if isinstance(value, Tensor) and id(value) in tensors:
            view.__dict__[attribute] = tensors[id(value)][1]
        elif isinstance(value, Module) and attribute != "_parent":
            view.__dict__[attribute] = _replaced(value, replacement, views)
    return view


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _free_name(default: str) -> str:
    """`default`, with a number behind it if a module with parameters has that name: linear, linear_2, linear_3."""
    if not default or not BaseContext._active:
        return default
    heads = {name.split(".", 1)[0] for name in BaseContext.current().parameters}
    number = 1
    while (name := default if number == 1 else f"{default}_{number}") in heads:
        number += 1
    return name


def _duplicate_name(name: str) -> TempoError:
    return TempoError(
        f"two parameters are named {name}",
        hint="give each module a name of its own: Linear(..., name='head'), Sequential(..., name='critic')",
    )


def _check_free(name: str) -> None:
    if name in BaseContext.current().parameters:
        raise _duplicate_name(name)


def _rename(moved: list[tuple[Module[object], str, str]]) -> None:
    """Rename the parameters of modules that moved. `moved` has (module, parameter's name in it, module's old full name)."""
    for module, local_name, old_prefix in moved:
        module._parameters[local_name].context.parameters.pop(_joined(old_prefix, local_name), None)
    for module, local_name, old_prefix in moved:
        name, parameter = _joined(module.name, local_name), module._parameters[local_name]
        context = parameter.context
        if name in context.parameters:
            raise _duplicate_name(name)
        context.parameters[name] = parameter
        for node in _parameter_nodes(parameter, module.fed):
            op = node.op
            if isinstance(op, ops.Input):
                op = replace(op, name=name)
                context.inputs[name] = context.inputs.pop(_joined(old_prefix, local_name))
            context.graph.put(replace(node, op=op, name=name))


def _parameter_nodes(parameter: Tensor, fed: bool) -> list[Node]:
    """The nodes with a parameter's name: a recurrence, or an input and the nodes that read it at each step of its domain."""
    nodes = [parameter.node]
    while fed and not isinstance(nodes[-1].op, ops.Input):
        nodes.append(parameter.context.graph[nodes[-1].inputs[0].source])
    return nodes
