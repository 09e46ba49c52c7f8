"""Random recurrent programs, as text: what is drawn is a script, so that a failure is a script that anyone can run.

A program is a list of *units*, each one statement or one recurrence with all its branches. A unit is tried as it is drawn;
one that Tempo refuses (shapes that do not fit, say) is left out.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import tempo_core as tp
from tempo_core.config import PASSES
from tempo_core.errors import TempoError

Item = TypeVar("Item")

PRELUDE = """
import numpy as np

import tempo_core as tp


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def affine(x):
    return (x * 0.5 + 1.0,)


def split(x):
    return x * 2.0, x.sum()


seen = []


def see(value, **point):
    seen.append((tuple(point.values()), value))
"""

SHAPES = ("()", "()", "(2,)", "(3,)", "(3,)", "(2, 3)", "(1,)")


class Choices:
    """Random choices, the same for the same seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, items: Sequence[Item]) -> Item:
        return self.random.choice(items)


@dataclass(frozen=True)
class Program:
    """A program as text. `leaf` is the input whose gradient is among the outputs, `loss` what it is the gradient of.

    `sunk` is an output that goes to a sink too, over the steps of its domain.
    """

    bounds: dict[str, int]  # by step name
    units: tuple[str, ...]
    outputs: tuple[str, ...]
    data: dict[str, str] = field(default_factory=dict)  # input name -> expression of its array
    config: str = "tp.Config()"
    leaf: str = ""
    loss: str = ""
    sunk: str = ""

    def text(self) -> str:
        """The script that builds the program: it leaves ctx, outputs, bounds, inputs and config behind."""
        names = ", ".join(f'"{step}"' for step in self.bounds)
        pairs = ", ".join(f"({step}, {step.upper()})" for step in self.bounds)
        body = textwrap.indent("\n".join(self.units), "    ")
        bounds = ", ".join(f"{step.upper()}: {number}" for step, number in self.bounds.items())
        inputs = ", ".join(f'"{name}": {array}' for name, array in self.data.items() if f'tp.input("{name}"' in body)
        return (
            f"{PRELUDE}\n\nctx = tp.Context({names})\nwith ctx as ({pairs},):\n{body}\n    outputs = [{', '.join(self.outputs)}]\n"
            f"bounds = {{{bounds}}}\ninputs = {{{inputs}}}\nconfig = {self.config}\n"
        )

    def script(self) -> str:
        """The program with a comparison at its end, to be run from the root of the repository."""
        return (
            f"{self.text()}\n"
            "from tempo_core import reference\n"
            "from tests.core.running import assert_all_same\n\n"
            "expected = reference.evaluate(ctx, outputs, bounds, inputs)\n"
            "assert_all_same(ctx.run(bounds, outputs, inputs, config), expected, 1e-4)\n"
        )

    def build(self) -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "program"}
        exec(compile(self.text(), "<program>", "exec"), namespace)
        return namespace

    def without(self, unit: int) -> Program:
        return replace(self, units=self.units[:unit] + self.units[unit + 1 :])


def draw_program(seed: int, size: int = 8, staged: bool = False) -> Program:
    """The program of a seed: up to `size` units over one to three steps. `staged` gives options with which XLA programs are made."""
    choices = Choices(seed)
    return _Generator(choices).program(choices.integer(2, size), staged)


class _Generator:
    """One program being drawn: the units so far, and the tensors that they made, by name."""

    def __init__(self, choices: Choices):
        self.choices = choices
        count = choices.pick((1, 1, 2, 2, 2, 3))
        self.steps = {1: ("t",), 2: ("i", "t"), 3: ("b", "i", "t")}[count]
        self.bounds = {step: choices.pick((1, 2, 3, 4, 5, 5 if count == 3 else 8)) for step in self.steps}
        self.units: list[str] = []
        self.data: dict[str, str] = {}
        self.made: list[str] = []  # names of tensors, in the order they were made
        self.count = 0
        namespace: dict[str, Any] = {"tp": tp}
        exec(PRELUDE, namespace)
        context = tp.Context(*self.steps)
        self.context, self.namespace = context, namespace
        self.symbols = {}
        with context as pairs:
            for name, (step, bound) in zip(self.steps, pairs, strict=True):
                namespace[name], namespace[name.upper()] = step, bound
                self.symbols[name] = step.single_atom

    # -- drawing ------------------------------------------------------------------------------------------------------

    def chance(self, percent: int) -> bool:
        return self.choices.integer(1, 100) <= percent

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def tensor(self, name: str) -> tp.Tensor:
        return self.namespace[name]

    def add(self, unit: str, *names: str) -> bool:
        """Try a unit; keep it, and the tensors it makes, where Tempo takes it."""
        with self.context:
            try:
                exec(compile(unit, "<unit>", "exec"), self.namespace)
            except (TempoError, ZeroDivisionError):
                return False
        self.units.append(unit)
        self.made += names
        return True

    def program(self, size: int, staged: bool) -> Program:
        leaf = self.input(leaf=self.chance(35))
        self.input()
        makers = (
            self.input, self.draw, self.unary, self.unary, self.binary, self.binary, self.binary, self.read, self.read, self.read,
            self.read, self.reduce, self.reduce, self.contract, self.select, self.recurrence, self.recurrence, self.recurrence,
            self.merge, self.mutual, self.number, self.spatial, self.spatial, self.attention, self.function, self.joined,
            self.discrete, self.sometimes, self.rows,
        )  # fmt: skip
        for _ in range(size):
            self.choices.pick(makers)()
        loss = ""
        if "requires_grad" in self.units[0]:
            loss = self.gradient(leaf)
        elif self.chance(15):
            self.training()
        outputs = [n for n in self.made if not self.is_read(n)][-5:]
        if loss:
            outputs = [f"{leaf}.grad", loss]
        sunk = self.sink(outputs)
        return Program(
            self.bounds, tuple(self.units), tuple(outputs), self.data, self.config(staged), leaf if loss else "", loss, sunk
        )

    def sink(self, outputs: Sequence[str]) -> str:
        static = [n for n in outputs if n in self.made and self.fits(n, None, True, False)]
        chosen = self.choices.pick(static) if static and self.chance(15) else ""
        return chosen if chosen and self.add(f"tp.sink(see, {chosen})") else ""

    def is_read(self, name: str) -> bool:
        """Whether another unit than the one that makes a tensor uses it."""
        uses = [unit for unit in self.units if re.search(rf"\b{name}\b", unit)]
        return len(uses) > 1

    def config(self, staged: bool) -> str:
        optional = [p for p in PASSES if not (staged and p == "pad")]
        kind = self.choices.integer(0, 3)
        off = [] if kind < 2 else [p for p in optional if self.chance(40 if kind == 2 else 85)]
        if "vectorize" not in off and self.chance(15):
            off.append(f"vectorize({self.choices.pick(self.steps)})")
        backend = "" if staged else 'backend="numpy", '
        return f"tp.Config({backend}disable={tuple(off)!r})"

    def shape(self) -> str:
        """A shape for a recurrence, mostly one that other values have."""
        found = [tuple(int(n) for n in self.tensor(v).shape) for v in self.made if self.fits(v, None, True, True)]
        return str(self.choices.pick(found)) if found and self.chance(75) else self.choices.pick(SHAPES)

    def domain(self, at_least: int = 0) -> tuple[str, ...]:
        while True:
            chosen = tuple(s for s in self.steps if self.chance(65))
            if len(chosen) >= at_least:
                return chosen
            if at_least > 0 and len(self.steps) == at_least:
                return self.steps

    def value(self, within: Sequence[str] | None = None, static: bool = False, floats: bool = True) -> str:
        """The name of a tensor, recent ones more often; with conditions on its domain, shape and dtype. "" if there is none."""
        fitting = [n for n in self.made if self.fits(n, within, static, floats)]
        if not fitting:
            return ""
        recent = fitting[-4:]
        return self.choices.pick(recent if self.chance(60) else fitting)

    def fits(self, name: str, within: Sequence[str] | None, static: bool, floats: bool) -> bool:
        tensor = self.tensor(name)
        if within is not None and not {s.name for s in tensor.domain.steps} <= set(within):
            return False
        if static and not all(size.is_constant for size in tensor.shape):
            return False
        return not floats or tensor.dtype == "float32"

    # -- sources ------------------------------------------------------------------------------------------------------

    def input(self, leaf: bool = False) -> str:
        name, domain, shape = self.name(), self.domain(), self.choices.pick(SHAPES)
        sizes = [str(self.bounds[s]) for s in domain] + [n for n in shape.strip("()").split(",") if n.strip()]
        self.data[name] = f"normal({', '.join([str(self.choices.integer(0, 99)), *map(str.strip, sizes)])})"
        more = ", requires_grad=True" if leaf else ""
        self.add(f'{name} = tp.input("{name}", {shape}, domain=({"".join(s + ", " for s in domain)}){more})', name)
        return name

    def draw(self) -> None:
        name, kind, domain = self.name(), self.choices.pick(("normal", "uniform")), self.domain()
        self.add(f"{name} = tp.random.{kind}({self.choices.pick(SHAPES)}, domain=({''.join(s + ', ' for s in domain)}))", name)

    def number(self) -> None:
        step, name = self.choices.pick(self.steps), self.name()
        self.add(f"{name} = {self.choices.pick((f'0.5**{step}', f'{step} * 1.0', f'tp.constant(0.3) * ({step} + 1)'))}", name)

    # -- functions ----------------------------------------------------------------------------------------------------

    def unary(self) -> None:
        x, name = self.value(), self.name()
        form = self.choices.pick((
            "tp.tanh({x})", "tp.sigmoid({x})", "tp.exp(-{x} * {x})", "tp.sin({x})", "{x} * 0.5 + 1", "tp.sqrt({x} * {x} + 1)", "-{x}",
            "tp.relu({x})", "tp.abs({x})", "tp.log1p({x} * {x})", "1 - {x}", "{x} + {s}", "{x}.softmax(-1)", "{x}.cumsum(0)", "{x}.flip(0)",
            "{x}.log_softmax(0)", "tp.maximum({x}, 0.2)",
        ))  # fmt: skip
        self.add(f"{name} = {form.format(x=x, s=self.choices.pick(self.steps))}", name)

    def binary(self) -> None:
        name, x = self.name(), self.value()
        shape = len(self.tensor(x).shape)
        near = [n for n in self.made if self.fits(n, None, False, True) and len(self.tensor(n).shape) in (0, shape)]
        y = self.choices.pick(near)
        form = self.choices.pick(
            ("{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / ({y} * {y} + 1)", "tp.maximum({x}, {y})", "{y} * {x}")
        )
        self.add(f"{name} = {form.format(x=x, y=y)}", name)

    def select(self) -> None:
        x, y, name = self.value(), self.value(), self.name()
        step = self.choices.pick(self.steps)
        condition = self.choices.pick((f"{x} > 0.31", f"{step} % 2 == 0", f"{step} >= 1", f"{y} <= {x}", self.condition()))
        self.add(f"{name} = tp.where({condition}, {x}, {y})", name)

    def condition(self) -> str:
        a, b = self.choices.pick(self.steps), self.choices.pick(self.steps)
        return self.choices.pick(
            (f"({a} >= 1) & ({b} < {b.upper()} - 1)", f"{a} >= {b}", f"({a} == 0) | ({b} % 2 == 1)", f"{a} < {b} + 1")
        )

    def reduce(self) -> None:
        deep = [n for n in self.made if self.tensor(n).rank and self.fits(n, None, False, True)]
        if deep:
            x, name = self.choices.pick(deep), self.name()
            self.add(f"{name} = {x}{self.reduction()}", name)

    def reduction(self, empty: bool = False) -> str:
        safe = (".sum(0)", ".sum(0)", ".discounted_sum(0.9)", ".prod(0)")
        return self.choices.pick(safe if empty else (*safe, ".mean(0)", ".max(0)", ".min(0)", ".sum()", ".mean(-1)", ".sum(-1)"))

    def contract(self) -> None:
        deep = [n for n in self.made if self.tensor(n).rank and self.fits(n, None, False, True)]
        if not deep:
            return
        x = self.choices.pick(deep)
        inner = self.tensor(x).shape[-1]
        found = [n for n in deep if self.tensor(n).shape[-1 if self.tensor(n).rank == 1 else -2] == inner]
        y, name = (self.choices.pick(found) if found else f"{x}.transpose()"), self.name()
        self.add(f"{name} = {x} @ {y}", name)

    def spatial(self) -> None:
        deep = [n for n in self.made if self.tensor(n).rank and self.fits(n, None, False, True)]
        if not deep:
            return
        x, name, step = self.choices.pick(deep), self.name(), self.choices.pick(self.steps)
        form = self.choices.pick((
            "{x}.index(0, {s} % 2)", "{x}.spatial[1:]", "{x}.spatial[:-1]", "{x}.spatial[::2]", "{x}.reshape(-1)", "{x}.expand_dims(0)",
            "{x}.transpose()", "{x}.take(tp.constant([1, 0]))", "tp.pad({x}, 0, 1, 1)", "{x}.index(0, {x}.argmax(0))",
            "{x}.spatial[0:{s} + 1].sum(0)", "{x}.spatial[{s}:{s} + 2]", "{x}.spatial[tp.min({s}, 1):].sum(0)", "tp.pad({x}, 0, {s}, 1).sum(0)",
            "{x}.index(-1, 0)", "tp.scatter_add({x}, tp.constant([0, 1, 0]), 2)",
        ))  # fmt: skip
        self.add(f"{name} = {form.format(x=x, s=step)}", name)

    def joined(self) -> None:
        x, y, name = self.value(), self.value(), self.name()
        self.add(f"{name} = {self.choices.pick(('tp.concatenate', 'tp.stack'))}([{x}, {y}])", name)

    def function(self) -> None:
        x, name, kind = self.value(static=True), self.name(), self.choices.pick(("jax", "jax", "host"))
        if not x:
            return
        sizes = "".join(f"{size}, " for size in self.tensor(x).shape)
        if self.chance(60):
            self.add(f'({name},) = tp.udf(affine, {x}, outputs=[tp.spec(({sizes}))], kind="{kind}")', name)
        else:
            other = self.name()
            self.add(f"{name}, {other} = tp.udf(split, {x}, outputs=[tp.spec(({sizes})), tp.spec()])", name, other)

    def discrete(self) -> None:
        """Draws and positions, back as floats."""
        deep = [n for n in self.made if self.tensor(n).rank and self.fits(n, None, True, True)]
        if not deep:
            return
        x, name = self.choices.pick(deep), self.name()
        form = self.choices.pick((
            "tp.random.categorical({x}).astype('float32')", "{x}.argmax(-1).astype('float32')", "{x}.argsort(-1).astype('float32')",
            "tp.random.categorical({x}).one_hot({n})", "{x}.take(tp.random.permutation({x}.shape[0], domain=({s},)))",
            "({x} > 0.1).any(0).astype('float32')", "({x} > 0.2).sum(0) * 1.5",
        ))  # fmt: skip
        self.add(f"{name} = {form.format(x=x, n=self.tensor(x).shape[-1], s=self.choices.pick(self.steps))}", name)

    def sometimes(self) -> None:
        """A value that exists at some points only, used where it does."""
        x = self.value(static=True)
        steps = [s.name for s in self.tensor(x).domain.steps] if x else []
        if not steps:
            return
        s, name, part = self.choices.pick(steps), self.name(), self.name()
        condition = self.choices.pick((f"{s} % 2 == 0", f"{s} >= 1", f"{s} < {s.upper()} - 1"))
        shape = f"({''.join(f'{size}, ' for size in self.tensor(x).shape)})"
        key = ", ".join(steps)
        self.add(
            f"{part} = tp.tanh({x}[{condition}])\n"
            f'{name} = tp.recurrence({shape}, domain=({"".join(d + ", " for d in steps)}), name="{name}")\n'
            f"{name}[{key}, {condition}] = {part} * 2\n"
            f"{name}[{key}] = {x}",
            name,
        )

    def rows(self) -> None:
        """Each row of a recurrence over two steps from a slice of the whole row before."""
        if len(self.steps) < 2:
            return
        (outer, s), name = self.steps[-2:], self.name()
        shape = self.shape()
        span = self.choices.pick((f"0:{s.upper()}", f"0:{s} + 1", f"{s}:{s.upper()}", f"tp.max({s} - 1, 0):{s} + 1"))
        lines = [
            f'{name} = tp.recurrence({shape}, domain=({outer}, {s}), name="{name}")',
            f"{name}[0, {s}] = {self.operand((outer, s), shape, {outer: '0'})}",
            f"{name}[{outer} + 1, {s}] = tp.tanh({name}[{outer}, {span}].mean(0) + {self.operand((outer, s), shape)})",
        ]
        self.add("\n".join(lines), name)

    # -- reads --------------------------------------------------------------------------------------------------------

    def index(self, step: str) -> tuple[str, str]:
        """An index of a step, and what it is: "point", "slice", or "empty" for a slice that may be."""
        s, bound, c = step, step.upper(), self.choices
        other = c.pick([o for o in self.steps if o != step] or [step])
        k = c.integer(1, 3)
        window = (
            f"tp.max({s} - {k}, 0):{s} + 1",
            f"{s}:tp.min({s} + {k}, {bound})",
            f"tp.max({s} - {k}, 0):tp.min({s} + {k}, {bound})",
        )
        kinds = {
            "identity": (s, "point"),
            "shift": (c.pick((f"tp.max({s} - {k}, 0)", f"tp.min({s} + {k}, {bound} - 1)")), "point"),
            "constant": (c.pick(("0", f"{bound} - 1", f"{bound} // 2")), "point"),
            "moved": (
                c.pick((f"{bound} - 1 - {s}", f"{s} // 2", f"{s} % 2", f"{s} // 2 * 2", f"tp.min({other}, {bound} - 1)")),
                "point",
            ),
            "prefix": (c.pick((f"0:{s} + 1", f"{s}:{bound}")), "slice"),
            "strict": (c.pick((f"0:{s}", f"{s} + 1:{bound}")), "empty"),
            "whole": (c.pick((f"0:{bound}", f"0:{bound}", f"0:{bound}:2")), "slice"),
            "window": (c.pick(window), "slice"),
            "block": (c.pick((f"{s} // {k} * {k}:{s} + 1", f"{s} // 2 * 2:tp.min({s} // 2 * 2 + 2, {bound})")), "slice"),
            "strided": (c.pick((f"{s} % 2:{s} + 1:2", f"{s}:{bound}:2")), "slice"),
        }
        usual = ("identity", "identity", "shift", "constant", "prefix", "prefix", "whole", "window", "window")
        rare = ("moved", "strict", "block", "strided")
        return kinds[c.pick(rare if self.chance(20) else usual)]

    def read(self) -> None:
        """A tensor at other points in time; slices are mostly reduced."""
        moving = [n for n in self.made if self.tensor(n).domain.steps and self.fits(n, None, False, True)]
        if not moving:
            return
        x, name = self.choices.pick(moving[-5:]), self.name()
        indices = [self.index(s.name) for s in self.tensor(x).domain.steps]
        text = f"{x}[{', '.join(i for i, _ in indices)}]"
        kinds = [kind for _, kind in indices if kind != "point"]
        for _ in kinds:
            if "empty" in kinds or self.chance(85):  # of an axis that may be empty nothing but sums and products is defined
                text += self.reduction("empty" in kinds)
        self.add(f"{name} = {text}", name)

    def attention(self) -> None:
        """Scores over a slice of time, softmax, and the weighted sum."""
        keys = [
            n for n in self.made if self.tensor(n).rank == 1 and self.tensor(n).domain.steps and self.fits(n, None, True, True)
        ]
        if not keys:
            return
        x, name = self.choices.pick(keys), self.name()
        steps = [s.name for s in self.tensor(x).domain.steps]
        step = self.choices.pick(steps)
        span = self.choices.pick(
            (f"0:{step} + 1", f"{step}:{step.upper()}", f"tp.max({step} - 2, 0):{step} + 1", f"0:{step.upper()}")
        )
        view = f"{x}[{', '.join(span if s == step else s for s in steps)}]"
        self.add(f"{name} = ({view} @ {x}).softmax(0) @ {view}", name)

    # -- recurrences --------------------------------------------------------------------------------------------------

    def operand(self, domain: Sequence[str], shape: str, at: dict[str, str] | None = None) -> str:
        """A value to be used in a recurrence: over some of its steps (at given points), of its shape or scalar."""
        found = []
        for n in self.made:
            if self.fits(n, domain, True, True):
                sizes = tuple(int(size) for size in self.tensor(n).shape)
                if sizes == () or str(sizes) == shape:
                    found.append(n)
        if not found or self.chance(10):
            return "0.7"
        name = self.choices.pick(found)
        steps = [s.name for s in self.tensor(name).domain.steps]
        if at and any(s in at for s in steps):
            return f"{name}[{', '.join(at.get(s, s) for s in steps)}]"
        return name

    def recurrence(self) -> None:
        domain, shape, name = self.domain(1), self.shape(), self.name()
        s = self.choices.pick(domain)
        kind = self.choices.pick(("forward", "forward", "backward", "two", "window", "prefix", "now and then", "carry", "suffix"))
        if kind == "carry" and len(domain) < 2:
            kind = "forward"

        def key(index: str, condition: str = "") -> str:
            return ", ".join([*(index if d == s else d for d in domain), *([condition] if condition else [])])

        def operand(**at: str) -> str:
            return self.operand(domain, shape, at)

        first, bound = f"{name}[{key('0')}] = {operand(**{s: '0'})}", s.upper()
        lines = [f'{name} = tp.recurrence({shape}, domain=({"".join(d + ", " for d in domain)}), name="{name}")']
        update = self.choices.pick(
            ("tp.tanh({p} * 0.9 + {v})", "{p} * 0.5 + {v}", "{p} * tp.sigmoid({v})", "tp.maximum({p}, {v})", "{p} + {v} * 0.1")
        )
        if kind == "forward":
            lines += [first, f"{name}[{key(s + ' + 1')}] = {update.format(p=name, v=operand())}"]
        elif kind == "backward":
            lines.append(f"{name}[{key(bound + ' - 1')}] = {operand(**{s: f'{bound} - 1'})}")
            after = f"{name}[{key(s + ' + 1')}]"
            lines.append(f"{name}[{key(s)}] = {update.format(p=after, v=operand())}")
        elif kind == "two":
            previous = f"({name}[{key(s + ' - 1')}] - {name}[{key(s + ' - 2')}] * 0.5)"
            lines += [first, f"{name}[{key('1')}] = {operand(**{s: f'tp.min(1, {bound} - 1)'})}"]
            lines.append(f"{name}[{key(s)}] = {update.format(p=previous, v=operand())}")
        elif kind in ("window", "prefix"):
            span = f"tp.max({s} - 2, 0):{s}" if kind == "window" else f"0:{s}"
            past = f"{name}[{key(span)}]{self.choices.pick(('.mean(0)', '.max(0)', '.discounted_sum(0.5)', '.sum(0)'))}"
            lines += [first, f"{name}[{key(s)}] = {update.format(p=past, v=operand(**{s: self.choices.pick((s, s + ' - 1'))}))}"]
        elif kind == "suffix":
            lines.append(f"{name}[{key(bound + ' - 1')}] = {operand(**{s: f'{bound} - 1'})}")
            future = f"{name}[{key(f'{s} + 1:{bound}')}]{self.choices.pick(('.mean(0)', '.discounted_sum(0.5)'))}"
            lines.append(f"{name}[{key(s)}] = {update.format(p=future, v=operand())}")
        elif kind == "now and then":
            condition = self.choices.pick((f"({s} + 1) % 2 == 0", f"{s} % 3 == 0", f"{s} >= 1"))
            lines += [
                first,
                f"{name}[{key(s + ' + 1', condition)}] = {update.format(p=name, v=operand())}",
                f"{name}[{key(s + ' + 1')}] = {name}",
            ]
        else:
            s, outer = domain[-1], domain[-2]
            rest, moved = ("b, " if len(domain) == 3 else ""), {s: "0", outer: "0"}
            after = f"{name}_after"
            lines += [
                f"{name}[{rest}0, 0] = {operand(**moved)}",
                f"{after} = {update.format(p=name, v=operand())}",
                f"{name}[{rest}{outer}, {s} + 1] = {after}",
                f"{name}[{rest}{outer} + 1, 0] = {name}[{rest}{outer}, {s.upper()} - 1] * 0.5 + 0.1",
            ]
        self.add("\n".join(lines), name)

    def merge(self) -> None:
        """Branches without recursion, in an order that matters."""
        domain, shape, name = self.domain(1), self.shape(), self.name()
        s = self.choices.pick(domain)
        everywhere = ", ".join(domain)
        conditions = self.choices.pick(
            ((f"{s} % 2 == 0",), (f"{s} == 0",), (f"{s} >= 1", f"{s} == 0"), (f"{s} + 1 == {s.upper()}", f"{s} < 2"))
        )
        lines = [f'{name} = tp.recurrence({shape}, domain=({"".join(d + ", " for d in domain)}), name="{name}")']
        lines += [f"{name}[{everywhere}, {c}] = {self.operand(domain, shape)}" for c in conditions]
        if len(conditions) == 1 or "1 ==" in conditions[0]:
            lines.append(f"{name}[{everywhere}] = {self.operand(domain, shape)}")
        self.add("\n".join(lines), name)

    def mutual(self) -> None:
        """Two recurrences that read each other."""
        domain, shape, a, b = self.domain(1), self.shape(), self.name(), self.name()
        s = self.choices.pick(domain)

        def key(index: str) -> str:
            return ", ".join(index if d == s else d for d in domain)

        steps = "".join(d + ", " for d in domain)
        lines = [
            f'{a} = tp.recurrence({shape}, domain=({steps}), name="{a}")',
            f'{b} = tp.recurrence({shape}, domain=({steps}), name="{b}")',
            f"{a}[{key('0')}] = {self.operand(domain, shape, {s: '0'})}",
            f"{b}[{key(s)}] = tp.tanh({a} * 0.5 + {self.operand(domain, shape)})",
            f"{a}[{key(s + ' + 1')}] = {b} - {a} * 0.3 + {self.operand(domain, shape)}",
        ]
        self.add("\n".join(lines), a, b)

    # -- gradients ----------------------------------------------------------------------------------------------------

    def everywhere(self, name: str) -> str:
        """A tensor summed over all of its points and elements, as text."""
        steps = self.tensor(name).domain.steps
        text = name if not self.tensor(name).rank else f"{name}.sum()"
        return f"({text})[{', '.join(f'0:{s.bound}' for s in steps)}].sum()" if steps else text

    def gradient(self, leaf: str) -> str:
        """A loss over everything that depends on the leaf; its name, or "" where it does not depend on it."""
        loss = self.name()
        chosen = [n for n in self.made[-3:] if self.fits(n, None, False, True)]
        if not chosen:
            return ""
        text = " + ".join(self.everywhere(n) for n in chosen)
        if not self.add(f"{loss} = tp.tanh(({text}) * 0.1)", loss):
            return ""
        return loss if self.add(f"{loss}.backward()") and self.add(f"{loss}_grad = {leaf}.grad") else ""

    def training(self) -> None:
        """A parameter over a step, a loss at each of its points, and the update by the loss's gradient."""
        s, w, loss = self.choices.pick(self.steps), self.name(), self.name()
        x = self.value(static=True)
        if not x:
            return
        shape = f"({''.join(f'{size}, ' for size in self.tensor(x).shape)})"
        others = [o.name for o in self.tensor(x).domain.steps if o.name != s]
        steps = [o.name for o in self.tensor(x).domain.steps]
        view = f"[{', '.join(f'0:{o.upper()}' if o in others else o for o in (steps if s in steps else sorted({*steps, s}, key=self.steps.index)))}]"
        unit = [
            f'{w} = tp.recurrence({shape}, domain=({s},), name="{w}")',
            f"{w}[0] = tp.ones({shape})",
            f"{loss} = tp.tanh({x} * {w}).sum(){view if others else ''}{'.sum()' if others else ''}",
            f"{loss}.backward()",
            f"{w}[{s} + 1] = {w} - 0.1 * {w}.grad",
        ]
        self.add("\n".join(unit), loss, w)
