"""XLA's compilation beside the main thread: signals, what the compiler sees of its caller, reports, and the end of the process."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import config as jax_options

import tempo_core as tp
import tempo_core.runtime.staged.stage
from tempo_core import compiling
from tempo_core.compiling import Subject, compile_lowered, leave, reporting
from tempo_core.runs.commands import announcing
from tempo_core.runs.stop import Stopped, StopRequest, exit_status
from tests.endless import ended

NAME = contextvars.ContextVar("name", default="")
SUBJECT = Subject("launch 3 of 5", "policy, loss", 1412)


class Lowered:
    """A traced program whose compilation is a function."""

    def __init__(self, compile: Callable[[], Any]):
        self.compile = compile


def compiled(function: Callable[[], Any]) -> Any:
    return compile_lowered(Lowered(function), lambda: SUBJECT)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports come at once."""
    monkeypatch.setattr(compiling, "LONG", 0.0)
    monkeypatch.setattr(compiling, "TURN", 0.001)


# -- the compilation --------------------------------------------------------------------------------------------------


def test_the_compiler_sees_what_its_caller_sees() -> None:
    NAME.set("of the caller")

    def compile() -> tuple[Any, ...]:
        options = jax.config.values
        shown = options["jax_log_compiles"], options["jax_default_matmul_precision"]
        return threading.current_thread(), NAME.get(), *shown

    with jax.log_compiles(True), jax.default_matmul_precision("float32"):
        thread, *seen = compiled(compile)
    assert thread is not threading.main_thread()
    assert seen == ["of the caller", True, "float32"]


def test_an_option_that_no_other_thread_can_have_keeps_the_compiler_in_this_one() -> None:
    def compile() -> tuple[threading.Thread, bool]:
        return threading.current_thread(), jax.config.values["jax_enable_compilation_cache"]

    assert compiled(compile)[1] is False
    with jax_options.enable_compilation_cache(True):
        assert compiled(compile) == (threading.main_thread(), True)


def test_a_thread_that_gets_no_signals_compiles_itself() -> None:
    threads: list[Any] = []
    thread = threading.Thread(target=lambda: threads.append(compiled(threading.current_thread)))
    thread.start()
    thread.join()
    assert threads == [thread]


def test_an_error_of_the_compiler_keeps_its_type_and_its_lines() -> None:
    def fails() -> None:
        raise LookupError("no such register")

    with pytest.raises(LookupError, match="no such register") as caught:
        compiled(fails)
    assert "fails" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.parametrize("cache", [None, "programs"])
def test_all_device_programs_are_compiled_so(cache: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    compile = jax.stages.Lowered.compile

    def noted(lowered: Any) -> Any:
        threads.append(threading.current_thread())
        return compile(lowered)

    monkeypatch.setattr(jax.stages.Lowered, "compile", noted)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        y = tp.cumsum(tp.input("x", (3,), domain=(t,)), 0)
        program = ctx.compile({T: 2}, y, tp.Config(cache=cache and tmp_path / cache))
    np.testing.assert_array_equal(program.run({"x": np.ones((2, 3), "float32")}), [[1, 2, 3]] * 2)
    assert threads and threading.main_thread() not in threads and program.compiles == 1


# -- reports ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_a_long_compilation_is_reported_to_the_innermost_listener() -> None:
    reports: list[tuple[Subject, float | None]] = []
    enough = threading.Event()

    def hear(subject: Subject, seconds: float | None) -> None:
        reports.append((subject, seconds))
        if len(reports) == 3:
            enough.set()

    outer: list[Any] = []
    with reporting(lambda *report: outer.append(report)), reporting(hear):
        assert compiled(lambda: enough.wait(60)) is True
    assert not outer and {subject for subject, _ in reports} == {SUBJECT}
    *seconds, last = (each for _, each in reports)
    assert seconds == sorted(seconds) and len(seconds) >= 3 and last is None


def test_a_short_compilation_is_not_reported() -> None:
    reports: list[Any] = []
    with reporting(lambda *report: reports.append(report)):
        assert compiled(lambda: threading.Event().wait(0.3)) is False
    assert not reports


def test_the_subject_names_the_users_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects: list[Subject] = []

    def noted(lowered: Any, subject: Callable[[], Subject]) -> Any:
        subjects.append(subject())
        return compile_lowered(lowered, subject)

    monkeypatch.setattr(tempo_core.runtime.staged.stage, "compile_lowered", noted)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence(domain=(t,), name="h")
        h[0] = 1.0
        (doubled,) = tp.udf(lambda x: (2 * x,), h, outputs=[tp.spec(())], kind="host")
        h[t + 1] = doubled + 1
        loss = (h * h).named("loss")
        ctx.run({T: 3}, loss)
    assert [subject.launch for subject in subjects] == [f"launch {k} of {len(subjects)}" for k in range(1, len(subjects) + 1)]
    named = " ".join(subject.tensors for subject in subjects)
    assert "loss" in named and "h" in named and "output" not in named
    assert all(subject.operations > 0 for subject in subjects)


FREED = """
import ctypes, sys
from tempo_core.compiling import give_back

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096

blocks = [libc.malloc(4096) for _ in range(20000)]
for block in blocks:
    ctypes.memset(block, 1, 4096)
last = blocks.pop()  # it keeps the heap from shrinking by itself
for block in blocks:
    libc.free(block)
before = resident()
give_back()
print(before - resident() > 60e6)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_what_is_freed_goes_back_to_the_system() -> None:
    assert subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_large_compilation_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[bool] = []
    monkeypatch.setattr(compiling, "give_back", lambda: times.append(True))
    compiled(lambda: None)
    assert times == []
    monkeypatch.setattr(compiling, "LARGE", 0.0)
    compiled(lambda: None)
    assert times == [True]


def test_the_words_of_a_subject() -> None:
    assert str(SUBJECT) == "launch 3 of 5 (policy, loss; 1,412 operations)" and SUBJECT.short == "launch 3 of 5, 1,412 operations"
    assert str(Subject("zeros for the stores", "", 3)) == "zeros for the stores, 3 operations"
    assert str(Subject("a program")) == "a program"


def test_a_command_says_it_now_and_then() -> None:
    said: list[str] = []
    with announcing(said.append):
        for seconds in (2.0, 2.1, 9.9, 10.0, 29.0, 30.1, 59.9, 60.0, 119.0, 120.1, None, 2.0, None):
            compiling._LISTENERS[-1](SUBJECT, seconds)
    assert [line.rpartition(": ")[2] for line in said] == ["2 s", "10 s", "30 s", "60 s", "120 s", "2 s"]
    assert said[0] == "compiling launch 3 of 5 (policy, loss; 1,412 operations): 2 s"


# -- signals ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import tempo_core as tp
from tempo_core.compiling import reporting

ctx = tp.Context("t")
with ctx as ((t, T),), reporting(lambda subject, seconds: print("compiling", subject, flush=True)):
    ctx.run({T: 2}, tp.exp(tp.input("x", domain=(t,))), {"x": [1.0, 2.0]})
"""


def test_ctrl_c_ends_a_program_of_a_user(tmp_path: Path) -> None:
    end = ended(PROGRAM, [], signal.SIGINT, tmp_path)
    assert end.status == -signal.SIGINT and "KeyboardInterrupt" in end.output, end.output


def interrupted(request: StopRequest, number: signal.Signals = signal.SIGTERM) -> None:
    """A compilation in which a signal comes, and which then goes on until it is left, or for a while."""
    until = threading.Event()

    def compile() -> None:
        while not compiling.is_waiting():
            time.sleep(0.001)
        signal.raise_signal(number)
        until.wait(1)

    try:
        compiled(compile)
    finally:
        until.set()


def test_a_signal_while_xla_compiles_stops_at_once_if_no_iteration_is_lost() -> None:
    said: list[str] = []
    request = StopRequest(said.append)
    with request.listening(), pytest.raises(Stopped) as caught:
        request.can_finish, request.is_saved = True, lambda: True
        interrupted(request)
    assert not said and request.reason == "SIGTERM" and exit_status(caught.value) == 128 + signal.SIGTERM
    assert exit_status(KeyboardInterrupt()) == 130


def test_a_signal_before_xla_compiles_stops_when_it_does() -> None:
    said: list[str] = []
    request = StopRequest(said.append)
    with request.listening(), pytest.raises(Stopped):
        request.can_finish, request.is_saved = True, lambda: True
        signal.raise_signal(signal.SIGTERM)
        assert said
        compiled(lambda: threading.Event().wait(1))
        pytest.fail("it compiled to the end")


def test_an_iteration_that_is_not_saved_is_finished_first() -> None:
    said: list[str] = []
    request = StopRequest(said.append)
    with request.listening():
        request.can_finish, request.is_saved = True, lambda: False
        interrupted(request)
    assert said == ["SIGTERM: finishing the iteration and saving it; once more stops at once"]


def test_work_that_is_dispensable_is_left_out() -> None:
    request = StopRequest(print)
    reached: list[str] = []
    with request.listening():
        request.can_finish = True
        with request.dispensable():
            interrupted(request)
            reached.append("the end of the evaluation")
        reached.append("the saving")
    assert reached == ["the saving"] and request.reason == "SIGTERM"


class Signalling:
    """Sends a signal when it is deleted: Python drops what the handler raises there."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_stop_that_python_drops_comes_again() -> None:
    request, forever, hook = StopRequest(print), threading.Event(), sys.unraisablehook
    with request.listening(), pytest.raises(Stopped):
        Signalling()
        gc.collect()
        forever.wait(10)
        pytest.fail("no signal came again")
    assert sys.unraisablehook is hook


# -- the end of the process -------------------------------------------------------------------------------------------


def test_the_process_is_left_with_its_status_while_xla_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    until = threading.Event()
    leave(3)
    request = StopRequest(print)
    with request.listening(), pytest.raises(Stopped):
        compiled(lambda: (signal.raise_signal(signal.SIGTERM), until.wait(60)))
    leave(143)
    until.set()
    for thread in compiling._THREADS:
        thread.join()
    leave(5)
    assert left == [143]


END = """
import signal, sys, threading, time
from tempo_core.compiling import compile_lowered

class Lowered:
    def compile(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(1.0)
        print("compiled", flush=True)

try:
    compile_lowered(Lowered(), lambda: None)
except KeyboardInterrupt:
    {then}
"""


@pytest.mark.parametrize(
    ("then", "status", "printed"),
    [("sys.exit(3)", 3, "compiled\n"), ("raise", -signal.SIGINT, ""), ("raise ValueError('wrong')", 1, "")],
    ids=["exit", "interrupt", "error"],
)
def test_a_program_that_leaves_xla_behind_has_the_status_of_its_end(then: str, status: int, printed: str) -> None:
    command = [sys.executable, "-c", END.format(then=then)]
    end = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60)
    assert (end.returncode, end.stdout) == (status, printed), end.stderr
