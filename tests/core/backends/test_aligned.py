"""Arrays that JAX takes on a CPU without a copy, and copies of files that are mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends import aligned

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (7, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_the_device_has_the_same_memory(shape: tuple[int, ...], dtype: Any) -> None:
    array = aligned.copied(np.ones(shape), np.dtype(dtype))
    assert array.shape == shape and array.dtype == dtype and np.all(array == 1)
    if array.size:
        on_device = jax.device_put(array)
        assert on_device.unsafe_buffer_pointer() == array.ctypes.data


def of_file(folder: Path, mode: Any, dtype: Any = np.float64, offset: int = 4) -> Any:
    numbers = np.arange(24, dtype=dtype)
    (folder / "numbers").write_bytes(b"\0" * offset + numbers.tobytes())
    return np.memmap(folder / "numbers", dtype, mode, offset=offset, shape=(8, 3))


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_file_is_copied_in_parts(mode: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "PIECE", 24 * rows)
    mapped = of_file(tmp_path, mode)
    expected = np.arange(24.0).reshape(8, 3)
    if mode != "r":
        expected[5:] = mapped[5:] = -1.0
    parts = [(0, 1)] if mode == "c" else [(start, start + rows) for start in range(0, 8, rows)]
    assert len(list(aligned.parts(mapped))) == len(parts)
    assert np.array_equal(aligned.copied(np.asarray(mapped)[1:], np.dtype(np.float32)), expected[1:])
    assert np.array_equal(mapped, expected), "changes that the file does not have yet, or never gets, stay"


@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 4), (np.float32, 64), (np.float64, 4), (np.int64, 4)])
@pytest.mark.parametrize("launches", [1, 2])
def test_a_program_reads_a_file(dtype: Any, offset: int, launches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "PIECE", 50)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), "int32" if dtype == np.int64 else "float32", domain=(t,))
        total = x[0:T].sum(0)
        if launches == 2:
            (total,) = tp.udf(lambda value: (value * 1,), total, outputs=[tp.spec((3,), x.dtype)], kind="host")
        y = x + total
    mapped, numbers = of_file(tmp_path, "r", dtype, offset), np.arange(24).reshape(8, 3)
    assert np.array_equal(ctx.compile({T: 8}, y).run({"x": mapped}), numbers + numbers.sum(0))


def test_numbers_of_a_file_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "PIECE", 24)
    mapped = of_file(tmp_path, "r+", np.int64)
    mapped[4, 1] = 2**40
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), "int32", domain=(t,))
    with pytest.raises(tp.errors.InputError, match="holds 1099511627776"):
        ctx.compile({T: 8}, x).run({"x": mapped})


def test_an_iterator_is_collected_where_the_device_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
    program, arrays = ctx.compile({T: 8}, x * 2), []
    empty = aligned.empty
    monkeypatch.setattr(aligned, "empty", lambda *arguments: arrays.append(empty(*arguments)) or arrays[-1])
    assert np.array_equal(program.run({"x": (np.full(3, t, np.float32) for t in range(8))})[:, 0], 2 * np.arange(8))
    (collected,) = arrays
    assert jax.device_put(collected).unsafe_buffer_pointer() == collected.ctypes.data
