"""Running one program in every way, and comparing the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.config import PASSES
from tests import reference

OPTIONAL = tuple(name for name in PASSES if name != "pad")  # without `pad`, shapes may vary, and only the interpreter runs them

# Compiling XLA programs takes most of the time: most programs run staged once, and otherwise in NumPy.
SETTINGS: dict[str, tp.Config] = {
    "staged": tp.Config(),
    "numpy": tp.Config(backend="numpy"),
    "numpy, no passes": tp.Config(backend="numpy", disable=PASSES),
    "numpy, not vectorized": tp.Config(backend="numpy", disable=("vectorize",)),
}


@dataclass
class Case:
    """A program and its expected values."""

    context: tp.Context
    bounds: Mapping[Any, int]
    outputs: Sequence[tp.Tensor]
    expected: Sequence[Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register a program under the name of its function, whose docstring describes it."""
    CASES[make.__name__] = make
    return make


def assert_same(result: Any, expected: Any, tolerance: float = 1e-5, where: str = "") -> None:
    """Equal up to rounding, relative to the greatest element; nested lists element by element. Dtypes must agree too."""
    if isinstance(expected, list):
        assert isinstance(result, list), f"{where}: a ragged result must be nested lists, not {type(result).__name__}"
        assert len(result) == len(expected), f"{where}: {len(result)} entries instead of {len(expected)}"
        for k, (f, e) in enumerate(zip(result, expected, strict=True)):
            assert_same(f, e, tolerance, f"{where}[{k}]")
        return
    if expected is None:  # a point of a ragged result that does not exist
        assert result is None, f"{where}: {result} where nothing exists"
        return
    assert isinstance(result, np.ma.MaskedArray) == isinstance(expected, np.ma.MaskedArray), f"{where}: masked, or not"
    np.testing.assert_array_equal(np.ma.getmaskarray(result), np.ma.getmaskarray(expected), err_msg=f"{where}: what is masked")
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype, f"{where}: dtype {result.dtype} instead of {expected.dtype}"
    assert result.shape == expected.shape, f"{where}: shape {result.shape} instead of {expected.shape}"
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected, err_msg=where)
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * scale, err_msg=where)


def assert_all_same(result: Sequence[Any], expected: Sequence[Any], tolerance: float = 1e-5) -> None:
    assert len(result) == len(expected)
    for k, (f, e) in enumerate(zip(result, expected, strict=True)):
        assert_same(f, e, tolerance, f"output {k}")


def evaluated(case: Case, dtype: str | None = None) -> list[Any]:
    return reference.evaluate(case.context, case.outputs, case.bounds, case.inputs, dtype=dtype)


def compiled(case: Case, config: tp.Config) -> list[Any]:
    return case.context.run(case.bounds, outputs=case.outputs, inputs=case.inputs, config=config)
