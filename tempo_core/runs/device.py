"""The devices that JAX sees, and those that a command runs on."""

from __future__ import annotations

import os

from tempo_core.cpu import use_cpu_devices
from tempo_core.errors import ConfigError
from tempo_core.runs.commands import UserError


def use_device(name: str | None, devices: str = "1") -> int | str:
    """Run on the first device of a platform of JAX: "cpu", "gpu", "cuda" or "tpu"; None leaves the choice to JAX.

    Returns `tempo_core.Config.devices` for the flag --devices, a number or "auto". The CPU becomes so many devices, for "auto" one for each
    core, so call this before JAX is used. Raises UserError.
    """
    import jax

    count = _count(devices)
    if count != 1:
        try:
            use_cpu_devices(_cores() if count == "auto" else int(count))
        except ConfigError as error:
            if name == "cpu" or jax.default_backend() == "cpu":
                raise UserError(
                    f"--devices {devices}: JAX has started with fewer CPU devices",
                    hint="run without the variable XLA_FLAGS: env -u XLA_FLAGS COMMAND",
                ) from error
    if name is not None:
        try:
            jax.config.update("jax_default_device", jax.devices(name)[0])
        except (RuntimeError, ValueError):
            platforms = sorted({each.platform for each in jax.devices()})
            raise UserError(f"there is no device {name!r}; JAX sees {', '.join(platforms)}", hint="leave --device out") from None
    return count


def _count(devices: str) -> int | str:
    if devices == "auto":
        return devices
    if not devices.isdecimal() or int(devices) < 1:
        raise UserError(f"--devices {devices} is not a number of devices", hint="write --devices 2 or --devices auto")
    return int(devices)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
