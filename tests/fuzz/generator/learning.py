"""Gradients: of losses over all points, of several losses, through training, and gradients of gradients."""

from __future__ import annotations

import math

from tests.fuzz.generator.drawing import Drawing, tuple_text


def everywhere(d: Drawing, name: str) -> str:
    """A tensor summed over all of its points and elements, as text."""
    steps = d.tensor(name).domain.steps
    text = name if not d.tensor(name).rank else f"{name}.sum()"
    return f"({text})[{', '.join(f'0:{s.bound}' for s in steps)}].sum()" if steps else text


def loss(d: Drawing, leaf: str) -> tuple[str, ...]:
    """A loss of the last tensors and its gradient by `leaf`, as outputs (gradient, loss, others); () if there is no loss."""
    chosen = [n for n in d.names[-3:] if d.fits(n)]
    if not chosen:
        return ()
    name = d.name()
    text = " + ".join(everywhere(d, n) for n in chosen)
    if not d.add(f"{name} = tp.tanh(({text}) * 0.1)", name):
        return ()
    kind = d.choices.pick(("backward", "backward", "grad", "grad of several", "of a gradient"))
    d.mark(f"gradient: {kind}")
    gradient = d.name()
    if kind == "backward":
        return (f"{leaf}.grad", name) if d.add(f"{name}.backward()\n{gradient} = {leaf}.grad") else ()
    if kind == "of a gradient":
        inner, second = d.name(), d.name()
        whole = tuple_text([f"0:{s.upper()}" for s in d.steps_of(leaf)])[1:-1].rstrip(",")
        total = f"{'' if not d.tensor(leaf).rank else '.sum()'}{f'[{whole}].sum()' if whole else ''}"
        lines = [
            f"({inner},) = tp.grad({name}, wrt=[{leaf}])",
            f"{second} = tp.tanh(({inner} * {inner}){total} + {name})",
            f"({gradient},) = tp.grad({second}, wrt=[{leaf}])",
        ]
        return (gradient, second, inner) if d.add("\n".join(lines), inner, second, gradient) else ()
    others = [n for n in d.names[1:-1] if d.fits(n)][:2] if kind == "grad of several" else []
    names = [gradient, *(d.name() for _ in others)]
    if not d.add(f"{', '.join(names)}, = tp.grad({name}, wrt=[{', '.join([leaf, *others])}])", *names):
        return ()
    return (gradient, name, *names[1:])


def training(d: Drawing) -> None:
    """A parameter over a step, a loss at each of its points, and the update with the gradient of the loss."""
    s, w, name = d.step(), d.name(), d.name()
    x = d.value(static=True)
    if not x:
        return
    shape = d.sizes(x)
    steps = d.steps_of(x)
    others = [o for o in steps if o != s]
    order = [o for o in d.steps if o == s or o in others]
    view = f"[{', '.join(f'0:{o.upper()}' if o in others else o for o in order)}]"
    d.mark("gradient: of a recurrence that learns")
    unit = [
        f'{w} = tp.recurrence({shape}, domain=({s},), name="{w}")',
        f"{w}[0] = tp.ones({shape})",
        f"{name} = tp.tanh({x} * {w}).sum(){view if others else ''}{'.sum()' if others else ''}",
        f"{name}.backward()",
        f"{w}[{s} + 1] = {w} - 0.1 * {w}.grad",
    ]
    d.add("\n".join(unit), name, w)


def network(d: Drawing) -> None:
    """Two layers over all points of a tensor at once, their losses, and weights over a step that follow the gradient."""
    moving = [name for name in d.fitting(static=True) if d.steps_of(name)]
    if not moving:
        return
    x, s, w, v, rows, name = d.choices.pick(moving), d.step(), d.name(), d.name(), d.name(), d.name()
    steps = d.steps_of(x)
    others = [o for o in steps if o != s] or [*steps]
    here = d.choices.pick((s, f"0:{s} + 1"))
    view = ", ".join(f"0:{o.upper()}" if o in others else here for o in steps)
    count = math.prod(size.constant for size in d.tensor(x).shape)
    seen = d.choices.pick((f"{rows} @ {w}", f"({rows} - {rows}.mean()) @ {w}", f"tp.sin({rows}) @ {w}"))
    loss = d.choices.pick((f"({name} ** 2).mean()", f"{name}.sum()", f"tp.abs({name}).mean() + 0.1 * ({name} ** 2).sum()"))
    d.mark("gradient: of a network")
    unit = [
        f'{w} = tp.recurrence(({count}, 3), domain=({s},), name="{w}")',
        f'{v} = tp.recurrence((3, 2), domain=({s},), name="{v}")',
        f"{w}[0], {v}[0] = tp.full(({count}, 3), 0.3), tp.eye(3, 2) * 0.5",
        f"{rows} = {x}.reshape({count})[{view}]",
        f"{name} = tp.tanh({seen}) @ {v}",
        f"{name}l = {loss}",
        f"{name}l.backward()",
        f"{w}[{s} + 1] = {w} - 0.1 * {w}.grad",
        f"{v}[{s} + 1] = {v} - 0.1 * {v}.grad",
    ]
    d.add("\n".join(unit), f"{name}l", w, v)


def through_training(d: Drawing, leaf: str) -> None:
    """Steps of gradient descent that read the leaf: the gradient of a later loss goes through them."""
    if len(d.steps_of(leaf)) != 0 or not d.fits(leaf, static=True):
        return
    s, w, name = d.step(), d.name(), d.name()
    shape = d.sizes(leaf)
    d.mark("gradient: through training")
    unit = [
        f'{w} = tp.recurrence({shape}, domain=({s},), name="{w}")',
        f"{w}[0] = {leaf} * 0.5",
        f"{name} = (tp.sin({w} * {leaf}) ** 2).sum()",
        f"({name}g,) = tp.grad({name}, wrt=[{w}])",
        f"{w}[{s} + 1] = {w} - 0.1 * {name}g",
    ]
    d.add("\n".join(unit), name, w)
