"""Many copies of a program in one, `ctx.copies`: each is the program run alone, with the next seed and inputs of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends import prng
from tempo_core.errors import ArgumentError
from tests.cases import fast

Learned = tuple[tp.Context, dict[Any, int], dict[str, tp.Tensor], list[Any]]


def learning() -> Learned:
    """An LSTM that learns by Adam, with noise, a rate that is fed, and what a sink has seen."""
    ctx = tp.Context("i", "t")
    seen: list[Any] = []
    with ctx as ((i, I), (t, T)):
        x, target = tp.input("x", (2,), domain=(t,)), tp.input("target", (1,), domain=(t,))
        cell, head = tp.nn.LSTMCell(2, 3, (i,)), tp.nn.Linear(3, 1, (i,))
        h, _ = cell.recurrence(x + 0.1 * tp.random.normal((2,), domain=(i, t)), over=t)
        loss = ((head(h) - target) ** 2)[i, 0:T].mean()
        loss.backward()
        updated = tp.optim.Adam(dict(ctx.parameters), lr=tp.input("rate", ())).step()

        def see(loss: np.ndarray, count: np.ndarray, **at: int) -> None:
            seen.append((at, np.array(loss), np.array(count)))

        tp.sink(see, loss, i)
    outputs = {"loss": loss, "target": target.sum(0), **{name: value[I - 1] for name, value in updated.items()}}
    return ctx, {I: 4, T: 5}, outputs, seen


def fed() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"x": random.normal(size=(5, 2)).astype("float32"), "target": random.normal(size=(5, 1)).astype("float32")}


RATES = np.array([0.05, 0.01, 0.1], "float32")


@pytest.fixture(scope="module")
def alone() -> tuple[Learned, tp.Program[Any]]:
    """The program once: it is compiled for all tests, and its copies for each."""
    learned = learning()
    return learned, learned[0].compile(learned[1], learned[2])


@pytest.mark.slow
@pytest.mark.parametrize("executor", fast(["staged", "interpreted"], "interpreted"))
def test_each_copy_is_the_program_alone(executor: str, alone: tuple[Learned, tp.Program[Any]]) -> None:
    (ctx, bounds, outputs, seen), once = alone
    seen.clear()
    copies = ctx.copies("s", outputs, ["rate"])
    program = copies.context.compile({copies.bound: 3, **bounds}, copies.tensors, tp.Config(executor=executor))
    results = program.run({**fed(), "rate": RATES}, seed=7)
    assert [at for at, *_ in seen] == [{"s": s, "i": i} for s in range(3) for i in range(4)]
    seen.clear()
    for copy, rate in enumerate(RATES):
        for name, value in once.run({**fed(), "rate": rate}, seed=7 + copy).items():
            own = results[name] if name == "target" else results[name][copy]  # what all copies share is computed once
            np.testing.assert_allclose(own, value, rtol=1e-5, atol=1e-6, err_msg=name)
    assert not np.allclose(results["loss"][0], results["loss"][1])


def test_the_program_is_as_long_for_any_number_of_copies() -> None:
    ctx, bounds, outputs, _ = learning()
    copies = ctx.copies("s", {"loss": outputs["loss"]}, ["rate"])
    programs = [copies.context.compile({copies.bound: number, **bounds}, copies.tensors) for number in (2, 64)]
    assert len(programs[0].graph.nodes) == len(programs[1].graph.nodes)


class Counter:
    """A function with state, for all copies at once."""

    takes_copies = True

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[np.ndarray] = []

    def add(self, x: np.ndarray) -> tuple[np.ndarray]:
        self.count += 1
        return (x + np.float32(self.count),)

    def see(self, x: np.ndarray, number: np.ndarray, **at: int) -> None:
        self.seen.append(np.array([x, number]))


def test_functions_on_the_host_get_all_copies_at_once() -> None:
    counter, ctx = Counter(), tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), domain=(t,))
        (after,) = tp.udf(counter.add, h, outputs=[tp.spec(())], kind="host", stateful=True)
        h[0], h[t + 1] = tp.random.uniform(), after * 0.5
        tp.sink(counter.see, h, t + tp.constant(0.0))
    alone = ctx.compile({T: 4}, [h])
    expected = []
    for seed in (3, 4):
        counter.count = 0
        expected.append(np.asarray(alone.run(seed=seed)[0]))
    counter.count = 0
    counter.seen.clear()
    copies = ctx.copies("s", {"h": h})
    values = copies.context.compile({copies.bound: 2, T: 4}, copies.tensors).run(seed=3)["h"]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert counter.count in (3, 4) and [seen.shape for seen in counter.seen] == [(2, 2)] * 4
    np.testing.assert_allclose(np.stack(counter.seen)[:, 0].T, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.stack(counter.seen)[:, 1], [[k, k] for k in range(4)])


def test_what_cannot_be_copied_is_refused() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        x = tp.random.uniform(domain=(t,))
        tp.udf(lambda x: (x,), x, outputs=[tp.spec(())], kind="host", stateful=True, name="game")
    with pytest.raises(
        ArgumentError,
        match=r"the function `game` on the host has state, which would be shared by all copies\n(.|\n)*takes_copies",
    ):
        ctx.copies("s")
    with pytest.raises(ArgumentError, match="the context has no input `rate`"):
        ctx.copies("s", inputs=["rate"])
    with pytest.raises(ArgumentError, match="share the name"):
        ctx.copies("t")
    ending = tp.Context("t")
    with ending as ((t, _),):
        x = tp.random.uniform(domain=(t,))
        ending.ends(t, when=x > 0.9)
    with pytest.raises(ArgumentError, match="the end of t depends on what differs between copies"):
        ending.copies("s")


@pytest.mark.parametrize("kind", ["bits", "uniform", "normal"])
def test_a_seeded_draw_is_that_of_another_seed(kind: str) -> None:
    """The first coordinate is added to the seed; the numbers are those of that seed at the other coordinates."""
    for others in ([], [np.int32([2, 2])], [np.int32([1, 1]), np.int32([5, 5]), np.int32([0, 0])]):
        drawn = prng.random(np, kind, 2**32 - 1, 4, [np.int32([0, 3]), *others], (3,), seeded=True)
        for place, seed in enumerate((2**32 - 1, 2)):
            point = [np.int32(each[place]) for each in others]
            np.testing.assert_array_equal(drawn[place], prng.random(np, kind, seed, 4, point, (3,)))
