"""`python -m benchmarks.llm`: systems in processes of their own, the same tokens from all, and reasons where there is no figure."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.common import Results
from benchmarks.decode import random_model, with_best
from benchmarks.hlo import parse
from benchmarks.llm.__main__ import Bench, chosen_sizes, chosen_systems, table
from benchmarks.llm.cases import FULL, QUICK
from benchmarks.llm.models import write_config, write_models
from benchmarks.llm.process import Limits, Refused, Worker
from benchmarks.llm.systems.jax_by_hand import by_columns
from benchmarks.peers.jax_cached import FORMS, CachedLlama
from tempo_core.nn import inverse_frequencies
from tempo_llm import LlamaConfig, load_weights
from tests.cases import fast

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Limits(120, 8)


def bench(systems: list[str], limits: Limits = LIMITS) -> Bench:
    options = argparse.Namespace(turns=1, out=None, only="", quick=True, add=False)
    return Bench(Results("llm", options), QUICK, systems, [], limits)


@pytest.mark.slow
def test_both_forms_by_hand_choose_the_same_tokens_with_a_window_and_without(tmp_path: Path) -> None:
    by_hand = bench(["jax-padded", "jax-tiled"])
    sizes = replace(QUICK, rows=(2,), positions=(300,), windows=(0, 4), tokens=6)  # more than a tile
    by_hand.sizes = sizes
    cases = [case for case in sizes.cases() if case.kind == "decode"]
    assert {case.window for case in cases} == {0, 4}
    by_hand.run(tmp_path, cases)
    for row in by_hand.results.cases:
        assert set(row["ms_per_token"]) == {"jax-padded", "jax-tiled"} and not row["refused"], row
        assert row["same_tokens"] == {"jax-tiled": 1.0}, row["case"]
        assert all(0 < ms < 1e4 for ms in row["least_cpu_ms"].values())


def test_what_is_not_installed_is_a_line_that_says_what_to_install(tmp_path: Path) -> None:
    missing = bench(["llama.cpp"])
    missing.run(tmp_path, [case for case in QUICK.cases() if case.kind == "decode"])
    (row,) = missing.results.cases
    assert "pip install llama-cpp-python" in row["refused"]["llama.cpp"]
    assert any("pip install llama-cpp-python" in line for line in missing.results.skipped)
    assert "not installed" in table(missing.results.cases, ["llama.cpp"])


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield write_models(tmp_path, "tiny", [0])[0]


def test_memory_counts_from_the_imports_and_has_the_peak_of_loading_in_it(directory: Path) -> None:
    worker = Worker("jax-padded", directory, "float32", 0, LIMITS)
    worker.ask("start", prompts=[[3, 4, 5]], count=2, times=1)
    assert len(worker.ask("advance", count=2)["tokens"][0]) == 2
    memory = worker.ask("memory")
    worker.stop()
    assert 0 < memory["loading"] <= memory["peak"] < 2**30


def test_a_system_that_fails_takes_too_long_or_needs_too_much_says_so(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"longer than 0.01 s"):
        Worker("jax-padded", directory, "float32", 0, Limits(0.01, 8))
    with pytest.raises(Refused, match=r"more than 0.001 GiB"):
        Worker("jax-padded", directory, "float32", 0, Limits(60, 0.001))
    with pytest.raises(Refused, match="not supported: not written for int4") as refusal:
        Worker("jax-padded", directory, "int4", 0, LIMITS)
    assert refusal.value.is_final
    worker = Worker("jax-padded", directory, "float32", 0, LIMITS)
    with pytest.raises(Refused, match="AttributeError"):  # no prompt came before
        worker.ask("advance", count=1)
    assert worker.alive  # and takes the next request
    worker._process.kill()
    with pytest.raises(Refused, match="the process ended"):
        worker.ask("memory")
    worker.stop()
    empty = tmp_path / "empty"
    write_config(empty, {"model_type": "llama"})
    with pytest.raises(Refused, match="ModelConfigError"):
        Worker("jax-padded", empty, "float32", 0, LIMITS)


def test_options_choose_rows_of_the_table_and_systems() -> None:
    names = [case.name for case in FULL.cases()]
    assert {"decode rows=4 t=2000 window=256 float32", "first token rows=1 prompt=8000 float32", "memory rows=4 t=1000 int4"} <= {
        *names
    }
    assert "decode rows=1 t=2000 int8" not in names and "decode rows=1 t=1000 int8" in names
    chosen = argparse.Namespace(model="", rows=(1,), positions=(100,), prompts=None, windows=(0,), dtype="int8", quick=False)
    assert {(case.rows, case.dtype, case.window) for case in chosen_sizes(chosen).cases()} == {(1, "int8", 0)}
    assert chosen_systems("jax,mlx") == ["tempo", "jax-padded", "jax-tiled", "mlx"]
    with pytest.raises(SystemExit, match="the peers are jax, jax-padded"):
        chosen_systems("torch")
    with pytest.raises(SystemExit, match="the dtypes are float32"):
        chosen_sizes(argparse.Namespace(**{**vars(chosen), "dtype": "float8"}))


def test_the_int8_model_by_hand_is_near_the_model_of_float32(directory: Path) -> None:
    config = LlamaConfig.from_directory(directory)
    weights = load_weights(directory, config, "float32")
    narrow = by_columns(weights)
    for name, weight in weights.items():
        if not name.endswith("norm.weight"):
            scale = narrow[name.replace(".weight", ".scale")]
            wide = narrow[name].astype(np.float32) * (scale[..., None] if name.startswith("embedding.") else scale[..., None, :])
            assert narrow[name].dtype == np.int8 and np.abs(wide - weight).max() <= scale.max() * 0.501, name
    worker = Worker("jax-tiled", directory, "int8", 0, LIMITS)
    (tokens,) = worker.ask("start", prompts=[[3, 4, 5]], count=2, times=1)["tokens"]
    assert all(0 <= token < config.vocab_size for token in tokens)
    worker.stop()


@pytest.mark.slow
def test_ours_and_jax_by_hand_run_in_turn_and_choose_the_same_tokens(tmp_path: Path) -> None:
    out = tmp_path / "llm.json"
    command = [sys.executable, "-m", "benchmarks.llm", "--quick", "--only", "decode", "--peers", "jax-tiled", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(out.read_text(encoding="utf-8"))
    decode, versions = written["cases"]
    assert all(decode["ms_per_token"][side]["median"] > 0 for side in ("tempo", "jax-tiled"))
    assert decode["same_tokens"] == {"jax-tiled": 1.0} and not decode["refused"]
    assert versions["systems"]["tempo"]["jax"] and versions["systems"]["jax-tiled"]["python"]
    assert re.search(r"tempo +JAX, tiled", done.stdout)


@pytest.mark.slow
def test_the_gpu_benchmark_runs_end_to_end_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.llm.gpu", "--tiny", "--case", "window1024", "--through", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(out.read_text(encoding="utf-8"))["cases"]
    assert not row["refused"] and row["times_as_fast"] > 0
    assert all(side["ms"] > 0 for side in row["sides"].values())
    assert max(map(int, row["sides"]["tempo"]["ms_at"])) > row["positions"] * 3 / 4


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", fast([1, 4], 1))
def test_forms_by_hand_write_their_cache_in_place(form: str, rows: int) -> None:
    """In their loop over tokens no array as large as a cache is copied; and all forms have the same tokens."""
    config, weights = random_model("tiny")
    on_device = {key: jax.device_put(value) for key, value in weights.items()}
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    prompts = np.random.default_rng(0).integers(3, config.vocab_size, (rows, 5)).astype(np.int32)

    def decoded(form: str) -> tuple[CachedLlama, np.ndarray]:
        llama = CachedLlama(config, on_device, frequencies, form)
        return llama, np.concatenate([llama.start(prompts, 1024)[:, None], llama.advance(20)], 1)

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        llama, tokens = decoded(form)
        assert tokens.tolist() == decoded("padded")[1].tolist()
        text = llama._go_on.lower(llama.weights, llama.caches, llama.token, llama.at, count=20).compile().as_text()
    module, sizes = parse(text), {keys.shape for cache in llama.caches for keys in cache}
    loops = [loop for loop in module.loops() if not loop.parents]
    inside = [i for loop in loops for each in module.operations(loop.body) for i in (each, *module.inside(each))]
    assert len(inside) > 50
    assert not [i for i in inside if i.opcode == "copy" and {shape.sizes for shape in i.shapes} & sizes]


def test_the_best_of_the_forms_by_hand_is_quoted() -> None:
    row = {side: {"median": ms} for side, ms in (("tempo", 2.0), ("JAX by hand, padded", 3.0), ("JAX by hand, switch", 1.0))}
    assert with_best(row)["JAX by hand"] == {"median": 1.0} and list(with_best(row))[:2] == ["tempo", "JAX by hand"]
    assert with_best(row)["JAX by hand, padded"] == {"median": 3.0}
