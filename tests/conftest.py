"""Settings for all tests: JAX on the CPU with strict numerics, golden texts, and tests that need what is not there."""

from __future__ import annotations

import difflib
import gc
import importlib.util
import os
import signal
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # `JAX_PLATFORMS=cuda pytest -m gpu` for a GPU; read when JAX is imported
if os.environ["JAX_PLATFORMS"] == "cpu":  # XLA's optimizations take most of its time, and the tests' programs run once
    flags = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
    if version("jaxlib").startswith("0.10."):  # XLA ends the process at a flag that it does not have
        flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a script's `pytest &`: the commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["TEMPO_VERIFY"] = "each"  # a pass may not break a graph that a later one mends
os.environ["TEMPO_CACHE"] = "off"  # no test compiles less because of what ran before, or writes to the user's caches

import jax
import pytest

from tempo_core.errors import MissingRow

gc.set_threshold(100_000, 20, 20)  # what is imported and collected stays: hardly anything of it is garbage

jax.config.update("jax_num_cpu_devices", 4)  # programs run on the first, unless Config(devices=...) says otherwise
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)  # compile counts must not depend on what ran before

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files under tests/golden instead of comparing")


# Families that ask the same of many programs: each n-th test runs by default, and all with `pytest -m "not slow and not gpu"`.
# Strides of 11 and 7 pass through all values of the inner of two parameters, of which there are often 2, 3, 4, 6 or 12.
SHARES = ((30, 11), (12, 7), (4, 3))  # of a function with so many tests, by its parameters, each n-th runs
THINNED = {  # each n-th test of every function with parameters, for families whose tests take long
    "core/passes/test_meaning.py": 11,
    "core/test_prefixes.py": 6,
    "core/test_window_gradients.py": 6,
    "core/test_explain.py": 6,
    "core/backends/test_array_ops.py": 2,
    "core/backends/test_elementwise.py": 2,
    "core/backends/test_cumulative.py": 2,
    "core/test_past_products.py": 5,
    "core/dependences/test_pattern_gradients.py": 6,
    "core/dependences/test_values.py": 2,
    "core/runtime/test_run_bounds.py": 3,
    "core/runtime/test_registers.py": 3,
    "core/runtime/test_unroll.py": 2,
    "core/runtime/test_launches.py": 3,
    "core/schedule/test_pieces.py": 2,
    "core/schedule/test_guards.py": 2,
    "core/passes/test_shift.py": 3,
    "core/passes/test_running_sums.py": 2,
    "core/test_gradients.py": 2,
    "core/test_op_gradients.py": 2,
    "core/nn/test_training.py": 3,
}
WHOLE = (
    "test_ledger.py",
    "test_copies.py",
    "core/errors/test_messages.py",
    "test_docs.py",
)  # each of their tests holds a text or figures that no other test holds


def _thin(items: list[pytest.Item]) -> None:
    """Mark the tests that the default run leaves out."""
    families: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        name = getattr(item, "originalname", item.name)
        is_of_a_table = path in WHOLE or "every" in name or "each" in name or "_has_" in name  # it says which row is missing
        if path and hasattr(item, "callspec") and not is_of_a_table:
            families.setdefault((path, name), []).append(item)
    for (path, _), members in families.items():
        share = next((each for count, each in SHARES if len(members) >= count), 1)
        each = max(THINNED.get(path, 1), share)
        for number, item in enumerate(members):
            if number % each:
                item.add_marker(pytest.mark.thinned)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _thin(items)
    without_torch = importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None
    without_gpu, without_cpus = jax.default_backend() != "gpu", jax.default_backend() != "cpu"
    for item in items:
        if without_torch and item.get_closest_marker("torch"):
            item.add_marker(pytest.mark.skip(reason="needs torch and transformers: pip install -e '.[torch]'"))
        if without_gpu and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: JAX_PLATFORMS=cuda pytest -m gpu"))
        if without_cpus and item.get_closest_marker("cpu"):
            item.add_marker(pytest.mark.skip(reason="asks what is done for a CPU, or needs several devices"))


def pytest_collection_finish() -> None:
    """Leave the objects of pytest and of all modules out of the search for cyclic garbage: a fifth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A missing row of a table fails the one test that is about it, by its name; tests that only need the row are skipped."""
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    while error is not None and not isinstance(error, MissingRow):
        error = error.__cause__
    if report.failed and error is not None:
        report.outcome, report.longrepr = (
            "skipped",
            (str(item.path), item.location[1] or 0, f"needs a row that is not there: {error}"),
        )
    return report


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with `tests/golden/<name>`; `pytest --update-golden` rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"tests/golden/{name} does not exist; write it with `pytest --update-golden`, and read it")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = "".join(difflib.unified_diff(expected.splitlines(True), text.splitlines(True), f"golden/{name}", "now"))
            pytest.fail(f"{difference}\nif the new text is right: pytest --update-golden", pytrace=False)

    return compare
