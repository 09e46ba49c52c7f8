"""Entries on disk: whole or ignored, of this user alone, and under a limit of size."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tempo_core.store.entries import Entries


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    return Entries(tmp_path / "cache", 10_000)


def test_what_is_written_is_read(entries: Entries) -> None:
    assert entries.read("a") is None and not entries.path.exists()  # reading makes nothing
    entries.write("a", b"content")
    entries.write("empty", b"")
    assert (entries.read("a"), entries.read("empty"), entries.read("b")) == (b"content", b"", None)
    entries.write("a", b"other")
    assert entries.read("a") == b"other"
    assert entries.path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in entries.path.iterdir()} == {0o600}


def test_permissions_do_not_depend_on_the_umask(entries: Entries) -> None:
    before = os.umask(0)
    try:
        entries.write("a", b"content")
    finally:
        os.umask(before)
    assert entries.read("a") == b"content"


def test_an_entry_belongs_to_its_name(entries: Entries, caplog: pytest.LogCaptureFixture) -> None:
    entries.write("a", b"content")
    (entries.path / "b").write_bytes((entries.path / "a").read_bytes())
    assert entries.read("b") is None and "not an entry of this name" in caplog.text
    assert not (entries.path / "b").exists() and entries.read("a") == b"content"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755, 0o740])
def test_a_directory_that_others_may_use_is_refused(mode: int, entries: Entries, caplog: pytest.LogCaptureFixture) -> None:
    entries.write("a", b"content")
    entries.path.chmod(mode)
    assert entries.read("a") is None
    entries.write("b", b"more")
    assert not (entries.path / "b").exists()
    assert len(caplog.records) == 1 and f"chmod 700 {entries.path}" in caplog.text  # said once
    entries.path.chmod(0o700)
    assert entries.read("a") == b"content"


def test_a_directory_of_another_user_is_refused(
    entries: Entries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries.write("a", b"content")
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert entries.read("a") is None and "belongs to you alone" in caplog.text


def test_a_system_without_users_keeps_nothing(
    entries: Entries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(os, "getuid")
    entries.write("a", b"content")
    assert entries.read("a") is None and list(entries.path.iterdir()) == []
    assert "to whom a directory belongs" in caplog.text


def test_links_are_not_followed(entries: Entries, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries.write("a", b"content")
    other = tmp_path / "link"
    other.symlink_to(entries.path)
    assert Entries(other, 10_000).read("a") is None and "is not used" in caplog.text
    os.rename(entries.path / "a", tmp_path / "a")
    (entries.path / "a").symlink_to(tmp_path / "a")
    assert entries.read("a") is None and "cannot be read" in caplog.text


def test_a_file_that_others_can_write_is_refused(entries: Entries, caplog: pytest.LogCaptureFixture) -> None:
    entries.write("a", b"content")
    (entries.path / "a").chmod(0o620)
    assert entries.read("a") is None and "can be written by others" in caplog.text


def test_those_that_were_not_used_for_longest_go_first(entries: Entries) -> None:
    for age, name in enumerate("cba"):
        entries.write(name, bytes(3000))
        os.utime(entries.path / name, (time.time() - 100 + age,) * 2)
    assert entries.read("c") is not None  # the oldest, used now
    entries.write("d", bytes(3000))
    assert sorted(path.name for path in entries.path.iterdir()) == ["a", "c", "d"]
    entries.write("e", bytes(6000))
    assert sorted(path.name for path in entries.path.iterdir()) == ["d", "e"]


def test_an_entry_above_the_limit_is_not_kept(entries: Entries, caplog: pytest.LogCaptureFixture) -> None:
    entries.write("a", b"content")
    entries.write("b", bytes(10_000))
    assert [path.name for path in entries.path.iterdir()] == ["a"] and "is not kept" in caplog.text


def test_what_killed_processes_left_is_removed(entries: Entries) -> None:
    entries.write("a", b"content")
    old, new = entries.path / ".x.1.1.tmp", entries.path / ".y.2.1.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 10_000,) * 2)
    entries.write("b", b"content")
    assert not old.exists() and new.exists()


def test_a_full_disk_is_a_message(entries: Entries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    entries.write("a", b"old")
    monkeypatch.setattr(os, "fsync", full)
    entries.write("a", b"new")
    assert entries.read("a") == b"old" and "No space left" in caplog.text
    assert [path.name for path in entries.path.iterdir()] == ["a"]


def test_writers_and_readers_at_once(entries: Entries) -> None:
    contents = [bytes([k]) * (1000 + k) for k in range(8)]

    def write_and_read(content: bytes) -> list[bytes | None]:
        read = []
        for _ in range(40):
            entries.write("a", content)
            read.append(entries.read("a"))
        return read

    with ThreadPoolExecutor(8) as pool:
        everything = [each for part in pool.map(write_and_read, contents) for each in part]
    assert len(everything) == 320 and set(everything) <= set(contents)
    assert [path.name for path in entries.path.iterdir()] == ["a"]
