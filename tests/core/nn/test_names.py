"""The names of parameters, modules with fed parameters, and the errors for wrong uses of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ArgumentError, DTypeError, IndexingError, ShapeError, TempoError

nn = tp.nn


class Block(nn.Module):
    def __init__(self, **options: Any):
        super().__init__(**options)
        self.norm = nn.LayerNorm(4, domain=self.domain, fed=self.fed)
        self.mix = nn.Linear(4, 4, bias=False, domain=self.domain, fed=self.fed, name="mixing")
        self.scale = self.parameter("scale", (4,), nn.ones())

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        return x + self.scale * self.mix(self.norm(x))


def network(fed: bool, domain: tuple[Any, ...]) -> nn.Module:
    inner = nn.Sequential(nn.Linear(4, 4, domain, fed=fed), nn.Tanh(), Block(domain=domain, fed=fed))
    return nn.Sequential(nn.Linear(4, 4, domain, fed=fed, name="first"), inner, nn.Linear(4, 2, domain, fed=fed), name="actor")


NAMES = [
    "actor.first.weight", "actor.first.bias", "actor.1.0.weight", "actor.1.0.bias", "actor.1.2.scale", "actor.1.2.norm.weight",
    "actor.1.2.norm.bias", "actor.1.2.mixing.weight", "actor.2.weight", "actor.2.bias",
]  # fmt: skip


@pytest.mark.parametrize("fed", [False, True])
def test_names_follow_from_where_a_module_is(fed: bool) -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, _I), (_t, _T)):
        model = network(fed, () if fed else (i,))
    assert list(model.parameters()) == NAMES
    assert [p.name for p in model.parameters().values()] == NAMES
    assert model.parameters()["actor.1.2.norm.bias"].domain.steps == (() if fed else (ctx.steps[0],))
    assert sorted(ctx.parameters) == sorted(NAMES)


def test_a_fed_module_takes_its_inputs_under_those_names() -> None:
    ctx = tp.Context("t")
    with ctx as ((_t, T),):
        model = network(True, ())
        y = model(tp.ones((4,)))
    inputs = {name: np.ones(tuple(map(int, p.shape)), "float32") for name, p in model.parameters().items()}
    (result,) = ctx.run({T: 1}, [y], inputs, config=tp.Config(backend="numpy"))
    np.testing.assert_allclose(result, np.full(2, 4 * (np.tanh(21.0) + 4 * 1) + 1), rtol=1e-6)  # norm of equal elements: its bias


def test_a_module_that_is_fed_over_a_step_takes_its_weights_stacked() -> None:
    """One module is all layers of a network: its inputs have the module's final names, and a leading dimension for the step."""
    ctx = tp.Context("l")
    with ctx as ((l, L),):
        model = nn.Sequential(nn.Sequential(nn.Linear(3, 3, (l,), fed=True)), name="net")
        h = tp.recurrence((3,), domain=(l,), name="h")
        tp.carry(h, tp.ones((3,)), model(h))
    assert list(model.parameters()) == list(ctx.inputs) == ["net.0.0.weight", "net.0.0.bias"]
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(4, 3, 3)).astype("float32"), random.normal(size=(4, 3)).astype("float32")
    expected = [np.ones(3, "float32")]
    for k in range(3):
        expected.append(expected[-1] @ weight[k] + bias[k])
    results = ctx.run({L: 4}, h, {"net.0.0.weight": weight, "net.0.0.bias": bias}, config=tp.Config(backend="numpy"))
    np.testing.assert_allclose(results, expected, rtol=1e-5)


def test_a_module_using_other_tensors_leaves_the_module_as_it_is() -> None:
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        model = network(False, (i,))
        tp.optim.SGD(model.parameters(), lr=0.1)
        for w in model.parameters().values():
            tp.carry(w, following=w)
        ones = {name: tp.ones(w.shape) * i for name, w in model.parameters().items() if name.startswith("actor.2")}
        x = tp.ones((4,))
        outputs = [
            model(x)[I - 1],
            model.using(ones)(x),
            model.using({})(x)[I - 1],
            model.using({n: 0.0 * w for n, w in ones.items()})(x),
        ]
        assert model.using(ones).parameters()["actor.2.weight"] is ones["actor.2.weight"]
        assert list(model.using(ones).parameters()) == NAMES
        with pytest.raises(ArgumentError, match=r"actor has no parameter actor\.2\.wait\n(.*\n)*.*it has actor\.2\.weight"):
            model.using({"actor.2.wait": x})
        with pytest.raises(ShapeError, match=r"cannot take the place of the parameter actor\.2\.bias"):
            model.using({"actor.2.bias": x})
    plain, other, same, none = ctx.run({I: 3}, outputs)
    np.testing.assert_array_equal(plain, same)
    assert (np.asarray(none) == 0).all() and not np.allclose(other[1], plain)
    np.testing.assert_allclose(other[2], 2 * other[1], rtol=1e-5)  # the last layer, with all weights and biases i


def test_modules_without_a_name_do_not_meet() -> None:
    ctx = tp.Context("i")
    with ctx as ((i, _I),):
        modules = [
            nn.Linear(2, 2, domain=(i,)),
            nn.Linear(2, 2, domain=(i,)),
            nn.GRUCell(2, 2, domain=(i,)),
            nn.GRUCell(2, 2, (i,)),
        ]
    assert [m.name for m in modules] == ["linear", "linear_2", "gru", "gru_2"]
    assert len(ctx.parameters) == 4 + 2 * 4


def test_a_module_in_two_places_keeps_its_first_name_and_appears_once() -> None:
    ctx = tp.Context("i")
    with ctx as ((i, _I),):
        shared = nn.Linear(3, 3, domain=(i,))
        model = nn.Sequential(shared, nn.Relu(), shared, name="a")
        outer = nn.Sequential(model, shared)
    assert list(model.parameters()) == ["a.0.weight", "a.0.bias"]
    assert list(outer.parameters()) == ["a.0.weight", "a.0.bias"]


def test_parameters_are_read_at_another_point() -> None:
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        model = nn.Sequential(Block(domain=(i,)), nn.GRUCell(4, 2, domain=(i,)))
        last = model[I - 1]
        x = tp.ones((4,))
        y, over_all = last.layers[0](x), model.layers[0](x)
    assert {p.domain.steps for p in last.parameters().values()} == {()}
    assert list(last.parameters()) == list(model.parameters())
    assert y.domain.steps == () and over_all.domain.steps == ctx.steps
    assert last.layers[0].scale.domain.steps == ()


def test_a_training_mode_reaches_all_modules_inside() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.1)))
    assert all(m.training is True for m in model.modules())
    assert model.eval() is model and all(m.training is False for m in model.modules())
    assert model.train().layers[1].layers[0].training is True


def test_parameters_of_half_precision() -> None:
    ctx = tp.Context("i")
    with ctx as ((i, _I),):
        norm, linear = nn.LayerNorm(4, (i,), dtype="bfloat16"), nn.Linear(4, 3, (i,), dtype="bfloat16")
        gru = nn.GRUCell(4, 3, (i,), dtype="float16")
        x = tp.ones((2, 4), "bfloat16")
        assert norm(x).dtype == linear(x).dtype == "bfloat16"
        assert nn.RMSNorm(4, (i,), dtype="bfloat16")(x).dtype == nn.SwiGLU(4, 2, (i,), dtype="bfloat16")(x).dtype == "bfloat16"
        assert nn.MultiHeadAttention(4, 2, (i,), dtype="bfloat16", rope=nn.RoPE(2))(x).dtype == "bfloat16"
        assert gru(x.astype("float16"), tp.zeros((2, 3), "float16")).dtype == "float16"
        assert {p.dtype for p in ctx.parameters.values()} == {"bfloat16", "float16"}


Wrong = Callable[[Any, Any, tp.Tensor], Any]
MISTAKES: dict[str, tuple[type[TempoError], str, str, Wrong]] = {  # the error, its text and hint, and (i, t, x (3,) over t) to do it
    "a wrong width": (
        ShapeError, r"linear takes \[..., 4\], got <Tensor x\[t\]", r"Linear(3, 2) takes this operand", lambda i, t, x: nn.Linear(4, 2, (i,))(x),
    ),
    "a number": (ShapeError, r"linear takes \[..., 4\]", "x.expand_dims(0)", lambda i, t, x: nn.Linear(4, 2, (i,))(tp.constant(1.0))),
    "no domain": (
        TempoError, "the parameter linear.weight has no step to be trained over", "over i: Linear(..., domain=(i,))", lambda i, t, x: nn.Linear(3, 2),
    ),
    "one name twice": (
        TempoError, "two parameters are named a.weight", "name='critic'",
        lambda i, t, x: (nn.RMSNorm(3, (i,), name="a"), nn.RMSNorm(3, fed=True, name="a")),
    ),
    "two networks without a name": (
        TempoError, "two parameters are named 0.weight", "name='critic'",
        lambda i, t, x: (nn.Sequential(nn.Linear(3, 2, (i,))), nn.Sequential(nn.Linear(3, 2, (i,)))),
    ),
    "a table indexed by floats": (DTypeError, "embedding takes integers", 'x.astype("int32")', lambda i, t, x: nn.Embedding(3, 2, (i,))(x)),
    "heads that do not divide": (
        ShapeError, "the width 5 is not a multiple of 2 heads", "head_width", lambda i, t, x: nn.MultiHeadAttention(5, 2, (i,)),
    ),
    "heads that cannot share": (
        ShapeError, "3 query heads cannot share 2 key heads", "multiple", lambda i, t, x: nn.GroupedQueryAttention(6, 3, 2, (i,)),
    ),
    "attention over no step": (
        IndexingError, "attention goes over a step, but over=T is not a step", "over=t",
        lambda i, t, x: nn.MultiHeadAttention(3, 1, (i,))(x, over=t.single_atom.bound_expr),
    ),
    "attention over a step that is not there": (
        IndexingError, "attention goes over the step i, but <Tensor x", "another step: over=t", lambda i, t, x: nn.MultiHeadAttention(3, 1, (i,))(x, over=i),
    ),
    "attention along no dimension": (
        ShapeError, r"attention takes \[..., length, 3\]", "over=t", lambda i, t, x: nn.MultiHeadAttention(3, 1, (i,))(x),
    ),
    "a pattern that gives no slice": (
        IndexingError, "the attention pattern `<lambda>` returns t", "slice(0, t + 1)",
        lambda i, t, x: nn.MultiHeadAttention(3, 1, (i,), pattern=lambda t, T: t)(x, over=t),
    ),
    "a pattern that is none": (
        TempoError, "'causal' is not an attention pattern", "tp.nn.causal", lambda i, t, x: nn.MultiHeadAttention(3, 1, (i,), pattern="causal"),
    ),
    "a window of nothing": (TempoError, r"window\(0\)", "", lambda i, t, x: nn.window(0)),
    "a gap of nothing": (TempoError, r"dilated\(0\)", "", lambda i, t, x: nn.dilated(0, 4)),
    "a state that is missing": (ShapeError, r"lstm takes the operand and 2 state\(s\), got 0", "cell(x, h, c)", lambda i, t, x: nn.LSTMCell(3, 2, (i,))(x)),
    "one initial state of two": (
        ShapeError, "lstm has the states h, c; 1 initial", "initial=(h, c)",
        lambda i, t, x: nn.LSTMCell(3, 2, (i,)).recurrence(x, over=t, initial=tp.zeros((2,))),
    ),
    "a probability above one": (TempoError, "the dropout rate is 1.5", "from 0 to below 1", lambda i, t, x: nn.Dropout(1.5)),
    "an odd rotation": (TempoError, "the width is 3, not a positive even number", "even", lambda i, t, x: nn.RoPE(3)),
    "channels in front": (
        ShapeError, r"conv takes \[..., length, 4\]", "channels come last", lambda i, t, x: nn.Conv1d(4, 2, 3, (i,))(tp.zeros((4, 7))[()]),
    ),
    "groups that do not divide": (
        ShapeError, "3 channels and 4 features do not divide into 2 groups", "", lambda i, t, x: nn.Conv2d(3, 4, 3, (i,), groups=2),
    ),
    "a module without a call": (TempoError, "Module defines no method `forward`", "def forward", lambda i, t, x: nn.Module()(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    error, text, hint, wrong = MISTAKES[name]
    ctx = tp.Context("i", "t")
    with ctx as ((i, _), (t, _)):
        x = tp.input("x", (3,), domain=(t,))
        with pytest.raises(error, match=text) as raised:
            wrong(i, t, x)
    assert hint in (raised.value.hint or "")
    assert __file__.rsplit("/", 1)[-1] in str(raised.value)


def test_a_module_must_be_initialised_before_it_gets_modules() -> None:
    class Hasty(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Tanh()

    with pytest.raises(TempoError, match="Hasty gets the module `inner` before it is initialised") as raised:
        Hasty()
    assert raised.value.hint == "call super().__init__() first"
