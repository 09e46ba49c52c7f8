"""Faults that a run must survive: kills at random moments, a full disk, a directory that cannot be written, two runs in one directory.

    python -m benchmarks.faults rl [--kills N] [--seed S] [--out FILE]

Each line says what was done and what is true afterwards; the exit code is 1 if something was lost. A run that is killed and resumed
until it is done must have the metrics and parameters of one that was never stopped, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.release.record import Record
from benchmarks.sources import code_of
from tempo_core.files import write_whole
from tempo_rl.checkpoint import load_checkpoint
from tempo_rl.errors import CheckpointError
from tempo_rl.rundir import RunDirectory

RECIPE = """\
algorithm: actor_critic
env: {id: CartPole-v1}
hidden: [8]
num_envs: 2
num_steps: 8
total_timesteps: 24000
eval_episodes: 0
"""


# `tempo-rl` in a process whose files cannot grow beyond a size
LIMITED = """
import resource, runpy, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
runpy.run_module("tempo_rl", run_name="__main__")
"""


@dataclass
class Faults:
    """The faults of one recipe, in a folder of their own. Each thing that must be true afterwards is a case of `record`."""

    folder: Path
    recipe: str = RECIPE
    record: Record = field(default_factory=lambda: Record("rl"))
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file = self.folder / "recipe.yaml"
        self.file.write_text(self.recipe, encoding="utf-8")

    def command(self, out: Path, *flags: str) -> list[str]:
        cache = str(self.folder / "programs")
        return [
            sys.executable,
            "-m",
            "tempo_rl",
            "train",
            str(self.file),
            "--out",
            str(out),
            "--cache",
            cache,
            "--no-progress",
            *flags,
        ]

    def run(self, out: Path, *flags: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
        """Train to the end; with `limit`, no file may have more bytes than that, as if the disk were full."""

        command = self.command(out, *flags)
        if limit is not None:
            command = [sys.executable, "-c", LIMITED, str(limit), *command[3:]]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def report(self, what: str, is_true: bool, detail: str = "") -> None:
        print(f"{'ok  ' if is_true else 'LOST'} {what}{'' if is_true else ': ' + detail}", flush=True)
        self.record.add("passed" if is_true else "failed")
        if not is_true:
            self.problems.append(what)
            self.record.find(f"tempo-rl: {what}: {(detail.strip().splitlines() or [''])[-1]}")
        self.record.progress()

    # -- the faults ---------------------------------------------------------------------------------------------------

    def whole(self) -> RunDirectory:
        """A run that nothing disturbs."""
        run = RunDirectory(self.folder / "whole")
        done = self.run(run.path)
        self.report("a run that nothing disturbs", done.returncode == 0, done.stderr)
        return run

    def kills(self, whole: RunDirectory, count: int, numbers: random.Random) -> None:
        """Kill a run at random moments, by signals that can be handled too, resume it, and compare it with `whole` when it is done.

        A run that is done before all kills begins again in another directory.
        """
        killed, number, longest = 0, 0, 1.0
        while killed < count:
            run = RunDirectory(self.folder / f"killed-{number}")
            number += 1
            while True:
                began = time.monotonic()
                process = subprocess.Popen(
                    self.command(run.path, "--resume", "auto"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                )
                kind = numbers.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
                try:
                    process.wait(numbers.uniform(0.0, longest) if killed < count else None)
                    longest = max(1.0, time.monotonic() - began)  # it was done: as long as that, kills reach all parts of a run
                except subprocess.TimeoutExpired:
                    process.send_signal(kind)
                    killed, longest = killed + 1, longest * 1.2
                    self.record.details["kills"] = killed
                _, errors = process.communicate()
                self.check_checkpoints(run)
                if process.returncode == 0:
                    break
                if process.returncode not in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM, 130):
                    self.report(f"run {number} goes on after {killed} kills", False, errors)
                    return
            self.compare(f"run {number}, after {killed} kills in all", whole, run)

    def check_checkpoints(self, run: RunDirectory) -> None:
        for path in (*run.all_checkpoints(), *([run.best] if run.best.exists() else [])):
            try:
                load_checkpoint(path)
            except CheckpointError as error:
                self.report(f"{path} is whole", False, str(error))
        lines = run.metrics.read_bytes().splitlines(keepends=True) if run.metrics.exists() else []
        if any(not line.endswith(b"\n") or line.count(b",") != lines[0].count(b",") for line in lines):
            self.report(f"{run.metrics} has whole lines", False, repr(lines[-1]))

    def compare(self, what: str, whole: RunDirectory, run: RunDirectory) -> None:
        self.report(f"{what}: equal metrics", run.metrics.read_bytes() == whole.metrics.read_bytes(), "metrics.csv differs")
        ours, theirs = (load_checkpoint(r.latest).parameters for r in (run, whole))
        equal = ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)
        self.report(f"{what}: equal parameters", equal, "they differ")

    def full_disk(self, whole: RunDirectory) -> None:
        """A disk that is full after some lines of metrics, or in a short run at the first state; with space again, the run goes on."""
        run = RunDirectory(self.folder / "full")
        state, metrics = whole.latest.stat().st_size, whole.metrics.stat().st_size
        size = state + 10_000 if metrics > state + 10_000 else state // 2
        failed = self.run(run.path, limit=size)
        last = failed.stderr.strip().splitlines()[-1:] or [""]
        is_one_line = failed.returncode == 1 and "Traceback" not in failed.stderr and "cannot be written" in failed.stderr
        self.report("a full disk ends in one line", is_one_line, f"{failed.returncode}: {last[0]}")
        self.report("a full disk: the summary is printed", "steps in " in failed.stdout, failed.stdout)
        self.check_checkpoints(run)
        again = self.run(run.path, "--resume", "auto")
        self.report("with space again, the run goes on", again.returncode == 0, again.stderr)
        if again.returncode == 0:
            self.compare("after a full disk", whole, run)

    def read_only(self) -> None:
        """A place that cannot be written, even by the superuser: inside of a file."""
        refused = self.run(self.file / "run")
        is_one_line = refused.returncode == 1 and "Traceback" not in refused.stderr and "cannot be written" in refused.stderr
        self.report("a directory that cannot be written is refused in one line", is_one_line, refused.stderr)

    def two_runs(self) -> None:
        """Two runs in one directory: one of them is refused, and the other ends as ever."""
        out = self.folder / "two"
        both = [
            subprocess.Popen(self.command(out, "--resume", "auto"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        errors = [process.communicate()[1] for process in both]
        codes = sorted(process.returncode for process in both)
        self.report(
            "of two runs in one directory one is refused",
            codes == [0, 1] and "is training in" in "".join(errors),
            "".join(errors),
        )


def rl(kills: int, seed: int, record: Record) -> list[str]:
    """All faults of a run of `tempo-rl`. Returns what was lost."""
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(Path(folder), record=record)
        whole = faults.whole()
        if not faults.problems:
            faults.read_only()
            faults.two_runs()
            faults.full_disk(whole)
            faults.kills(whole, kills, random.Random(seed))
        return faults.problems


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "benchmarks.faults rl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the counts, machine and versions as JSON, also while it runs"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    save = (lambda values: None) if options.out is None else partial(_write, options.out, options.seed)
    record = Record("rl", save=save)
    problems = rl(options.kills, options.seed, record)
    record.status = "done"
    save(record.values())
    return 1 if problems else 0


def _write(path: Path, seed: int, values: dict[str, Any]) -> None:
    content = {"benchmark": "faults rl", "code": code_of("faults rl", ""), "seed": seed, **values}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
