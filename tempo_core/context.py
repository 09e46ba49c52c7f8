"""The context that users hold: the steps of a program, and the methods that compile and run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, overload

from tempo_core.compiler import Outputs, compile_context, recalled
from tempo_core.config import Config
from tempo_core.frontend.context import BaseContext
from tempo_core.frontend.tensor import Tensor
from tempo_core.frontend.types import Array, Bounds, Inputs
from tempo_core.program import Program


class Context(BaseContext):
    """A program's steps. `Context("i", "t")` has the steps i, t with the bounds I, T; `Context(num_dims=2)` names them d0, d1.

    `with ctx as ((i, I), (t, T)):` gives each step and its bound as symbolic expressions; recurrent tensors are made inside
    of the `with`. The order of the steps is the order of all domains and of the leading dimensions of results.
    """

    @overload
    def compile(self, bounds: Bounds, outputs: Tensor, config: Config | None = None) -> Program[Array]: ...
    @overload
    def compile(
        self, bounds: Bounds, outputs: Mapping[str, Tensor], config: Config | None = None
    ) -> Program[dict[str, Array]]: ...
    @overload
    def compile(self, bounds: Bounds, outputs: Iterable[Tensor] = (), config: Config | None = None) -> Program[list[Array]]: ...
    def compile(self, bounds: Bounds, outputs: Outputs = (), config: Config | None = None) -> Program[Any]:
        """The program that computes `outputs` (tensors, a dict of tensors, or one tensor) and runs the sinks.

        `bounds` gives each bound a number >= 1, or a capacity if each run chooses it: `tp.upto(4096)`.

        Raises a `tempo_core.errors.TempoError` that names the user's line, if something is wrong with the program.
        """
        return compile_context(self, bounds, outputs, config)

    @overload
    def run(
        self, bounds: Bounds, outputs: Tensor, inputs: Inputs | None = None, config: Config | None = None, seed: int | None = None
    ) -> Array: ...
    @overload
    def run(
        self,
        bounds: Bounds,
        outputs: Mapping[str, Tensor],
        inputs: Inputs | None = None,
        config: Config | None = None,
        seed: int | None = None,
    ) -> dict[str, Array]: ...
    @overload
    def run(
        self,
        bounds: Bounds,
        outputs: Iterable[Tensor] = (),
        inputs: Inputs | None = None,
        config: Config | None = None,
        seed: int | None = None,
    ) -> list[Array]: ...
    def run(
        self,
        bounds: Bounds,
        outputs: Outputs = (),
        inputs: Inputs | None = None,
        config: Config | None = None,
        seed: int | None = None,
    ) -> Array | dict[str, Array] | list[Array]:
        """Compile the program and run it: gives a list with one array for each output. The steps of its domain are its first dimensions.

        A dict of tensors as `outputs` gives a dict of arrays; one tensor gives one array. A program that was run before (the
        same graph, outputs and config) is not compiled again; with other bounds, only parts of it are. `tempo_core.typing.Array`
        describes a result whose shape varies with a step, and a result that is not defined at every point.
        """
        program: Program[Any] = recalled(self, bounds, outputs, config)
        results: Array | dict[str, Array] | list[Array] = program.run(
            inputs, seed if seed is not None or config is None else config.seed
        )
        return results
