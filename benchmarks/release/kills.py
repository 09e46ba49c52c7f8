"""Parts in which training is killed at random moments and goes on: it must end as a run that nothing disturbed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.release.record import Record, environment

LLM = """\
model: {hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, max_position_embeddings: 128}
text: {lessons: 400, held_out: 0.2}
vocabulary: 300
updates: 400
report_every: 2
warmup: 1
length: 16
batch_size: 4
eval_rows: 4
eval_prompts: 2
"""
EXACT = ("metrics.csv", "model/model.safetensors", "model/config.json", "model/tokenizer.json", "model/README.md")
CLOCK = (
    "tokens_per_second",
    "seconds",
    "compiles",
    "compile_seconds",
)  # of result.json: they tell how the run went, not where it led
ENDED = (-signal.SIGKILL, 0)


def kill_rl(record: Record, kills: int, seed: int, steps: int = 24000) -> None:
    """Runs of `tempo-rl`, killed by SIGKILL, and one time in three by SIGTERM."""
    from benchmarks.faults.rl import RECIPE, Faults

    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(Path(folder), RECIPE.replace("24000", str(steps)), record)
        whole = faults.whole()
        if not faults.problems:
            faults.kills(whole, kills, random.Random(seed))


def kill_llm(record: Record, kills: int, seed: int, updates: int = 400) -> None:
    """Runs of `tempo-llm train`, killed by SIGKILL. Each run that is done after kills is a case, and must be the whole run bit for bit."""
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        recipe = place / "tiny.yaml"
        recipe.write_text(LLM.replace("400\nreport", f"{updates}\nreport"), encoding="utf-8")

        def command(out: Path) -> list[str]:
            flags = ["--out", str(out), "--cache", str(place / "programs"), "--no-progress", "--resume", "auto"]
            return [sys.executable, "-m", "tempo_llm.cli", "train", str(recipe), *flags]

        began = time.monotonic()
        done = subprocess.run(command(place / "whole"), capture_output=True, text=True, check=False, env=environment())
        if done.returncode:
            record.add("failed")
            record.find(f"tempo-llm: a run that nothing disturbs: {(done.stderr.strip().splitlines() or [''])[-1]}")
            return
        record.add("passed")
        longest, killed, number = time.monotonic() - began, 0, 0
        while killed < kills:
            out, here, number = place / f"killed-{number}", 0, number + 1
            while True:
                began = time.monotonic()
                process = subprocess.Popen(
                    command(out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
                )
                try:
                    process.wait(numbers.uniform(0.0, longest) if killed < kills else None)
                    longest = max(1.0, time.monotonic() - began)  # it was done: as long as that, kills reach all parts of a run
                except subprocess.TimeoutExpired:
                    process.kill()
                    killed, here, longest = killed + 1, here + 1, longest * 1.2
                finally:
                    if sys.exc_info()[0] is not None:
                        process.kill()
                    _, errors = process.communicate()
                record.details["kills"] = killed
                record.progress()
                if process.returncode not in ENDED or process.returncode == 0:
                    break
            problems = [errors.strip().splitlines()[-1]] if process.returncode else _differences(place / "whole", out)
            record.add("failed" if problems else "passed")
            for problem in problems:
                record.find(f"tempo-llm, seed {seed}, run {number} after {here} kills: {problem}")


def _differences(whole: Path, run: Path) -> list[str]:
    """In what a finished run differs from the one that nothing disturbed."""
    import numpy as np
    from safetensors.numpy import load_file

    problems = [f"{name} differs" for name in EXACT if (whole / name).read_bytes() != (run / name).read_bytes()]
    states = [load_file(each / "state.safetensors") for each in (whole, run)]
    if states[0].keys() != states[1].keys() or any(not np.array_equal(a, states[1][name]) for name, a in states[0].items()):
        problems.append("state.safetensors differs")
    results = [_result(each / "result.json") for each in (whole, run)]
    if results[0] != results[1]:
        problems.append(f"result.json: {results[1]} in the place of {results[0]}")
    return problems


def _result(path: Path) -> dict[str, Any]:
    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except ValueError as error:
        return {"error": str(error)}
    return {name: value for name, value in values.items() if name not in CLOCK}
