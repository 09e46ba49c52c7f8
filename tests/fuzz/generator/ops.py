"""Statements without recurrence: sources, functions of tensors of every dtype, functions of the user, modules."""

from __future__ import annotations

import math

from tests.fuzz.generator import forms
from tests.fuzz.generator.drawing import SHAPES, Drawing, tuple_text
from tests.fuzz.generator.indices import condition

MODULES: dict[str, tuple[str, str]] = {  # the constructor of a module of width {n} over step {s}, and its call
    "Linear": ("tp.nn.Linear({n}, 2, domain=({s},))", "{m}({x})"),
    "Linear, no bias": ("tp.nn.Linear({n}, {n}, domain=({s},), bias=False)", "{m}({x})"),
    "RMSNorm": ("tp.nn.RMSNorm({n}, domain=({s},))", "{m}({x})"),
    "LayerNorm": ("tp.nn.LayerNorm({n}, domain=({s},))", "{m}({x} * 2)"),
    "SwiGLU": ("tp.nn.SwiGLU({n}, 2, domain=({s},))", "{m}({x})"),
    "Dropout": ("tp.nn.Sequential(tp.nn.Linear({n}, 3, domain=({s},)), tp.nn.Dropout(0.3))", "{m}({x}, training={s} % 2 == 0)"),
    "Sequential": ("tp.nn.Sequential(tp.nn.Linear({n}, 3, domain=({s},)), tp.nn.Tanh())", "{m}({x})"),
    "Embedding": ("tp.nn.Embedding(3, 2, domain=({s},))", "{m}({x}.argmax(-1))"),
    "Conv1d": ("tp.nn.Conv1d(1, 2, 2, domain=({s},))", "{m}({x}.expand_dims(-1))"),
    "GRUCell": ("tp.nn.GRUCell({n}, 2, domain=({s},))", "{m}.recurrence({x}, over={o})"),
    "LSTMCell": ("tp.nn.LSTMCell({n}, 2, domain=({s},))", "{m}.recurrence({x}, over={o}, reverse=True)[0]"),
    "DiagonalSSM": ("tp.nn.DiagonalSSM({n}, 2, domain=({s},))", "{m}({x}, over={o})"),
    "attention": ("tp.nn.MultiHeadAttention({n}, 1, domain=({s},))", "{m}({x}, over={o})"),
    "windowed attention": ("tp.nn.GroupedQueryAttention({n}, 2, 1, domain=({s},), head_width=2)", "{m}({x}, over={o}, pattern=tp.nn.window(2))"),
}  # fmt: skip
OPTIMIZERS = (
    "SGD({p}, lr=0.1)", "SGD({p}, lr=0.1, momentum=0.9)", "Adam({p}, lr=0.05)", "Adam({p}, lr=0.05 * 0.9**{s})",
    "AdamW({p}, lr=0.05)", "RMSProp({p}, lr=0.05)", "SGD({p}, lr=0.1, max_grad_norm=0.5)",
)  # fmt: skip


# -- sources ----------------------------------------------------------------------------------------------------------


def fed(d: Drawing, leaf: bool = False, single: bool = False) -> str:
    """An input; returns its name. A `leaf` is an input for gradients; a `single` one is of float32."""
    name, domain, shape = d.name(), d.domain(), d.choices.pick(SHAPES)
    sizes = [f"n[{s!r}]" for s in domain] + [size.strip() for size in shape.strip("()").split(",") if size.strip()]
    dtype = "float32" if leaf or single or d.chance(85) else "int32"
    d.mark(f"input: {dtype}")
    make = "normal" if dtype == "float32" else "integers"
    array = f"{make}({', '.join([f'{d.choices.integer(0, 99)} + again', *sizes])})"
    more = ", requires_grad=True" if leaf else ""
    if domain and not leaf and d.chance(15):
        d.mark("input: streamed")
        more = ", streamed=True"
        array = f"iter({array}.reshape(-1, *{shape}))" if d.chance(60) else array
    d.data[name] = array
    d.add(f'{name} = tp.input("{name}", {shape}, "{dtype}", domain={tuple_text(domain)}{more})', name)
    return name


def random(d: Drawing) -> None:
    form, name = d.marked(forms.RANDOM, "random"), d.name()
    d.add(f"{name} = {form.format(shape=d.choices.pick(SHAPES), domain=tuple_text(d.domain()))}", name)


def number(d: Drawing) -> None:
    """A function of steps, and constants."""
    s, name = d.step(), d.name()
    d.mark("op: a step as a number")
    form = d.choices.pick((
        f"0.5**{s}", f"{s} * 1.0", f"tp.constant(0.3) * ({s} + 1)", "tp.constant([0.5, -1.0, 2.0])", f"tp.sin({s} * 0.7)",
        f"tp.constant([[1.0, 0.5], [0.25, -1.0]]) * ({s} % 3)", f"tp.where({condition(d, s)}, 1.5, {s})",
    ))  # fmt: skip
    d.add(f"{name} = {form}", name)


# -- functions --------------------------------------------------------------------------------------------------------


def unary(d: Drawing) -> None:
    x, name, s = d.value(), d.name(), d.step()
    form = d.choices.pick(d.marked(forms.ANY_SHAPE, "op"))
    where = condition(d, s) if "{c}" in form else ""
    d.add(f"{name} = {form.format(x=x, s=s, T=s.upper(), c=where)}", name)


def binary(d: Drawing) -> None:
    x, name = d.value(), d.name()
    near = [n for n in d.fitting() if d.tensor(n).rank in (0, d.tensor(x).rank)]
    y = d.choices.pick(near)
    d.add(f"{name} = {d.choices.pick(d.marked(forms.PAIRS, 'op')).format(x=x, y=y)}", name)


def deep(d: Drawing) -> None:
    x = d.value(rank=1)
    if x:
        name, s = d.name(), d.step()
        form = d.choices.pick(d.marked(forms.DEEP, "op"))
        d.add(f"{name} = {form.format(x=x, s=s, T=s.upper(), n=d.tensor(x).shape[-1])}", name)


def contract(d: Drawing) -> None:
    names = d.fitting(rank=1)
    if not names:
        return
    x, name = d.choices.pick(names), d.name()
    inner = str(d.tensor(x).shape[-1])
    near = [n for n in names if str(d.tensor(n).shape[-1 if d.tensor(n).rank == 1 else -2]) == inner]
    y = d.choices.pick(near) if near else f"{x}.transpose()"
    d.mark("op: contraction")
    d.add(f"{name} = {x} @ {y}", name)


def joined(d: Drawing) -> None:
    x, y, name = d.value(rank=1), d.value(rank=1), d.name()
    if x:
        d.mark("op: concat of two")
        d.add(f"{name} = tp.concatenate([{x}, {y}])", name)


def sized(d: Drawing) -> None:
    """Shapes that depend on steps and bounds."""
    moving = [n for n in d.moving() if d.fits(n, static=True)]
    if not moving:
        return
    x, name = d.choices.pick(moving[-5:]), d.name()
    steps = d.steps_of(x)
    s = d.choices.pick(steps)

    def over(span: str) -> str:
        return f"{x}[{', '.join(span if o == s else o for o in steps)}]"

    form = d.choices.pick(d.marked(forms.SIZED, "size"))
    bound = s.upper()
    scalar = x if not d.tensor(x).rank else f"{x}.sum()"
    parts = {"x0": scalar, "p": over(f"0:{s} + 1"), "q": over(f"{s}:{bound}"), "w": over(f"0:{bound}")}
    d.add(f"{name} = {form.format(s=s, T=bound, **parts)}", name)


def convolved(d: Drawing) -> None:
    """A sum of products with the past, or with what comes, in reverse order. The kernel has the shape of the signal, or is a number."""
    moving = [n for n in d.moving() if d.fits(n, static=True)]
    if not moving:
        return
    x, name = d.choices.pick(moving[-5:]), d.name()
    s = d.choices.pick(d.steps_of(x))
    k = d.choices.pick([n for n in moving if s in d.steps_of(n) and d.tensor(n).rank in (0, d.tensor(x).rank)])
    of_kernel, of_signal, form = d.marked(forms.PAST, "convolution")

    def over(name: str, span: str) -> str:
        return f"{name}[{', '.join(span.format(s=s, T=s.upper()) if o == s else o for o in d.steps_of(name))}]"

    kernel = over(k, of_kernel)
    if "tensordot" not in form:
        kernel += ".expand_dims(-1)" * (d.tensor(x).rank - d.tensor(k).rank)
    d.add(f"{name} = {form.format(k=kernel, x=over(x, of_signal))}", name)


# -- other dtypes -----------------------------------------------------------------------------------------------------


def cast(d: Drawing) -> None:
    x, name = d.value(), d.name()
    d.add(f"{name} = {d.marked(forms.CASTS, 'dtype').format(x=x)}", name)


def typed(d: Drawing) -> None:
    """Functions of integers, booleans and 16-bit floats."""
    if d.chance(35) or not any(_typed_values(d, k) for k in ("int", "bool", "half")):
        cast(d)
    kinds = [k for k in ("int", "bool", "half") if _typed_values(d, k)]
    if not kinds:
        return
    kind = d.choices.pick(kinds)
    table = {"int": forms.INTEGER, "bool": forms.BOOLEAN, "half": forms.HALF}[kind]
    names = _typed_values(d, kind)
    x, y, name, s = d.choices.pick(names), d.choices.pick(names), d.name(), d.step()
    d.mark(f"dtype: {d.tensor(x).dtype}")
    d.add(f"{name} = {d.choices.pick(d.marked(table, 'op')).format(x=x, y=y, s=s)}", name)


def _typed_values(d: Drawing, kind: str) -> list[str]:
    return [n for n in d.fitting("float") if d.tensor(n).dtype != "float32"] if kind == "half" else d.fitting(kind)


# -- functions and modules --------------------------------------------------------------------------------------------


def function(d: Drawing) -> None:
    """The user's own: for JAX, on the host, and on the host with a state."""
    x, name = d.value(static=True), d.name()
    if not x:
        return
    sizes = d.sizes(x)
    calls = math.prod(d.bounds[s] for s in d.steps_of(x))
    kind = d.choices.pick(
        ("jax", "jax", "host", "stateful") if calls <= 30 else ("host", "stateful")
    )  # JAX differentiates every call
    if kind == "stateful" and any("tp.udf(counted" in unit for unit in d.units):
        kind = "host"  # two functions with a shared state have no order between them
    d.mark(f"udf: {kind}")
    if kind != "stateful" and d.chance(30):
        _function_of_a_tree(d, x, name, kind)
    elif kind == "stateful":
        d.add(f'({name},) = tp.udf(counted, {x}, outputs=[tp.spec({sizes})], kind="host", stateful=True)', name)
    elif kind == "host" or d.chance(60):
        d.add(f'({name},) = tp.udf(affine, {x}, outputs=[tp.spec({sizes})], kind="{kind}")', name)
    else:
        other = d.name()
        d.mark("udf: two outputs")
        d.add(f"{name}, {other} = tp.udf(split, {x}, outputs=[tp.spec({sizes}), tp.spec()])", name, other)


def _function_of_a_tree(d: Drawing, x: str, name: str, kind: str) -> None:
    """One whose operand is a pytree; or one for JAX with rules of its own."""
    sizes = d.sizes(x)
    if kind == "host" or d.chance(50):
        d.mark("udf: pytree")
        d.add(f'({name},) = tp.udf(weighed, {{"x": {x}, "pair": (0.25, {x})}}, outputs=[tp.spec({sizes})], kind="{kind}")', name)
    else:
        d.mark("udf: rules")
        rules = "batch=affine_batch, slope=affine_slope, cost=(2, 8)"
        d.add(f"({name},) = tp.udf(affine, {x}, outputs=[tp.spec({sizes})], {rules})", name)


def discrete(d: Drawing) -> None:
    """Random draws with a tensor's probabilities, converted to floats."""
    x = d.value(static=True, rank=1)
    if not x:
        return
    name, width = d.name(), d.tensor(x).shape[-1]
    d.mark("random: categorical of a tensor")
    form = d.choices.pick(("tp.random.categorical({x}).astype('float32')", "tp.random.categorical({x}).one_hot({n})"))
    d.add(f"{name} = {form.format(x=x, n=width)}", name)


def module(d: Drawing) -> None:
    """A module of `tp.nn` trained by an optimizer of `tp.optim` over a step."""
    names = [n for n in d.moving() if d.fits(n, static=True) and d.tensor(n).rank == 1]
    if not names:
        return
    x, s, m, y, loss = d.choices.pick(names), d.step(), d.name(), d.name(), d.name()
    steps = d.steps_of(x)
    make, call = d.marked(MODULES, "module")
    others = [o for o in steps if o != s]
    if "{o}" in call and not others:
        return
    along = d.choices.pick(others) if others else s
    words = {"n": d.tensor(x).shape[-1], "s": s, "o": along, "m": m, "x": x}
    optimizer = d.choices.pick(OPTIMIZERS)
    d.mark(f"optimizer: {optimizer.partition('(')[0]}")
    where = d.choices.pick(("", "", f"where={s} % 3 != 1", f"where=tp.isfinite({loss})"))
    d.mark(f"updates: {'skipped' if where else 'all'}")
    order = [o for o in d.steps if o == s or o in others]
    view = f"[{', '.join(f'0:{o.upper()}' if o in others else o for o in order)}]"
    unit = [
        f"{m} = {make.format(**words)}",
        f"{y} = tp.tanh({call.format(**words)}).sum()",
        f"{loss} = {y}{view}.sum()" if others else f"{loss} = {y} * 1",
        f"{loss}.backward()",
        f"tp.optim.{optimizer.format(p=f'{m}.parameters()', s=s)}.step({where})",
    ]
    d.add("\n".join(unit), loss, y)
