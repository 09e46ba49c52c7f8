"""Running one program every way there is, and comparing what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core import reference
from tempo_core.config import PASSES

OPTIONAL = tuple(name for name in PASSES if name != "pad")  # without `pad`, shapes may vary, and only the interpreter runs them

# Compiling XLA programs is what costs: most programs run staged once, and otherwise in NumPy.
SETTINGS: dict[str, tp.Config] = {
    "staged": tp.Config(),
    "numpy": tp.Config(backend="numpy"),
    "numpy, no passes": tp.Config(backend="numpy", disable=PASSES),
    "numpy, not vectorized": tp.Config(backend="numpy", disable=("vectorize",)),
}


@dataclass
class Case:
    """A program and what it must give."""

    context: tp.Context
    bounds: Mapping[Any, int]
    outputs: Sequence[tp.Tensor]
    expected: Sequence[Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Registers a program under the name of its function; its docstring says what it is about."""
    CASES[make.__name__] = make
    return make


def assert_same(found: Any, expected: Any, tolerance: float = 1e-5, where: str = "") -> None:
    """Equal up to rounding, relative to the greatest element; nested lists element by element. Dtypes must agree too."""
    if isinstance(expected, list):
        assert isinstance(found, list), f"{where}: a ragged result must be nested lists, not {type(found).__name__}"
        assert len(found) == len(expected), f"{where}: {len(found)} entries instead of {len(expected)}"
        for k, (f, e) in enumerate(zip(found, expected, strict=True)):
            assert_same(f, e, tolerance, f"{where}[{k}]")
        return
    if expected is None:  # a point of a ragged result that does not exist
        assert found is None, f"{where}: {found} where nothing exists"
        return
    assert isinstance(found, np.ma.MaskedArray) == isinstance(expected, np.ma.MaskedArray), f"{where}: masked, or not"
    np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected), err_msg=f"{where}: what is masked")
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, f"{where}: dtype {found.dtype} instead of {expected.dtype}"
    assert found.shape == expected.shape, f"{where}: shape {found.shape} instead of {expected.shape}"
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, err_msg=where)
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale, err_msg=where)


def assert_all_same(found: Sequence[Any], expected: Sequence[Any], tolerance: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert_same(f, e, tolerance, f"output {k}")


def evaluated(made: Case, dtype: str | None = None) -> list[Any]:
    return reference.evaluate(made.context, made.outputs, made.bounds, made.inputs, dtype=dtype)


def compiled(made: Case, config: tp.Config) -> list[Any]:
    return made.context.run(made.bounds, outputs=made.outputs, inputs=made.inputs, config=config)
