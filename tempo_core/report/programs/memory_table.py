"""The memory of a plan as tables: the stores, one row each or one for all of a module, optimizer or object; and all tensors, also as a trace."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from tempo_core.ir.names.user_lines import span
from tempo_core.report.pages.page import Table, aligned, table_of
from tempo_core.report.pages.trace import Event, bar
from tempo_core.runtime.cost.usage import DEVICE, HOST, Moment, PlannedTensor, Usage

WIDTH = 100
SMALL = 0.01  # a share of all bytes: smaller stores share the last row
PAIR = 2  # groups of up to so many tensors have a row for each tensor
COLUMNS = ("tensor", "kind", "type", "slots", "bytes", "line")
FEW = 10  # so many rows are shown, however small they are


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that has a store: one row of the plan."""

    name: str
    type: str
    kind: str  # "register", "window" or "block"; "host", and "part" for what the device has of it
    slots: tuple[int, ...]
    bytes: int
    persistent: bool  # lives between device programs (else a local of one)
    group: str = ""  # its module, optimizer or object of the user's; recurrences have groups apart from other values
    noun: str = "tensors"  # the word for several tensors of its group
    line: str = ""  # the user's, as `file:line`

    @property
    def slots_text(self) -> str:
        return " x ".join(map(str, self.slots)) or "1"


def memory_text(stored: Sequence[StoredTensor], passing: Sequence[StoredTensor], between: int, full: bool) -> str:
    """The table of `stored` tensors, the sum, and the names of the `passing` ones. `between` is the number of bytes between programs."""
    groups = _groups(stored, len(stored) if full else PAIR)
    total, rest = sum(t.bytes for t in stored), len(groups)
    while not full and rest > FEW and _bytes(groups[rest - 1]) < SMALL * total:
        rest -= 1
    rows = [_cells(group) for group in groups]
    if len(groups) - rest > 1:
        small = [tensor for group in groups[rest:] for tensor in group]
        rows[rest:] = [(f"{len(small)} smaller ones", "", "", "", str(_bytes(small)))]
    persistent = "" if total == between else f", {between} of them between device programs"
    table = aligned([("tensor", "type", "store", "slots", "bytes"), *rows])
    lines = [*table, f"in all {total} bytes{persistent}"] if stored else ["nothing is stored"]
    if passing:
        names = [t.name for t in passing] if full else [_cells(group)[0] for group in _groups(passing)]
        text = f"one value at a time, inside a program: {', '.join(names)}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False)
    return "\n".join(lines)


def _groups(tensors: Iterable[StoredTensor], alone: int = 1) -> list[list[StoredTensor]]:
    """The tensors of each group, the largest first. In groups of up to `alone` tensors, such as a layer's keys and values, each is alone."""
    groups: dict[str, list[StoredTensor]] = {}
    for tensor in sorted(tensors, key=lambda t: -t.bytes) if alone > 1 else tensors:
        groups.setdefault(tensor.group or tensor.name, []).append(tensor)
    parts = [part for group in groups.values() for part in ([group] if len(group) > alone else [[t] for t in group])]
    return sorted(parts, key=lambda part: -_bytes(part))


def _bytes(tensors: Iterable[StoredTensor]) -> int:
    return sum(tensor.bytes for tensor in tensors)


def _cells(tensors: Sequence[StoredTensor]) -> tuple[str, ...]:
    """The row of a tensor, or of several of a group."""
    first, total = tensors[0], str(_bytes(tensors))
    if len(tensors) == 1:
        return first.name, first.type, first.kind, first.slots_text, total
    noun = first.noun if len({t.noun for t in tensors}) == 1 else "tensors"
    dtypes, kinds = (
        ", ".join(sorted(set(parts))) for parts in zip(*((t.type.split("[")[0], t.kind) for t in tensors), strict=True)
    )
    return f"{first.group.rstrip('|')}: {len(tensors)} {noun}", dtypes, kinds, "", total


def peaks_text(usage: Usage) -> str:
    """Both peaks, a line each, rounded."""
    return "\n".join(
        f"peak on the {place}: about {_rounded(bytes)} in {peak}{_about(peak, place)}" for place, peak, bytes in usage.peaks
    )


def _about(peak: Moment, place: str) -> str:
    return "" if peak.is_exact or place == HOST else ", of which the temporaries are a coarse estimate"


def _rounded(bytes: int) -> str:
    """Two or three digits and a unit: 1.3 MB, 215 kB."""
    size, units = float(bytes), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 995 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.1f} {units[0]}" if size < 9.95 else f"{round(size)} {units[0]}"


def usage_text(usage: Usage, full: bool) -> str:
    """The peaks, and the tensors in memory then; with `full`, all tensors with the moments from which and to which they live."""
    lines = []
    for (place, peak, bytes), table in zip(usage.peaks, at_peaks(usage), strict=True):
        line = span([peak.line])
        at = f", at {peak.statement}{f' @ {line}' if line else ''}" if place == DEVICE and peak.statement else ""
        lines.append(f"peak on the {place}: {bytes:,} bytes in {peak}{at}{_about(peak, place)}")
        lines += [f"  {line}" for line in table.lines()] if table.rows and not full else []
    if full:
        ordered = sorted(usage.tensors, key=lambda t: -t.bytes)
        tensors = [((*_planned(t), t.place, f"{t.first} to {t.last}"), t.bytes) for t in ordered]
        lines += ["", *table_of("tensors", (*COLUMNS, "place", "moments"), tensors).lines(), "", *over_time(usage).lines()]
    return "\n".join(lines)


def at_peaks(usage: Usage) -> list[Table]:
    """For the device and for the host: the tensors in memory at its peak, the largest first; the small ones share the last row."""
    tables = []
    for place, peak, _ in usage.peaks:
        tensors = usage.alive(peak, place)
        rows, rest = [(_planned(tensor), tensor.bytes) for tensor in tensors[:FEW]], sum(tensor.bytes for tensor in tensors[FEW:])
        rows += [((f"{len(tensors) - FEW} smaller ones", "", "", "", f"{rest:,}", ""), rest)] if tensors[FEW:] else []
        tables.append(table_of(f"on the {place}, at the peak", COLUMNS, rows))
    return tables


def over_time(usage: Usage) -> Table:
    """The bytes in memory at each moment."""
    moments = [(str(k), str(m), f"{m.device_bytes:,}", f"{m.host_bytes:,}") for k, m in enumerate(usage.moments)]
    sizes = [moment.device_bytes + moment.host_bytes for moment in usage.moments]
    return table_of("memory over time", ("moment", "", "device bytes", "host bytes"), list(zip(moments, sizes, strict=True)))


def _planned(tensor: PlannedTensor) -> tuple[str, ...]:
    slots = " x ".join(map(str, tensor.slots))
    return (tensor.name, tensor.kind, tensor.type, slots, f"{tensor.bytes:,}", span([tensor.line]))


def memory_trace(usage: Usage) -> Iterator[Event]:
    """A millisecond for each moment of the program, with the bytes in memory then, and a bar for each tensor as long as it lives."""
    for at, moment in enumerate(usage.moments):
        yield bar(str(moment), 1e3 * at, 1e3, details=asdict(moment))
        bytes = {DEVICE: moment.device_bytes, HOST: moment.host_bytes}
        yield {"name": "bytes", "ph": "C", "ts": 1e3 * at, "pid": 1, "args": bytes}
    for track, tensor in enumerate(sorted(usage.tensors, key=lambda tensor: (tensor.place, -tensor.bytes)), 2):
        yield {"name": "thread_name", "ph": "M", "pid": 1, "tid": track, "args": {"name": f"{tensor.place}: {tensor.name}"}}
        yield bar(tensor.name, 1e3 * tensor.first, 1e3 * (tensor.last + 1 - tensor.first), track, asdict(tensor))
