"""The memory of a run as a picture: one bar for each moment of the program, of the tensors that are in memory then. An SVG."""

from __future__ import annotations

from tempo_core.ir.names.user_lines import span
from tempo_core.report.pages.page import cut
from tempo_core.report.pages.svg import CHARACTER, LINE, box, svg, text
from tempo_core.runtime.cost.usage import Moment, PlannedTensor, Usage

MARGIN, GAP, BAR, LABEL = 24.0, 6.0, 640.0, 300.0
FILLS = {
    "input": "#cfe0f5", "result": "#f2c9c9", "argument": "#f5e6b8", "temporary": "#dddddd",
    "register": "#d3ecd8", "window": "#a9d9b3", "block": "#7cc48b",
}  # fmt: skip
SEPARATE = 24  # tensors of a bar that have a box of their own; the smaller ones share one


def memory_svg(usage: Usage) -> str:
    """Bars from the top to the bottom, in program order: first of the device, then of the host, all on one scale in bytes."""
    most = max(1, *(bytes for _, _, bytes in usage.peaks))
    parts: list[str] = []
    top = MARGIN
    for place, peak, bytes in usage.peaks:
        parts.append(text(f"{place}: at most {bytes:,} bytes, in {peak}", MARGIN, top + LINE, True))
        top += 2 * LINE
        for moment in usage.moments:
            parts += _bar(usage, moment, place, moment is peak, top, most)
            top += LINE + GAP
        top += LINE
    parts += _legend(top)
    return svg(2 * MARGIN + LABEL + BAR, top + LINE + MARGIN, parts)


def _bar(usage: Usage, moment: Moment, place: str, is_peak: bool, top: float, most: int) -> list[str]:
    """A moment: its name, and a box for each tensor that is alive, with its line as a tooltip."""
    parts = [text(cut(str(moment), int(LABEL / CHARACTER) - 1), MARGIN, top + LINE - 4, is_peak)]
    alive = usage.alive(moment, place)
    left, scale = MARGIN + LABEL, BAR / most
    for tensor in alive[:SEPARATE]:
        width = tensor.bytes * scale
        parts.append(box((left, top, width, LINE), FILLS[tensor.kind], _title(tensor), tensor.name))
        left += width
    rest = sum(tensor.bytes for tensor in alive[SEPARATE:])
    if rest:
        title = f"{len(alive) - SEPARATE} smaller ones: {rest:,} bytes"
        parts.append(box((left, top, rest * scale, LINE), FILLS["temporary"], title, ""))
    return parts


def _title(tensor: PlannedTensor) -> str:
    line = span([tensor.line])
    return f"{tensor.name}: {tensor.kind} {tensor.type}, {tensor.bytes:,} bytes{f' @ {line}' if line else ''}"


def _legend(top: float) -> list[str]:
    parts: list[str] = []
    left = MARGIN
    for kind, fill in FILLS.items():
        parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{LINE:.0f}" height="{LINE:.0f}" fill="{fill}" stroke="#567"/>')
        parts.append(text(kind, left + LINE + 4, top + LINE - 4))
        left += LINE + 16 + len(kind) * CHARACTER
    return parts
