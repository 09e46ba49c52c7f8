"""Optimizers, written as recurrent tensors: `step()` assigns the next value of every parameter."""

from tempo_core.optim import schedules
from tempo_core.optim.clipping import clip_by_global_norm, clip_by_value, global_norm
from tempo_core.optim.optimizer import Optimizer
from tempo_core.optim.optimizers import SGD, Adam, AdamW, RMSProp

__all__ = [
    "Adam", "AdamW", "Optimizer", "RMSProp", "SGD", "clip_by_global_norm", "clip_by_value", "global_norm", "schedules",
]  # fmt: skip
