"""A flame picture: boxes whose width is time, each above the boxes of its parts, as an SVG."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tempo_core.errors import ConfigError
from tempo_core.report.graphs.draw import FILLS

WIDTH, MARGIN, HEIGHT = 1200.0, 12.0, 20.0  # of the picture, around it, and of a row of boxes, in pixels
CHARACTER = 6.7  # the width of a character in a monospaced font of 11 px
NARROWEST = 0.3  # narrower boxes are left out, as nobody can see them


@dataclass
class _Box:
    seconds: float = 0.0
    parts: dict[str, _Box] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((part.depth for part in self.parts.values()), default=0)


def write_flame(stacks: Iterable[tuple[Sequence[str], float]], path: Path, root: str) -> None:
    """Write the picture of stacks, each a path of labels (the outermost first) with its seconds.

    Raises ConfigError unless `path` ends in .svg and can be written.
    """
    if path.suffix != ".svg":
        raise ConfigError(f"cannot draw {path}: a flame picture is an SVG", hint='profile.draw("profile.svg")')
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(flame(stacks, root), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}", hint="give a directory that exists and may be written") from error
    finally:
        temporary.unlink(missing_ok=True)


def flame(stacks: Iterable[tuple[Sequence[str], float]], root: str) -> str:
    """The picture as SVG text. `root` is the label of the whole."""
    whole = _Box()
    for labels, seconds in stacks:
        box = whole
        box.seconds += seconds
        for label in labels:
            box = box.parts.setdefault(label, _Box())
            box.seconds += seconds
    height = whole.depth * HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * MARGIN:.0f}" height="{height:.0f}" '
        'font-family="monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    _draw(parts, root, whole, whole.seconds, MARGIN, 0)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw(parts: list[str], label: str, box: _Box, total: float, left: float, depth: int) -> None:
    width = WIDTH * box.seconds / total if total else 0.0
    if width < NARROWEST:
        return
    top = MARGIN + depth * HEIGHT
    room = int((width - 6) / CHARACTER)
    shown = label if len(label) <= room else f"{label[: room - 1]}…" if room > 2 else ""
    parts.append(
        f"<g><title>{escape(label)}: {box.seconds * 1e3:.3f} ms, {100 * box.seconds / total:.1f}%</title>"
        f'<rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{HEIGHT - 1:.1f}" rx="2" '
        f'fill="{FILLS[depth % len(FILLS)]}" stroke="#567" stroke-width="0.5"/>'
        f'<text x="{left + 3:.2f}" y="{top + 14:.1f}">{escape(shown)}</text></g>'
    )
    for name, part in sorted(box.parts.items(), key=lambda item: -item[1].seconds):
        _draw(parts, name, part, total, left, depth + 1)
        left += WIDTH * part.seconds / total
