"""Whether a random program means the same to the reference and to the compiler; smaller programs that fail alike."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core import errors, reference
from tempo_core.compiler import with_outputs
from tempo_core.ir.verify import InvalidGraphError
from tempo_core.passes.pipeline import pipeline
from tests.core.running import assert_all_same, assert_same
from tests.fuzz.generator import Program

TOLERANCE = 1e-4
MISTAKES = (  # of the program, not of the compiler: the generator does not avoid all of them
    errors.OutOfDomainError, errors.UncoveredPointError, errors.EmptyBranchError, errors.NonAffineError,
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """`kind` is "same", "failed", or "left out" (a program with a mistake, or whose numbers are ill-conditioned)."""

    kind: str
    why: str = ""

    @property
    def failed(self) -> bool:
        return self.kind == "failed"


def check(program: Program) -> Outcome:
    """Build, compile and run a program, and compare with the reference."""
    try:
        built = program.build()
    except Exception as error:  # a shrunken program may not build any more
        return Outcome("left out", f"not built: {type(error).__name__}")
    ctx, outputs, bounds, inputs = (built[name] for name in ("ctx", "outputs", "bounds", "inputs"))
    try:
        compiled = ctx.compile(bounds, outputs, built["config"])
    except InvalidGraphError:
        return Outcome("failed", traceback.format_exc(limit=-3))
    except MISTAKES as error:
        return Outcome("left out", type(error).__name__)
    except Exception:
        return Outcome("failed", traceback.format_exc(limit=-6))
    try:
        with np.errstate(all="ignore"):
            expected = reference.evaluate(ctx, outputs, bounds, inputs)
            exact = reference.evaluate(ctx, outputs, bounds, inputs, dtype="float64")
    except Exception:
        return Outcome("failed", "the compiler takes it, the reference does not: " + traceback.format_exc(limit=-3))
    if not _well_conditioned(expected, exact):
        return Outcome("left out", "ill-conditioned")
    try:
        found = compiled.run(inputs)
        assert_all_same(found, expected, TOLERANCE)
        if program.sunk and "tp.sink" in program.text():
            _check_sink(
                built["seen"], outputs[program.outputs.index(program.sunk)], expected[program.outputs.index(program.sunk)]
            )
        if (
            program.leaf and 'kind="host"' not in program.text()
        ):  # a function on the host is a constant to gradients, not to slopes
            _check_gradient(program, built, exact)
        if compiled.compiles:
            assert_all_same(compiled.run(inputs), found, 0.0)  # stores are handed over by donation: nothing may be left in them
    except Exception:
        return Outcome("failed", traceback.format_exc(limit=-3))
    return Outcome("same")


def _check_sink(seen: list[Any], tensor: tp.Tensor, expected: np.ndarray) -> None:
    """Every point once, in order, with its value."""
    points = list(np.ndindex(expected.shape[: len(tensor.domain.steps)]))
    assert [at for at, _ in seen] == points, f"the sink saw {[at for at, _ in seen]}"
    for at, value in seen:
        assert_same(value, expected[at], TOLERANCE, f"at {at} the sink")


def _flat(values: Any) -> np.ndarray:
    if isinstance(values, list):
        return np.concatenate([_flat(v) for v in values]) if values else np.zeros(0)
    return np.asarray(values, np.float64).ravel()


def _well_conditioned(single: Any, double: Any) -> bool:
    """Whether float32 is enough: finite, moderate, and near what float64 gives (at a tie, a comparison may fall either way)."""
    for s, d in zip(single, double, strict=True):
        a, b = _flat(s), _flat(d)
        if not np.isfinite(a).all() or (a.size and np.abs(a).max() > 1e6):
            return False
        if not np.allclose(a, b, rtol=TOLERANCE / 5, atol=TOLERANCE / 5 * max(1.0, float(np.abs(a).max(initial=0.0)))):
            return False
    return True


def _check_gradient(program: Program, built: dict[str, Any], exact: list[Any]) -> None:
    """The gradient along a random direction against the loss's central difference, in float64."""
    ctx, outputs, bounds, inputs = (built[name] for name in ("ctx", "outputs", "bounds", "inputs"))
    gradient, loss = np.asarray(exact[0]), outputs[1]
    x = np.asarray(inputs[program.leaf], np.float64)
    direction = np.random.default_rng(0).normal(size=x.shape)

    def at(distance: float) -> float:
        moved = {**inputs, program.leaf: x + distance * direction}
        (value,) = reference.evaluate(ctx, [loss], bounds, moved, dtype="float64")
        return float(value)

    slopes = [(at(h) - at(-h)) / (2 * h) for h in (1e-5, 1e-6)]
    if abs(slopes[0] - slopes[1]) > 1e-5 * max(1.0, abs(slopes[0])):
        return  # a kink
    found = float((gradient * direction).sum())
    assert abs(found - slopes[0]) <= 1e-4 * max(1.0, abs(found)), f"gradient {found}, finite difference {slopes[0]}"


def broken_by(program: Program) -> str:
    """The pass after which the reference gives something else for the graph; "" where all keep its meaning."""
    built = program.build()
    ctx, config = built["ctx"], built["config"]
    with ctx:
        graph = with_outputs(ctx, built["outputs"])

    def flat() -> np.ndarray:
        values = reference.evaluate(graph, None, built["bounds"], built["inputs"])
        return np.concatenate([[0.0], *(_flat(v) for v in values)])

    before = flat()
    for each in pipeline(config.disable, config.unvectorized_steps):
        graph = each.apply(graph)
        after = flat()
        if after.shape == before.shape and not np.allclose(after, before, rtol=TOLERANCE, atol=TOLERANCE):
            return each.name
    return ""


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program with fewer units, fewer passes off and smaller bounds that still fails."""
    changed = True
    while changed:
        changed = False
        smaller = [program.without(k) for k in reversed(range(len(program.units)))]
        smaller += [
            replace(program, outputs=(o,))
            for o in program.outputs
            if len(program.outputs) > 1 and not program.leaf and not program.sunk
        ]
        for candidate in smaller:
            if candidate != program and fails(candidate):
                program, changed = candidate, True
                break
    return program
