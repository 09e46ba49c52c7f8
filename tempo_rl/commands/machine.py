"""The command about the machine: versions, devices, missing packages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tempo_rl.commands.app import AsJson, errors_as_messages
from tempo_rl.reports import say_json
from tempo_rl.streams import echo


def doctor(
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Measure the speed of the device, for the cost model. This takes some seconds."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --calibrate: write the measured speeds to FILE. To use them, set TEMPO_MACHINE=FILE."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the installed versions beside the tested ones, the devices, and the packages that are missing."""
    from tempo_core.runs.doctor import Extra, findings, is_able
    from tempo_rl.train import versions

    extras = (
        Extra("gymnasium", "rl", "environments"),
        Extra("flax", "rl", "functional environments"),
        Extra("wandb", "wandb", "--track"),
        Extra("tensorboardX", "tensorboard", "--tensorboard"),
        Extra("imageio-ffmpeg", "mp4", "videos as .mp4"),
    )
    numbers = versions()
    if as_json:
        import jax

        missing = [extra._asdict() for extra in extras if numbers.get(extra.package) is None]
        devices = [str(device) for device in jax.devices()]
        say_json({"is_able": is_able(numbers), "versions": numbers, "devices": devices, "missing": missing})
    else:
        for line in findings(numbers, extras):
            echo(line)
    if not is_able(numbers):
        raise typer.Exit(1)
    if calibrate:
        with errors_as_messages():
            from tempo_core import Target

            target = Target.calibrated()
            echo(target, err=as_json)
            if out is not None:
                target.save(out)
                echo(f"written to {out}: TEMPO_MACHINE={out} uses it", err=as_json)
    elif out is not None:
        echo("error: --out has no effect without --calibrate", fg=typer.colors.RED, err=True)
        raise typer.Exit(1)
