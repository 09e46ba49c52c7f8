"""Files that are written whole: what has their name already, and what killed writers left."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.files import write_whole


def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("linked", [False, True], ids=["a pipe", "a link to one"])
def test_no_file_takes_the_place_of_what_is_no_file(linked: bool, tmp_path: Path) -> None:
    """As `run.save("/dev/full")` would for the whole system."""
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        program = ctx.compile({T: 3}, [tp.input("x", (), domain=(t,)) * t], tp.Config(backend="numpy"))
    run = program.start({"x": [1.0, 2.0, 3.0]})
    with pytest.raises(errors.StateError, match="no regular file"):
        run.save(path)
    assert pipe.is_fifo() and path.is_symlink() == linked and len(list(tmp_path.iterdir())) == 1 + linked


def test_a_write_removes_what_killed_writers_of_this_file_left(tmp_path: Path) -> None:
    dead, path = ended(), tmp_path / "s"
    left = [f".s.{dead}.1.tmp", f".s.{os.getpid()}.1.tmp"]  # a process may have the number of an earlier one
    others = [
        f".s.{os.getppid()}.1.tmp", f".s.{os.getpid()}.{threading.get_ident()}1.tmp.part", f".s2.{dead}.1.tmp", f".s.b.{dead}.1.tmp", ".s.tmp",
        f".s.{dead}.2.tmp",
    ]  # fmt: skip
    for name in (*left, *others):
        (tmp_path / name).write_bytes(b"part")
    with open(tmp_path / others[-1], "rb+") as held:  # by a process of another system
        fcntl.flock(held, fcntl.LOCK_EX)
        write_whole(path, b"whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["s", *others])
    assert path.read_bytes() == b"whole"


def test_a_file_that_a_thread_of_this_process_writes_stays(tmp_path: Path) -> None:
    started, end = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    file = tmp_path / f".s.{os.getpid()}.{thread.ident}.tmp"
    file.write_bytes(b"part")
    write_whole(tmp_path / "s", b"whole")
    end.set()
    thread.join()
    assert file.exists()
