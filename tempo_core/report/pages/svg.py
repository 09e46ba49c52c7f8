"""Pictures as SVG text, and files of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

from tempo_core.errors import ConfigError
from tempo_core.files import refusal, write_whole

CHARACTER, LINE = 6.7, 15.0  # width and height of a character, in pixels (a monospaced font of 11 px)


def svg(width: float, height: float, parts: Iterable[str]) -> str:
    """The whole picture."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def box(place: tuple[float, float, float, float], fill: str, title: str, label: str) -> str:
    """A box at (left, top, width, height), with a tooltip, and with a label if it fits."""
    left, top, width, height = place
    fits = len(label) * CHARACTER + 6 < width
    return (
        f'<g><title>{escape(title)}</title><rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{height:.0f}" '
        f'fill="{fill}" stroke="#567" stroke-width="0.5"/>{text(label, left + 3, top + height - 4) if label and fits else ""}</g>'
    )


def text(words: str, left: float, bottom: float, is_bold: bool = False) -> str:
    weight = ' font-weight="bold"' if is_bold else ""
    return f'<text x="{left:.1f}" y="{bottom:.1f}" font-size="11" fill="#123"{weight}>{escape(words)}</text>'


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
