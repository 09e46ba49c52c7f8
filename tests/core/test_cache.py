"""Compiled programs on disk: a second start compiles nothing, and nothing is taken that belongs to another program."""

from __future__ import annotations

import json
import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import prices
from tempo_core.store.cache import directory as directory_of
from tempo_core.store.entries import Entries
from tests.cases import first
from tests.core.cached import X, mixed, small
from tests.core.programs import reinforce

ROOT = Path(__file__).resolve().parents[2]
EXECUTORS = {
    "staged": tp.Config(),
    "interpreted": tp.Config(executor="interpreted"),
    "numpy": tp.Config(backend="numpy"),
}
ALL = "from the cache: passes, schedule"


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def process(*arguments: str, seed: str = "0") -> subprocess.Popen[str]:
    """A process whose texts have other hashes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.core.cached", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(started: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = started.communicate()
    assert started.returncode == 0, err
    assert "ignored" not in err, err
    return json.loads(out.splitlines()[-1])


def test_another_process_compiles_nothing_and_gives_the_same_bits(tmp_path: Path) -> None:
    cache = tmp_path / "programs"
    writers = [process(str(cache), seed=seed) for seed in ("1", "2")]  # both write, at the same time
    first, second = map(report, writers)
    assert first["results"] == second["results"]
    assert max(first["compiles"], second["compiles"]) > 1
    third = report(process(str(cache), seed="3"))
    programs = third["loads"]
    assert programs > 1
    assert third == {
        "results": first["results"], "compiles": 0, "loads": programs, "jax": 0,
        "message": f"{ALL}, {programs} of {programs} XLA programs",
    }  # fmt: skip


@pytest.mark.slow
def test_programs_that_jax_kept_are_not_kept_again(tmp_path: Path) -> None:
    """XLA writes such a program so that it fails when it runs."""
    counts = report(process("jax", str(tmp_path)))
    compiles, loads, kept = counts["first"]
    assert compiles > 1 and loads == 0 and kept >= compiles
    assert counts["second"] == counts["third"] == [compiles, 0, 0]
    assert counts["fourth"] == [0, compiles, kept]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_program_from_disk_is_the_one_that_was_written(executor: str, tmp_path: Path) -> None:
    config = replace(EXECUTORS[executor], cache=tmp_path / "programs")
    written, plain = mixed(config), mixed(EXECUTORS[executor])
    assert written.message == "from the cache: nothing" and plain.message == ""
    results = written.run({"x": X})
    taken = mixed(config)
    assert taken.message == ALL
    assert [taken.timing[name] for name in taken.timing if name not in ("check", "schedule")] == []  # no pass ran
    same(results, taken.run({"x": X}))
    same(results, plain.run({"x": X}))
    assert taken.compiles == 0 and taken.loads == written.compiles
    for text in ("sdg", "source", "schedule", "program", "memory", "plan"):
        assert taken.text(text, full=True) == written.text(text, full=True)
    assert str(taken.cost()) == str(written.cost())


def test_other_bounds_take_the_passes(tmp_path: Path) -> None:
    config = tp.Config(cache=tmp_path)
    longer = np.concatenate([X, X])
    expected = mixed(config).with_bounds({"T": 12}).run({"x": longer})
    taken = mixed(config).with_bounds({"T": 12})
    assert taken.message == (
        f"T: 6 -> 12: passes reused; 0 of {taken.loads} XLA programs recompiled; {ALL}, {taken.loads} of {taken.loads} XLA programs"
    )
    same(expected, taken.run({"x": longer}))
    assert taken.compiles == 0
    other = mixed(config, length=7)
    assert other.message == "from the cache: passes"


def test_runs_that_live_take_their_device_programs(tmp_path: Path) -> None:
    config = tp.Config(cache=tmp_path)

    def steps(program: tp.Program[dict[str, Any]]) -> dict[str, Any]:
        run = program.start({"x": X})
        run.advance(count=2)
        return run.finish()

    written = mixed(config)
    expected = steps(written)
    taken = mixed(config)
    with patch.object(jax.stages.Lowered, "compile", side_effect=AssertionError("compiled")):
        same(expected, steps(taken))
    assert taken.loads > 1


# -- what is not the same program -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    first(
        3,
        [
            {"disable": ("fuse",)},
            {"disable": ("registers",)},
            {"check_numerics": True},
            {"launch_seconds": None},
            {"executor": "interpreted"},
        ],
    ),
    ids=str,
)
def test_other_options_are_another_program(change: dict[str, Any], tmp_path: Path) -> None:
    small(tp.Config(cache=tmp_path)).compile()
    other = small(tp.Config(cache=tmp_path, **change))
    assert other.message == "from the cache: nothing"
    same(small(tp.Config()).run({"x": X}), other.run({"x": X}))


def test_seed_and_limit_of_memory_are_the_same_program(tmp_path: Path) -> None:
    small(tp.Config(cache=tmp_path)).compile()
    other = small(tp.Config(cache=tmp_path, seed=5, memory_limit="1GiB"))
    assert other.compiles == 0 and other.message == f"{ALL}, {other.loads} of {other.loads} XLA programs"  # for the limit
    same(small(tp.Config(seed=5)).run({"x": X}), other.run({"x": X}))
    with pytest.raises(tp.errors.OutOfMemoryPlanError):
        small(tp.Config(cache=tmp_path, memory_limit=1))


def test_another_constant_is_another_program(tmp_path: Path) -> None:
    config = tp.Config(cache=tmp_path)
    small(config).compile()
    other = small(config, scale=0.25)
    assert other.message == "from the cache: nothing"
    same(small(tp.Config(), scale=0.25).run({"x": X}), other.run({"x": X}))


def test_large_constants_are_compared_as_a_whole(tmp_path: Path) -> None:
    def total(value: float) -> Any:
        table = np.zeros(5000, "float32")
        table[2500] = value
        ctx = tp.Context()
        with ctx:
            result = tp.constant(table).sum()
        return ctx.compile({}, result, tp.Config(cache=tmp_path)).run()

    assert [total(1.0), total(2.0), total(1.0)] == [1.0, 2.0, 1.0]


def test_another_environment_is_another_device_program(tmp_path: Path) -> None:
    config = tp.Config(cache=tmp_path)
    small(config).compile()
    with jax.default_matmul_precision("highest"):
        other = small(config).compile()
    assert other.message.startswith(ALL) and other.loads == 0 and other.compiles > 1
    with patch.dict(os.environ, {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}):
        assert small(config).compile().loads == 0
    with patch.object(prices, "MOST_PIECES", 2):
        assert small(config).message == "from the cache: nothing"
    with patch("tempo_core.store.environment._installed", lambda: "another version"):
        assert small(config).message == "from the cache: nothing"
    assert small(config).compile().compiles == 0


# -- the user's lines -------------------------------------------------------------------------------------------------

MODEL = """
import tempo_core as tp
def model(config):
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = tp.zeros((3,)) + 0.5
        (shown,) = tp.udf(lambda a: (a[:2] if a[0] < 0.2 else a,), h, outputs=[tp.spec((3,))], kind="host", name="shown")
        h[t + 1] = shown * 0.5
        scaled = tp.exp(h) * 2
        return ctx.compile({T: 6}, {"scaled": scaled}, config)
"""


def moved(folder: Path, lines: int, text: str = MODEL) -> Callable[[tp.Config], tp.Program[Any]]:
    """The function `model` of a module that begins with so many empty lines."""
    folder.mkdir()
    (folder / "moved.py").write_text("\n" * lines + text)
    return runpy.run_path(str(folder / "moved.py"))["model"]  # type: ignore[no-any-return]


def test_a_program_on_other_lines_is_the_same_program_with_the_lines_of_today(tmp_path: Path) -> None:
    config = tp.Config(cache=tmp_path / "programs")
    moved(tmp_path / "first", 0)(config).compile()
    taken = moved(tmp_path / "second", 7)(config)
    plain = moved(tmp_path / "third", 7)(tp.Config())
    assert taken.compile().compiles == 0 and taken.message.startswith(ALL)
    for text in ("sdg", "source", "schedule", "program", "memory", "plan"):
        assert taken.text(text, full=True).replace("second", "third") == plain.text(text, full=True)
    assert {t.line.rsplit(":", 1)[0] for t in taken.plan().usage.tensors if t.line} == {str(tmp_path / "second" / "moved.py")}
    assert str(taken.explain()).replace("second", "third") == str(plain.explain())
    with pytest.raises(tp.errors.ShapeError) as error:
        taken.run()
    assert error.value.where == f"{tmp_path / 'second' / 'moved.py'}:15"


def test_statements_that_come_to_stand_on_one_line_are_another_program(tmp_path: Path) -> None:
    config = tp.Config(cache=tmp_path / "programs")
    moved(tmp_path / "first", 0)(config)
    joined = MODEL.replace("\n        h[0] =", "; h[0] =")
    assert joined != MODEL
    assert moved(tmp_path / "second", 0, joined)(config).message == "from the cache: nothing"


# -- functions of users -----------------------------------------------------------------------------------------------


def applied(function: Callable[..., Any], kind: str, cache: Path) -> tp.Program[Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        (y,) = tp.udf(function, tp.exp(x), outputs=[tp.spec((3,))], kind=kind, name="f")
        return ctx.compile({T: 6}, tp.log(y), tp.Config(cache=cache))


@pytest.mark.parametrize("kind", ["jax", "host"])
def test_a_changed_function_is_not_taken_for_the_old_one(kind: str, tmp_path: Path) -> None:
    def times(factor: float) -> Callable[..., Any]:
        return lambda a: (a * np.float32(factor),)

    def run(factor: float) -> tuple[tp.Program[Any], Any]:
        program = applied(times(factor), kind, tmp_path)
        return program, program.run({"x": X})

    first, second, third = run(2.0), run(3.0), run(2.0)
    np.testing.assert_allclose(second[1] - first[1], np.log(1.5), rtol=1e-5)
    np.testing.assert_array_equal(first[1], third[1])
    assert second[0].message.startswith(ALL) and third[0].compiles == 0
    assert (second[0].compiles > 0) == (kind == "jax")  # functions on the host are not in device programs


def test_a_function_that_calls_back_is_compiled_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def back(a: Any) -> Any:
        return (
            jax.pure_callback(lambda v: v + np.float32(1), jax.ShapeDtypeStruct(a.shape, a.dtype), a, vmap_method="sequential"),
        )

    for _ in range(2):
        program = applied(back, "jax", tmp_path)
        np.testing.assert_allclose(program.run({"x": X}), np.log(np.exp(X) + 1), rtol=1e-5)
        assert program.compiles == 1 and program.loads == 0
    assert not caplog.records


def test_functions_that_the_compiler_divides_are_divided_again(tmp_path: Path) -> None:
    def run(draws: int) -> tuple[tp.Program[Any], Any]:
        def step(state: Any, bits: Any) -> Any:
            fresh = bits
            for _ in range(draws):
                fresh = jnp.sin(fresh) * 2
            return (state * 0.5 + fresh,)

        ctx = tp.Context("t")
        with ctx as ((t, T),):
            bits = tp.input("bits", (3,), domain=(t,))
            s = tp.recurrence((3,), domain=(t,), name="s")
            s[0] = tp.zeros((3,))
            (following,) = tp.udf(step, s, bits, outputs=[tp.spec((3,))], name="step")
            s[t + 1] = following
            program = ctx.compile({T: 6}, s, tp.Config(cache=tmp_path))
        return program, program.run({"bits": X})

    first, second = run(10), run(10)
    assert "early part" in first[0].text("sdg") or "step" in first[0].text("sdg")
    assert second[0].message == f"{ALL}, 1 of 1 XLA programs"
    np.testing.assert_array_equal(first[1], second[1])
    changed, plain = run(12), run(0)
    assert changed[0].compiles == 1 and plain[0].compiles == 1
    np.testing.assert_array_equal(plain[1][1], X[0])


def test_functions_of_gradients(tmp_path: Path) -> None:
    def losses() -> tuple[tp.Program[Any], Any]:
        ctx, bounds, outputs = reinforce(None)
        program = ctx.compile(bounds, outputs, tp.Config(cache=tmp_path))
        return program, program.run()[0]

    first, second = losses(), losses()
    np.testing.assert_array_equal(first[1], second[1])
    assert second[0].compiles == 0 and second[0].message.startswith(ALL)


# -- entries that cannot be used --------------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    first(
        2,
        [
            lambda data: data[: len(data) // 2],
            flipped,
            lambda data: b"",
            lambda data: data.replace(b"tempo-entry-1", b"tempo-entry-0"),
        ],
    ),
    ids=["truncated", "a flipped bit", "empty", "another version"],
)
@pytest.mark.parametrize("kind", ["graph", "schedule", "link", "xla"])
def test_damaged_entries_are_ignored_with_a_message(
    kind: str, damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tp.Config(cache=tmp_path)
    expected = applied(lambda a: (a,), "host", tmp_path).run({"x": X})
    damaged = sorted(tmp_path.glob(f"{kind}-*"))
    assert damaged and config.cache == str(tmp_path)
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))
    program = applied(lambda a: (a,), "host", tmp_path)
    np.testing.assert_array_equal(program.run({"x": X}), expected)
    assert all("is ignored: it is damaged" in record.message for record in caplog.records) and caplog.records
    assert (program.compiles > 0) == (kind == "xla")
    caplog.clear()
    again = applied(lambda a: (a,), "host", tmp_path)
    again.run({"x": X})
    assert again.compiles == 0 and not caplog.records


@pytest.mark.parametrize("kind", ["graph", "schedule", "xla"])
def test_entries_that_are_whole_and_mean_nothing(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = small(tp.Config(cache=tmp_path)).run({"x": X})
    for path in tmp_path.glob(f"{kind}-*"):
        Entries(tmp_path, 1 << 30).write(path.name, b"nothing that can be loaded")
    same(expected, small(tp.Config(cache=tmp_path)).run({"x": X}))
    assert caplog.records and all("is ignored" in record.message for record in caplog.records)


def test_a_cache_that_cannot_be_written_is_a_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    program = small(tp.Config(cache=tmp_path / "file" / "programs"))
    same(small(tp.Config()).run({"x": X}), program.run({"x": X}))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * len(caplog.records)
    assert any("cannot be" in record.message for record in caplog.records)


def test_another_version_of_jax_may_lack_what_keeps_programs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = small(tp.Config()).run({"x": X})
    with patch.dict(sys.modules, {"jax.experimental.serialize_executable": None}):
        for _ in range(2):
            same(expected, small(tp.Config(cache=tmp_path)).run({"x": X}))
    assert not caplog.records and not list(tmp_path.glob("xla-*"))
    with patch("tempo_core.store.environment.of_device_programs", side_effect=AttributeError("no options")):
        same(expected, small(tp.Config(cache=tmp_path)).run({"x": X}))
    assert "the program is not kept: no options" in caplog.text


# -- options ----------------------------------------------------------------------------------------------------------


def test_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory_of(tp.Config()) is None and directory_of(tp.Config(cache=False)) is None
    assert directory_of(tp.Config(cache="~/programs")) == Path.home() / "programs"
    assert directory_of(tp.Config(cache=True)) is None  # TEMPO_CACHE=off in tests
    monkeypatch.setenv("TEMPO_CACHE", "/somewhere")
    assert directory_of(tp.Config(cache=True)) == Path("/somewhere")
    assert directory_of(tp.Config(cache="here")) == Path("here")
    monkeypatch.delenv("TEMPO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert directory_of(tp.Config(cache=True)) == Path("/caches/tempo")
    for relative in ("", "caches"):  # the rule of freedesktop.org: paths that are not absolute are ignored
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert directory_of(tp.Config(cache=True)) == Path.home() / ".cache" / "tempo"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cache": 3}, "cache=3 is not a directory"),
        ({"cache": ""}, "is not a directory"),
        ({"cache_limit": "much"}, "cache_limit='much'"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(tp.errors.ConfigError, match=text):
        tp.Config(**options)


def test_a_limit_of_size(tmp_path: Path) -> None:
    for length in (5, 6, 7):
        small(tp.Config(cache=tmp_path, cache_limit="60KiB"), length=length).compile()
    kept = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 0 < kept <= 60 * 1024
    assert small(tp.Config(cache=tmp_path), length=5).compile().compiles > 0
