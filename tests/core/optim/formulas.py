"""Optimizers in plain NumPy and float64, and a loss with simple gradients: `sum(a (w - 1)²) / 2 + sum(b sin(v))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Params = dict[str, Array]
Update = Callable[[Params, Params, dict[str, Any], int], Params]  # (parameters, gradients, state, updates before) to parameters

W, V = np.array([0.3, -1.2, 2.0]), np.array([[0.5, -0.5], [1.5, 0.1]])


def data(points: int) -> dict[str, Array]:
    """Coefficients of the loss at each point, of very different sizes."""
    random = np.random.default_rng(3)
    sizes = 10.0 ** random.integers(-2, 2, (points, 1))
    return {
        "a": np.abs(random.normal(size=(points, 3)) * sizes).astype("float32"),
        "b": (random.normal(size=(points, 2, 2)) * sizes[:, :, None]).astype("float32"),
    }


def gradients(params: Params, coefficients: dict[str, Array], point: int) -> Params:
    return {"w": coefficients["a"][point] * (params["w"] - 1), "v": coefficients["b"][point] * np.cos(params["v"])}


def trajectory(
    update: Update, coefficients: dict[str, Array], clip: Callable[[Params], Params] = lambda g: g
) -> dict[str, Array]:
    """The parameters at each point: [points, *shape]."""
    params, state = {"w": W.copy(), "v": V.copy()}, {}
    history: dict[str, list[Array]] = {"w": [], "v": []}
    for point in range(len(coefficients["a"])):
        for name, value in params.items():
            history[name].append(value)
        params = update(params, clip(gradients(params, coefficients, point)), state, point)
    return {name: np.stack(values) for name, values in history.items()}


def sgd(lr: Any, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Update:
    def update(params: Params, grads: Params, state: dict[str, Any], n: int) -> Params:
        after = {}
        for k, p in params.items():
            g = grads[k] + weight_decay * p
            state[k] = momentum * state.get(k, 0.0) + g
            after[k] = p - rate(lr, n) * (g + momentum * state[k] if nesterov else state[k])
        return after

    return update


def adam(
    lr: Any, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, decoupled: bool = False
) -> Update:
    def update(params: Params, grads: Params, state: dict[str, Any], n: int) -> Params:
        after = {}
        for k, p in params.items():
            g = grads[k] + (0.0 if decoupled else weight_decay) * p
            m, v = state.get(k, (0.0, 0.0))
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
            state[k] = m, v
            m_hat, v_hat = m / (1 - betas[0] ** (n + 1)), v / (1 - betas[1] ** (n + 1))
            shrunk = p * (1 - rate(lr, n) * weight_decay) if decoupled else p
            after[k] = shrunk - rate(lr, n) * m_hat / (np.sqrt(v_hat) + eps)
        return after

    return update


def rmsprop(
    lr: Any, decay: float = 0.99, eps: float = 1e-8, momentum: float = 0.0, centered: bool = False, weight_decay: float = 0.0
) -> Update:
    def update(params: Params, grads: Params, state: dict[str, Any], n: int) -> Params:
        after = {}
        for k, p in params.items():
            g = grads[k] + weight_decay * p
            s, mean, velocity = state.get(k, (0.0, 0.0, 0.0))
            s, mean = decay * s + (1 - decay) * g * g, decay * mean + (1 - decay) * g
            direction = g / (np.sqrt(s - mean**2 if centered else s) + eps)
            velocity = momentum * velocity + direction
            state[k] = s, mean, velocity
            after[k] = p - rate(lr, n) * velocity
        return after

    return update


def rate(lr: Any, n: int) -> float:
    return lr(n) if callable(lr) else lr


def clip_norm(most: float) -> Callable[[Params], Params]:
    def clip(grads: Params) -> Params:
        norm = np.sqrt(sum(np.square(g).sum() for g in grads.values()))
        return {k: g * min(1.0, most / (norm + 1e-6)) for k, g in grads.items()}

    return clip


def clip_value(most: float) -> Callable[[Params], Params]:
    return lambda grads: {k: np.clip(g, -most, most) for k, g in grads.items()}
