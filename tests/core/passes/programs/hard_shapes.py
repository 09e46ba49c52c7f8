"""Values whose sizes vary with a step."""

from __future__ import annotations

import tempo_core as tp
from tests.core.passes.programs.declare import Program, declaring, fed

PROGRAMS: dict[str, Program] = {}
program = declaring(PROGRAMS)


@program("pad", least=3)
def points_of_varying_shapes(i, I, t, T):
    """One point of a tensor of varying shape has a fixed shape."""
    y = fed(domain=(t,))[0 : t + 1] * 2
    return [y[2], y[2].sum(0), y[2] + y[2], y[T - 1].max(0)]


@program("pad")
def one_length_padded_to_two_sizes(i, I, t, T):
    x = fed(domain=(t,))
    before = (x[0 : t + 1] * 2)[tp.max(t - 1, 0)]
    return [(before + x[0 : tp.max(t - 1, 0) + 1]).sum(0), before]


@program("pad")
def joined_and_turned(i, I, t, T):
    x = fed(2, domain=(t,))
    halves = tp.concatenate([x[0:t], x[t:T]], 0)
    longer = tp.concatenate([x[0 : t + 1] * 2, x[t:T]], 0)
    return [halves.sum(0), longer, longer.cumsum(0), longer.flip(0).argmax(0), x[0:t].flip(0), x[0 : t + 1].flip(1).sum(0)]


@program("pad")
def padded_and_cut(i, I, t, T):
    x, w = fed(2, domain=(t,)), fed(9, 2, domain=(), name="w")
    ends = [
        tp.pad(x[t:T], ((t, 0), (0, 0))),
        tp.pad(x[0 : t + 1], ((2, 1), (0, 0))),
        tp.pad(x.reshape(1, 2), ((t, T - 1 - t), (0, 0))),
        tp.pad(x.reshape(1, 2), ((t, 2), (0, 0))),
    ]
    cuts = [
        w.spatial[0 : t + 1],
        w.spatial[t : 2 * t + 1],
        w.spatial[1 : t + 4 : 2],
        x[0 : t + 1].spatial[0 : t + 3],
        x.spatial[t : t + 2],
    ]
    return [
        *ends,
        *(e.sum(0) for e in ends),
        ends[1].argsort(0),
        ends[2][0:T].max(0),
        *(c.sum(0) for c in cuts),
        cuts[3],
        cuts[4][0:T].sum(0),
    ]


@program("pad")
def elements_of_varying_shapes(i, I, t, T):
    x, p = fed(4, domain=(t,)), fed(domain=(t,), name="p", dtype="int32")
    past = x[0 : t + 1]
    order = past.sum(1).argsort(0)
    return [
        past.index(0, p),
        past.index(0, t),
        past.index(0, tp.arange(3)),
        x.index(0, p[0 : t + 1]).sum(0),
        past.index(0, order),
        past.index(1, p),
    ]


@program("pad")
def products_of_varying_shapes(i, I, t, T):
    x = fed(2, domain=(i, t))
    past = x[i, 0 : t + 1]
    scores = past @ past.transpose(1, 0)
    return [
        scores.sum((0, 1)), scores, scores.softmax(-1) @ past, past.mean(0), past.transpose(1, 0) @ past, scores.log_softmax(0).sum(0),
        (scores > 0).any(1), (scores > -5).all(0), scores.argmax(1), past.prod(0), past.min(0), past.max(0),
    ]  # fmt: skip


@program("pad")
def made_in_varying_shapes(i, I, t, T):
    counted, ones = tp.arange(t + 1), tp.ones((t + 1, 2))
    added = tp.scatter_add(ones, counted, t + 2)
    drawn = [
        tp.random.normal((t + 1,), domain=(t,)),
        tp.random.normal((t + 1, 2), domain=(t,)),
        tp.random.permutation(t + 1, domain=(t,)),
    ]
    return [
        counted,
        ones,
        tp.arange(T - t) + t,
        added.sum(0),
        added,
        counted.one_hot(t + 1),
        ones.expand_dims(1),
        *drawn,
        drawn[1].sum(0),
    ]


@program("pad")
def empty_slices(i, I, t, T):
    """Slices that are empty at some points, and at all points for T = 1."""
    x = fed(2, domain=(i, t))
    before, later = x[i, 0:t], x[i, t + 1 : T]
    return [
        before, later * 2, later.flip(0), before.sum(0), before.prod(0), later.sum(0), later.discounted_sum(0.5), later.reshape(-1, 1, 2),
        tp.concatenate([before, later], 0), (x @ x[i, 0 : t + 1].transpose(1, 0)).softmax(-1) @ x[i, 0 : t + 1],
    ]  # fmt: skip
