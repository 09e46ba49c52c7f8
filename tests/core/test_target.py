"""The cost model: times from costs, the constants in files, and the decision that asks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ConfigError

TARGET = tp.Target(
    "toy",
    operations=1e9,
    memory=1e8,
    cache=1e9,
    cache_bytes=1e4,
    operation=1e-6,
    launch=1e-5,
    message=1e-3,
    compile=1e-2,
    spread=1.5,
)


def product(rows: int, width: int) -> tp.Program[Any]:
    ctx = tp.Context("b")
    with ctx as ((b, B),):
        x, w = tp.input("x", (width,), domain=(b,)), tp.input("w", (width, width))
        return ctx.compile({B: rows}, tp.tanh(x @ w)[0:B].sum(0))


def test_a_time_is_the_price_of_operations_and_the_longer_of_work_and_bytes() -> None:
    small, large = product(10, 10).cost(), product(10_000, 100).cost()
    work = small.numbers["operations"] / TARGET.operations, small.numbers["bytes_moved"] / TARGET.cache
    assert TARGET.seconds(small) >= max(work)
    assert TARGET.seconds(small) <= small.numbers["executions"] * TARGET.operation + sum(work)
    # 4 MB do not fit in the cache: its bandwidth does not matter any more
    assert TARGET.seconds(large) == replace(TARGET, cache=1e15).seconds(large)
    assert TARGET.seconds(small) > replace(TARGET, cache=1e15, operations=1e15).seconds(small)
    assert TARGET.seconds(small, launches=3) == pytest.approx(TARGET.seconds(small) + 3e-5)


def test_products_and_dear_functions_have_rates_of_their_own() -> None:
    many, few = product(10_000, 100).cost(), product(10, 10).cost()
    for field, cost in (("dear", many), ("few_dear", few), ("elements", many), ("few_elements", few)):
        slow = replace(TARGET, cache=1e15, memory=1e15, **{field: 1e6})
        assert slow.seconds(cost) > 2 * replace(slow, **{field: 1e15}).seconds(cost), field
        other = few if cost is many else many
        assert slow.seconds(other) == replace(slow, **{field: 1e15}).seconds(other), field


def test_much_memory_is_taken_from_the_system_in_each_run() -> None:
    cost = product(10, 10).cost()
    kept, more = int(TARGET.kept), int(TARGET.kept) + 1
    assert TARGET.seconds(cost, allocated=kept) == TARGET.seconds(cost)
    assert TARGET.seconds(cost, allocated=more) == pytest.approx(TARGET.seconds(cost) + more / TARGET.fresh)
    assert TARGET.most_saved(cost, kept) == 0 and TARGET.most_saved(cost, more) == more / TARGET.fresh
    large = product(10_000, 100).cost()
    moved = large.numbers["bytes_moved"]
    assert 0 < TARGET.most_saved(large, 0) <= moved / TARGET.memory - moved / TARGET.cache


def test_files_of_earlier_versions_have_the_usual_rates(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    TARGET.save(path)
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "fresh"}))
    assert tp.Target.load(path) == TARGET


def test_the_roofline_is_the_longer_of_two() -> None:
    assert TARGET.roofline(2e9, 1e7) == 2.0
    assert TARGET.roofline(1e6, 1e8) == 1.0


def test_several_devices_pay_if_they_save_more_than_messages_take() -> None:
    assert TARGET.pays_to_spread(1.0, 2, 300)  # saves a third of a second
    assert not TARGET.pays_to_spread(1.0, 2, 400)
    assert TARGET.pays_to_spread(1.0, 4, 400)  # saves three fifths
    assert not TARGET.pays_to_spread(1e-4, 2, 1)


@pytest.mark.cpu
def test_auto_asks_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = tp.Context("b")
    with ctx as ((b, B),):
        x = tp.input("x", (64,), domain=(b,))
        total = tp.tanh(x)[0:B].sum(0)
    for message, devices in ((1e-9, "b: 1000 points on 4 devices, 250 on each"), (1e3, "")):
        path = tmp_path / "machine.json"
        replace(TARGET, message=message).save(path)
        monkeypatch.setenv("TEMPO_MACHINE", str(path))
        assert ctx.compile({B: 1000}, total, tp.Config(devices="auto")).plan().devices == devices


def test_constants_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "machine.json"
    TARGET.save(path)
    assert tp.Target.load(path) == TARGET
    assert [each.name for each in path.parent.iterdir()] == ["machine.json"]
    assert "toy" in str(TARGET) and "1 G operations/s" in str(TARGET)


@pytest.mark.parametrize("change", ["truncated", "missing", "unknown", "negative", "text", "nothing"])
def test_other_files_are_refused(change: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    TARGET.save(path)
    values = json.loads(path.read_text())
    text = {
        "truncated": path.read_text()[:20],
        "missing": json.dumps({k: v for k, v in values.items() if k != "memory"}),
        "unknown": json.dumps({**values, "colour": 1}),
        "negative": json.dumps({**values, "memory": -1.0}),
        "text": json.dumps({**values, "memory": "fast"}),
    }.get(change)
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(ConfigError, match="is not a file of measured constants") as caught:
        tp.Target.load(path)
    assert "doctor --calibrate" in str(caught.value)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        TARGET.save(tmp_path / "file" / "machine.json")


@pytest.mark.slow
def test_constants_can_be_measured() -> None:
    target = tp.Target.calibrated()
    assert target.kind == "cpu" and 1e9 < target.operations < 1e14 and 1e8 < target.memory < 1e12
    assert 1e8 < target.dear < 1e12 and 1e7 < target.few_dear < 1e12 and 1e8 < target.fresh < 1e12
    assert target.memory < target.cache * 10 and 0 < target.launch < 1e-2 and 0 < target.compile < 1


# -- programs for a target --------------------------------------------------------------------------------------------


def network(target: str | tp.Target | None) -> tp.Program[Any]:
    """The gradient of two layers over many rows, and layers in a loop inside of another one."""
    ctx = tp.Context("b", "t", "l")
    with ctx as ((b, B), (t, T), (layer, L)):
        x, w, v = tp.input("x", (64,), domain=(b,)), tp.input("w", (64, 64)), tp.input("v", (64, 64))
        loss = (tp.tanh(tp.tanh(x[0:B] @ w) @ v) ** 2).mean()
        layers, h = tp.input("layers", (128, 128), domain=(layer,)), tp.recurrence((128,), domain=(t, layer), name="h")
        h[0, 0], h[t + 1, 0] = tp.ones((128,)), tp.tanh(h[t, L - 1])
        h[t, layer + 1] = tp.tanh(h @ layers)
        outputs = [*tp.grad(loss, [w, v]), h[T - 1, L - 1]]
    return ctx.compile({B: 400_000, T: 10, L: 4}, outputs, tp.Config(target=target))


@pytest.mark.cpu
def test_another_target_has_other_forms() -> None:
    """On an H100, strips would be more kernels than they save, and copies of 64 KiB take no time."""
    cpu, h100 = network("cpu"), network("h100")
    for program, in_strips in ((cpu, True), (h100, False)):
        assert bool(program.graph.derived) == in_strips
        assert bool(program._staged is not None and program._staged.unrolled.loops) == in_strips
        text = program.explain()
        assert f"loops, by the seconds of the target {program.config.on.kind}" in text
        assert "copies of an iteration" in text and "the whole" in text
    assert "computed in strips: strips of " in cpu.explain() and "not computed in strips: strips of " in h100.explain()
    assert network(None).text("sdg") == cpu.text("sdg") != h100.text("sdg")
    fast_kernels = replace(tp.Target.named("h100"), operation=1e-9)
    assert network(fast_kernels).graph.derived, "the seconds decide, not the name"


@pytest.mark.cpu
def test_a_program_for_another_device_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        total = tp.input("x", (4,), domain=(t,))[0:T].sum(0)
    inputs = {"x": [[1.0] * 4] * 3}
    program = ctx.compile({T: 3}, total, tp.Config(target="h100"))
    for use in (program.run, program.compile, program.start, program.profile, program.stepping, program.as_jax):
        with pytest.raises(ConfigError, match="compiled for the target h100, and this device is cpu") as caught:
            use(*([] if use in (program.compile, program.as_jax) else [inputs]))
        assert "leave the target out: Config()" in str(caught.value)
    monkeypatch.setattr(
        "tempo_core.runtime.staged.stage.Staged.compile_segments", None
    )  # the plan asks no XLA for another device
    assert program.plan().peak_device_bytes > 0 and "h100" in program.explain()
    assert ctx.run({T: 3}, total, {"x": np.ones((3, 4), "f4")}, config=tp.Config(target="cpu")).tolist() == [3.0] * 4


def test_a_target_of_your_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    replace(TARGET, kind="cpu").save(path)
    config = tp.Config(target=tp.Target.load(path))
    assert config.on == replace(TARGET, kind="cpu") and config.on.is_at_hand() == (tp.Target.at_hand().kind == "cpu")
    assert not TARGET.is_at_hand()


def test_kept_programs_are_those_of_a_target(tmp_path: Path) -> None:
    programs = []
    for target in ("cpu", "h100", "h100"):
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            total = tp.input("x", (4,), domain=(t,))[0:T].sum(0)
        programs.append(ctx.compile({T: 3}, total, tp.Config(target=target, cache=tmp_path)).message)
    assert programs[1] == "from the cache: nothing" and programs[2] != programs[1]
