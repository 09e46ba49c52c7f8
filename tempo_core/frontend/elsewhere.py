"""Names of NumPy, JAX and PyTorch that Tempo lacks: what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import NoReturn

from tempo_core.errors import MissingAttributeError

_LIBRARY = "call JAX's: tp.udf(lambda a: (jnp.{0}(a),), a, outputs=[tp.spec((3, 3))]), which is part of the device program, with its gradient"
_KEYS = "numbers follow from the seed of the run, the call and the point: tp.random.normal(shape, domain=(t,)) takes no key"
INSTEAD = {
    "solve": "tp.linalg.solve(a, b)", "cholesky": "tp.linalg.cholesky(a)", "inv": "tp.linalg.inv(a)", "rfft": "tp.fft.rfft(x)",
    "digitize": 'tp.searchsorted(edges, x, "right")', "complex64": "a complex number is two tensors: tp.Complex(real, imag)",
    "vmap": "write it for one point of a step, x[t]: steps that do not depend on each other run at once by themselves",
    "pmap": "devices share a step: tp.Config(devices=2)", "jit": "programs are compiled: program = ctx.compile({T: 100}, [y])",
    "scan": "write a recurrence: h[0] = start; h[t + 1] = f(h)", "fori_loop": "write a recurrence: h[0] = start; h[t + 1] = f(h)",
    "while_loop": "write a recurrence over t, and where it ends: ctx.ends(t, when=error < 1e-6) (inside of a loop over i: each=i)",
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
    "choice": "tp.random.categorical(logits)", "integers": "tp.random.randint(shape, low, high)",
    "rand": "tp.random.uniform(shape)", "randn": "tp.random.normal(shape)", "multivariate_normal": "mean + tp.random.normal((n,)) @ factor",
    "truncated_normal": "tp.clip(tp.random.normal(shape), -2, 2), nearly", "shuffle": "x.take(tp.random.permutation(n), 0)",
    "PRNGKey": _KEYS, "key": _KEYS, "split": _KEYS, "fold_in": _KEYS, "seed": "program.run(inputs, seed=3)",
    "default_rng": _KEYS,
}  # fmt: skip

OF_LINALG = {
    "norm": "tp.norm(x)", "eigvalsh": "tp.linalg.eigh(a)[0]", "lstsq": "tp.linalg.solve(a.swapaxes(-1, -2) @ a, a.swapaxes(-1, -2) @ b)",
    "svdvals": "tp.linalg.svd(a)[1]", "cho_solve": "tp.linalg.solve_triangular(l, b, lower=True), then with trans=True",
    "eig": _LIBRARY.format("linalg.eig"), "pinv": _LIBRARY.format("linalg.pinv"), "matrix_power": "a @ a @ a", "trace": "tp.trace(a)",
}  # fmt: skip
OF_FFT = {
    "fft2": "tp.fft.fft(tp.fft.fft(x, axis=-1), axis=-2)", "ifft2": "tp.fft.ifft(tp.fft.ifft(z, axis=-1), axis=-2)",
    "rfft2": "tp.fft.fft(tp.fft.rfft(x, axis=-1), axis=-2)", "irfft2": "tp.fft.irfft(tp.fft.ifft(z, axis=-2), axis=-1)",
    "fftfreq": "tp.constant(numpy.fft.fftfreq(n))", "rfftfreq": "tp.constant(numpy.fft.rfftfreq(n))", "fftshift": "tp.roll(x, n // 2, -1)",
}  # fmt: skip


def missing_from(module: str, names: Iterable[str], instead: dict[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module that has `names`: what to write instead of one that it lacks."""

    def refuse(name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        near = difflib.get_close_matches(name, list(names), 1)
        hint = instead.get(name) or (f"did you mean {module}.{near[0]}?" if near else "docs/functions.md lists what there is")
        raise MissingAttributeError(f"{module} has no `{name}`", hint=hint)

    return refuse
