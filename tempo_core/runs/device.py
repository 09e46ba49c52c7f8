"""The devices that JAX sees, and those that a command runs on."""

from __future__ import annotations

import os

from tempo_core.errors import ConfigError
from tempo_core.runs.errors import UserError

_FLAG = "xla_force_host_platform_device_count"


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
                    f"--devices {devices}: JAX has started with fewer CPU devices", hint="set XLA_FLAGS aside"
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
        raise UserError(f"--devices {devices} is not a number of devices", hint="--devices 2, or --devices auto")
    return int(devices)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_cpu_devices(count: int) -> None:
    """Let JAX see this machine's CPU as `count` devices, for `Config(devices=count)`.

    Call it before JAX is used: the first array starts JAX. Raises ConfigError if JAX has started with fewer, and for a count that is not
    a positive int. More devices than cores make nothing faster.
    """
    import jax

    if isinstance(count, bool) or not hasattr(count, "__index__") or count < 1:
        raise ConfigError(f"use_cpu_devices({count!r}): not a number of devices", hint="tp.use_cpu_devices(2)")
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
            hint="call it before the first array is made, at the top of the program",
        )
