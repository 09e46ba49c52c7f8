"""Programs of a few hundred megabytes whose growth is measured: `python -m tests.core.runtime.memory_programs NAME` writes the figures as JSON.

`planned` is the peak of the plan, on the device and on the host, without what the caller has before the run and after it: on a CPU, the
device programs read inputs where they lie or in a copy, and results are read where the device programs leave them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.memory.process import measured

Feeds = Callable[[], Mapping[str, Any]]
Made = tuple[tp.Program[Any], Feeds]
ROWS, COLUMNS = 6000, 10_000  # of an input of 240 MB


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(size=shape, dtype=np.float32)


def feeds(**arrays: Any) -> Feeds:
    return lambda: arrays


def a_chain_of_functions() -> Made:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (300,), domain=(t,))
        y = tp.tanh(x * 0.5 + 1.0) * tp.exp(-x * x)
    return ctx.compile({T: 100_000}, y), feeds(x=normal(100_000, 300))


def pairwise_distances() -> Made:
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        x, y = tp.input("x", (4,), domain=(i,)), tp.input("y", (4,), domain=(j,))
        distance = tp.sqrt(((x - y) ** 2).sum())
    return ctx.compile({I: 8000, J: 8000}, distance), feeds(x=normal(8000, 4), y=normal(8000, 4))


def a_recurrence_in_a_loop() -> Made:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (1000,), domain=(t,))
        added = x.reshape(1000, 1) * x
        c = tp.recurrence((1000, 1000), domain=(t,), name="c")
        c[0] = added[0]
        c[t] = c[t - 1] * 0.99 + added
    return ctx.compile({T: 60}, c, tp.Config(disable=("vectorize(t)",))), feeds(x=normal(60, 1000))


def a_store_read_backwards() -> Made:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (1000,), domain=(t,))
        there = tp.recurrence((1000,), domain=(t,), name="there")
        there[0] = x[0]
        there[t + 1] = tp.tanh(there + x[t + 1])
        back = tp.recurrence((1000,), domain=(t,), name="back")
        back[T - 1] = there[T - 1]
        back[t - 1] = tp.tanh(back * there[t - 1])
    return ctx.compile({T: 30_000}, {"there": there, "back": back[0]}), feeds(x=normal(30_000, 1000))


def the_gradient_of_a_recurrent_network() -> Made:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (64,), domain=(t,)), tp.input("w", (128, 128))
        h = tp.recurrence((64, 128), domain=(t,), name="h")
        h[0] = tp.zeros((64, 128))
        h[t + 1] = tp.tanh(h @ w + x.reshape(64, 1))
        gradients = tp.grad((h[T - 1] ** 2).sum(), [w])
    return ctx.compile({T: 4000}, gradients), feeds(x=normal(4000, 64), w=normal(128, 128) / 11)


def attention_over_a_prefix() -> Made:
    """Without loops: where a loop is faster, by the prices of a host, it needs little memory."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k, v = (tp.input(name, (32,), domain=(t,)) for name in "qkv")
        y = (k[0 : t + 1] @ q).softmax(0) @ v[0 : t + 1]
    return ctx.compile({T: 6000}, y, tp.Config(disable=("loop",))), feeds(
        q=normal(6000, 32), k=normal(6000, 32), v=normal(6000, 32)
    )


def a_product_of_products() -> Made:
    """At once: by default it runs in strips, of which one is in memory."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w, v = tp.input("x", (512,), domain=(t,)), tp.input("w", (512, 2048)), tp.input("v", (2048, 256))
        y = tp.tanh(x @ w) @ v
    program = ctx.compile({T: 20_000}, y, tp.Config(disable=("strip",)))
    return program, feeds(x=normal(20_000, 512), w=normal(512, 2048) / 22, v=normal(2048, 256) / 45)


def results_of_a_function_that_stay_on_the_host() -> Made:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        value = np.ones((1000, 1000), np.float32)
        (o,) = tp.udf(lambda: (value,), outputs=[tp.spec((1000, 1000))], kind="host", domain=(t,), name="o")
        first = tp.tanh(o[0:T].sum(1).sum(1))
        y = (o[0:T] * first.reshape(T, 1, 1)).sum(2).sum(0)
    return ctx.compile({T: 60}, y), feeds()


def sums_of_wide_rows() -> Made:
    """XLA's reduction would take as much memory again as it reads."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (1000, 1000), domain=(t,))
        y = x[0:T].sum(0) + x[0:T].mean(0)
    return ctx.compile({T: 60}, y), feeds(x=normal(60, 1000, 1000))


def a_maximum_of_rows() -> Made:
    """XLA's reduction holds a part of what it reads, beside its own count."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (COLUMNS,), domain=(t,))
        y = x[0:T].max(0)
    return ctx.compile({T: ROWS}, y), feeds(x=normal(ROWS, COLUMNS))


def mean_of_squares() -> tp.Program[Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (COLUMNS,), domain=(t,))
        y = (x**2).mean()
    return ctx.compile({T: ROWS}, y)


def an_iterator() -> Made:
    row = np.ones(COLUMNS, np.float32)
    return mean_of_squares(), lambda: {"x": (row for _ in range(ROWS))}


def a_memory_map() -> Made:
    """Its numbers are converted, so that nothing can read them where they lie."""
    file = Path(tempfile.mkdtemp()) / "x.npy"
    np.save(file, np.ones((ROWS, COLUMNS), np.float64))
    mapped = np.load(file, mmap_mode="r")
    file.unlink()
    file.parent.rmdir()
    return mean_of_squares(), feeds(x=mapped)


def a_memory_map_that_begins_between() -> Made:
    """JAX would copy it: the numbers lie at odd places."""
    file = Path(tempfile.mkdtemp()) / "x.bin"
    file.write_bytes(b"\0" * 4 + np.ones(ROWS * COLUMNS, np.float32).tobytes())
    mapped = np.memmap(file, np.float32, "r", offset=4, shape=(ROWS, COLUMNS))
    file.unlink()
    file.parent.rmdir()
    return mean_of_squares(), feeds(x=mapped)


def tiles() -> Made:
    ctx = tp.Context("t", "s")
    with ctx as ((t, T), (s, S)):
        q, k, v = tp.input("q", (32,), domain=(t,)), tp.input("k", (32,), domain=(s,)), tp.input("v", (32,), domain=(s,))
        y = (k[0:S] @ q).softmax(0) @ v[0:S]
    config = tp.Config(tile={"t": 250})
    return ctx.compile({T: 1000, S: 40_000}, y, config), feeds(q=normal(1000, 32), k=normal(40_000, 32), v=normal(40_000, 32))


def an_input_of_two_launches() -> Made:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (1000,), domain=(t,))
        (mean,) = tp.udf(lambda value: (value * 1,), x[0:T].mean(0), outputs=[tp.spec((1000,))], kind="host", name="mean")
        y = x - mean
    return ctx.compile({T: 30_000}, y), feeds(x=normal(30_000, 1000))


PROGRAMS: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (
        a_chain_of_functions,
        pairwise_distances,
        a_recurrence_in_a_loop,
        a_store_read_backwards,
        the_gradient_of_a_recurrent_network,
        attention_over_a_prefix,
        a_product_of_products,
        results_of_a_function_that_stay_on_the_host,
        sums_of_wide_rows,
        a_maximum_of_rows,
        an_iterator,
        a_memory_map,
        a_memory_map_that_begins_between,
        tiles,
        an_input_of_two_launches,
    )
}


def planned(program: tp.Program[Any]) -> int:
    usage = program.plan().usage
    counted = [tensor for tensor in usage.tensors if tensor.place == "device" or tensor.kind not in ("input", "result")]
    return max(sum(t.bytes for t in counted if t.first <= at <= t.last) for at in range(len(usage.moments)))


def main(name: str) -> None:
    program, feed = PROGRAMS[name]()
    print(json.dumps(measured(lambda: planned(program), lambda: program.run(feed()))))


if __name__ == "__main__":
    main(sys.argv[1])
