"""Modules against plain NumPy, executors against each other, and gradients against finite differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.core.nn import formulas as f
from tests.core.nn.samples import LENGTH, SAMPLES, Sample, given_inputs, values
from tests.core.running import SETTINGS, assert_same


@dataclass(frozen=True)
class All:
    """All samples in one program, which is compiled once."""

    context: tp.Context
    bounds: dict[Any, int]
    outputs: list[tp.Tensor]
    inputs: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def program() -> All:
    context = tp.Context("t")
    with context as ((t, T),):
        inputs_of_samples = given_inputs(t, T)
        samples = [sample.build(sample.name, inputs_of_samples) for sample in SAMPLES]
    parameters = {name: p for module, _ in samples for name, p in module.parameters().items()}
    inputs = values(parameters)
    del inputs["x"]  # no sample reads it
    return All(context, {T: LENGTH}, [y for _, y in samples], inputs)


@pytest.fixture(scope="module", params=["reference", "staged", "numpy", "numpy, no passes"])
def results(request: pytest.FixtureRequest, program: All) -> list[Any]:
    if request.param == "reference":
        return reference.evaluate(program.context, program.outputs, program.bounds, program.inputs)
    return program.context.run(program.bounds, program.outputs, program.inputs, config=SETTINGS[request.param])


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=[s.name for s in SAMPLES])
def test_a_module_has_the_values_of_its_formula(number: int, results: list[Any], program: All) -> None:
    sample = SAMPLES[number]
    expected = sample.formula(f.within(program.inputs, sample.name), program.inputs).astype("float32")
    assert_same(results[number], expected, 2e-5, sample.name)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_a_modules_gradients_are_finite_differences(sample: Sample) -> None:
    """Gradients of a weighted sum of all values, along random directions of each parameter and of the operand."""
    context = tp.Context("t")
    with context as ((t, T),):
        inputs_of_samples = given_inputs(t, T)
        module, y = sample.build(sample.name, inputs_of_samples)
        weights = tp.constant(np.random.default_rng(1).normal(size=tuple(map(int, y.shape))).astype("float32"))
        loss = (y * weights * (tp.constant(1.0) + 0.3 * t)).sum() if y.domain.steps else (y * weights).sum()
        leaves = {**module.parameters(), **{name: getattr(inputs_of_samples, name) for name in sample.differentiable}}
        gradients = tp.grad(loss, wrt=list(leaves.values()))
    inputs = {name: v.astype("float64") if v.dtype == np.float32 else v for name, v in values(module.parameters()).items()}

    def total(moved: dict[str, np.ndarray]) -> float:
        return float(np.sum(reference.evaluate(context, [loss], {T: LENGTH}, moved, dtype="float64")[0]))

    results = reference.evaluate(context, gradients, {T: LENGTH}, inputs, dtype="float64")
    assert any(np.abs(g).max() > 1e-3 for g in results)
    for name, gradient in zip(leaves, results, strict=True):
        direction = np.random.default_rng(2).normal(size=inputs[name].shape)
        high, low = (total({**inputs, name: inputs[name] + h * direction}) for h in (1e-6, -1e-6))
        np.testing.assert_allclose(np.sum(gradient * direction), (high - low) / 2e-6, rtol=1e-6, atol=1e-7, err_msg=name)
