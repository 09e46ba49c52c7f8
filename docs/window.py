"""The program of the picture on the front page: a window over the past, and one over the future."""

import tempo_core as tp

ctx = tp.Context("t")
with ctx as ((t, T),):
    x = tp.recurrence((8,), "float32", domain=(t,), name="x")
    x[0] = tp.ones((8,))
    past = x[tp.max(t - 3, 0) : t + 1].mean(0)
    x[t + 1] = tp.tanh(past + 0.5 * x)
    reward = x.sum(0)
    value = reward[t : tp.min(t + 5, T)].discounted_sum(0.9)

(values,) = ctx.run({T: 1000}, outputs=[value])
print(values.shape)  # (1000,)
program = ctx.compile({T: 1000}, outputs=[value])
print(program.text("program"))  # its schedule
print(program.text("memory"))  # its stores, with slots and bytes
