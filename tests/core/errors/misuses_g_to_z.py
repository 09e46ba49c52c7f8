"""Misuses, one per line, by their exceptions (G to Z). `test_misuse.names` defines the names in the lines."""

MISUSES = {
    "GradientError": """
y.backward()
n.backward()
y.grad
(y * 2).grad
tp.grad(y, [3.0])
tp.grad(n, [y])
tp.grad(y, [n])
tp.grad(y, [y, t])
tp.optim.SGD([h], 0.1).step()
""",
    "IndexingError": """
g = tp.recurrence((), domain=(t,)); tp.carry(g, y)
tp.carry(h, following=x.sum())
h["a"] = 1.0
h[None] = 1.0
h[1.0] = 1.0
h[-1] = 1.0
h[y] = 1.0
h[t, t] = 1.0
h[:] = 1.0
h[...] = 1.0
h[2 * t] = 1.0
h[t * t] = 1.0
h[i] = 1.0
h[t // 2] = 1.0
h[t + 1, y > 0] = 1.0
h[t + 1, t] = 1.0
del h[0]
y[0] = 1.0
y["t"]
y[None]
y[...]
y[[0, 1]]
y[np.array([0, 1])]
y[1.0]
y[t / 2]
y[y > 0]
y[t, i]
y[-1]
y[0:T:0]
y[0:T:-1]
y[0:T:2.0]
y[0:T:y]
y["a":"b"]
y[0.0:T]
y[n:T]
x[i, t, 0]
m[0]
m.index(0, 5)
m.index(0, -5)
m.index(0, 0.5)
m.index(0, y)
m.index(0, t > 0)
m.take(1.5)
x.spatial["a"]
x.spatial[5]
x.spatial[-5]
x.spatial[1.5]
x.spatial[0, 0]
x.spatial[::0]
x.spatial[0:2:1.5]
x.spatial["a":]
x.spatial[y]
x.spatial[x > 0]
x.spatial[True]
x.spatial[..., ...]
x.spatial[0] = 1.0
tp.nn.Embedding(10, 4, domain=(i,))("a")
""",
    "InputError": """
ctx.run({I: 2, T: 4}, outputs=[y], inputs=[np.zeros(4)])
ctx.run({I: 2, T: 4}, outputs=[y], inputs=np.zeros(4))
ctx.run({I: 2, T: 4}, outputs=[y], inputs={y: np.zeros(4)})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"Y": np.zeros(4)})
ctx.run({I: 2, T: 4}, outputs=[y])
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": None})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": "abc"})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": [1, 2, 3, "a"]})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": [1, [2], 3, 4]})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": y})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": 3.0})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": np.zeros(4, complex)})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": np.zeros((4, 1))})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": lambda: 3})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": lambda t: None})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": lambda t: np.zeros(2)})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": lambda t: 1 / 0})
ctx.run({I: 2, T: 4}, outputs=[y], inputs={"y": iter([1.0, 2.0])})
ctx.run({I: 2, T: 4}, outputs=[n], inputs={"n": np.zeros(4)})
ctx.run({I: 2, T: 4}, outputs=[n], inputs={"n": [2**40] * 4})
program(y).run(3)
next(iter(program(y).step()))
""",
    "MissingAttributeError": """
y.T
y.numpy()
y.item()
y.size()
y.foo
x.softmx(0)
""",
    "NonAffineError": """
run(y[(T - 1) // (t + 1)])
run(y[t * t])
run(y[t**2])
""",
    "NumericsError": """
run(tp.log(y), check_numerics=True)
run(y[0:T].sum(0) / y, check_numerics=True)
h[t + 1] = 1 / h; run(h, check_numerics=True)
""",
    "OutOfDomainError": """
run(y[T])
run(y[t + 1])
run(y[t - 1])
run(y[1:t].sum(0))
run(y[0 : T + 1].sum(0))
run(y[t : t + 3].sum(0))
run(y[T:0].sum(0))
run(x[t, i])
run(x[i:T, t])
run(y[t > 0] + y)
run(y[i + t])
h[t] = h[t - 1] + y[t + 1]; run(h)
""",
    "OutOfMemoryPlanError": """
run(x + y, memory_limit=1)
""",
    "ShapeError": """
tp.input("z", None)
tp.input("z", "3")
tp.input("z", (3.5,))
tp.input("z", (-1,))
tp.input("z", (3, None))
tp.input("z", (t,))
tp.input("z", (y,))
tp.recurrence("h")
tp.recurrence((2.5,))
tp.recurrence((i,), domain=(t,))
tp.recurrence((-2,), domain=(t,))
h[t + 1] = np.ones(3)
tp.carry(h, following=np.ones(3))
h[t + 1] = [1, 2]
h[t + 1] = y[0:T]
h[t + 1] = x[0]
x.sum(3)
y.sum(0)
x + m.transpose(1, 0)
y[0 : t + 1] + y[0:T]
y @ y
m @ m
x @ m
tp.zeros("a")
tp.zeros((2, "a"))
tp.zeros((-1,))
tp.zeros(2.0)
tp.zeros((y,))
tp.zeros(None)
tp.full((2,), [1, 2, 3])
tp.arange(-1)
tp.softmax(y)
tp.softmax(x, axis=1)
tp.cumsum(y)
tp.linear_scan(x, x, axis=2)
tp.reshape(m, 7)
tp.reshape(m, (3, "a"))
tp.reshape(m, (-1, -1))
tp.reshape(m, (-2, 3))
tp.reshape(m, None)
tp.reshape(m, (t, 3))
tp.reshape(y[0:T], (4,))
tp.transpose(m, 0, 0)
tp.transpose(m, 0, 5)
tp.concatenate([m, x])
tp.concatenate([y, y])
tp.concatenate([m, m], axis=5)
tp.stack([m, m], axis=7)
tp.pad(m, -1)
tp.pad(m, ((1, 1), (-1, 0)))
tp.pad(m, ((1, 2),))
tp.pad(m, (1,))
tp.pad(m, (1, 2, 3))
tp.pad(m, ((1,), (2,)))
tp.pad(m, (1, (2, 3)))
tp.pad(tp.constant(1.0), 1)
tp.broadcast_to(m, (4, 3))
tp.broadcast_to(m, None)
m.expand_dims(7)
m.squeeze(0)
m.squeeze(4)
m.flip(3)
m.index(5, 0)
n.one_hot(-1)
tp.scatter_add(m, tp.constant([0, 1, 2]), 4)
tp.random.normal("a")
tp.random.permutation(-1)
tp.random.categorical(y)
tp.random.categorical(n)
tp.spec((2.5,))
tp.spec((-3,))
run(*host(lambda v: v))
run(*host(lambda v: (v, v)))
run(*host(lambda v: None))
run(*host(lambda v: (np.ones(3, "float32"),)))
run(*tp.udf(lambda v: v, y, outputs=[tp.spec()]))
run(*tp.udf(lambda v: (None,), y, outputs=[tp.spec()]))
tp.nn.Linear(-3, 4, domain=(i,))
tp.nn.Linear(3, 4, domain=(i,))(y)
tp.nn.Linear(3, 4, domain=(i,))(m @ m.transpose(1, 0))
tp.nn.RMSNorm(3, domain=(i,))(tp.ones((2, 4)))
""",
    "SymbolicValueError": """
bool(y)
if y > 0: pass
if t > 0: pass
if t == 0: pass
if t != 0: pass
while t < T: pass
y[t and 1]
y[t if t > 0 else 0]
y[t if t == 0 else 0]
y[0 < t < 3]
y[t > 0 and t < 2]
y[not t > 0]
y[min(t, 3)]
y[max(t - 1, 0)]
y[int(t)]
y[0:T:t]
for _ in y: pass
for _ in range(T): pass
for _ in T: pass
for _ in x.spatial: pass
len(y)
float(y)
int(y)
int(T)
float(T)
np.asarray(y)
[1, 2][n]
not y
y and x
0 < y < 1
max(y, 0)
sum(y)
sorted([y, y])
tp.input("z", (3,), domain=t)
tp.recurrence((), domain=t)
tp.carry(h, following=h, kept=t)
tp.udf(print, y, outputs=[tp.spec()], domain=t)
tp.nn.Linear(3, 4, domain=i)
""",
    "UncoveredPointError": """
g = tp.recurrence((), domain=()); run(g)
g = tp.recurrence((), domain=(t,)); g[0] = 1.0; run(g)
g = tp.recurrence((), domain=(t,)); g[0] = 1.0; g[t + 2] = g; run(g)
g = tp.recurrence((), domain=(t,)); g[t, t >= 1] = y; run(g)
""",
}
