"""The devices of a program, before it is written."""

from __future__ import annotations

from tempo_core import cpu
from tempo_core.errors import ArgumentError
from tempo_core.frontend.arguments import checked


@checked
def use_cpu_devices(count: int) -> None:
    """Let JAX see this machine's CPU as `count` devices, for `Config(devices=count)`.

    Call it before JAX is used: the first array starts JAX. More devices than cores make nothing faster. Raises ConfigError if JAX has
    started with fewer, and ArgumentError for a count below 1.
    """
    if count < 1:
        raise ArgumentError(f"{count} is not a number of devices", hint="tp.use_cpu_devices(2)")
    cpu.use_cpu_devices(count)
