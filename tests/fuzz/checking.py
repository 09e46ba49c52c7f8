"""The checks that a random program has one meaning, by the reference and by the compiler."""

from __future__ import annotations

import re
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np

import tempo_core as tp
from tempo_core import errors, prices
from tempo_core.compiler import checked_tiles, with_outputs
from tempo_core.ir import graph_text as text
from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.passes.pipeline import pipeline
from tempo_core.planner import Candidate, peak
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.expr import Symbol
from tempo_core.target import Target
from tests import reference
from tests.core.cost_checks import assert_counted_as_run
from tests.core.running import assert_same
from tests.core.schedule.checker import check_runs
from tests.fuzz.script import Program
from tests.graph_parser import parse
from tests.targets import numbers, strips

tp.use_cpu_devices(4)  # for programs that are spread over devices

TOLERANCES = {"bfloat16": 6e-2, "float16": 8e-3}  # of programs with values of these dtypes; of others:
TOLERANCE = 1e-4
FLOATS = ("float64", "float32", "float16", "bfloat16")
AGAIN = 1000  # added to the seeds of the inputs and of the run, for the second run of a program
REFUSALS: dict[type[errors.TempoError], type[errors.TempoError]] = {  # a refusal -> the mistake, by brute force, that confirms it
    errors.OutOfDomainError: errors.OutOfDomainError,
    errors.BoundsError: errors.OutOfDomainError,  # a bound that is too small for a constant index
    errors.UncoveredPointError: errors.UncoveredPointError,
    errors.IndexingError: errors.IndexingError,
    errors.CausalityError: errors.CausalityError,
}


@dataclass(frozen=True)
class Outcome:
    """`kind` is "same", "failed", "refused" (rightly, for a user's mistake) or "left out" (its numbers are ill-conditioned)."""

    kind: str
    why: str = ""
    error: str = ""  # of a failure: its signature, which smaller programs with the same failure share

    @property
    def failed(self) -> bool:
        return self.kind == "failed"


class LeftOut(Exception):
    """A program whose results cannot be judged."""


def check(program: Program, only: str = "") -> Outcome:
    """Build, compile and run a program, and compare with the reference: by all checks, or only the "values" of its runs, or "limits"."""
    try:
        built = program.build()
    except (errors.TempoError, NameError, ZeroDivisionError) as error:  # a shrunken program may not build any more
        return Outcome("left out", f"not built: {type(error).__name__}")
    except Exception as error:
        return Outcome("failed", traceback.format_exc(limit=-5), _signature(error))
    return check_built(built, only)


def assert_right(built: dict[str, Any]) -> None:
    """The last call of a printed script."""
    outcome = check_built(built)
    assert not outcome.failed, outcome.why
    print(f"{outcome.kind} {outcome.why}")


def check_built(built: dict[str, Any], only: str = "") -> Outcome:
    """`built` is the namespace after `Program.text` has run."""
    try:
        # Weights, stores and bounds are small here.
        small = {
            "LEAST_SECONDS_OF_COPIES": 0.0,
            "LEAST_LENGTH_TO_UPDATE": 1,
            "LEAST_LENGTH_TO_SCATTER": 1,
            "WORTH_OWN_CODE": 2,
            "LEAST_ELEMENTS_OF_A_BLOCKED_SUM": 1 + 8 * (len(built["ctx"].graph.nodes) % 2),
        }
        number = len(built["ctx"].graph.nodes)
        # Of every second program, a step becomes a loop wherever one could.
        loops = patch.multiple(Candidate, pays=lambda *_: True, is_worse_than=lambda *_: True)
        if not number % 2:
            loops = patch("tempo_core.compiler.may_gain_by_a_loop", lambda *_: False)
        if number % 4 < 3:  # runs with small bounds take the least capacities
            small |= {"LEAST_GAIN": -1e9}
        spread = patch.object(Target, "pays_to_spread", lambda *_: True)
        with np.errstate(all="ignore"), patch.multiple(prices, **small), spread, numbers(launch=0.0), strips(64), loops:
            return {"": Checking.outcome, "values": Checking.values, "limits": Checking.limits}[only](Checking(built))
    except LeftOut as left:
        return Outcome("left out", str(left))
    except Exception as error:
        return Outcome("failed", traceback.format_exc(limit=-5), _signature(error))


def planned_bytes(program: tp.Program) -> int:
    """The peak that a limit of memory is for: on a CPU, that of stores on the host too, unless they are asked for."""
    usage = program.plan().usage
    return peak(usage if program.config.swap == "host" else usage.in_one_memory())


def _signature(error: Exception) -> str:
    """The type of an error, and the beginning of its message without numbers."""
    first = str(error).strip().split("\n")[0]
    return (
        f"{type(error).__name__} {re.sub('[0-9]+', '', first)[:24]}"
        if isinstance(error, AssertionError)
        else type(error).__name__
    )


ROUNDED = (ops.Unary, ops.Binary, ops.Reduce, ops.CumSum, ops.LinearScan, ops.DiscountedSum, ops.Dot, ops.Conv)


SUMS = (ops.CumSum, ops.LinearScan, ops.DiscountedSum, ops.Dot, ops.Conv)


@contextmanager
def rounded_otherwise(seed: int) -> Iterator[None]:
    """The reference with arithmetic that rounds at random, to the nearest number or to a neighbour of it.

    Sums are off by what their largest terms are rounded by: a Fourier transform gives 1e-8 for a sum of zeros beside a sum of ones.
    """
    random, exact = np.random.default_rng(seed), reference.NumpyBackend

    class Otherwise(exact):  # type: ignore[misc, valid-type]
        def kernel(self, op: ops.Op, *arguments: Any) -> tuple[Any, ...]:
            results = super().kernel(op, *arguments)
            if not isinstance(op, ROUNDED):
                return results
            is_sum = isinstance(op, SUMS) or (isinstance(op, ops.Reduce) and op.fn == "sum")
            return tuple(neighbour(x, arguments[0] if is_sum else ()) for x in results)

    def neighbour(x: np.ndarray, terms: Sequence[np.ndarray]) -> np.ndarray:
        if x.dtype.name not in FLOATS:
            return x
        largest = max((float(np.abs(each).max(initial=0)) for each in terms), default=0.0)
        unit = np.asarray(ml_dtypes.finfo(x.dtype).eps, x.dtype)
        size = np.maximum(np.abs(x), largest).astype(x.dtype) if np.isfinite(largest) else np.abs(x)
        return x + size * unit * random.integers(-1, 2, size=x.shape).astype(x.dtype)

    reference.NumpyBackend = Otherwise  # type: ignore[misc]
    try:
        yield
    finally:
        reference.NumpyBackend = exact  # type: ignore[misc]


class Checking:
    """The checks of one program, each an assertion."""

    def __init__(self, built: dict[str, Any]):
        self.built = built
        self.ctx, self.outputs, self.bounds = built["ctx"], built["outputs"], built["bounds"]
        self.config: tp.Config = built["config"]
        self.structure: reference.Structure = {}
        with self.ctx:
            self.source = with_outputs(self.ctx, self.outputs)
        self.draw = self.config.seed + len(self.source)  # chooses among checks that not every program gets
        dtypes = {type.dtype for node in self.source for type in node.outputs}
        self.tolerance = max([TOLERANCES.get(dtype, TOLERANCE) for dtype in dtypes], default=TOLERANCE)

    def outcome(self) -> Outcome:
        try:
            program = self.compiled()
        except errors.TempoError as error:
            if not self.source.outer():  # a walk without values does not know the ends
                self.check_refusal(error)
            return Outcome("refused", type(error).__name__)
        if self.source.outer():
            return self.inner_ends(program)
        mistakes = reference.mistakes(self.source, self.bounds, self.structure)
        assert not mistakes, f"the compiler takes it; by brute force: {next(iter(mistakes.values()))}"
        if "passes" in self.built["checks"]:
            _check_round_trip(self.source)
        _check_round_trip(program.graph)
        check_runs(program)
        assert_counted_as_run(program)
        expected = self.check_run(program, 0)
        if self.built["leaf"]:
            self.check_gradient(expected)
        self.check_run(program, AGAIN)
        self.check_living_run(program, expected)
        self.check_run_bounds(expected)
        self.check_passes()
        if "limit" in self.built["checks"]:
            self.check_limit(program, 1 + self.draw % 9)
        self.check_compiled_again(program)
        self.check_copies()
        self.check_other_bounds(program)
        self.check_cache()
        self.check_end()
        return Outcome("same")

    def inner_ends(self, program: tp.Program) -> Outcome:
        """A program with a step that ends inside of others: what needs no walk without values, and no run that stops."""
        expected = self.check_run(program, 0)
        if self.built["leaf"]:
            self.check_gradient(expected)
        self.check_run(program, AGAIN)
        return Outcome("same")

    def values(self) -> Outcome:
        """Two runs and those with other bounds, and nothing that XLA's compiler has no part in."""
        try:
            program = self.compiled()
        except errors.TempoError as error:
            return Outcome("refused", type(error).__name__)
        expected = self.check_run(program, 0)
        self.check_run(program, AGAIN)
        if not self.source.outer():
            self.check_run_bounds(expected)
        return Outcome("same")

    def limits(self) -> Outcome:
        """Limits of memory alone: three for each program."""
        try:
            program = self.compiled()
        except errors.TempoError as error:
            return Outcome("refused", type(error).__name__)
        for tenths in (9, 5, 1):
            self.check_limit(program, tenths)
        return Outcome("same")

    def compiled(self) -> tp.Program:
        return self.ctx.compile(self.bounds, self.outputs, self.config)

    # -- values -------------------------------------------------------------------------------------------------------

    def reference(
        self, again: int, outputs: Sequence[tp.Tensor] | None = None, dtype: str | None = None, **fed: Any
    ) -> list[Any]:
        self.built["calls"][0] = 0
        inputs = {**self.built["fed"](again), **fed}
        return reference.evaluate(
            self.ctx, outputs or self.outputs, self.bounds, inputs, self.config.seed + again, dtype, self.structure
        )

    def check_run(self, program: tp.Program, again: int) -> list[Any]:
        """One run of the compiled program against the reference. `again` selects the inputs and the random numbers."""
        expected = self.reference(again)
        self.built["calls"][0] = 0
        self.built["seen"].clear()
        try:
            values = program.run(self.built["fed"](again), seed=self.config.seed + again)
        except errors.NumericsError:
            if self.config.check_numerics and not self.all_finite(again):
                raise LeftOut("not finite") from None
            raise
        self.compare(values, expected, again, " of the second run" if again else "")
        return expected

    def compare(self, values: Sequence[Any], expected: Sequence[Any], again: int, of: str, with_sink: bool = True) -> None:
        """The results of a run, and what its sink saw, against the reference. `of` says in errors which run it is."""
        try:
            assert len(values) == len(expected)
            for k, (value, e) in enumerate(zip(values, expected, strict=True)):
                assert_same(value, e, self.tolerance, f"output {k}{of}")
            if with_sink and self.built["sunk"] is not None:
                self.check_sink(expected[self.built["sunk"]])
        except AssertionError:
            if self.is_unstable(expected, again):
                raise LeftOut("ill-conditioned") from None
            raise

    def is_unstable(self, expected: Sequence[Any], again: int) -> bool:
        """Whether the reference's results depend on rounding, so that others are as right."""
        wide = self.reference(again, dtype="float64")
        return not _well_conditioned(expected, wide, self.tolerance) or self.jumps(expected, again)

    def jumps(self, expected: Sequence[Any], again: int) -> bool:
        """Whether rounding decides: `floor(tanh(x) * 3)` for large x is 2 or 3, and either is right."""
        for seed in range(3):
            try:
                with rounded_otherwise(seed):
                    other = self.reference(again)
                for o, e in zip(other, expected, strict=True):
                    assert_same(o, e, self.tolerance / 4)
            except AssertionError:
                return True
        return False

    def all_finite(self, again: int) -> bool:
        """Whether all values of the program are finite, by the reference."""
        tensors = [node for node in self.ctx.graph if node.id in set(self.source) and node.outputs]
        outputs = [tp.frontend.tensor.of_node(self.ctx, node) for node in tensors if not node.domain.condition.steps]
        return all(np.isfinite(_flat(value)).all() for value in self.reference(again, outputs))

    def check_sink(self, expected: np.ndarray) -> None:
        """Every point once, in order, with its value."""
        tensor, seen = self.outputs[self.built["sunk"]], self.built["seen"]
        domain = next(
            node.domain for node in self.ctx.graph if isinstance(node.op, ops.Sink) and not isinstance(node.op, ops.End)
        )
        sizes = {str(bound): number for bound, number in self.bounds.items()}
        points = []
        for at in np.ndindex(*(sizes[str(s.bound)] for s in tensor.domain.steps)):
            env = {
                **{b: sizes[b.name] for b in self.source.bounds() if b.name in sizes},
                **dict(zip(domain.steps, at, strict=True)),
            }
            if domain.condition.evaluate(env):
                points.append(at)
        assert [at for at, _ in seen] == points, f"the sink saw {[at for at, _ in seen]} instead of {points}"
        for at, value in seen:
            assert_same(value, expected[at], self.tolerance, f"at {at} the sink")

    # -- gradients ----------------------------------------------------------------------------------------------------

    def check_gradient(self, expected: Sequence[Any]) -> None:
        """The gradient along a random direction against the loss's central difference, in float64."""
        if any(isinstance(node.op, ops.Udf) for node in self.source):
            # A function on the host is a constant for gradients, but not for differences; a JAX function has single precision, so that
            # differences are noise.
            return
        if self.built["detached"]:
            return
        leaf, loss = self.built["leaf"], self.outputs[1]
        exact = np.asarray(self.reference(0, self.outputs[:1], "float64")[0])
        x = np.asarray(self.built["fed"](0)[leaf], np.float64)
        direction = np.random.default_rng(0).normal(size=x.shape)

        def at(distance: float) -> float:
            (value,) = self.reference(0, [loss], "float64", **{leaf: x + distance * direction})
            return float(value)

        slopes = [(at(h) - at(-h)) / (2 * h) for h in (1e-5, 1e-6)]
        if not np.isfinite(slopes).all() or abs(slopes[0] - slopes[1]) > 1e-5 * max(1.0, abs(slopes[0])):
            return  # a kink near the point
        middle, h = at(0.0), 1e-6
        if abs(at(h) + at(-h) - 2 * middle) / h > 1e-4 * max(1.0, abs(slopes[0])):
            return  # a kink at the point: a tie of two inputs, say, where nested maxima may share the slope in several ways
        product = float((exact * direction).sum())
        assert abs(product - slopes[0]) <= 1e-4 * max(1.0, abs(product)), f"gradient {product}, finite difference {slopes[0]}"

    # -- passes, texts and refusals -------------------------------------------------------------------------------------------

    def broken_by(self) -> str:
        """The first pass after which the reference gives other values for the graph; "" if all passes keep its meaning."""

        def flat() -> np.ndarray:
            self.built["calls"][0] = 0
            values = reference.evaluate(graph, None, self.bounds, self.arrays(), self.config.seed)
            existing = [_existing(v, tensor, self.bounds) for v, tensor in zip(values, self.outputs, strict=True)]
            return np.concatenate([[0.0], *(_flat(v) for v in existing)])

        graph = self.source
        before = flat()
        options = self.config.disable, self.config.unvectorized_steps, checked_tiles(self.ctx, self.config)
        for each in pipeline(*options, numbers=tuple(self.bounds.items()), checkpoints=self.config.checkpoints):
            graph = each.apply(graph)
            after = flat()
            if after.shape == before.shape and not np.allclose(
                after, before, rtol=self.tolerance, atol=self.tolerance, equal_nan=True
            ):
                return each.name
        return ""

    def arrays(self) -> dict[str, Any]:
        """The inputs, with iterators as arrays: a graph alone does not say over which steps an iterator goes."""
        sizes = {str(bound): number for bound, number in self.bounds.items()}
        inputs = dict(self.built["fed"](0))
        for name, value in inputs.items():
            if not isinstance(value, np.ndarray):
                rows = np.stack(list(value))
                inputs[name] = rows.reshape(*(sizes[str(s.bound)] for s in self.ctx.inputs[name]), *rows.shape[1:])
        return inputs

    def check_living_run(self, program: tp.Program, expected: list[Any], bounds: dict[Any, int] | None = None) -> None:
        """A run that stops, is saved and resumed. One whose functions do not say what their state is goes on without that."""
        if self.config.check_numerics or self.draw % 4 != (bounds is not None):
            return
        self.built["calls"][0] = 0
        run = program.start(self.built["fed"](0), seed=self.config.seed, bounds=bounds)
        for _ in range(1 + self.draw // 4 % 2):
            run.advance()
        with tempfile.TemporaryDirectory() as directory:
            try:
                path = run.save(Path(directory) / "state.safetensors")
            except errors.StateError as error:
                assert "does not say what its state is" in error.message, error
                resumed = None
            else:
                resumed = program.resume(path, self.built["fed"](0))
        ended = run.finish()
        for k, (value, e) in enumerate(zip(ended, expected, strict=True)):
            assert_same(value, e, self.tolerance, f"output {k} of a run that stops")
        for k, (value, e) in enumerate(zip([] if resumed is None else resumed.finish(), ended, strict=False)):
            assert_same(value, e, 0.0, f"output {k} of a run that was resumed")

    def check_copies(self) -> None:
        """Two copies of the program in one: each is the program run alone, with the next seed."""
        if self.config.check_numerics or self.draw % 4 != 2 or self.built["sunk"] is not None:
            return
        tensors = {str(k): tensor for k, tensor in enumerate(self.outputs)}
        try:
            copies = self.ctx.copies("z", tensors)
        except errors.ArgumentError as error:
            assert "has state" in error.message, error
            return
        program = copies.context.compile({copies.bound: 2, **self.bounds}, copies.tensors, self.config)
        values, config = program.run(self.built["fed"](0), seed=self.config.seed), self.config
        differ = [any(step.name == "z" for step in tensor.domain.steps) for tensor in copies.tensors.values()]
        for copy in range(2):
            self.config = replace(config, seed=config.seed + copy)
            own = [value[copy] if differs else value for value, differs in zip(values.values(), differ, strict=True)]
            self.compare(own, self.reference(0), 0, f" of copy {copy}", with_sink=False)
        self.config = config

    def check_run_bounds(self, expected: list[Any]) -> None:
        """The program, compiled for bounds up to a capacity: a run that chooses the bounds gives the same results.

        Some bounds stay compiled in. Functions of arrays cannot take or give shapes that each run chooses, and the padding and
        the groups of a convolution cannot depend on them.
        """
        seed = self.draw
        if self.config.check_numerics or seed % 4 != 1 or not self.bounds:
            return
        every = list(self.bounds.items())
        chosen = [item for k, item in enumerate(every) if seed // 4 % 2 ** len(every) >> k & 1] or every
        for least in (1, None):
            more = (0, 1, 2, 3, 20, 40)[seed // 8 % 6]  # most runs take a part of their capacity, and some a small one
            limits = {bound: tp.upto(n + more, at_least=min(n, least or n)) for bound, n in chosen}
            try:
                program = self.ctx.compile({**self.bounds, **limits}, self.outputs, self.config)
                break
            except errors.ShapeError as error:
                assert "is a convolution" in error.message or any(isinstance(node.op, ops.Udf) for node in self.source), error
                return
            except errors.TempoError as error:
                if least is None:  # the program may be wrong for greater bounds
                    self.check_refusal(error, {bound: limit.capacity for bound, limit in limits.items()})
                    return
        self.built["calls"][0] = 0
        self.built["seen"].clear()
        if more < 4:  # they walk through all points
            check_runs(program)
            assert_counted_as_run(program)
        values = program.run(self.built["fed"](0), seed=self.config.seed, bounds=dict(chosen))
        self.compare(values, expected, 0, f" of a run that chooses {', '.join(str(b) for b, _ in chosen)}")
        if seed // 4 % 2:
            self.check_living_run(program, expected, dict(chosen))
        self.check_jax_call(program, dict(chosen), expected)

    def check_jax_call(self, program: tp.Program, bounds: dict[Any, int], expected: list[Any]) -> None:
        """The program as a JAX function, whose call chooses the same bounds."""
        if self.draw // 16 % 2 or any(tensor.user_condition is not TRUE for tensor in self.outputs):
            return
        try:
            function = program.as_jax()
        except errors.TempoError:  # it calls functions on the host, is interpreted, or has outputs of shapes that vary
            return
        _, values = function(function.init(seed=self.config.seed), self.arrays(), bounds)
        self.compare([np.asarray(v) for v in values], expected, 0, f" of a JAX function that chooses {bounds}", with_sink=False)

    def check_passes(self) -> None:
        """Each pass keeps the meaning of the graph, which the reference evaluates after each pass. (At a point where a tensor does not
        exist, its output may hold anything. A graph alone does not say which outputs have a condition, so such programs are left out.)
        """
        partial = any(tensor.user_condition is not TRUE for tensor in self.outputs)
        if "passes" in self.built["checks"] and self.tolerance == TOLERANCE and not partial:
            name = self.broken_by()
            assert not name, f"after the pass {name!r} the graph means something else"

    def check_limit(self, program: tp.Program, tenths: int) -> None:
        """Under so many tenths of the memory that it takes, a program fits and gives the same; or the error names the smallest limit that would do."""
        limit = planned_bytes(program) * tenths // 10
        config = replace(self.config, swap=("auto", "host")[self.draw // 3 % 2])
        try:
            small = self.ctx.compile(self.bounds, self.outputs, replace(config, memory_limit=limit))
        except errors.OutOfMemoryPlanError as error:
            enough = re.search(r"memory_limit=(\d+)", str(error))
            assert enough is not None and int(enough[1]) > limit, f"the error names no limit above {limit} that would do: {error}"
            limit = int(enough[1])
            small = self.ctx.compile(self.bounds, self.outputs, replace(config, memory_limit=limit))
        assert planned_bytes(small) <= limit, f"{planned_bytes(small)} bytes, but the limit is {limit}: {small.choice}"
        self.check_run(small, 0)

    def check_compiled_again(self, program: tp.Program) -> None:
        """Compiling changes nothing in the context, and gives the same program each time."""
        if "compiled again" not in self.built["checks"]:
            return
        again = self.compiled()
        assert again.text("sdg") == program.text("sdg"), "compiled again, the graph is another"
        assert again.text("program") == program.text("program"), "compiled again, the program is another"

    def check_cache(self) -> None:
        """A program that is read from disk is the one that was written: it compiles nothing, and gives the same bits."""
        if self.draw % 8 != 3:
            return
        with tempfile.TemporaryDirectory() as directory:
            config = replace(self.config, cache=directory)
            first, second = (self.compiled_and_run(config) for _ in range(2))
        shared = first[0].choice is not None  # forms that were tried may share XLA programs
        assert (shared or first[0].loads == 0) and second[0].compiles == 0, "it was not kept"
        assert second[0].message.startswith("from the cache: passes, schedule"), second[0].message
        assert first[0].text("sdg") == second[0].text("sdg"), "from disk, the graph is another"
        assert first[0].text("program") == second[0].text("program"), "from disk, the program is another"
        for k, (one, other) in enumerate(zip(first[1], second[1], strict=True)):
            assert_same(one, other, 0.0, f"output {k} of a program from disk")

    def compiled_and_run(self, config: tp.Config) -> tuple[tp.Program, list[Any]]:
        program = self.ctx.compile(self.bounds, self.outputs, config)
        self.built["calls"][0] = 0
        return program, program.run(self.built["fed"](0), seed=config.seed)

    def check_other_bounds(self, program: tp.Program) -> None:
        """The same program, compiled for bounds greater by one."""
        if "other bounds" not in self.built["checks"] or self.built["sunk"] is not None:
            return
        self.structure = {}
        self.bounds = {bound: number + 1 for bound, number in self.bounds.items()}
        self.built["n"].update({step: number + 1 for step, number in self.built["n"].items()})
        try:
            other = program.with_bounds(self.bounds)
        except errors.TempoError as error:
            self.check_refusal(error)
            return
        self.check_run(other, 0)

    def check_end(self) -> None:
        """A step that ends early, where a value of the program is above some number. (This adds the end to the program.)"""
        seed = self.draw
        called = any(isinstance(node.op, ops.Udf) for node in self.source) or self.built["sunk"] is not None
        if self.config.check_numerics or seed % 4 != 2 or called:
            return
        nodes = [node for node in self.source if self.may_decide(node)]
        if not nodes:
            return
        node = nodes[seed // 4 % len(nodes)]
        step = node.domain.steps[seed // 7 % len(node.domain.steps)]
        self.structure = {}
        with self.ctx:
            value = tp.frontend.tensor.of_node(self.ctx, self.ctx.graph[node.id])
            whole = (
                value[tuple(s.expr if s == step else slice(None) for s in node.domain.steps)]
                if len(node.domain.steps) > 1
                else value
            )
            total = whole.sum(None) if whole.type.rank else whole
            sums = np.asarray(self.reference(0, [total])[0], np.float64)
            order = np.sort(sums)
            apart = [k for k in range(len(order) - 1) if order[k + 1] - order[k] > 0.05 * (1 + abs(order[k]))]
            if not np.isfinite(sums).all() or not apart:
                return
            k = apart[seed // 11 % len(apart)]
            limit = float((order[k] + order[k + 1]) / 2)
            self.ctx.ends(step.expr, when=total > limit)
        bound = next(b for b in self.bounds if str(b) == step.bound)
        upto = tp.upto(self.bounds[bound], at_least=int(np.argmax(sums > limit)) + 1)
        self.structure = {}
        try:
            program = self.ctx.compile({**self.bounds, bound: upto}, self.outputs, self.config)
        except errors.CausalityError as error:
            in_a_loop = any(name.startswith("vectorize") for name in self.config.disable)  # what decides an end may be read whole
            if "depends on where it ends" not in str(error) and not in_a_loop:
                # Then the program is wrong for some bound before the most.
                least = upto.at_least
                mistakes = {m for n in range(least, upto.capacity + 1) for m in self.mistakes({bound: n})}
                assert errors.CausalityError in mistakes, f"refused, and no end is wrong ({mistakes}): {error}"
            return
        except (errors.ShapeError, *REFUSALS):
            return  # the program is wrong for the bounds before the most
        expected = self.reference(0)
        values = program.run(self.built["fed"](0), seed=self.config.seed)
        try:
            for number, (result, e) in enumerate(zip(values, expected, strict=True)):
                assert_same(result, e, self.tolerance, f"output {number} of a program in which {step} ends early")
        except AssertionError:
            if self.is_unstable(expected, 0):
                raise LeftOut("ill-conditioned") from None
            raise

    def mistakes(self, bounds: Mapping[Any, int]) -> set[type[errors.TempoError]]:
        """The kinds of the mistakes that a walk through all points finds, for these bounds in place of some."""
        return set(reference.mistakes(self.source, {**self.bounds, **bounds}))

    def may_decide(self, node: Any) -> bool:
        """Whether a value may decide where a step ends: a float at every point of its steps."""
        whole = bool(node.domain.steps) and node.domain.condition is TRUE and self.ctx.graph.nodes.get(node.id) == node
        return whole and bool(node.outputs) and node.outputs[0].dtype == "float32" and node.outputs[0].is_static

    def check_refusal(self, error: errors.TempoError, bounds: Mapping[Any, int] | None = None) -> None:
        """The compiler's error is right: a walk through all points finds the same mistake, for these bounds in place of some."""
        if isinstance(error, errors.EmptyBranchError):
            assert reference.empty_branches(self.source), f"every branch defines a point for some bounds: {error}"
            return
        kinds = [confirmed for kind, confirmed in REFUSALS.items() if isinstance(error, kind)]
        mistakes = reference.mistakes(self.source, {**self.bounds, **(bounds or {})})
        if not any(kind in mistakes for kind in kinds):
            raise AssertionError(
                f"refused, and by brute force nothing of the kind is wrong ({mistakes}): {error!r}\n{error}"
            ) from error


def _check_round_trip(graph: Graph) -> None:
    table = text.function_table(graph)
    printed = text.to_text(graph, table)
    assert text.to_text(parse(printed, table), table) == printed, "the printed graph, parsed and printed, is another"


def _existing(value: Any, tensor: tp.Tensor, bounds: Mapping[Any, int]) -> Any:
    """An output with zeros at the points where its tensor does not exist: values there have no meaning."""
    numbers = {Symbol(str(bound)): number for bound, number in bounds.items()}
    if tensor.user_condition is TRUE or not isinstance(value, np.ndarray):
        return value
    copy = value.copy()
    for at in np.ndindex(*value.shape[: len(tensor.domain.steps)]):
        if not tensor.domain.condition.evaluate({**numbers, **dict(zip(tensor.domain.steps, at, strict=True))}):
            copy[at] = 0
    return copy


def _flat(values: Any) -> np.ndarray:
    if values is None:
        return np.zeros(0)
    if isinstance(values, list):
        return np.concatenate([_flat(v) for v in values]) if values else np.zeros(0)
    return np.asarray(np.ma.filled(values, 0), np.float64).ravel()


def _well_conditioned(single: Any, double: Any, tolerance: float) -> bool:
    """Whether the results are precise enough to judge: finite, moderate, and near those of float64 (a tie can go either way)."""
    for s, d in zip(single, double, strict=True):
        a, b = _flat(s), _flat(d)
        if not np.isfinite(a).all() or (a.size and np.abs(a).max() > 1e6):
            return False
        if not np.allclose(a, b, rtol=tolerance / 5, atol=tolerance / 5 * max(1.0, float(np.abs(a).max(initial=0.0)))):
            return False
    return True


def broken_by(program: Program) -> str:
    """The first pass after which the reference gives other values for the graph; "" if all passes keep its meaning."""
    with np.errstate(all="ignore"):
        return Checking(program.build()).broken_by()
