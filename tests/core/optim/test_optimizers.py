"""Forty updates of every optimizer against plain NumPy and PyTorch; order of updates, clipping, half precision, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import TempoError
from tests.core.optim import formulas as f
from tests.core.running import SETTINGS, assert_same

NUMPY = tp.Config(backend="numpy")
POINTS = 41


@dataclass(frozen=True)
class Row:
    make: Callable[[Any], tp.optim.Optimizer]
    formula: f.Update
    torch: tuple[str, dict[str, Any]]
    clip: Callable[[f.Params], f.Params] = field(default=lambda g: g)


optim = tp.optim
ROWS: dict[str, Row] = {
    "sgd": Row(lambda p: optim.SGD(p, 0.05), f.sgd(0.05), ("SGD", {"lr": 0.05})),
    "sgd, weight decay": Row(
        lambda p: optim.SGD(p, 0.05, weight_decay=0.1), f.sgd(0.05, weight_decay=0.1), ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    ),
    "sgd, momentum": Row(
        lambda p: optim.SGD(p, 0.02, momentum=0.9, weight_decay=0.1), f.sgd(0.02, 0.9, weight_decay=0.1),
        ("SGD", {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}),
    ),
    "sgd, nesterov": Row(
        lambda p: optim.SGD(p, 0.02, momentum=0.8, nesterov=True), f.sgd(0.02, 0.8, True),
        ("SGD", {"lr": 0.02, "momentum": 0.8, "nesterov": True}),
    ),
    "sgd, clipped by norm": Row(
        lambda p: optim.SGD(p, 0.05, momentum=0.5, max_grad_norm=0.7), f.sgd(0.05, 0.5), ("SGD", {"lr": 0.05, "momentum": 0.5}), f.clip_norm(0.7),
    ),
    "sgd, clipped by value": Row(
        lambda p: optim.SGD(p, 0.05, max_grad_value=0.3), f.sgd(0.05), ("SGD", {"lr": 0.05}), f.clip_value(0.3),
    ),
    "adam": Row(lambda p: optim.Adam(p, 0.03), f.adam(0.03), ("Adam", {"lr": 0.03})),
    "adam, other constants": Row(
        lambda p: optim.Adam(p, 0.03, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2), f.adam(0.03, (0.8, 0.95), 1e-3, 0.2),
        ("Adam", {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2}),
    ),
    "adam, clipped by norm": Row(lambda p: optim.Adam(p, 0.03, max_grad_norm=0.5), f.adam(0.03), ("Adam", {"lr": 0.03}), f.clip_norm(0.5)),
    "adamw": Row(
        lambda p: optim.AdamW(p, 0.03, weight_decay=0.3), f.adam(0.03, weight_decay=0.3, decoupled=True),
        ("AdamW", {"lr": 0.03, "weight_decay": 0.3}),
    ),
    "rmsprop": Row(lambda p: optim.RMSProp(p, 0.02), f.rmsprop(0.02), ("RMSprop", {"lr": 0.02})),
    "rmsprop, all": Row(
        lambda p: optim.RMSProp(p, 0.01, decay=0.9, eps=1e-2, momentum=0.6, centered=True, weight_decay=0.1),
        f.rmsprop(0.01, 0.9, 1e-2, 0.6, True, 0.1),
        ("RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "momentum": 0.6, "centered": True, "weight_decay": 0.1}),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    context: tp.Context
    bounds: dict[Any, int]
    parameters: list[tp.Tensor]
    updated: dict[str, tp.Tensor]


def program(make: Callable[[Any], tp.optim.Optimizer], dtype: str = "float32", skips: bool = False) -> Program:
    """The updates of an optimizer; if it `skips`, only those at the points where the input `goes` is true."""
    context = tp.Context("i")
    with context as ((i, I),):
        a, b = tp.input("a", (3,), domain=(i,)), tp.input("b", (2, 2), domain=(i,))
        w, v = (tp.recurrence(x.shape, dtype, domain=(i,), name=name) for name, x in (("w", f.W), ("v", f.V)))
        w[0], v[0] = tp.constant(f.W.astype("float32")), tp.constant(f.V.astype("float32"))
        ((a * tp.square(w - 1)).sum() / 2 + (b * tp.sin(v)).sum()).backward()
        updated = make({"w": w, "v": v}).step(where=tp.input("goes", (), "bool", domain=(i,)) if skips else None)
    return Program(context, {I: POINTS}, [w, v], updated)


def run(training: Program, config: tp.Config = NUMPY) -> list[np.ndarray]:
    return training.context.run(training.bounds, training.parameters, f.data(POINTS), config=config)


@pytest.mark.parametrize("name", ROWS)
def test_forty_updates_are_those_of_the_formula(name: str) -> None:
    row = ROWS[name]
    expected = f.trajectory(row.formula, f.data(POINTS), row.clip)
    for result, parameter in zip(run(program(row.make)), ("w", "v"), strict=True):
        np.testing.assert_allclose(result, expected[parameter], rtol=1e-4, atol=2e-5)
        assert np.abs(expected[parameter][-1] - expected[parameter][0]).max() > 0.05


@pytest.mark.torch
@pytest.mark.parametrize("name", ROWS)
def test_forty_updates_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    row = ROWS[name]
    kind, options = row.torch
    params = {"w": torch.tensor(f.W, requires_grad=True), "v": torch.tensor(f.V, requires_grad=True)}
    optimizer = getattr(torch.optim, kind)(params.values(), **options)
    coefficients, seen = f.data(POINTS), {"w": [], "v": []}
    for point in range(POINTS):
        for parameter, value in params.items():
            seen[parameter].append(value.detach().numpy().copy())
        optimizer.zero_grad()
        loss = (torch.tensor(coefficients["a"][point]) * (params["w"] - 1) ** 2).sum() / 2
        (loss + (torch.tensor(coefficients["b"][point]) * torch.sin(params["v"])).sum()).backward()
        if "by norm" in name:
            torch.nn.utils.clip_grad_norm_(params.values(), 0.5 if "adam" in name else 0.7)
        if "by value" in name:
            torch.nn.utils.clip_grad_value_(params.values(), 0.3)
        optimizer.step()
    expected = f.trajectory(row.formula, coefficients, row.clip)
    for parameter, values in seen.items():  # so the formula of the test above agrees with PyTorch
        np.testing.assert_allclose(expected[parameter], np.stack(values), rtol=1e-9, atol=1e-12)


SCHEDULED = {
    "adamw, a schedule": Row(lambda p: optim.AdamW(p, optim.schedules.warmup_cosine(0.05, 5, 20)), f.adam(0.0), ("", {})),
    "sgd, a schedule": Row(lambda p: optim.SGD(p, optim.schedules.linear(0.05, 0.01, 20), 0.9), f.sgd(0.0), ("", {})),
}


@pytest.mark.parametrize("executor", ["interpreted", pytest.param("staged", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ROWS | SCHEDULED)
def test_a_skipped_update_changes_nothing(name: str, executor: str) -> None:
    """With gradients that are NaN where updates are skipped, the others are those of a run without these points, bit for bit."""
    make, goes = (ROWS | SCHEDULED)[name].make, np.arange(POINTS) % 7 % 3 != 1
    coefficients = f.data(POINTS) | {"goes": goes}
    poisoned = {key: np.where(goes.reshape(-1, *[1] * (x.ndim - 1)), x, np.nan) for key, x in f.data(POINTS).items()}
    kept = {key: x[goes] for key, x in coefficients.items()}
    config = NUMPY if executor == "interpreted" else SETTINGS["staged"]
    training, plain = program(make, skips=True), program(make)
    (points,) = training.bounds
    results = training.context.run(training.bounds, training.parameters, poisoned | {"goes": goes}, config=config)
    alone = training.context.run({points: int(goes.sum())}, training.parameters, kept, config=config)
    del kept["goes"]
    unguarded = plain.context.run(dict.fromkeys(plain.bounds, int(goes.sum())), plain.parameters, kept, config=config)
    for result, expected, same in zip(results, alone, unguarded, strict=True):
        np.testing.assert_array_equal(result[goes], expected)
        np.testing.assert_allclose(expected, same, rtol=1e-4, atol=1e-5)
        assert (result[1:][~goes[:-1]] == result[:-1][~goes[:-1]]).all() and np.abs(result[-1] - result[0]).max() > 0.05


def test_updates_are_the_same_on_the_staged_executor() -> None:
    training = program(lambda p: optim.AdamW(p, optim.schedules.cosine(0.03, 40), max_grad_norm=0.5))
    for result, expected in zip(run(training, SETTINGS["staged"]), run(training), strict=True):
        assert_same(result, expected, 2e-5)


def test_step_gives_the_updated_parameters() -> None:
    training = program(lambda p: optim.Adam(p, 0.1))
    w, after = training.context.run(
        training.bounds, [training.parameters[0], training.updated["w"]], f.data(POINTS), config=NUMPY
    )
    np.testing.assert_array_equal(w[1:], after[:-1])


def test_half_precision_parameters_have_float32_state() -> None:
    """In bfloat16, 1 - 0.999 and 0.999 v + 0.001 g² would both be rounded away."""
    training = program(lambda p: optim.Adam(p, 0.03), "bfloat16")
    nodes = [training.context.graph[recurrence] for recurrence in training.context.recurrences]
    assert {node.name: node.outputs[0].dtype for node in nodes} == {
        "w": "bfloat16", "v": "bfloat16", "adam.beta1_power": "float32", "adam.beta2_power": "float32",
        "adam.m(w)": "float32", "adam.v(w)": "float32", "adam.m(v)": "float32", "adam.v(v)": "float32",
    }  # fmt: skip
    expected = f.trajectory(f.adam(0.03), f.data(POINTS))
    for result, parameter in zip(run(training), ("w", "v"), strict=True):
        assert result.dtype.name == "bfloat16"
        np.testing.assert_allclose(result.astype("float32"), expected[parameter], atol=0.12)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_updates_over_nested_steps_follow_in_lexicographic_order(backend: str) -> None:
    """Updates over (i, e, m), with a schedule of the number of updates, are the same as over one step."""
    sizes, schedule = (2, 3, 4), optim.schedules.warmup_cosine(0.2, 5, 20, end=0.01)
    coefficients = {name: value[:24] for name, value in f.data(POINTS).items()}
    context = tp.Context("i", "e", "m")
    with context as ((i, I), (e, E), (m, M)):
        a = tp.input("a", (3,), domain=(i, e, m))
        w = tp.recurrence((3,), domain=(i, e, m), name="w")
        w[0, 0, 0] = tp.constant(f.W.astype("float32"))
        ((a * tp.square(w - 1)).sum() / 2).backward()
        optim.Adam([w], lr=schedule, max_grad_norm=0.5).step()
    executor = "interpreted" if backend == "numpy" else "staged"
    config = tp.Config(backend=backend, executor=executor)
    (result,) = context.run(
        dict(zip((I, E, M), sizes, strict=True)), [w], {"a": coefficients["a"].reshape(*sizes, 3)}, config=config
    )

    def rate(n: int) -> float:
        return 0.2 * n / 5 if n < 5 else 0.01 + 0.19 * 0.5 * (1 + np.cos(np.pi * min((n - 5) / 15, 1)))

    alone = {"a": coefficients["a"], "b": np.zeros((24, 2, 2))}
    expected = f.trajectory(f.adam(rate), alone, f.clip_norm(0.5))["w"]
    np.testing.assert_allclose(result.reshape(24, 3), expected, rtol=1e-4, atol=2e-5)


def test_clipping_functions() -> None:
    context = tp.Context("i")
    with context as ((_, I),):
        tensors = [tp.constant([3.0, 0.0]), tp.constant([[4.0]])]
        outputs = [optim.global_norm(tensors), *optim.clip_by_global_norm(tensors, 1.0), *optim.clip_by_global_norm(tensors, 9.0)]
        outputs += optim.clip_by_value([tp.constant([-3.0, 0.5, 3.0])], 1.0)
    norm, small, small_too, kept, kept_too, clipped = context.run({I: 1}, outputs, config=NUMPY)
    assert norm == 5 and kept_too == 4
    np.testing.assert_allclose(np.concatenate([small, small_too[0]]), [0.6, 0.0, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(kept, [3.0, 0.0])
    np.testing.assert_array_equal(clipped, [-1.0, 0.5, 1.0])


def parameter(name: str, *domain: Any) -> tp.Recurrence:
    recurrence = tp.recurrence((), domain=domain, name=name)
    recurrence[(0,) * len(domain)] = 0.0
    return recurrence


def test_mistakes_are_explained() -> None:
    with tp.Context("i", "e") as ((i, _), (e, _)):
        with pytest.raises(TempoError, match="at least one parameter"):
            optim.SGD({}, 0.1)
        with pytest.raises(TempoError, match="x is not a recurrence") as raised:
            optim.SGD({"x": tp.input("x", domain=(i,))}, 0.1)
        assert "domain=(i,)" in (raised.value.hint or "")
        with pytest.raises(TempoError, match="nesterov=True without momentum"):
            optim.SGD([parameter("a", i)], 0.1, nesterov=True)
        with pytest.raises(TempoError, match=r"the parameters b over \(i\) and c over \(i, e\) have different domains") as raised:
            optim.Adam([parameter("b", i), parameter("c", i, e)], 0.1)
        assert (raised.value.hint or "").startswith("make one optimizer for each domain: tp.optim.Adam([w]). If")
        assert "kept=(l,)" in (raised.value.hint or "")


def test_layers_are_updated_together() -> None:
    """Parameters over (i, l) with l kept are the parameters of each l, and their gradients have one norm."""
    starts = np.array([[1.0, -2.0], [3.0, 0.5]], "float32")
    with (ctx := tp.Context("i", "l")) as ((i, I), (layer, L)):
        w = tp.nn.Linear(2, 1, domain=(layer,), fed=True, bias=False, name="w").updated((i,))
        b = parameter("b", i)
        (tp.square(w.weight).sum() * (layer + 1.0) + b.sum()).backward()
        updated = optim.AdamW(w.parameters() | {"b": b}, 0.1, max_grad_norm=1.0, kept=(layer,)).step()
    with (apart := tp.Context("i")) as ((j, J),):
        each = [tp.recurrence((2, 1), domain=(j,), name=f"w{k}") for k in range(2)]
        for k, one in enumerate(each):
            tp.carry(one, tp.constant(starts[k][:, None]))
        c = parameter("b", j)
        (tp.square(each[0]).sum() + 2 * tp.square(each[1]).sum() + 2 * c.sum()).backward()
        optim.AdamW([*each, c], 0.1, max_grad_norm=1.0).step()
    config = tp.Config(backend="numpy")
    together = ctx.run({I: 5, L: 2}, [w.weight], {"w.weight": starts[:, :, None]}, config)[0]
    assert set(updated) == {"w.weight", "b"}
    for k, one in enumerate(each):
        np.testing.assert_allclose(together[:, k], apart.run({J: 5}, [one], config=config)[0], rtol=1e-5)


def test_a_module_that_is_not_fed_is_not_updated() -> None:
    with tp.Context("i", "l") as ((i, _), (layer, _)):
        with pytest.raises(TempoError, match="the parameters of linear are not fed") as raised:
            tp.nn.Linear(2, 2, domain=(layer,)).updated((i,))
        assert "fed=True" in (raised.value.hint or "")


def test_float32_parameters_of_a_bfloat16_module() -> None:
    with (ctx := tp.Context("i")) as ((i, I),):
        model = tp.nn.Linear(1, 1, bias=False, fed=True, dtype="bfloat16", name="m").updated((i,), "float32")
        y = model(tp.ones((1,), "bfloat16"))
        y.sum().backward()
        optim.SGD(model.parameters(), 1e-4).step()
    weights, values = ctx.run(
        {I: 4}, [model.parameters()["m.weight"], y], {"m.weight": np.ones((1, 1))}, tp.Config(backend="numpy")
    )
    assert str(values.dtype) == "bfloat16" and (values == 1).all()
    np.testing.assert_allclose(weights.ravel(), [1.0, 0.9999, 0.9998, 0.9997], rtol=1e-6)
