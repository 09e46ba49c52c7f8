"""Names of NumPy, JAX and PyTorch that Tempo lacks: what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tempo_core.errors import MissingAttributeError

_LIBRARY = "call JAX's: tp.udf(lambda a: (jnp.{0}(a),), a, outputs=[tp.spec((3, 3))]), which is part of the device program, with its gradient"
_KEYS = "numbers follow from the seed of the run, the call and the point: tp.random.normal(shape, domain=(t,)) takes no key"
INSTEAD = {
    "linalg": _LIBRARY.format("linalg.inv") + "; tp.norm(x) is here", "fft": _LIBRARY.format("fft.rfft"),
    "solve": _LIBRARY.format("linalg.solve"), "cholesky": _LIBRARY.format("linalg.cholesky"),
    "vmap": "write it for one point of a step, x[t]: steps that do not depend on each other run at once by themselves",
    "pmap": "devices share a step: tp.Config(devices=2)", "jit": "programs are compiled: program = ctx.compile({T: 100}, [y])",
    "scan": "write a recurrence: h[0] = start; h[t + 1] = f(h)", "fori_loop": "write a recurrence: h[0] = start; h[t + 1] = f(h)",
    "while_loop": "write a recurrence over t, and where it ends: ctx.ends(t, when=error < 1e-6)",
    "associative_scan": "write the recurrence, h[t + 1] = a * h + b: where it is linear, it becomes a scan",
    "cond": "tp.where(c, a, b); for a condition on steps, branches: h[t, t % 2 == 0] = a", "select": "tp.where(c, a, b)",
    "switch": "tp.where(c, a, b); for a condition on steps, branches: h[t, t % 2 == 0] = a",
    "checkpoint": 'gradients keep less: tp.Config(checkpoint={"t": 100})', "remat": 'gradients keep less: tp.Config(checkpoint={"t": 100})',
    "value_and_grad": "(gradient,) = tp.grad(loss, [w]), beside the loss", "backward": "loss.backward(), then w.grad",
    "vjp": "tp.grad(loss, [x])", "jvp": "tp.grad(loss, [x])", "hessian": "a gradient of a gradient: tp.grad(tp.grad(loss, [w])[0].sum(), [w])",
    "no_grad": "x.detach()", "array": "tp.constant([1.0, 2.0])", "asarray": "tp.constant([1.0, 2.0])", "tensor": "tp.constant([1.0, 2.0])",
    "cat": "tp.concatenate([a, b])", "vstack": "tp.concatenate([a, b])", "hstack": "tp.concatenate([a, b], -1)", "mm": "a @ b", "bmm": "a @ b",
    "linspace": "tp.arange(n) / (n - 1)", "rand": "tp.random.uniform(shape)", "randn": "tp.random.normal(shape)",
    "unsqueeze": "tp.expand_dims(x, axis)", "permute": "tp.transpose(x, 1, 0)",
    "Parameter": "tp.nn.Linear and others; by hand, a recurrence over the step of updates",
}  # fmt: skip
OF_RANDOM = {
    "gumbel": "-tp.log(-tp.log(tp.random.uniform(shape)))", "exponential": "-tp.log(tp.random.uniform(shape))",
    "bernoulli": "tp.random.uniform(shape) < p", "choice": "tp.random.categorical(logits)", "randint": "tp.floor(tp.random.uniform(shape) * n)",
    "rand": "tp.random.uniform(shape)", "randn": "tp.random.normal(shape)", "multivariate_normal": "mean + tp.random.normal((n,)) @ factor",
    "truncated_normal": "tp.clip(tp.random.normal(shape), -2, 2), nearly", "shuffle": "x.take(tp.random.permutation(n), 0)",
    "PRNGKey": _KEYS, "key": _KEYS, "split": _KEYS, "fold_in": _KEYS, "seed": "program.run(inputs, seed=3)",
    "default_rng": _KEYS,
}  # fmt: skip


def missing(module: str, name: str, names: Iterable[str], instead: dict[str, str]) -> MissingAttributeError:
    """The error for a name that a module lacks. `names` are those that it has."""
    near = difflib.get_close_matches(name, list(names), 1)
    hint = instead.get(name) or (f"did you mean {module}.{near[0]}?" if near else "docs/functions.md lists what there is")
    return MissingAttributeError(f"{module} has no `{name}`", hint=hint)
