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
os.environ.pop("TEMPO_VERIFY", None)  # tests/core/passes and tests/fuzz set it; elsewhere graphs are verified after the last pass
os.environ["TEMPO_CACHE"] = "off"  # no test compiles less because of what ran before, or writes to the user's caches

import jax
import pytest

from tempo_core.errors import MissingRow
from tests import choosing
from tests.cases import without_slow_rows
from tests.rooms import Rooms

gc.disable()  # until the tests are collected: what is imported and collected stays

jax.config.update("jax_num_cpu_devices", 4)  # programs run on the first, unless Config(devices=...) says otherwise
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)  # compile counts must not depend on what ran before

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files under tests/golden instead of comparing")
    parser.addoption("--cpu-seconds", metavar="FILE", help="write the CPU seconds of each test to a JSON file")
    parser.addoption(
        "--record-rooms",
        metavar="LABEL",
        help="write the CPU seconds of rooms to benchmarks/results/tests.json, under this label",
    )
    parser.addoption(
        "--left-out", metavar="K", type=int, choices=range(10), help="run a tenth of what tests/slow.txt lists, and nothing else"
    )
    parser.addoption("--share", metavar="K/N", type=_share, help="run share K, from 0 on, of N shares of the tests")


def _share(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise pytest.UsageError(f"--share={text} is not K/N with 0 <= K < N, such as --share=0/3")
    return int(number), int(count)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Rooms(config), "rooms")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where slow tests are left out, slow rows of tables are not collected either: they are most of all rows."""
    if "not slow" not in metafunc.config.option.markexpr:
        return
    marks = metafunc.definition.own_markers
    marks[:] = [without_slow_rows(mark) if mark.name == "parametrize" else mark for mark in marks]


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without_torch = importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None
    left_out = choosing.listed()
    part = config.getoption("--left-out")
    if part is not None:
        items[:] = [item for item in items if item.nodeid in left_out and choosing.share_of(item.nodeid) == part]
    if part is not None or config.getoption("--record-lines", None):
        left_out = frozenset()
    if (share := config.getoption("--share")) is not None:
        items[:] = [item for item in items if choosing.share_of(item.nodeid, share[1]) == share[0]]
    without_gpu, without_cpus = jax.default_backend() != "gpu", jax.default_backend() != "cpu"
    for item in items:
        if item.nodeid in left_out:
            item.add_marker(pytest.mark.slow)
        if without_torch and item.get_closest_marker("torch"):
            item.add_marker(pytest.mark.skip(reason="needs torch and transformers: pip install -e '.[torch]'"))
        if without_gpu and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: JAX_PLATFORMS=cuda pytest -m gpu"))
        if without_cpus and item.get_closest_marker("cpu"):
            item.add_marker(pytest.mark.skip(reason="asks what is done for a CPU, or needs several devices"))


def pytest_collection_finish() -> None:
    """Leave the objects of pytest and of all modules out of the search for cyclic garbage: a fifth of the tests' time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


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


@pytest.fixture(scope="session")
def shared_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for compiled programs of this run, which its workers share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "programs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture
def verified_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are verified after each pass: a pass may not break a graph that a later one mends."""
    monkeypatch.setenv("TEMPO_VERIFY", "each")


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
