import sys
import time

import numpy as np

import tempo_core as tp
from tempo_rl.agents import build_agent
from tempo_rl.recipe import load_recipe


class Mon:
    def __init__(s):
        s.rows = []
        s.t = []

    def finished(self, i, m, p):
        self.rows.append((m, p))
        self.t.append(time.perf_counter())


def sized(name, S, iters, *over):
    r = load_recipe(name, [*over])
    r = r.model_copy(update={"total_timesteps": iters * r.num_envs * r.num_steps})
    mon = Mon()
    a = build_agent(r, mon)
    t0 = time.perf_counter()
    if S is None:
        p = a.compile(tp.Config(seed=3))
    else:
        c = a.context.copies("s")
        p = c.context.compile({c.bound: S, **a.bounds}, [], tp.Config(seed=3))
    t1 = time.perf_counter()
    p.compile()
    t2 = time.perf_counter()
    c0 = time.process_time()
    p.run({})
    t3 = time.perf_counter()
    d = np.diff(mon.t)
    print(
        name,
        S,
        f"tempo {t1 - t0:.2f} xla {t2 - t1:.2f} run {t3 - t2:.2f} cpu {time.process_time() - c0:.2f} iter median {np.median(d) * 1e3:.1f} ms min {d.min() * 1e3:.1f}",
        flush=True,
    )
    return mon


name = sys.argv[1]
iters = int(sys.argv[2])
over = sys.argv[4:]
a = sized(name, None, iters, *over)
for S in map(int, sys.argv[3].split(",")):
    b = sized(name, S, iters, *over)
    for k in (0,):
        m, p = b.rows[-1]
        m1, p1 = a.rows[-1]
        print(
            {n: float(np.abs(v[k] - p1[n]).max()) for n, v in list(p.items())[:2]},
            "loss",
            m1["loss"],
            m["loss"][:2],
            "ret",
            m1["episodic_return"],
            m["episodic_return"][:3],
        )
