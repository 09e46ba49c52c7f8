"""Optimizers, written as recurrent tensors: `step()` assigns the next value of every parameter."""

from tempo_core.optim.optimizers import SGD, Adam, clip_by_global_norm, global_norm

__all__ = ["SGD", "Adam", "clip_by_global_norm", "global_norm"]
