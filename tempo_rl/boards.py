"""Recorders for TensorBoard and Weights & Biases: numbers, the recipe, a picture of the plan, a film."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tempo_core.runs.logger import Row, WandbLogger
from tempo_rl.encoding import encoded
from tempo_rl.errors import RunError
from tempo_rl.recording import Film, Recorder

COUNTS = ("iteration", "env_steps")  # columns that say where a row belongs
EVALUATION, MACHINE = "evaluation/", "machine/"  # begin the names of numbers that are not metrics of iterations


class TensorBoardRecorder(Recorder):
    """TensorBoard's event files, over environment steps. A resumed run hides the later steps of the one before."""

    def __init__(self, directory: Path, env_steps: int = 0):
        """`env_steps` are those before this process. Raises `RunError` for a package that is missing."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            hint = "leave it out, tensorboard=false, or install it: pip install 'tempo-dl[tensorboard]'"
            raise RunError("tensorboard=true needs the package tensorboardX", hint=hint) from error
        self._writer = SummaryWriter(logdir=str(directory), **({"purge_step": env_steps} if env_steps else {}))

    def log(self, row: Row) -> None:
        self._add("", row)

    def evaluation(self, row: Row) -> None:
        self._add(EVALUATION, row)

    def machine(self, row: Row) -> None:
        self._add(MACHINE, row)

    def recipe(self, text: str) -> None:
        self._writer.add_text("recipe", _block(text), 0)

    def plan(self, picture: Path, text: str, env_steps: int) -> None:
        self._writer.add_text("plan", _block(text), env_steps)
        self._picture("plan", picture.read_bytes(), env_steps)

    def film(self, film: Film, env_steps: int) -> None:
        """An animated picture: the form in which TensorBoard shows films."""
        self._picture("episode", encoded([*film.frames], film.fps, ".gif"), env_steps)

    def close(self) -> None:
        self._writer.close()

    def _add(self, prefix: str, row: Row) -> None:
        step = int(row["env_steps"])
        for name, value in row.items():
            if name not in COUNTS and math.isfinite(value):
                self._writer.add_scalar(prefix + name, value, step)

    def _picture(self, name: str, data: bytes, env_steps: int) -> None:
        """The bytes of a file as they are."""
        import io

        from PIL import Image
        from tensorboardX.proto.summary_pb2 import Summary

        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
        value = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
        self._writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=name, image=value)]), env_steps)


class WandbRecorder(WandbLogger, Recorder):
    """Weights & Biases, which measures the machine itself too. The recipe is the configuration of its run."""

    def evaluation(self, row: Row) -> None:
        self._add(EVALUATION, row)

    def machine(self, row: Row) -> None:
        self._add(MACHINE, row)

    def plan(self, picture: Path, text: str, env_steps: int) -> None:
        import wandb

        self._run.log({"plan": wandb.Image(str(picture), caption=text)}, step=env_steps)

    def film(self, film: Film, env_steps: int) -> None:
        import wandb

        self._run.log({"episode": wandb.Video(str(film.file), format=film.file.suffix.removeprefix("."))}, step=env_steps)

    def _add(self, prefix: str, row: Row) -> None:
        values = {prefix + name: value for name, value in row.items() if name not in COUNTS and np.isfinite(value)}
        self._run.log(values, step=int(row["env_steps"]))


def _block(text: str) -> str:
    """Text as it is, in Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())
