"""The memory of a run as a picture: one bar for each moment of the program, of the tensors that are in memory then. An SVG."""

from __future__ import annotations

from html import escape
from os.path import basename

from tempo_core.runtime.cost.usage import DEVICE, HOST, Moment, PlannedTensor, Usage

CHARACTER, LINE = 6.7, 15.0  # width and height of a character, in pixels (a monospaced font of 11 px)
MARGIN, GAP, BAR, LABEL = 24.0, 6.0, 640.0, 300.0
FILLS = {
    "input": "#cfe0f5", "result": "#f2c9c9", "argument": "#f5e6b8", "temporary": "#dddddd",
    "register": "#d3ecd8", "window": "#a9d9b3", "block": "#7cc48b",
}  # fmt: skip
SEPARATE = 24  # tensors of a bar that have a box of their own; the smaller ones share one


def memory_svg(usage: Usage) -> str:
    """Bars from the top to the bottom, in program order: first of the device, then of the host, all on one scale in bytes."""
    most = max([1, usage.on_device.device_bytes, usage.on_host.host_bytes])
    parts: list[str] = []
    top = MARGIN
    for place, peak in ((DEVICE, usage.on_device), (HOST, usage.on_host)):
        parts.append(_text(f"{place}: at most {_bytes(peak, place):,} bytes, in {peak}", MARGIN, top + LINE, True))
        top += 2 * LINE
        for moment in usage.moments:
            parts += _bar(usage, moment, place, moment is peak, top, most)
            top += LINE + GAP
        top += LINE
    parts += _legend(top)
    width, height = 2 * MARGIN + LABEL + BAR, top + LINE + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="monospace">',
            '<rect width="100%" height="100%" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _bytes(moment: Moment, place: str) -> int:
    return moment.device_bytes if place == DEVICE else moment.host_bytes


def _bar(usage: Usage, moment: Moment, place: str, is_peak: bool, top: float, most: int) -> list[str]:
    """A moment: its name, and a box for each tensor that is alive, with its line as a tooltip."""
    parts = [_text(_cut(str(moment), LABEL), MARGIN, top + LINE - 4, is_peak)]
    alive = usage.alive(moment, place)
    left, scale = MARGIN + LABEL, BAR / most
    for tensor in alive[:SEPARATE]:
        width = tensor.bytes * scale
        parts.append(_box(left, top, width, FILLS[tensor.kind], _title(tensor), tensor.name))
        left += width
    rest = sum(tensor.bytes for tensor in alive[SEPARATE:])
    if rest:
        parts.append(
            _box(left, top, rest * scale, FILLS["temporary"], f"{len(alive) - SEPARATE} smaller ones: {rest:,} bytes", "")
        )
    return parts


def _title(tensor: PlannedTensor) -> str:
    file, _, line = tensor.line.rpartition(":")
    where = f" @ {basename(file)}:{line}" if file else ""
    return f"{tensor.name}: {tensor.kind} {tensor.type}, {tensor.bytes:,} bytes{where}"


def _box(left: float, top: float, width: float, fill: str, title: str, name: str) -> str:
    label = _text(name, left + 3, top + LINE - 4, False) if name and len(name) * CHARACTER + 6 < width else ""
    return (
        f'<g><title>{escape(title)}</title><rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{LINE:.0f}" '
        f'fill="{fill}" stroke="#567" stroke-width="0.5"/>{label}</g>'
    )


def _legend(top: float) -> list[str]:
    parts: list[str] = []
    left = MARGIN
    for kind, fill in FILLS.items():
        parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{LINE:.0f}" height="{LINE:.0f}" fill="{fill}" stroke="#567"/>')
        parts.append(_text(kind, left + LINE + 4, top + LINE - 4, False))
        left += LINE + 16 + len(kind) * CHARACTER
    return parts


def _cut(text: str, width: float) -> str:
    most = int(width / CHARACTER) - 1
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(text: str, left: float, bottom: float, is_bold: bool) -> str:
    weight = ' font-weight="bold"' if is_bold else ""
    return f'<text x="{left:.1f}" y="{bottom:.1f}" font-size="11" fill="#123"{weight}>{escape(text)}</text>'
