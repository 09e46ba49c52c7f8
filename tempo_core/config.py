"""Options of a compilation: few, each with a reason."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tempo_core.errors import ConfigError
from tempo_core.target import TARGETS, Target

PASSES = (
    "simplify", "dce", "cse", "narrow", "split", "lift", "shift", "align", "associate", "pad", "precompute", "wavefront",
    "vectorize", "accumulate", "compact", "tile", "strip", "checkpoint", "trim", "recompute", "update", "fuse",
)  # fmt: skip
# Choices that can be switched off in the same way: steps that stay loops as that is faster (planner.py); and of the staged executor, loops
# over layers written out (runtime/lower/unroll.py), values that iterations hand to the next ones (runtime/lower/registers.py), and what it
# does with launches and sums (runtime/staged/stage.py, edges.py, chunks.py).
CHOICES = ("loop", "capacities", "unroll", "registers", "keep", "join", "chunk", "create", "order")
SWAPS = ("auto", "host", "off")


@dataclass(frozen=True)
class Config:
    """Options of compiling and running a program.

    seed: the seed of all random numbers. Another seed needs no recompilation.
    backend: "jax", or "numpy" (interpreted only).
    executor: "staged" makes XLA programs of all parts that need no host; "interpreted" runs statement by statement.
    disable: names of passes to switch off; "vectorize(t)" switches vectorization off along one step. Nine more names are choices:
        "loop" (a step stays a loop where that is faster), "capacities" (runs with small bounds have programs of their own, see `tp.upto`),
        and of the staged executor "unroll" (loops over layers are written out),
        "registers" (iterations hand values to the next ones), "keep", "join", "chunk", "create" (launches), and "order" (XLA on a CPU
        adds up in the order of the program; without it, products may have vector instructions, and zeros no sign: see `xla_cpu/options.py`).
    tile: sizes of tiles by step, `{"t": 64}`. Reductions over dimensions whose size contains that step's bound then run tile by tile. This
        saves memory if the dimensions are large, and work if they are padded (`k[0:t + 1]`). Floats are summed in another order.
    checkpoint: sizes of segments by step, `{"t": 100}`. Of loops over that step, values are kept for the gradient at the ends of segments
        alone, and computed again, segment by segment, by the loop that goes back. With `{"t": (1000, 30)}`, segments are cut into segments
        again. The step is not vectorized. Results are the same.
    host: sizes of parts by step, `{"t": 1000}`. Values with more points of that step live in the memory of the host. Loops that walk through
        them run in launches of about so many points, each with those points on the device that it needs. Inputs over that step are fed in
        the same way: from a file that is memory-mapped, the device never has more than a part. Results are the same.
    swap: where values go that `memory_limit` leaves no room for: "host", the memory of the host, or a directory, for files that are removed
        after the run. "auto": to the host if the device has a memory of its own (on a CPU, that would save nothing). "off": nowhere;
        inputs are whole on the device then.
    memory_limit: the most memory of the device, in bytes or as "2GiB": stores, inputs, results and temporaries. The fastest form of the
        program that fits is taken: loops, tiles, checkpoints, values on the host (`planner.py`). If none fits, the error names the smallest
        limit that would do, and the largest tensors. The device programs are compiled for it, as XLA decides about temporaries.
    check_numerics: raise NumericsError if a value that is not finite reaches an output, a function on the host or a recurrence.
        The error names the statement and the point where it began. The -inf of masks is not an error (see `runtime/numerics.py`).
    devices: how many devices share the work: each has its part of the points of one step whose points do not depend on each other, and
        results are the same up to the order of sums. "auto": all there are, if such a step has so many points that this pays. A number is
        an error if it cannot be done. For several devices on a CPU, call `tp.use_cpu_devices(n)` first (docs/language/devices.md).
    cache: keep compiled programs on disk, so that the next start need not compile them: a directory, or True for the usual place
        (docs/language/cache.md). None and False: keep nothing.
    cache_limit: the size of this directory, in bytes or as "2GiB". Programs that were not used for longest are removed.
    target: the device whose numbers decide between forms of the program: "cpu", "h100", or a `tp.Target` of your own. None: the device at hand.
        A program for another device shows in `explain` and `plan` what would be chosen there; it does not run here.
    launch_seconds: about how long a device program may run before Python serves signals. A loop that may take longer runs in several
        launches. None: in one, whatever it takes.
    """

    seed: int = 0
    backend: str = "jax"
    executor: str = "staged"
    disable: tuple[str, ...] = ()
    tile: Mapping[str, int] | tuple[tuple[str, int], ...] = ()
    checkpoint: Mapping[str, int | tuple[int, ...]] | tuple[tuple[str, int], ...] = ()
    host: Mapping[str, int] | tuple[tuple[str, int], ...] = ()
    swap: str | Path = "auto"
    memory_limit: int | str | None = None
    check_numerics: bool = False
    launch_seconds: float | None = 0.25
    target: str | Target | None = None
    devices: int | str = 1
    cache: str | Path | bool | None = None
    cache_limit: int | str = "2GiB"

    def __new__(cls, *_: object, **options: object) -> Config:
        for option in options:
            if option not in cls.__dataclass_fields__:
                near = difflib.get_close_matches(option, cls.__dataclass_fields__, 1)
                hint = f"did you mean {near[0]}=...?" if near else f"its options are {', '.join(cls.__dataclass_fields__)}"
                raise ConfigError(f"Config has no option `{option}`", hint=hint)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not hasattr(self.seed, "__index__"):
            raise ConfigError(f"seed={self.seed!r} is not an int", hint="Config(seed=3)")
        if not isinstance(self.check_numerics, bool):
            raise ConfigError(
                f"check_numerics={self.check_numerics!r} is neither True nor False", hint="Config(check_numerics=True)"
            )
        seconds = self.launch_seconds
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0):
            raise ConfigError(f"launch_seconds={seconds!r} is not a time in seconds", hint="Config(launch_seconds=0.5)")
        if isinstance(self.disable, str) or not isinstance(self.disable, Iterable):
            raise ConfigError(f"disable={self.disable!r} is not a tuple of passes", hint='Config(disable=("fuse",))')
        object.__setattr__(self, "disable", tuple(self.disable))
        _choose("backend", self.backend, ("jax", "numpy"))
        if not isinstance(self.target, (Target, type(None))) and self.target not in TARGETS:
            hint = f'one of {", ".join(TARGETS)}, or what you measured: Config(target=tp.Target.load("machine.json"))'
            raise ConfigError(f"target={self.target!r} is unknown", hint=hint)
        _choose("executor", self.executor, ("staged", "interpreted"))
        if self.memory_limit is not None:
            object.__setattr__(self, "memory_limit", size_in_bytes(self.memory_limit))
        object.__setattr__(self, "cache_limit", size_in_bytes(self.cache_limit, "cache_limit"))
        if not isinstance(self.cache, (str, os.PathLike, bool, type(None))) or self.cache == "":
            raise ConfigError(
                f"cache={self.cache!r} is not a directory",
                hint='Config(cache="programs"), or Config(cache=True) for the usual place',
            )
        if not isinstance(self.swap, (str, os.PathLike)) or (self.swap not in SWAPS and not os.path.isdir(self.swap)):
            raise ConfigError(
                f"swap={str(self.swap)!r} is not a directory",
                hint=f'Config(swap="host"), one of {", ".join(SWAPS)}, or a directory',
            )
        object.__setattr__(self, "cache", os.fspath(self.cache) if isinstance(self.cache, os.PathLike) else self.cache or None)
        for option, of in (("tile", "tiles"), ("checkpoint", "segments"), ("host", "parts")):
            object.__setattr__(self, option, _sizes_by_step(option, of, getattr(self, option)))
        is_number = not isinstance(self.devices, (bool, str)) and hasattr(self.devices, "__index__")
        if self.devices != "auto" and not (is_number and self.devices >= 1):  # type: ignore[operator]
            raise ConfigError(f"devices={self.devices!r} is not a number of devices", hint='Config(devices=2) or devices="auto"')
        if self.interpreted and self.devices not in (1, "auto"):
            raise ConfigError(
                f"devices={self.devices}: interpreted programs run on one device",
                hint='leave out executor="interpreted" and backend="numpy"',
            )
        for item in self.disable:
            name, _, rest = str(item).partition("(")
            _choose("disable", name, (*PASSES, *CHOICES))
            if "(" in str(item) and (name != "vectorize" or not rest.endswith(")")):
                raise ConfigError(
                    f"disable={item!r} names a step, but only vectorize takes one",
                    hint='leave the step out, or write disable=("vectorize(t)",)',
                )

    def disabled(self, name: str) -> bool:
        return name in self.disable

    @property
    def unvectorized_steps(self) -> tuple[str, ...]:
        """The steps that are not vectorized: those that the user names, and those with checkpoints."""
        named = tuple(item[len("vectorize(") : -1] for item in self.disable if item.startswith("vectorize("))
        return tuple(dict.fromkeys((*named, *(step for step, _ in self.checkpoints))))

    @property
    def tiles(self) -> tuple[tuple[str, int], ...]:
        """The (step, size of tiles) pairs."""
        return () if self.disabled("tile") else tuple(self.tile)  # type: ignore[arg-type]

    @property
    def checkpoints(self) -> tuple[tuple[str, int], ...]:
        """The (step, size of segments) pairs."""
        return () if self.disabled("checkpoint") else tuple(self.checkpoint)  # type: ignore[arg-type]

    @property
    def parts(self) -> dict[str, int]:
        """The sizes of the parts on the device, by step. An interpreted program has all values in one place."""
        return {} if self.interpreted else dict(self.host)

    @property
    def on(self) -> Target:
        """The target, with its numbers."""
        if isinstance(self.target, Target):
            return self.target
        return Target.at_hand() if self.target is None else Target.named(self.target)

    @property
    def swap_directory(self) -> str | None:
        """The directory for stores on the host; None for its memory."""
        return None if self.swap in SWAPS else os.fspath(self.swap)

    @property
    def cache_bytes(self) -> int:
        """The limit of the cache on disk, in bytes."""
        return size_in_bytes(self.cache_limit)

    @property
    def interpreted(self) -> bool:
        """Whether programs are interpreted. NumPy arrays cannot be staged."""
        return self.executor == "interpreted" or self.backend == "numpy"


def size_in_bytes(size: int | str, option: str = "memory_limit") -> int:
    """A number of bytes, or a text such as "2GiB", "512 MiB", "100KB", "4096"."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(size), re.IGNORECASE)
    if match is None or isinstance(size, float):
        raise ConfigError(f"{option}={size!r} is not a size", hint=f'give a number of bytes, or a string: {option}="2GiB"')
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " "))


def _sizes_by_step(option: str, of: str, sizes: object) -> tuple[tuple[str, int], ...]:
    """Pairs of step names and sizes, from a mapping (its keys may be steps) or from such pairs. A step may have several sizes, in a tuple."""
    try:
        items = list(sizes.items() if isinstance(sizes, Mapping) else sizes)  # type: ignore[call-overload]
        pairs = [(str(step), each) for step, size in items for each in (size if isinstance(size, tuple) else (size,))]
    except (TypeError, ValueError):
        raise ConfigError(f"{option}={sizes!r} is not a dict from steps to sizes", hint=f'{option}={{"t": 64}}') from None
    for step, size in pairs:
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
            raise ConfigError(
                f"the {of} of step {step} have the size {size!r}", hint=f'give a number of at least 1: {option}={{"t": 64}}'
            )
    several = {step for step, _ in pairs if sum(step == other for other, _ in pairs) > 1}
    if several and option != "checkpoint":
        raise ConfigError(f"the {of} of step {min(several)} have several sizes", hint=f'give one: {option}={{"t": 64}}')
    return tuple(sorted(((step, size.__index__()) for step, size in pairs), key=lambda pair: (pair[0], -pair[1])))


def _choose(option: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"
        raise ConfigError(f"{option}={value!r} is unknown", hint=hint)
