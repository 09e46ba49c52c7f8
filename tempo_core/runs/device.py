"""The device that a command runs on."""

from __future__ import annotations

from tempo_core.runs.errors import UserError


def use_device(name: str | None) -> None:
    """Run on the first device of a platform of JAX: "cpu", "gpu", "cuda" or "tpu"; None leaves the choice to JAX. Raises UserError."""
    if name is None:
        return
    import jax

    try:
        jax.config.update("jax_default_device", jax.devices(name)[0])
    except (RuntimeError, ValueError):
        platforms = sorted({each.platform for each in jax.devices()})
        raise UserError(f"there is no device {name!r}; JAX sees {', '.join(platforms)}", hint="leave --device out") from None
