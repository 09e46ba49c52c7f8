"""The CPU as several devices of JAX, before a program is written."""

from __future__ import annotations

import os

import jax

from tempo_core.errors import ArgumentError, ConfigError
from tempo_core.frontend.arguments import checked

_FLAG = "xla_force_host_platform_device_count"


@checked
def use_cpu_devices(count: int) -> None:
    """Let JAX see this machine's CPU as `count` devices, for `Config(devices=count)`.

    Call it before JAX is used: the first array starts JAX. More devices than cores make nothing faster. Raises ConfigError if JAX has
    started with fewer, and ArgumentError for a count below 1.
    """
    if count < 1:
        raise ArgumentError(f"{count} is not a number of devices", hint="tp.use_cpu_devices(2)")
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
