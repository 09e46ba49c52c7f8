"""Wrong uses, each marked with the rules of mypy and basedpyright that it breaks; a line without a mark is correct."""

import numpy as np

import tempo_core as tp

ctx = tp.Context("t")
with ctx as ((t, T),):
    x = tp.input("x", (3,), domain=(t,))
    x.smu(0)  # wrong: attr-defined, reportAttributeAccessIssue
    x.sum(axis="a")  # wrong: arg-type, reportArgumentType
    x.sum(dim=0)  # wrong: call-arg, reportCallIssue
    x.reshape("a")  # wrong: arg-type, reportArgumentType
    x.split(3).mean()  # wrong: attr-defined, reportAttributeAccessIssue
    x + "a"  # wrong: operator, reportOperatorIssue
    x["a"]  # wrong: index, reportArgumentType
    x[0.5]  # wrong: index, reportArgumentType
    float(x)  # wrong: arg-type, reportArgumentType
    tp.absolute(x)  # wrong: attr-defined, reportAttributeAccessIssue
    tp.exp("a")  # wrong: arg-type, reportArgumentType
    tp.softmax(x, dim=0)  # wrong: call-arg, reportCallIssue
    tp.zeros("a")  # wrong: arg-type, reportArgumentType
    tp.input(3)  # wrong: arg-type, reportArgumentType
    tp.input("y", domain=t)  # wrong: arg-type, reportArgumentType
    tp.min(x, t)  # wrong: arg-type, reportArgumentType
    tp.concatenate(x)  # wrong: arg-type, reportArgumentType
    tp.udf(np.sum, x)  # wrong: call-arg, reportCallIssue
    tp.sink(print, x, when="always")  # wrong: arg-type, reportArgumentType
    tp.random.uniform((3,), "low")  # wrong: arg-type, reportArgumentType
    h: int = t + 5  # wrong: assignment, reportAssignmentType
    (t + 5).sum()  # wrong: attr-defined, reportAttributeAccessIssue
    (t > 3).sum()  # wrong: attr-defined, reportAttributeAccessIssue

    linear = tp.nn.Linear("a", 3)  # wrong: arg-type, reportArgumentType
    linear(x).smu()  # wrong: attr-defined, reportAttributeAccessIssue
    linear.wieght  # wrong: attr-defined, reportAttributeAccessIssue
    linear(x, x, x)  # wrong: call-overload, reportCallIssue
    tp.nn.Sequential(tp.nn.Tanh)  # wrong: arg-type, reportArgumentType
    tp.optim.Adam(linear)  # wrong: arg-type, reportArgumentType
    tp.optim.Adam(linear.parameters(), learning_rate=0.1)  # wrong: call-arg, reportCallIssue

ctx.run({T: 3}, outputs=3)  # wrong: call-overload, reportCallIssue
ctx.run({T: 3}, outputs=x).items()  # wrong: attr-defined, reportAttributeAccessIssue
ctx.run({T: 3}, outputs=[x]).keys()  # wrong: attr-defined, reportAttributeAccessIssue
ctx.run({T: 3}, outputs={"x": x})[0]  # wrong: index, reportArgumentType
ctx.run({"T": 3}, outputs=x)  # wrong: dict-item, reportCallIssue
program = ctx.compile({T: 3}, outputs=x, config={"backend": "numpy"})  # wrong: call-overload, reportCallIssue
ctx.compile({T: 3}, outputs={"x": x}).run().mean()  # wrong: attr-defined, reportAttributeAccessIssue
ctx.compile({T: 3}, outputs=x).with_bounds(3)  # wrong: arg-type, reportArgumentType
ctx.compile({T: 3}, outputs=x).txt()  # wrong: attr-defined, reportAttributeAccessIssue
tp.Config(backed="numpy")  # wrong: call-arg, reportCallIssue
