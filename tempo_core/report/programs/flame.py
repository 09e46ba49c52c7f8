"""A flame picture: boxes whose width is time, each above the boxes of its parts, as an SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tempo_core.report.graphs.draw import FILLS
from tempo_core.report.pages.page import cut
from tempo_core.report.pages.svg import CHARACTER, box, svg

WIDTH, MARGIN, HEIGHT = 1200.0, 12.0, 20.0  # of the picture, around it, and of a row of boxes, in pixels
NARROWEST = 0.3  # narrower boxes are left out, as nobody can see them


@dataclass
class _Box:
    seconds: float = 0.0
    parts: dict[str, _Box] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((part.depth for part in self.parts.values()), default=0)


def flame(stacks: Iterable[tuple[Sequence[str], float]], root: str) -> str:
    """The picture of stacks, each a path of labels (the outermost first) with its seconds. `root` is the label of the whole."""
    whole = _Box()
    for labels, seconds in stacks:
        part = whole
        part.seconds += seconds
        for label in labels:
            part = part.parts.setdefault(label, _Box())
            part.seconds += seconds
    parts: list[str] = []
    _draw(parts, root, whole, whole.seconds, MARGIN, 0)
    return svg(WIDTH + 2 * MARGIN, whole.depth * HEIGHT + 2 * MARGIN, parts)


def _draw(parts: list[str], label: str, whole: _Box, total: float, left: float, depth: int) -> None:
    width = WIDTH * whole.seconds / total if total else 0.0
    if width < NARROWEST:
        return
    place = left, MARGIN + depth * HEIGHT, width, HEIGHT - 1
    title = f"{label}: {whole.seconds * 1e3:.3f} ms, {100 * whole.seconds / total:.1f}%"
    shown = cut(label, max(int((width - 6) / CHARACTER), 3))
    parts.append(box(place, FILLS[depth % len(FILLS)], title, shown))
    for name, part in sorted(whole.parts.items(), key=lambda item: -item[1].seconds):
        _draw(parts, name, part, total, left, depth + 1)
        left += WIDTH * part.seconds / total
