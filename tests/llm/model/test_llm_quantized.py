"""Quantized weights: the numbers, the products, what logits of them are off, and `tempo-llm quantize`."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_llm
from tempo_llm import CheckpointError, LlamaConfig, RequestError, load_weights, quantize
from tempo_llm.checkpoint import joined, split
from tempo_llm.cli import app
from tempo_llm.products import ExpertProduct, Form, Half, Int4, Int8, Product
from tempo_llm.quantized import GROUPS, dequantize, packed
from tempo_llm.quantized import quantize as quantized
from tempo_llm.stacks import windowed_stacks
from tests.cases import cells
from tests.llm import models, oracle
from tests.llm.model.test_llm_families import ROWS
from tests.llm.model.test_llm_families import config as family_config

IDS = [1, 17, 5, 40, 9, 77, 3, 60, 21, 8, 90, 33]
FORMS: dict[str, type[Int8] | type[Int4]] = {"int8": Int8, "int4": Int4}


def matrix(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("width", [5, 32, 100, 256])
def test_int8_numbers_are_the_nearest(width: int, group: int) -> None:
    exact = matrix(7, width)
    arrays = quantized(exact, "int8", group)
    groups = -(-width // group)
    assert arrays["weight"].shape == (7, groups * group) and arrays["scale"].shape == (7, groups)
    error = np.abs(dequantize(arrays, width) - exact)
    assert (error <= 0.501 * np.repeat(arrays["scale"], group, 1)[:, :width]).all()
    assert (np.abs(arrays["weight"]).reshape(7, groups, group).max(-1) == 127).all()


@pytest.mark.parametrize("width", [5, 32, 100, 256])
def test_int4_numbers_are_the_nearest_for_their_scale_and_offset(width: int) -> None:
    exact = matrix(7, width)
    arrays = quantized(exact, "int4")
    groups = -(-width // 32)
    assert arrays["weight"].shape == (7, groups * 16) and arrays["weight"].dtype == np.uint8
    numbers = np.arange(16) * arrays["scale"][..., None] + arrays["offset"][..., None]  # all that a group can be
    nearest = np.abs(np.repeat(numbers, 32, 1)[:, :width] - exact[..., None]).min(-1)
    np.testing.assert_allclose(np.abs(dequantize(arrays, width) - exact), nearest, atol=1e-6)


def test_int4_by_least_squares_is_nearer_than_by_the_ends_of_a_group() -> None:
    exact = matrix(64, 320)
    groups = exact.reshape(64, 10, 32)
    least, most = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    by_ends = np.rint((groups - least) / (most - least) * 15) / 15 * (most - least) + least

    def error(values: np.ndarray) -> float:
        return float(np.sqrt(((values.reshape(64, 320) - exact) ** 2).mean() / (exact**2).mean()))

    assert error(dequantize(quantized(exact, "int4"), 320)) < 0.95 * error(by_ends) < 0.08


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-42, 1e30])
def test_equal_numbers_stay(dtype: Any, value: float) -> None:
    exact = np.full((2, 64), value, np.float32)
    np.testing.assert_allclose(dequantize(quantized(exact, dtype), 64), exact, rtol=1e-5, atol=1e-44)


# -- products ---------------------------------------------------------------------------------------------------------


def stored(exact: np.ndarray, kind: str, group: int = 32) -> tuple[Form, list[np.ndarray], np.ndarray]:
    """A matrix [..., out, in]: its form, its arrays, and what they stand for."""
    width = exact.shape[-1]
    if kind in FORMS:
        arrays = quantized(exact, kind, group)  # type: ignore[arg-type]
        return FORMS[kind](width), list(arrays.values()), dequantize(arrays, width)
    narrow = exact.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else np.float16)
    return Half(width), [narrow], narrow.astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "shape"),
    cells(["bfloat16", "float16", "int8", "int4"], [(1, 1), (5, 16), (96, 48), (300, 5000), (20, 4001), (20, 8192), (2600, 320)]),
)
def test_products_are_those_of_the_widened_matrix(kind: str, shape: tuple[int, int]) -> None:
    form, arrays, exact = stored(matrix(*shape), kind, group=64 if shape[1] == 320 else 32)
    for leading in ((), (2,), (3, 3)):
        x = matrix(*leading, shape[1], seed=1)
        function: Any = Product(form)
        for _ in leading:
            function = jax.vmap(function, in_axes=(0, *[None] * len(arrays)))
        (y,) = jax.jit(function)(x, *arrays)
        np.testing.assert_allclose(y, x @ exact.T.astype(np.float64), atol=2e-6 * np.abs(x).sum(-1).max(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["bfloat16", "int8", "int4"])
def test_products_that_vary_with_the_matrix(kind: str) -> None:
    form, arrays, exact = stored(matrix(4, 6, 40), kind)
    x = matrix(4, 40, seed=1)
    (y,) = jax.vmap(Product(form))(x, *arrays)
    np.testing.assert_allclose(y, np.einsum("bi,boi->bo", x, exact), atol=1e-4)


@pytest.mark.parametrize("kind", ["float16", "int8", "int4"])
def test_products_with_chosen_experts(kind: str) -> None:
    form, arrays, exact = stored(matrix(6, 20, 40), kind)
    chosen = np.array([[0, 5], [3, 3], [1, 0]])
    for rows in (1, 2):
        x = matrix(3, rows, 40, seed=2)
        (y,) = jax.vmap(ExpertProduct(form), in_axes=(0, 0, *[None] * len(arrays)))(x, chosen, *arrays)
        expected = np.einsum("tci,tcoi->tco", np.broadcast_to(x, (3, 2, 40)), exact[chosen])
        np.testing.assert_allclose(y, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_number_that_is_not_finite_stays_so(kind: str) -> None:
    form, arrays, _ = stored(matrix(8, 64), kind)
    x = matrix(64).copy()
    x[40] = np.nan
    assert np.isnan(Product(form)(jnp.asarray(x), *arrays)[0]).all()


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8", "int4"])
def test_a_product_does_not_write_the_widened_matrix(kind: str) -> None:
    """A chain of products, in a loop: XLA widens none of the matrices into memory of its own, neither for one row nor for many."""
    size, count = 2048, 2
    each = [stored(matrix(size, size, seed=seed), kind) for seed in range(count)]
    layers = [arrays for _, arrays, _ in each]

    def chain(x: Any, *layers: Any) -> Any:
        for (form, _, _), arrays in zip(each, layers, strict=True):
            x = jax.vmap(Product(form), in_axes=(0, *[None] * len(arrays)))(x, *arrays)[0]
        return x

    def repeated(x: Any, *layers: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, x: chain(x, *layers), x)

    for rows in (1, 16):
        compiled = jax.jit(repeated).lower(matrix(rows, size), *layers).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 4 * size * size * 0.75, rows


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8", "int4"])
def test_a_product_with_long_rows_writes_nothing_of_the_matrix(kind: str) -> None:
    """As in a layer that goes from 8,192 features to fewer: parts of rows are not copied, nor widened into memory."""
    form, arrays, exact = stored(matrix(64, 8192), kind)
    x = matrix(8192, seed=1)

    def repeated(x: Any, *arrays: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, y: Product(form)(x + y.sum() * 1e-6, *arrays)[0], jnp.zeros(64))

    compiled = jax.jit(repeated).lower(x, *arrays).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.5 * arrays[0].nbytes
    np.testing.assert_allclose(Product(form)(jnp.asarray(x), *arrays)[0], exact @ x, atol=1e-3, rtol=1e-4)


# -- models -----------------------------------------------------------------------------------------------------------


def exact_tensors(values: dict[str, Any], tensors: dict[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """The tensors whose matrices are what their quantized arrays stand for."""
    exact = {}
    for name, tensor in tensors.items():
        kept = tensor.ndim != 2 or "norm" in name
        is_finer = any(part in name for part in ("embed", "lm_head", "v_proj", "o_proj", "down_proj"))
        kind: Any = "int8" if is_finer else dtype
        exact[name] = tensor if kept else dequantize(quantized(tensor, kind), tensor.shape[1])
    return exact


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_the_quantized_weights(values: dict[str, Any], write_model: Any, dtype: str, tied: bool) -> None:
    """The program rounds nothing else: with the quantized matrices, the oracle has the same logits."""
    tensors = models.random_tensors(values, tied=tied)
    logits = tempo_llm.load(write_model(values, tensors), dtype, capacity=64).logits(IDS)
    exact = exact_tensors(values, tensors, dtype)
    if tied:
        exact["lm_head.weight"] = exact["model.embed_tokens.weight"]
    for position in (0, 5, len(IDS) - 1):
        expected = oracle.logits(values, exact, IDS[: position + 1])
        np.testing.assert_allclose(logits[position], expected, atol=1e-4 * np.abs(expected).max())


FAST = (("phi3", "int8"),)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[] if (name, dtype) in FAST else pytest.mark.slow)
        for name in ROWS
        for dtype in ("bfloat16", "int8", "int4")
    ],
)
def test_every_family_generates_with_narrow_weights(name: str, dtype: str, write_model: Any) -> None:
    """Decoding, token by token, takes what the logits of the whole text say is most likely."""
    values = family_config(name, {})
    directory = write_model(values, models.random_tensors(values))
    model = tempo_llm.load(directory, dtype, capacity=64)
    tokens = model.generate([IDS], 6, ignore_eos=True).completions[0].token_ids
    logits = model.logits([*IDS, *tokens])[len(IDS) - 1 : -1]
    largest = np.abs(logits).max(-1)
    chosen = np.take_along_axis(logits, np.asarray(tokens)[:, None], -1)[:, 0]
    assert (logits.max(-1) - chosen <= (0.02 if dtype == "bfloat16" else 1e-4) * largest).all()


def test_weights_of_layers_apart_are_split_and_joined(write_model: Any) -> None:
    values = family_config("qwen3_next", {})
    directory = write_model(values, models.random_tensors(values))
    described = LlamaConfig.from_directory(directory)
    weights, stacks = load_weights(directory, described, "int4"), windowed_stacks(described)
    again = joined(split(weights, described, stacks), stacks)
    assert {name for name in weights if name.endswith("offset")} and again.keys() == weights.keys()
    assert all((again[name] == weights[name]).all() for name in weights)


# -- tempo-llm quantize ------------------------------------------------------------------------------------------------


WITH_VALUES = {
    "phi3": ("attention.query", "attention.key"),
    "qwen3_next": ("delta.query", "delta.key", "delta.gate"),
}


@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("name", ["llama", "phi3", "gpt_oss", "qwen3_next"])
def test_a_quantized_directory_is_the_model_that_is_quantized_as_it_is_read(
    name: str, dtype: str, group: int, write_model: Any, tmp_path: Path
) -> None:
    values = dict(models.VALUES) if name == "llama" else family_config(name, {})
    directory = write_model(values, models.random_tensors(values))
    quantize.quantize_model(directory, tmp_path / "narrow", dtype, group)
    described = LlamaConfig.from_directory(tmp_path / "narrow")
    weights = load_weights(tmp_path / "narrow", described)
    if group == 32:
        expected = load_weights(directory, described, dtype)
        assert weights.keys() == expected.keys()
        for key, array in expected.items():
            if dtype == "int4" and key.startswith(WITH_VALUES.get(name, ())):
                continue  # one tensor in the file with the values, which are int8: it is narrowed when it is read
            assert array.dtype == weights[key].dtype, key
            np.testing.assert_array_equal(array, weights[key], err_msg=key)
    wide, exact = load_weights(tmp_path / "narrow", described, "float32"), load_weights(directory, described, "float32")
    assert wide.keys() == exact.keys()
    for key, array in exact.items():
        error = np.sqrt(((wide[key] - array) ** 2).mean() / (array**2).mean())
        assert error < {"int8": 0.01, "int4": 0.11}[dtype], key


@pytest.mark.slow
def test_the_command_writes_a_model_that_commands_load(whole_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "narrow"
    result = CliRunner().invoke(app, ["quantize", str(whole_model), str(target), "--dtype", "int4"])
    assert result.exit_code == 0, result.output
    assert "matrices are int4" in result.stdout
    assert (target / "tokenizer.json").read_bytes() == (whole_model / "tokenizer.json").read_bytes()
    assert sorted(path.name for path in target.parent.iterdir()) == ["narrow"]
    model = tempo_llm.load(target, capacity=64)
    assert model.generator.form.dtype == "int4" and model.tokenizer.encode("dogs", raw=True)
    assert {str(array.dtype) for array in model.generator.weights.values()} == {"float32", "int8", "uint8"}
    text = CliRunner().invoke(app, ["generate", "--model", str(target), "--raw", "-n", "3", "dogs run"])
    assert text.exit_code == 0, text.output
    info = json.loads(CliRunner().invoke(app, ["info", "--model", str(target), "--json"]).stdout)
    assert (
        info["parameters"]
        == json.loads(CliRunner().invoke(app, ["info", "--model", str(whole_model), "--json"]).stdout)["parameters"]
    )


def test_requests_that_are_refused(values: dict[str, Any], write_model: Any, tmp_path: Path) -> None:
    directory, target = write_model(values, models.random_tensors(values)), tmp_path / "target"
    with pytest.raises(RequestError, match="the dtype 'int2' is unknown; matrices can be int8, int4"):
        quantize.quantize_model(directory, target, "int2")
    with pytest.raises(RequestError, match="groups of 48 elements are not supported; they can be 16, 32, 64, 128"):
        quantize.quantize_model(directory, target, "int8", 48)
    with pytest.raises(RequestError, match="is the model that is read"):
        quantize.quantize_model(directory, directory, "int8", force=True)
    quantize.quantize_model(directory, target, "int8")
    with pytest.raises(RequestError, match=r"target exists\n  hint: give another directory, or replace it: --force"):
        quantize.quantize_model(directory, target, "int4")
    with pytest.raises(RequestError, match="target is quantized already"):
        quantize.quantize_model(target, tmp_path / "again", "int4")
    quantize.quantize_model(directory, target, "int4", force=True)
    assert json.loads((target / "config.json").read_text())["quantization_config"]["dtype"] == "int4"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "target"]


def test_a_full_disk_leaves_what_was_there(
    values: dict[str, Any], write_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, target = write_model(values, models.random_tensors(values)), tmp_path / "target"
    quantize.quantize_model(directory, target, "int8")
    before = {path.name: path.read_bytes() for path in target.iterdir()}

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(quantize.os, "fsync", full)
    with pytest.raises(RequestError, match=r"target cannot be written: .*No space left on device"):
        quantize.quantize_model(directory, target, "int4", force=True)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "target"]


def test_damaged_quantized_files_are_refused(values: dict[str, Any], write_model: Any, tmp_path: Path) -> None:
    quantize.quantize_model(write_model(values, models.random_tensors(values)), tmp_path / "narrow", "int4")
    file = tmp_path / "narrow" / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-10])
    with pytest.raises(CheckpointError, match="is damaged, truncated or not a safetensors file"):
        tempo_llm.load(tmp_path / "narrow")
    file.write_bytes(content.replace(rb"\"group\": 32", rb"\"group\": 16", 1))
    with pytest.raises(CheckpointError, match="what it says of its quantized tensors does not fit them"):
        tempo_llm.load(tmp_path / "narrow")


def test_packed_numbers_are_those_of_q4_0() -> None:
    """The first half of a group lies in the low bits."""
    assert packed(np.arange(32)[None, None] % 16).tolist() == [[17 * k for k in range(16)]]
