"""Each benchmark runs from end to end with `--quick`, and writes figures of every side."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


def quick(name: str, out: Path, *options: str) -> dict[str, Any]:
    """What `python -m benchmarks.<name> --quick` writes."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", *options, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the figures mean nothing" in done.stdout
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert written["benchmark"] == name and written["quick"]
    assert written["versions"]["jax"] and written["machine"]["jax_devices"]
    return written


def check_sides(figures: dict[str, dict[str, float]], *sides: str) -> None:
    for side in sides:
        assert figures[side]["median"] > 0, side
    assert figures["tempo"]["ratio_to_first"] == 1.0


def test_ppo(tmp_path: Path) -> None:
    functional, micro, host = quick("ppo", tmp_path / "ppo.json")["cases"]
    check_sides(functional["ms_per_iteration"], "tempo", "JAX by hand", "environment only")
    assert functional["compile_seconds"]["tempo"]["total"] > 0
    for side, value in functional["last_return"].items():
        assert 5 < value < 500, side  # pole balancing with a fresh policy: both play the same game
    check_sides(micro["ms_per_iteration"], "tempo", "JAX by hand")
    assert micro["bytes"]["tempo"] > 0 and micro["bytes"].keys() == micro["ms_per_iteration"].keys()
    check_sides(host["ms_per_iteration"], "tempo", "JAX by hand", "environment only")


@pytest.mark.parametrize("options", [(), ("--control",), ("--beside", "--only", "PureJaxRL")], ids=str)
def test_learning(options: tuple[str, ...], tmp_path: Path) -> None:
    written = quick("learning", tmp_path / "learning.json", *options)
    for case in written["cases"]:
        for side, (run,) in case["runs"].items():
            steps = [step for step, _ in run["curve"]]
            assert steps == sorted(steps) and 0 < steps[-1] <= case["steps"], side
            assert all((-2000 if "--control" in options else 0) < value <= 500 for _, value in run["curve"]), side
            assert 0 < run["first_report_seconds"] < run["seconds"] and run["cpu_seconds"] > 0, side
            assert (run["steps_to_solved"] is None) == (run["seconds_to_solved"] is None), side
            assert case["seconds"][side] == pytest.approx(run["seconds"], rel=1e-3)
    if "--beside" in options:
        assert set(written["cases"][0]["runs"]) == {"tempo", "JAX by hand"}


def test_training_speed(tmp_path: Path) -> None:
    written = quick("training_speed", tmp_path / "training_speed.json")
    for case in written["cases"]:
        check_sides(case["steps_per_second"], "tempo")
        assert all(figures["median"] > 0 for figures in case["steps_per_cpu_second"].values())
        assert case["start_seconds"]["tempo"]["median"] > 0
    assert "environments alone" in written["cases"][0]["steps_per_second"]
    without_brax = [line for line in written["skipped"] if line.startswith("Brax")]
    assert bool(without_brax) == (find_spec("brax") is None) and len(written["cases"]) == 2 - len(without_brax)


def test_a_missing_peer_is_a_line_that_says_what_to_install(tmp_path: Path) -> None:
    options = ("--only", "Gymnasium", "--python", "SB3=/no/such/python")
    (skipped,) = quick("training_speed", tmp_path / "training_speed.json", *options)["skipped"]
    assert "pip install stable-baselines3" in skipped and "--python SB3=PATH" in skipped


def test_rewards(tmp_path: Path) -> None:
    (case,) = quick("rewards", tmp_path / "rewards.json")["cases"]
    for key in ("ms_per_update", "cpu_ms_per_update", "mb"):
        check_sides(case[key], "tempo", "two programs")
    assert case["difference_of_losses"] < 1e-4 and len(case["losses"]["tempo"]) == 4


def test_memory(tmp_path: Path) -> None:
    cases = {case["case"].split(",")[0]: case for case in quick("memory", tmp_path / "memory.json")["cases"]}
    for case in cases.values():
        assert all(figures["planned"] > 0 and figures["grown"] >= 0 for figures in case["bytes"].values())
        assert len(case["bytes"]) > 1
    network = cases["gradient of a recurrent network"]
    assert network["bytes"]["tempo with a limit"]["planned"] <= network["bytes"]["tempo"]["planned"] / 10
    assert all(network["ms"][side] > 0 for side in ("tempo", "tempo with a limit", "JAX by hand", "JAX with checkpoints"))
    pictures = cases["n-step TD on pictures"]["bytes"]
    assert pictures["tempo"]["planned"] < pictures["JAX by hand"]["planned"]
    whole, window = cases["REINFORCE and 5-step returns on pictures"]["over_time"].values()
    assert max(window["moments"]) < max(whole["moments"]) / 4 and max(window["curve"]["bytes"]) < max(whole["curve"]["bytes"]) / 2
    assert all(len(side["curve"]["ms"]) == len(side["curve"]["bytes"]) > 50 for side in (whole, window))
    for pattern in ("window attention", "attention with sinks", "causal attention"):
        assert cases[pattern]["bytes"]["tempo"]["cache"] > 0, pattern


def test_decisions_switched_off(tmp_path: Path) -> None:
    for name in ("ablation", "regret"):
        cases = quick(name, tmp_path / f"{name}.json")["cases"]
        assert [case["case"] for case in cases] == ["edit distance", "PPO functional"]
    assert all(case["regret"] >= 1 and case["of_model"] > 0 and case["of_roofline"] > 0 for case in cases)


def test_decode_gives_the_tokens_of_its_peers(tmp_path: Path) -> None:
    written = quick("decode", tmp_path / "decode.json")
    for case in written["cases"]:
        if case["first"] == 0:
            check_sides(case["ms_per_token"], "tempo", "JAX by hand")
        else:  # the difference of two short runs: on a busy machine, the longer one may take less time
            assert {"tempo", "JAX by hand"} <= set(case["ms_per_token"])
        assert set(case["same_tokens"].values()) == {1.0}
        assert ("transformers" in case["same_tokens"]) != bool(written["skipped"])


def test_speculation_gives_the_same_tokens(tmp_path: Path) -> None:
    cases = quick("speculation", tmp_path / "speculation.json", "--only", "tiny-llama")["cases"]
    assert len(cases) == 2
    for case in cases:
        assert all(case["same_tokens"].values()) and len(case["same_tokens"]) == 3
        assert all(0 < stayed <= 8 for stayed in case["accepted_per_round"].values())
        assert all(figures["median"] > 0 for figures in case["ms_per_token"].values())


def test_a_batch_as_a_step_gives_the_results_of_a_batch_as_a_dimension(tmp_path: Path) -> None:
    for case in quick("batch", tmp_path / "batch.json")["cases"]:
        assert case["difference"] < 1e-5 and set(case["ms"]) == {"dimension", "step"}, case["case"]


def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    cases = quick("second_start", tmp_path / "second_start.json")["cases"]
    assert len(cases) == 7
    for case in cases:
        first, second = (case["xla_programs"][side] for side in ("empty cache", "filled cache"))
        assert first["compiled"] >= 1 and first["loaded"] == 0, case["case"]
        assert second["compiled"] == 0 and 1 <= second["loaded"] <= first["compiled"], case["case"]
        assert case["seconds"]["filled cache"]["median"] > case["import_seconds"]["filled cache"] > 0
        assert case["cpu_seconds"]["empty cache"]["median"] > 0


def test_copies(tmp_path: Path) -> None:
    for case in quick("copies", tmp_path / "copies.json")["cases"]:
        assert case["needed_bytes"] > 0 and case["moved_bytes_in_loops"] >= 0, case["case"]


def test_compile_time(tmp_path: Path) -> None:
    cases = quick("compile_time", tmp_path / "compile_time.json")["cases"]
    names = [case["case"].split(",")[0] for case in cases]
    classics = ["classic: HMM forward", "classic: LSTM"]
    assert names == ["REINFORCE", "PPO", "PPO", "Llama", "4 layers", "8 layers", *["4 branches"] * 3, *classics]
    jax_and_xla = ("jax traces", "jax lowers", "xla")
    for case in cases:
        cpu, wall = case["cpu_seconds"], case["wall_seconds"]
        assert {"build", "check", "vectorize", "fuse", "schedule", "verify and plan", *jax_and_xla} <= set(cpu)
        tempo = sum(seconds for stage, seconds in cpu.items() if stage not in (*wall, *jax_and_xla))
        assert cpu["tempo"] == pytest.approx(tempo, rel=0.01)
        assert wall["tempo"] > 0 and cpu["jax"] == pytest.approx(cpu["jax traces"] + cpu["jax lowers"], rel=0.01)
        assert case["sizes"]["XLA programs"] >= 1 and case["sizes"]["statements"] >= 2


def test_serve(tmp_path: Path) -> None:
    cases = {case["case"]: case for case in quick("serve", tmp_path / "serve.json")["cases"]}
    clients = ["1 client", "2 clients", "4 clients", "8 clients"]
    served = {f"tiny, {rows}, {count}" for rows in ("1 row", "8 rows", "8 fixed rows") for count in clients}
    assert set(cases) == {"tiny, generate", *served, "tiny, 8 rows, a request under load"}
    for name in served:
        assert cases[name]["first_token_ms"] > 0 and cases[name]["tokens_per_second"] > 0
    assert cases["tiny, generate"]["tokens_per_second"] > 0 and cases["tiny, 8 rows, a request under load"]["first_token_ms"] > 0
