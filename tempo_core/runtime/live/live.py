"""Runs that live: they go on by some iterations, show and save their state, and are resumed in another process."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast

import jax
import numpy as np

from tempo_core.errors import ArgumentError, OutOfMemoryError, StateError
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import End, Merge, Sink, Udf
from tempo_core.ir.udf import Custom, Fed
from tempo_core.runtime.feeds import Feed, Feeds, InputSpec
from tempo_core.runtime.live.executors import Executor
from tempo_core.runtime.live.state_file import Snapshot, digest, path_of
from tempo_core.runtime.walk import Branch, Loop
from tempo_core.runtime.walk import Path as Place
from tempo_core.symbolic.expr import Expr

R = TypeVar("R")
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class MemoryGuard:
    """A context in which too little memory, of the host or of the device, raises the error that `explained(message)` gives."""

    def __init__(self, explained: Callable[[str], OutOfMemoryError]):
        self.explained = explained

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        said = str(error).lower()
        of_device = isinstance(error, jax.errors.JaxRuntimeError) and ("resource_exhausted" in said or "out of memory" in said)
        if of_device or isinstance(error, MemoryError):
            raise self.explained(str(error)) from error


class Run(Generic[R]):
    """A run that goes on when it is told to. `program.start` and `program.resume` give one.

    >>> run = program.start(inputs)          # doctest: +SKIP
    >>> run.advance()                        # doctest: +SKIP
    >>> run.save("state.safetensors")        # doctest: +SKIP
    >>> program.resume("state.safetensors").finish()  # doctest: +SKIP
    """

    def __init__(
        self,
        graphs: tuple[Graph, Graph],
        executor_at: Callable[[str | None, Place], Executor],
        fed: Feeds,
        seed: int,
        form: Callable[[Mapping[int, Any]], R],
        origin: Mapping[str, str],
        shapes: Mapping[str, tuple[int, ...] | None],
        by: str | None,
        out_of_memory: Callable[[], MemoryGuard],
        can_be_saved: bool,
        bounds: Mapping[str, int],
    ):
        """`graphs` are those of the program as it was written, and after all passes. `executor_at(step, place)` makes an executor that
        can stop between iterations over `step`, at a place of the program.

        `shapes` are those of the results in their order, None for one that varies; `out_of_memory()` is a context in which too little
        memory is an error with the largest tensors; `bounds` are those that the run chose.
        """
        self._source, self._graph = graphs
        self._make, self._fed, self._seed, self._form, self._origin = executor_at, fed, seed, form, origin
        self._shapes, self._by, self._failed, self._bounds = dict(shapes), by, False, dict(bounds)
        self._out_of_memory, self._can_be_saved = out_of_memory, can_be_saved
        self._executor: Executor | None = None
        self.message = ""  # what `program.resume(bounds=...)` does otherwise than a run that had these bounds from its start
        self._functions = dict(_stateful_functions(self._graph))

    # -- going on -----------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._executor is not None and self._executor.walk.done

    def advance(self, step: Expr | str | None = None, count: int = 1) -> None:
        """Go on by `count` iterations of the loops over `step`, or of the outermost loops: `run.advance(t, 16)`.

        What follows the last iteration runs with it. At the end, nothing is left to run, and `done` is true. Raises StateError for a
        step that the compiled program has no loop over, and after an exception.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise StateError(f"a run goes on by at least one iteration, not by {count!r}", hint="run.advance(t, 16)")
        name = None if step is None else str(step)
        steps = [each.name for each in self._source.order]
        if name is not None and name not in steps:
            raise StateError(f"the program has no step `{name}`", hint=f"its steps are {', '.join(steps) or 'none'}")
        self.opened_by(name)
        self._go_on(name, count)

    def finish(self) -> R:
        """Go on to the end. Returns what `program.run` would have returned."""
        self.opened_by(self._by)
        self._go_on(None, None)
        assert self._executor is not None
        with self._out_of_memory():
            return self._form(self._executor.results())

    @property
    def streams(self) -> Mapping[str, Feed]:
        """The inputs that are fed one value after the other."""
        return self._fed.streams

    @property
    def _arrays(self) -> dict[str, Any]:
        """The inputs that are arrays."""
        return {**self._fed.arrays, **{name: feed.array for name, feed in self.streams.items() if feed.array is not None}}

    def opened_by(self, step: str | None) -> Executor:
        """The executor. The first call decides at which loops it can stop; a later one may ask for the same loops only."""
        if self._executor is None:
            self._by = step if self._by is None else self._by
            with self._out_of_memory():
                self._executor = self._make(self._by, ())
        walk = self._executor.walk
        if step is not None and not _has_loop(walk.nodes, step):
            raise _no_loop(self._graph, self._source, step, self._by)
        return self._executor

    def _go_on(self, step: str | None, count: int | None) -> None:
        if self._failed:
            raise StateError("the run has failed, and cannot go on", hint="resume it from a file that was saved before")
        assert self._executor is not None
        try:
            with self._out_of_memory():
                self._executor.walk.go_on(step, count)
                self._executor.settle()
        except BaseException:
            self._failed = True
            raise

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def results(self) -> dict[str, Array | None]:
        """The results so far, as arrays by the names of the outputs: None for one that is not there yet, or whose shape varies.

        A result that a loop fills has zeros at the points that are not reached yet.
        """
        return {name: self.result(name) for name in self._shapes}

    def result(self, name: str) -> Array | None:
        """One of the `results`; the others are not copied. Raises ArgumentError for a name that no output has."""
        if name not in self._shapes:
            raise ArgumentError(f"no output is called {name!r}", hint=f"the outputs are {', '.join(self._shapes)}")
        shape, place = self._shapes[name], list(self._shapes).index(name)
        with self._out_of_memory():
            value = None if self._executor is None else self._executor.results().get(place)
            whole = None if shape is None or value is None or isinstance(value, list) else np.array(value)
            return None if whole is None or shape is None else whole[tuple(map(slice, shape))]

    @property
    def state(self) -> dict[str, Array]:
        """What the run needs to go on, as copies by stable names: `store/h`, `counter/t`, `seed`, `stream/x`.

        Stores are there if a value in them is read after this place; a store that each iteration fills anew before it reads it is not.
        The names, shapes and dtypes are the same in each process that compiles the same program. Random numbers are functions of the seed
        and of the point, so that the seed is all their state. The state of functions on the host, if they have `state()`, is there too.
        """
        arrays: dict[str, Any] = {"seed": np.uint32(self._seed & 0xFFFFFFFF)}
        if self._executor is not None:
            with self._out_of_memory():
                arrays |= self._executor.arrays()
        arrays |= {f"stream/{name}": np.int64(feed.count) for name, feed in self.streams.items()}
        for name, function in self._functions.items():
            if function.state is not None:
                arrays |= {f"function/{name}/{key}": value for key, value in function.state().items()}
        with self._out_of_memory():
            return {name: np.array(array) for name, array in arrays.items()}

    def save(self, path: str | Path, inputs: bool = True) -> Path:
        """Write the state to a file, from which `program.resume(path)` goes on; the earlier file stays until the new one is whole.

        The directory of the file must exist. The fed arrays are in the file too. With `inputs=False`, only their checksums are, and
        `resume` is given the same arrays again. Raises StateError if a stateful function on the host does not say what its state is, or
        if the file cannot be written.
        """
        path_of(path)
        snapshot = self.snapshot(inputs)
        with self._out_of_memory():
            return snapshot.write(path)

    def snapshot(self, inputs: bool = True) -> Snapshot:
        """The state as `save` would write it, in memory: for `program.resume`, or to write in another thread while the run goes on.

        Raises StateError if a stateful function on the host does not say what its state is.
        """
        if self._failed:
            raise StateError(
                "the run has failed, and its state may be incomplete",
                hint="save before the exception, in a loop: run.advance(t, 16); run.save(path)",
            )
        if not self._can_be_saved:
            raise StateError(
                "a run with check_numerics=True cannot be saved", hint="leave check_numerics out of the config: tp.Config()"
            )
        for name, function in self._functions.items():
            if function.state is None and function.is_stateful:
                raise StateError(
                    f"the function `{name}` on the host is stateful, and does not say what its state is",
                    where=function.where,
                    hint="give the function, or its object, two methods: state(), which returns arrays by name, and restore(arrays)",
                )
        fed, arrays = self._arrays, self.state
        if inputs:
            arrays |= {f"input/{name}": np.asarray(value) for name, value in fed.items()}
        place: Place = () if self._executor is None else self._executor.walk.path
        meta = {
            "program": dict(self._origin),
            "versions": versions(),
            "bounds": self._bounds,
            "by": self._by,
            "started": self._executor is not None,
            "done": self.done,
            "place": [list(entry) for entry in place],
            "inputs": {name: digest(np.asarray(value)) for name, value in fed.items()},
        }
        return Snapshot(arrays, meta)

    def _put_back(self, state: Snapshot) -> None:
        """Take over a state of the same program, whose arrays are then the run's."""
        arrays, meta = state.arrays, cast("Any", state.meta)
        for name, function in self._functions.items():
            prefix = f"function/{name}/"
            held = {key[len(prefix) :]: array for key, array in arrays.items() if key.startswith(prefix)}
            if function.restore is not None and (held or function.is_stateful):
                function.restore(held)
        for name, feed in self.streams.items():
            feed.skip(int(arrays.get(f"stream/{name}", np.int64(0))))
        self._by = meta["by"]
        if meta["started"]:
            self._executor = self._make(self._by, tuple((int(k), int(at)) for k, at in meta["place"]))
            self._executor.put_back(arrays)
            self._executor.walk.done = bool(meta["done"])


def check_inputs(run: Run[Any], state: Snapshot, inputs: Mapping[str, InputSpec], lengths: Mapping[str, int]) -> None:
    """Raise StateError if a fed array is not that of the saved run: at the points it had, for steps whose `lengths` were others."""
    meta: Any = state.meta
    for name in meta["inputs"].keys() & run._arrays.keys():
        array, held = np.asarray(run._arrays[name]), state.arrays.get(f"input/{name}")
        if held is None:
            steps = inputs[name].steps if name in inputs else ()
            is_same = digest(array[tuple(slice(lengths.get(step)) for step in steps)]) == meta["inputs"][name]
        else:
            common = array[tuple(map(slice, held.shape))]
            of_held = held[tuple(map(slice, common.shape))]
            is_same = common.dtype == of_held.dtype and common.tobytes() == of_held.tobytes()
        if not is_same:
            why = "has other values at the points of the saved run" if lengths else "is not the one of the saved run"
            raise StateError(
                f"the input `{name}` {why}", hint="feed the same values again, or leave the input out if the file holds it"
            )


def check_origin(name: str, origin: Mapping[str, str], meta: Mapping[str, Any]) -> None:
    """Raise StateError if a state is of another program than the one of `origin`."""
    differences = _differences(origin, meta["program"])
    if differences:
        raise StateError(
            f"{name} is the state of another program: {'; '.join(differences)}",
            hint='compile the program that saved it, with the same bounds and config; if runs choose bounds, with "capacities" switched off',
        )


def versions() -> dict[str, str]:
    """The versions with which a state was saved. A state of other versions is taken over if its program is the same."""
    return {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__}


def origin_of(
    texts: Mapping[str, str], bounds: Mapping[str, str], executor: str, backend: str, disabled: Iterable[str]
) -> dict[str, str]:
    """What a saved state must agree with, by name. Of the texts that describe the program, the user's lines do not count."""
    return {
        **{f"bound {name}": number for name, number in bounds.items()},
        "executor": f"{executor} with {backend}",
        "list of passes that are switched off": ", ".join(sorted(disabled)) or "none",
        **{name: hashlib.sha256(re.sub(r' @ ".*?"', "", text).encode()).hexdigest() for name, text in texts.items()},
    }


def _differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """What differs between two programs, in words; the text of a program only by name."""
    lines = []
    for name in sorted({*here, *there}):
        ours, theirs = here.get(name, "nothing"), there.get(name, "nothing")
        if ours != theirs:
            is_short = len(ours) + len(theirs) < 80
            lines.append(f"{name} is {ours} here, and {theirs} in the file" if is_short else f"the {name} differs")
    return lines


def _has_loop(nodes: Iterable[Any], step: str) -> bool:
    """Whether a tree has a loop over a step at which it can stop."""
    for node in nodes:
        if isinstance(node, Loop) and step in node.steps:
            return True
        parts = (
            (node.first, node.later) if isinstance(node, Loop) else (node.then, node.orelse) if isinstance(node, Branch) else ()
        )
        if any(_has_loop(part, step) for part in parts):
            return True
    return False


def _no_loop(graph: Graph, source: Graph, step: str, by: str | None) -> StateError:
    """The error of a run that cannot stop between two points of a step of the program `source`."""
    if any(s.name == step for node in graph for s in node.domain.steps):
        loops = f"loops over `{by}`" if by else "the outermost loops"
        return StateError(
            f"this run can stop between iterations of {loops}, not of `{step}`",
            hint=f"start it by this step: program.start(inputs, by={step})",
        )
    over = [node for node in source if node.name and any(s.name == step for s in node.domain.steps)]
    examples = [node for node in over if isinstance(node.op, Merge)][-1:] or over[:1]
    example = f"; `{examples[0].name}`, for example, is one array for all of them" if examples else ""
    return StateError(
        f"the compiled program has no loop over `{step}`: all its points are computed at once{example}",
        hint=f'go on by another step, or keep the loop: tp.Config(disable=("vectorize({step})",))',
    )


# -- functions on the host --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    state: Callable[[], Mapping[str, Any]] | None
    restore: Callable[[Mapping[str, Any]], None] | None
    is_stateful: bool
    where: str | None


def _stateful_functions(graph: Graph) -> Iterator[tuple[str, _Function]]:
    """The functions on the host and the sinks that have state, or say that they do, by name. Methods of one object are one."""
    seen: dict[int, str] = {}
    used: set[str] = set()
    for node in graph:
        op = node.op
        if (not isinstance(op, Sink) or isinstance(op, End)) and not (
            isinstance(op, Udf) and op.kind == "host" and not isinstance(op.fn, Fed)
        ):
            continue
        owner: Any = op.fn.fn if isinstance(op.fn, Custom) else op.fn
        while not hasattr(owner, "state") and getattr(owner, "__self__", getattr(owner, "__wrapped__", None)) is not None:
            owner = getattr(owner, "__self__", None) or owner.__wrapped__
        has_state = callable(getattr(owner, "state", None)) and callable(getattr(owner, "restore", None))
        is_stateful = isinstance(op, Udf) and op.stateful
        if id(owner) in seen or not (has_state or is_stateful):
            continue
        name, number = op.name, 2
        while name in used:
            name, number = f"{op.name}#{number}", number + 1
        used.add(name)
        seen[id(owner)] = name
        yield (
            name,
            _Function(owner.state if has_state else None, owner.restore if has_state else None, is_stateful, node.where or None),
        )
