"""Prefixes of prompts that are kept on disk, and what happens to files that are damaged or foreign."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tempo_llm.errors import RequestError
from tempo_llm.prefixes import Kept, Prefix, Prefixes
from tests.llm.generate.kept_prefixes import BFLOAT16, FLOAT16, PLENTY, array, assert_same, files, prefix_of


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def no_other_warning(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test without `caplog` gives no warning."""
    yield
    if "caplog" not in request.function.__code__.co_varnames:
        assert caplog.get_records("call") == []


def test_threads_take_turns(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, turns = Prefixes(PLENTY, cache), []
    outlines = store._files.outlines
    monkeypatch.setattr(store._files, "outlines", lambda: turns.append(store._lock.locked()) or outlines())
    store.keep(prefix_of([1, 2]))
    store.find([1, 2], 1)
    assert turns == [True, True]


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = Prefixes(600, tmp_path / "cache", "model")

    def serve(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(15):
            tokens = [rng.randint(0, 1) for _ in range(6)]
            found = store.find(tokens, 1)
            if found is not None:
                assert_same(found[0], prefix_of(found[0].tokens, state=True))
                assert found[0].tokens == tuple(tokens[: found[1]])
            store.keep(prefix_of(tokens[: rng.randint(1, 5)], state=True))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, range(4)))
    assert 0 < store.nbytes <= 600


# -- what is found again ----------------------------------------------------------------------------------------------


def test_another_process_finds_what_was_kept(cache: Path) -> None:
    prefix = Prefix(
        (7, 70_000, 7),
        {
            "full": Kept(array([1], 3, 2, dtype=BFLOAT16), None),
            "window": Kept(array([2], 2, 1, 2, dtype=FLOAT16), 1),
            "none": Kept(np.zeros((0, 4), np.int8), 0),
            "state": Kept(np.array(0.5), None, True),
            "flags": Kept(np.array([[True, False]]), None, True),
            "é\n": Kept(np.array([-np.inf, np.nan], np.float32), None, True),
        },
    )
    Prefixes(PLENTY, cache, "model").keep(prefix)
    found = Prefixes(PLENTY, cache, lambda: "model").find([7, 70_000, 7, 8], 1)
    assert found is not None and found[1] == 3
    assert_same(found[0], prefix)
    for kept in found[0].layers.values():
        assert not kept.array.flags.writeable
    (file,) = files(cache)
    assert cache.stat().st_mode & 0o777 == 0o700 and file.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"prefix-[0-9a-f]{64}\.safetensors", file.name)


def test_files_can_be_read_by_safetensors(cache: Path) -> None:
    prefix = Prefix((1, 2), {"keys": Kept(array([1], 2, 2), None)})
    Prefixes(PLENTY, cache).keep(prefix)
    np.testing.assert_array_equal(safetensors.numpy.load_file(files(cache)[0])["keys"], prefix.layers["keys"].array)


def test_the_longest_of_memory_and_disk_serves(cache: Path) -> None:
    one, two = Prefixes(PLENTY, cache), Prefixes(PLENTY, cache)
    one.keep(prefix_of([1, 2, 3], state=True))
    two.keep(prefix_of([1, 2, 3, 4, 5], state=True))
    prompt = [1, 2, 3, 4, 5, 6]
    for store in (one, two):
        assert [found and found[1] for found in (store.find(prompt[:n], 1) for n in (3, 4, 5, 6))] == [None, 3, 3, 5]
    assert len(one) == len(two) == 2  # what was read is in memory now


def test_a_file_is_read_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, store = Prefixes(PLENTY, cache), Prefixes(PLENTY, cache)
    writer.keep(prefix_of([1, 2, 3]))
    writer.keep(prefix_of([2, 2, 3]))
    opened, open_file = [], os.open

    def counted(path: str | Path, *rest: int, **more: int) -> int:
        opened.append(Path(path).name)
        return open_file(path, *rest, **more)

    monkeypatch.setattr(os, "open", counted)
    assert store.find([9, 9], 1) is None and sorted(opened) == [file.name for file in files(cache)]  # the headers
    opened.clear()
    assert store.find([9, 8], 1) is None and opened == []
    for _ in range(3):
        assert store.find([1, 2, 3, 4], 1) is not None
    assert len(opened) == 1  # the arrays of one, which was touched
    assert store.find([9, 9], 1) is None and len(opened) == 1


def test_prefixes_of_another_model_are_not_used(cache: Path) -> None:
    first, second = Prefixes(PLENTY, cache, "first"), Prefixes(PLENTY, cache, "second")
    first.keep(prefix_of([1, 2, 3]))
    assert second.find([1, 2, 3, 4], 1) is None
    second.keep(prefix_of([1, 2]))
    second.keep(prefix_of([1, 2, 3]))
    assert len(files(cache)) == 2  # that of the first model is not covered
    assert Prefixes(PLENTY, cache, "first").find([1, 2, 3, 4], 1) is not None


def test_the_digest_of_a_model_is_computed_once_and_only_for_files(cache: Path) -> None:
    calls = []

    def digest() -> str:
        calls.append(1)
        return "model"

    memory = Prefixes(PLENTY, None, digest)
    memory.keep(prefix_of([1, 2]))
    store = Prefixes(PLENTY, cache, digest)
    assert store.find([1, 2, 3], 1) is None and calls == []
    store.keep(prefix_of([1, 2]))
    store.keep(prefix_of([2, 2]))
    assert Prefixes(PLENTY, cache, "model").find([2, 2, 2], 1) is not None and calls == [1]


def test_an_error_of_the_digest_removes_no_file(cache: Path) -> None:
    def digest() -> str:
        raise KeyError("weights")

    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    with pytest.raises(KeyError, match="weights"):
        Prefixes(PLENTY, cache, digest).find([1, 2], 1)
    assert len(files(cache)) == 1


def test_files_of_another_version_are_left_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tempo_llm.prefix_files.FORMAT", "tempo-prefix-0")
        Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    assert Prefixes(PLENTY, cache).find([1, 2, 3], 1) is None and len(files(cache)) == 1


def test_files_that_a_prefix_covers_are_removed(cache: Path) -> None:
    store = Prefixes(PLENTY, cache)
    for length in (2, 4, 6):
        store.keep(prefix_of(range(length)))
        assert len(files(cache)) == 1
    before = files(cache)[0].stat().st_ino
    Prefixes(PLENTY, cache).keep(prefix_of(range(6)))
    Prefixes(PLENTY, cache).keep(prefix_of(range(5)))
    assert [file.stat().st_ino for file in files(cache)] == [before]  # nothing is written again
    store.keep(prefix_of(range(7), state=True))
    assert len(files(cache)) == 2


def age(file: Path, seconds: float) -> None:
    os.utime(file, (time.time() - seconds,) * 2)


def file_of(cache: Path, token: int) -> Path:
    (file,) = [file for file in files(cache) if first_token(file) == token]
    return file


def first_token(file: Path) -> int:
    return json.loads(header_of(file)["prefix"])["tokens"][0]


def header_of(file: Path) -> dict[str, str]:
    content = file.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def tokens_in(cache: Path) -> list[int]:
    return sorted(first_token(file) for file in files(cache))


def test_files_that_were_not_used_for_longest_are_removed(cache: Path) -> None:
    Prefixes(PLENTY, cache).keep(prefix_of([1, 1]))
    size = files(cache)[0].stat().st_size
    store = Prefixes(3 * size, cache)
    for token in (2, 3):
        store.keep(prefix_of([token, token]))
    for token in (1, 2, 3):
        age(file_of(cache, token), 100 - token)
    assert store.find([1, 1, 1], 1) is not None  # it is read, and used now
    assert store.find([2, 2, 2], 1) is not None  # it is in memory, and used now
    store.keep(prefix_of([4, 4]))
    assert tokens_in(cache) == [1, 2, 4]
    for token in (1, 2, 4):
        age(file_of(cache, token), 100 - token)
    other = Prefixes(3 * size, cache)
    other.keep(prefix_of([1, 1]))  # covered, and used now
    other.keep(prefix_of([5, 5]))
    assert tokens_in(cache) == [1, 4, 5]
    age(file_of(cache, 5), -100)  # a clock that runs ahead: what was written last stays all the same
    Prefixes(size + size // 2, cache, "another model").keep(prefix_of([6, 6]))
    assert tokens_in(cache) == [6]
    Prefixes(size // 2, cache)
    assert files(cache) == []


def test_a_prefix_above_the_limit_is_not_written(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Prefixes(100, cache)
    store.keep(prefix_of([1, 1]))
    assert files(cache) == [] and len(store) == 1  # its file would have a header too
    assert "is not kept: the prompt cache" in caplog.text
    big = prefix_of(range(50), state=True)
    Prefixes(PLENTY, cache).keep(big)
    found = store.find(range(60), 1)
    assert found is not None and found[1] == 50 and len(store) == 1  # of a process with a larger limit: used, and not held
    assert_same(found[0], big)


# -- damages ----------------------------------------------------------------------------------------------------------


def test_no_flipped_byte_gives_wrong_values(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    prefix = prefix_of([1, 2], window=1, reach=1, state=True)
    Prefixes(PLENTY, cache, "m").keep(prefix)
    (file,) = files(cache)
    content, refused = file.read_bytes(), 0
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        found = Prefixes(PLENTY, cache, "m").find([1, 2, 3], 1)
        if found is None:
            refused += 1
        else:
            assert found[1] == 2
            assert_same(found[0], prefix)
    assert refused > 0.7 * len(content)  # others are in what does not count, such as the spaces behind the header


@pytest.mark.parametrize("place", ["first", "header", "last"])
def test_a_damaged_file_is_removed_with_a_warning(place: str, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Prefixes(PLENTY, cache)
    store.keep(prefix_of([1, 2, 3, 4], state=True))
    (damaged,) = files(cache)
    store.keep(prefix_of([1, 2]))
    content = bytearray(damaged.read_bytes())
    content[{"first": 0, "header": content.index(b"tokens") + 11, "last": -1}[place]] ^= 1
    damaged.write_bytes(content)
    reader = Prefixes(PLENTY, cache)
    for _ in range(2):
        found = reader.find([1, 2, 3, 4, 5], 1)
        assert found is not None and found[1] == 2  # the next best
    assert not damaged.exists() and len(files(cache)) == 1
    assert len(caplog.records) == 1 and "is damaged, and is removed" in caplog.text and "1, 2" not in caplog.text
    reader.keep(prefix_of([1, 2, 3, 4], state=True))  # it is computed and written again
    found = Prefixes(PLENTY, cache).find([1, 2, 3, 4, 5], 1)
    assert found is not None and found[1] == 4


@pytest.mark.parametrize("keep", [0, 5, 8, 100, -100, -1])
def test_a_truncated_file_is_removed_with_a_warning(keep: int, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    (file,) = files(cache)
    file.write_bytes(file.read_bytes()[:keep])
    assert Prefixes(PLENTY, cache).find([9, 9], 1) is None  # noticed without its arrays
    assert not file.exists() and len(caplog.records) == 1
    assert ("its header is not whole" in caplog.text) == (keep in (5, 8, 100, -100))


@pytest.mark.parametrize(
    "header",
    [b"[]", b"7", b"{}", b'{"__metadata__": 1}', b'{"__metadata__": {"format": 1}}', b"[" * 100_000, b"\xff" * 9, b"1" * 5000],
    ids=lambda header: repr(header[:30]),
)
def test_headers_that_nobody_writes(header: bytes, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Prefixes(PLENTY, cache)
    file = cache / f"prefix-{'0' * 64}.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    file.chmod(0o600)
    assert store.find([1, 2], 1) is None and not file.exists() and len(caplog.records) == 1


def test_a_file_belongs_to_its_name(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    (file,) = files(cache)
    file.rename(cache / f"prefix-{'0' * 64}.safetensors")
    assert Prefixes(PLENTY, cache).find([1, 2, 3], 1) is None and files(cache) == []
    assert "not the one of this name" in caplog.text


def test_arrays_that_change_after_the_header_was_read(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = Prefixes(PLENTY, cache)
    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    assert reader.find([9, 9], 1) is None
    (file,) = files(cache)
    status, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 128
    file.write_bytes(content)
    os.utime(file, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert reader.find([1, 2, 3], 1) is None and "checksum" in caplog.text


def test_a_file_that_another_process_removes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Prefixes(PLENTY, cache)
    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    outlines = reader._files.outlines()
    monkeypatch.setattr(reader._files, "outlines", lambda: outlines)
    files(cache)[0].unlink()
    assert reader.find([1, 2, 3], 1) is None


def test_a_file_that_is_removed_while_files_are_listed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        name, path = "gone", "gone"

        def stat(self, follow_symlinks: bool) -> None:
            raise FileNotFoundError(errno.ENOENT, "gone")

    scan = os.scandir

    @contextmanager
    def scan_more(path: Path) -> Iterator[list[object]]:
        with scan(path) as entries:
            yield [Gone(), *entries]

    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    monkeypatch.setattr(os, "scandir", scan_more)
    assert Prefixes(PLENTY, cache).find([1, 2, 3], 1) is not None


def test_arrays_belong_to_their_header(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Prefixes(PLENTY, cache)
    for token in (1, 2):
        store.keep(prefix_of([token, 2]))
    first, second = file_of(cache, 1), file_of(cache, 2)
    content, other = first.read_bytes(), second.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    mixed = content[:start].replace(header_of(first)["checksum"].encode(), header_of(second)["checksum"].encode()) + other[start:]
    assert len(mixed) == len(content)
    first.write_bytes(mixed)
    assert Prefixes(PLENTY, cache).find([1, 2, 3], 1) is None and "checksum" in caplog.text


def test_a_directory_that_is_removed_is_created_again(cache: Path) -> None:
    store = Prefixes(PLENTY, cache / "deep")
    (cache / "deep").rmdir()
    assert store.find([1, 2], 1) is None
    store.keep(prefix_of([1, 2]))
    assert len(files(cache / "deep")) == 1 and (cache / "deep").stat().st_mode & 0o777 == 0o700


# -- what is not ours -------------------------------------------------------------------------------------------------


def test_foreign_files_stay(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Prefixes(2000, cache)
    (cache / "notes.txt").write_text("x" * 5000)
    (cache / "a directory").mkdir()
    (cache / ".hidden").touch()
    safetensors.numpy.save_file({"w": np.zeros(1000, np.float32)}, cache / "model.safetensors")
    for token in (1, 2):
        store.keep(prefix_of([token, 2]))
        assert store.find([token, 2, 3], 1) is not None
    assert len(files(cache)) == 6  # what is not ours does not count, and is not removed
    assert len(caplog.records) == 1 and "files that are not its own" in caplog.text


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "others"])
def test_entries_that_are_no_private_files_are_ignored(
    kind: str, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Prefixes(PLENTY, cache)
    store.keep(prefix_of([1, 2]))
    (file,) = files(cache)
    if kind == "others":
        file.chmod(0o620)
    else:
        file.rename(tmp_path / "elsewhere")
        {"link": lambda: file.symlink_to(tmp_path / "elsewhere"), "pipe": lambda: os.mkfifo(file), "directory": file.mkdir}[
            kind
        ]()
    reader = Prefixes(PLENTY, cache)
    for _ in range(2):
        assert reader.find([1, 2, 3], 1) is None
    assert len(caplog.records) == 1 and "ignored" in caplog.text
    if kind != "others":
        Prefixes(0, cache)
    assert os.path.lexists(file)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_every_file_that_becomes_another_thing_is_not_followed(
    kind: str, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Prefixes(PLENTY, cache)
    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    (file,) = files(cache)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    age(elsewhere, 100)
    before = elsewhere.stat().st_mtime_ns
    if kind == "link":
        file.symlink_to(elsewhere)
    else:
        os.mkfifo(file, 0o600)
    assert reader._files.load(file.name) is None and "ignored" in caplog.text  # a pipe without a writer is not waited for
    reader._files.touch(file.name)
    assert elsewhere.stat().st_mtime_ns == before


def test_files_of_another_user_are_ignored(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Prefixes(PLENTY, cache)
    Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert store.find([1, 2, 3], 1) is None and "belongs to you" in caplog.text
    store.keep(prefix_of([1, 2]))  # nor is anything written for another user
    assert "belongs to another user" in caplog.text and len(store) == 1
    with pytest.raises(RequestError, match="belongs to another user\n  hint: "):
        Prefixes(PLENTY, cache)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_can_write_is_refused(mode: int, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(RequestError, match=r"other users can write(.|\n)*hint: chmod 700"):
        Prefixes(PLENTY, cache)
    assert cache.stat().st_mode & 0o777 == mode
    cache.chmod(0o755)  # others may see it: its files are private
    Prefixes(PLENTY, cache)


def test_what_is_no_directory_is_refused(cache: Path, tmp_path: Path) -> None:
    cache.write_text("a file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (cache, cache / "below", tmp_path / "dangling"):
        with pytest.raises(RequestError, match="it is not a directory\n  hint: "):
            Prefixes(PLENTY, path)
    for path in (tmp_path / "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(RequestError, match="cannot be used"):
            Prefixes(PLENTY, path)
    assert cache.read_text() == "a file"


def test_a_system_without_users_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid")
    with pytest.raises(RequestError, match="to whom a directory belongs"):
        Prefixes(PLENTY, cache)


def test_permissions_do_not_depend_on_the_umask(cache: Path) -> None:
    before = os.umask(0)
    try:
        Prefixes(PLENTY, cache).keep(prefix_of([1, 2]))
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o777 == 0o700 and files(cache)[0].stat().st_mode & 0o777 == 0o600


# -- writes that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open", "fsync", "replace", "scandir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_cannot_be_written_is_a_warning(
    call: str, code: int, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    store = Prefixes(PLENTY, cache)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        for token in (1, 2):
            store.keep(prefix_of([token, 2]))
            assert store.find([token, 2, 3], 1) is not None
    texts = [record.getMessage() for record in caplog.records]
    assert 1 <= len(texts) == len(set(texts)) <= 2 and all(os.strerror(code) in text for text in texts)  # to list and to write
    if call != "scandir":
        assert files(cache) == []
    store.keep(prefix_of([2, 2]))  # the disk has room again: it is written, though it is in memory
    assert tokens_in(cache)[-1:] == [2]


@pytest.mark.parametrize("dtype", [np.complex128, "U3"])
def test_arrays_that_files_cannot_hold_stay_in_memory(dtype: str, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Prefixes(PLENTY, cache)
    store.keep(Prefix((1, 2), {"state": Kept(np.zeros(2, dtype), None, True)}))
    assert store.find([1, 2, 3], 1) is not None and files(cache) == [] and "in memory only" in caplog.text


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interrupted_write_leaves_no_entry(call: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    store = Prefixes(PLENTY, cache)
    store.keep(prefix_of([1, 2]))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.keep(prefix_of([1, 2, 3]))
    assert len(files(cache)) == 1
    found = Prefixes(PLENTY, cache).find([1, 2, 3, 4], 1)
    assert found is not None and found[1] == 2  # the earlier one is still there
    store.keep(prefix_of([1, 2, 3]))  # nothing is locked
    found = Prefixes(PLENTY, cache).find([1, 2, 3, 4], 1)
    assert found is not None and found[1] == 3 and len(files(cache)) == 1


WRITER = """
import os, signal, sys
from pathlib import Path
import numpy as np
from tempo_llm.prefixes import Kept, Prefix, Prefixes

kind, cache = sys.argv[1], Path(sys.argv[2])
store = Prefixes(2**20, cache, "model")
if kind == "killed":
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
for number in range(40):
    tokens = (number % 8, int(kind == "1"), 5)
    value = 10 * tokens[0] + tokens[1]
    store.keep(Prefix(tokens, {"state": Kept(np.full(3000, value, np.float32), None, True)}))
    found = Prefixes(2**20, cache, "model").find((number % 8, 1 - tokens[1], 5, 6), 1)
    assert found is None or (found[0].layers["state"].array == 10 * tokens[0] + 1 - tokens[1]).all()
"""


def test_a_killed_writer_leaves_no_entry(cache: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, "killed", str(cache)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (left,) = files(cache)
    assert left.name.endswith(".tmp")
    store = Prefixes(PLENTY, cache, "model")
    assert store.find([0, 0, 5, 6], 1) is None and left.exists()  # it may be one of a process that is writing it
    age(left, 10_000)
    with open(left, "rb") as file:
        locked = threading.Thread(target=_flock, args=(file.fileno(),))
        locked.start()
        locked.join()
        Prefixes(PLENTY, cache, "model")
        assert left.exists()
    Prefixes(PLENTY, cache, "model")
    assert files(cache) == []


def _flock(handle: int) -> None:
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX)


def test_processes_share_a_directory(cache: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(k), str(cache)], stderr=subprocess.PIPE) for k in (0, 1)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert errors == [b"", b""] and [process.returncode for process in processes] == [0, 0]  # no warning either
    assert len(files(cache)) == 16
    for first in range(8):
        for second in range(2):
            found = Prefixes(PLENTY, cache, "model").find([first, second, 5, 6], 1)
            assert found is not None and (found[0].layers["state"].array == 10 * first + second).all()
