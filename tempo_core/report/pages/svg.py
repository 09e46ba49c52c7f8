"""Pictures as SVG text, and files of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tempo_core.errors import ConfigError
from tempo_core.files import refusal, write_whole

CHARACTER, LINE = 6.7, 15.0  # width and height of a character, in pixels (a monospaced font of 11 px)


def svg(width: float, height: float, parts: Iterable[str], font: str = "") -> str:
    """The whole picture."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace"{font}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def write_svg(path: str | Path, picture: Callable[[], str], what: str, example: str) -> None:
    """Write a picture of `what`. Raises ConfigError unless `path` ends in .svg, as in `example`, and can be written."""
    path = Path(path)
    if path.suffix != ".svg":
        raise ConfigError(f"cannot draw {what} as {path.name}: only .svg is written", hint=example)
    try:
        write_whole(path, picture().encode())
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> ConfigError:
    """The error for a picture that cannot be written."""
    return ConfigError(
        f"the picture {path} cannot be written: {refusal(error, path)}", hint="give a file in a directory that exists"
    )
