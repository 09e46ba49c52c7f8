"""Files of pictures, and traces: bars on a line of time, which https://ui.perfetto.dev and chrome://tracing open (Chrome's JSON format)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tempo_core.errors import ConfigError
from tempo_core.files import refusal, write_whole

Event = dict[str, object]


def write(path: str | Path, makers: Mapping[str, Callable[[], str]], what: str, example: str) -> None:
    """Write a picture of `what`. The maker of its text is that for the ending of the file.

    Raises ConfigError unless the file ends so, as in `example`, and can be written.
    """
    path = Path(path)
    if path.suffix not in makers:
        raise ConfigError(f"cannot draw {what} as {path.name}: only {' or '.join(makers)} is written", hint=example)
    try:
        write_whole(path, makers[path.suffix]().encode())
    except OSError as error:
        raise ConfigError(
            f"the picture {path} cannot be written: {refusal(error, path)}", hint="give a file in a directory that exists"
        ) from error


def write_trace(path: str | Path, events: Callable[[], Iterable[Event]], what: str, example: str) -> None:
    """Write a trace of `what` as .json. Raises what `write` raises."""
    write(path, {".json": lambda: json.dumps({"traceEvents": list(events())})}, what, example)


def bar(name: str, start: float, length: float, track: int = 1, details: Mapping[str, object] = MappingProxyType({})) -> Event:
    """A bar of a track, from `start` on, in microseconds. A click on it shows its details."""
    return {"name": name, "ph": "X", "ts": start, "dur": length, "pid": 1, "tid": track, "args": dict(details)}


def flame(stacks: Iterable[tuple[Sequence[str], float]]) -> Iterator[Event]:
    """Stacks, each a path of labels (the outermost first) with its seconds, as bars above the bars of their parts, the longest first."""
    seconds: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for labels, of_stack in stacks:
        for depth in range(1, len(labels) + 1):
            seconds[tuple(labels[:depth])] += of_stack
    at: defaultdict[tuple[str, ...], float] = defaultdict(float)  # by path: where its next part begins
    for path in sorted(seconds, key=lambda path: [(-seconds[path[: depth + 1]], label) for depth, label in enumerate(path)]):
        at[path] = at[path[:-1]]
        at[path[:-1]] += seconds[path]
        yield bar(path[-1], 1e6 * at[path], 1e6 * seconds[path])
