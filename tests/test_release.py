"""`python -m benchmarks.release`: what its parts leave behind, also where they fail or are killed, and that its shares leave nothing out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.release import __main__ as release
from benchmarks.release.record import Record
from benchmarks.release.share import is_in
from benchmarks.release.tests import ROOT, run_tests
from tests.cases import fast


def parts(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(out.read_text())["parts"]
    return content


def use(monkeypatch: pytest.MonkeyPatch, **runs: Any) -> None:
    monkeypatch.setattr(release, "PARTS", {name: release.Part(name, run, run) for name, run in runs.items()})


def test_each_part_has_its_record_beside_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def good(record: Record, jobs: int) -> None:
        record.add("passed", 3)
        record.add("skipped")

    def wrong(record: Record, jobs: int) -> None:
        record.add("failed")
        record.find("seed 7:\n  a value " + "is wrong, " * 60)

    def broken(record: Record, jobs: int) -> None:
        record.add("passed")
        raise OSError("no disk")

    use(monkeypatch, good=good, wrong=wrong, broken=broken)
    out = tmp_path / "release.json"
    codes = [release.main(["--part", name, "--out", str(out)]) for name in ("wrong", "good", "broken")]
    assert codes == [1, 0, 1]
    records = parts(out)
    assert records["good"]["status"] == "done" and records["good"]["counts"] == {"run": 3, "passed": 3, "failed": 0, "skipped": 1}
    assert records["good"]["versions"]["jax"] and records["good"]["seconds"] >= 0 and records["good"]["findings"] == []
    (finding,) = records["wrong"]["findings"]
    assert finding.startswith("seed 7: a value is wrong") and len(finding) == 300 and records["wrong"]["status"] == "done"
    assert records["broken"]["status"] == "failed" and records["broken"]["counts"]["passed"] == 1
    assert records["broken"]["findings"] == ["the part itself failed: OSError: no disk"]
    assert release.main(["--all", "--out", str(out)]) == 1
    use(monkeypatch, good=good)
    assert release.main(["--all", "--out", str(out)]) == 0 and parts(out).keys() == records.keys()
    for wrong_use in ([], ["--part", "nonsense"], ["--all", "--jobs", "0"]):
        with pytest.raises(SystemExit):
            release.main(wrong_use)


def test_a_quick_run_changes_no_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = release.OUT.read_bytes() if release.OUT.exists() else None
    use(monkeypatch, good=lambda record, jobs: record.add("passed"))
    assert release.main(["--all", "--quick"]) == 0 and "good: done, 1 run, 1 passed" in capsys.readouterr().out
    assert (release.OUT.read_bytes() if release.OUT.exists() else None) == before


def test_a_part_that_is_killed_leaves_what_it_has(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from benchmarks.release import __main__ as release, record
record.OFTEN = 0.0
def slow(record, jobs):
    record.add("passed", 2)
    record.progress()
    print("it runs", flush=True)
    time.sleep(60)
release.PARTS = {"slow": release.Part("slow", slow, slow)}
release.main(["--all", "--out", sys.argv[1]])
"""
    out = tmp_path / "release.json"
    with subprocess.Popen([sys.executable, "-c", code, str(out)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and any("it runs" in line for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert parts(out)["slow"]["status"] == "interrupted" and parts(out)["slow"]["counts"]["passed"] == 2


def test_a_test_is_in_one_share() -> None:
    names = [f"tests/test_a.py::test_b[{k}]" for k in range(400)]
    shares = [[name for name in names if is_in(name, f"{number}/4")] for number in range(1, 5)]
    assert sorted(name for share in shares for name in share) == sorted(names) and all(len(share) > 50 for share in shares)


@pytest.mark.parametrize("jobs", fast([1, 2], 1))
def test_outcomes_of_tests_are_counted(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # options of the outer run
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "@pytest.mark.slow\ndef test_slow(): pass\n"
        "@pytest.mark.slow\ndef test_wrong(): assert 1 == 2, 'one is not two'\n"
        "@pytest.mark.slow\ndef test_skipped(): pytest.skip('no')\n"
        "@pytest.fixture\ndef broken():\n    yield\n    raise ValueError('at the end')\n"
        "@pytest.mark.slow\ndef test_at_its_end(broken): pass\n"
    )
    record = Record("tests")
    run_tests(record, "slow", "1/1", jobs, [str(tmp_path)])
    assert record.counts == {"run": 3, "passed": 1, "failed": 2, "skipped": 1}
    assert len(record.findings) == 2 and any("test_wrong: AssertionError: one is not two" in each for each in record.findings)
    assert any("test_at_its_end (teardown): ValueError: at the end" in each for each in record.findings)


def test_the_parts_have_five_thousand_random_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them staged, a quarter with XLA's optimizations, and no seed twice."""
    drawn: list[tuple[str, int, int, int]] = []
    monkeypatch.setattr(
        release,
        "run_programs",
        lambda record, executor, first, count, optimized, jobs: drawn.append((executor, first, count, optimized)),
    )
    for name, part in release.PARTS.items():
        if name.startswith("fuzz-"):
            part.run(Record(name), 1)
    assert sum(count for _, _, count, _ in drawn) == 5000
    assert sum(count for executor, _, count, _ in drawn if executor == "staged") == 2500
    assert sum(count for _, _, count, optimized in drawn if optimized == 1) == 1250
    assert len({seed for _, first, count, _ in drawn for seed in range(first, first + count)}) == 5000


@pytest.mark.slow
def test_random_programs_run_in_one_process_too(tmp_path: Path) -> None:
    """JAX has started in the process of the command, so the programs, which want several devices, need another one."""
    command = [sys.executable, "-m", "benchmarks.release", "--part", "fuzz-numpy", "--quick", "--jobs", "1"]
    done = subprocess.run([*command, "--out", str(tmp_path / "r.json")], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 run, 10 passed" in done.stdout
