"""The CPU as several devices of JAX."""

from __future__ import annotations

import os

import jax

from tempo_core.errors import ConfigError

_FLAG = "xla_force_host_platform_device_count"


def use_cpu_devices(count: int) -> None:
    """Let JAX see this machine's CPU as `count` devices, for `Config(devices=count)`.

    Call it before JAX is used: the first array starts JAX. Raises ConfigError if JAX has started with fewer.
    """
    if _FLAG not in os.environ.get("XLA_FLAGS", ""):
        try:
            jax.config.update("jax_num_cpu_devices", count)
            return
        except RuntimeError:  # JAX has started
            pass
    present = len(jax.devices("cpu"))
    if present < count:
        raise ConfigError(
            f"use_cpu_devices({count}) is too late: JAX has started, with {present} CPU device{'s' if present > 1 else ''}",
            hint=f"call it at the top of the program, before the first array is made: tp.use_cpu_devices({count})",
        )
