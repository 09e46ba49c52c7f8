"""Targets: what a device does, in some numbers, and the cost model, which makes a time of them and of what a program costs.

A statement that runs n times takes

    n * (operation + max(work, bytes / bandwidth))

where the bandwidth is that of the cache if what one execution moves fits there, and else that of memory. The work is that of products, of dear
functions (`exp`), and of all other operations on elements, each at its own rate; few at a time use one core, and fewer vector instructions.
Each launch has a fixed price, and so has each message between devices. Much memory costs time for each page: an allocator
gives it back to the system, and each run takes it anew. No program is faster than its *roofline*: all its operations at the peak, or all
bytes that go to memory and come from it at the memory's bandwidth, whichever takes longer.

Where two forms of a program are compared, both have a time by these numbers, so another device needs other numbers and no other rules. The
numbers of a target are fixed, so that decisions do not depend on how busy a machine is; `Target.calibrated()` measures them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core.errors import ConfigError
from tempo_core.files import write_whole


class Form(Protocol):
    """What has a time, such as `program.cost()`: statements with `numbers`: "times", "operations", "products", "dear" and "bytes_moved"."""

    @property
    def by_statement(self) -> Sequence[Any]: ...


@dataclass(frozen=True)
class Target:
    """What a device does. Times are in seconds, rates are per second; a multiplication with its addition is two operations.

    kind: of the device: a part of its name, `jax.Device.device_kind`.
    operations: at the peak, in products of float32 matrices.
    memory, cache: bytes that are read and written.
    cache_bytes: the size of the last cache that the cores, or the multiprocessors, share.
    operation: the fixed price of an operation inside of a device program: on a GPU, of a kernel.
    launch: the fixed price of a launch, and of the host's part in it.
    elements, dear: operations on elements, and of dear functions, where one execution has many of them.
    few_elements, few_dear: the same where it has few.
    many: operations on elements in one execution, from which on these are many.
    kept: bytes of stores and temporaries that an allocator keeps for the next run.
    fresh: bytes that the system hands to a program.
    host: bytes that move between the memory of the host and that of the device.
    exchange: the fixed price of a launch that has parts of stores in the memory of the host.
    first_cache, line: bytes of the cache of one core, and of a line in it.
    message: the fixed price of a collective, with the wait for the slowest device.
    compile: of one operation.
    spread: how many times faster two devices are than one, for work without messages. A CPU device uses several cores for large products,
        so that two devices on the same cores gain little.
    """

    kind: str
    operations: float
    memory: float
    cache: float
    cache_bytes: float
    operation: float
    launch: float
    message: float
    compile: float
    spread: float
    elements: float = 20e9
    dear: float = 2.5e9
    few_elements: float = 10e9
    few_dear: float = 0.4e9
    many: float = 2**18
    kept: float = 32 * 2**20
    fresh: float = 1.7e9
    host: float = 4e9
    exchange: float = 1e-3
    first_cache: float = 32 * 2**10
    line: float = 64

    # -- times --------------------------------------------------------------------------------------------------------

    def seconds(self, form: Form, launches: int = 0, allocated: int = 0) -> float:
        """The time of a form of a program. Each run takes so many `allocated` bytes of memory, for its stores and temporaries."""
        statements = sum(self._of_statement(each.numbers) for each in form.by_statement)
        return statements + launches * self.launch + self._of_fresh_memory(allocated)

    def _of_statement(self, numbers: Mapping[str, int]) -> float:
        return self.of(*(numbers[key] for key in ("times", "operations", "products", "dear", "bytes_moved")))

    def of(
        self,
        times: float,
        operations: float = 0,
        products: float = 0,
        dear: float = 0,
        bytes: float = 0,
        alive: float | None = None,
    ) -> float:
        """The time of so many executions, which together have so many operations and move so many bytes.

        What is `alive` from one to the next, by default the bytes of each, is in the cache if it fits there.
        """
        if not operations and not bytes:  # a value takes another's place
            return 0.0
        in_cache = bytes <= times * self.cache_bytes if alive is None else alive <= self.cache_bytes
        is_many = operations - products >= times * self.many
        elements, functions = (self.elements, self.dear) if is_many else (self.few_elements, self.few_dear)
        work = products / self.operations + dear / functions + (operations - products - dear) / elements
        return times * self.operation + max(work, bytes / (self.cache if in_cache else self.memory))

    def of_copy(self, bytes: float) -> float:
        """The time in which so many bytes are read from memory and written there."""
        return 2 * bytes / self.memory

    def most_saved(self, form: Form, allocated: int) -> float:
        """The most seconds that a form of the program with less memory saves: all that does not fit in the cache would lie there."""
        every = [each.numbers for each in form.by_statement]
        moved = sum(row["bytes_moved"] for row in every if row["bytes_moved"] > row["times"] * self.cache_bytes)
        return moved * (1 / self.memory - 1 / self.cache) + self._of_fresh_memory(allocated)

    def _of_fresh_memory(self, allocated: int) -> float:
        return allocated / self.fresh if allocated > self.kept else 0.0

    def roofline(self, operations: float, bytes: float) -> float:
        """The least time of so many operations, and bytes that go to memory and come from it."""
        return max(operations / self.operations, bytes / self.memory)

    def pays_to_spread(self, seconds: float, devices: int, messages: int) -> bool:
        """Whether work of so many seconds on one device is shared by several, which exchange so many messages for it."""
        faster = 1 + (self.spread - 1) * (devices - 1)
        return seconds * (1 - 1 / faster) > messages * self.message

    def is_at_hand(self) -> bool:
        """Whether programs run on such a device here."""
        return self.kind.lower() in device().device_kind.lower()

    def __str__(self) -> str:
        rows = [
            ("device", self.kind),
            ("products of float32", f"{self.operations / 1e9:,.0f} G operations/s"),
            ("other operations", f"{self.elements / 1e9:,.0f} G operations/s, {self.few_elements / 1e9:,.0f} if few at a time"),
            ("exponentials", f"{self.dear / 1e9:,.1f} G operations/s, {self.few_dear / 1e9:,.1f} if few at a time"),
            ("memory", f"{self.memory / 1e9:,.1f} GB/s"),
            ("cache", f"{self.cache / 1e9:,.1f} GB/s, {self.cache_bytes / 2**20:.0f} MiB"),
            ("memory from the system", f"{self.fresh / 1e9:,.1f} GB/s for more than {self.kept / 2**20:,.0f} MiB"),
            ("to and from the host", f"{self.host / 1e9:,.1f} GB/s, {self.exchange * 1e6:,.0f} us a launch"),
            ("an operation", f"{self.operation * 1e6:.2f} us"),
            ("a launch", f"{self.launch * 1e6:.1f} us"),
            ("a message", f"{self.message * 1e6:.0f} us"),
            ("compiling an operation", f"{self.compile * 1e3:.1f} ms"),
            ("two devices in place of one", f"{self.spread:.2f} times as fast"),
        ]
        return "\n".join(f"{name:28} {value}" for name, value in rows)

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the constants to a file. Raises ConfigError if that cannot be done."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, (json.dumps(asdict(self), indent=1) + "\n").encode())
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error}", hint="choose another place") from None

    @staticmethod
    def load(path: str | Path) -> Target:
        """The constants in a file that `save` wrote. Raises ConfigError for another file."""
        try:
            values: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            names = {field.name for field in fields(Target)}
            optional = {field.name for field in fields(Target) if field.default is not MISSING}
            if not isinstance(values, dict) or not names - optional <= values.keys() <= names:
                raise ValueError(f"it does not have the keys {', '.join(sorted(names))}")
            numbers: Any = {name: float(value) for name, value in values.items() if name != "kind"}
            if not all(0 < number < float("inf") for number in numbers.values()):
                raise ValueError("its numbers are not all positive")
            return Target(str(values["kind"]), **numbers)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{path} is not a file of measured constants: {error}", hint="tempo-rl doctor --calibrate --out FILE writes one"
            ) from None

    @staticmethod
    def calibrated() -> Target:
        """The constants of the present device, measured in some seconds. The machine should have nothing else to do.

        Not measured are the prices of an operation (XLA makes many of them one), of messages, the rate of operations on elements (memory
        limits it), and the gain by a second device.
        """
        return _calibrated()

    @staticmethod
    def named(name: str) -> Target:
        """The target of a name in `TARGETS`, as `Config(target=name)` takes it."""
        return {"cpu": CPU, "h100": H100}[name]

    @staticmethod
    def at_hand() -> Target:
        """The target on which decisions depend by default: of the present device's kind, or that of the file that TEMPO_MACHINE names."""
        path = os.environ.get(VARIABLE)
        return Target.load(path) if path else CPU if jax.default_backend() == "cpu" else H100


VARIABLE = "TEMPO_MACHINE"  # the file of constants that were measured, for all decisions
TARGETS = "cpu", "h100"

# Round numbers for two cores of a server's processor. They are estimates: `calibrated` gave 62 to 74 G
# operations/s, 10.6 GB/s, 140 to 151 GB/s and 4 to 7 us on a busy machine. With these numbers the model has the times of 50 programs, each with a
# step vectorized and as a loop, within a factor of 1.4 in the geometric mean. tanh of 6,400 x 4,096 numbers takes 0.4 ns a number at once and
# 3 ns in a loop over 6,400. Fresh memory takes 2.2 us a page of 4 KiB on that virtual machine: glibc keeps 32 MiB, and 31 MiB are written at 26
# GB/s, 33 MiB at 1.7. The price of a message and the gain by a second device fit PPO's times on one and two CPU devices; REINFORCE on
# pictures in 2,008 launches with parts on the host takes 3.2 s, in one 1.1.
CPU = Target("cpu", 100e9, 25e9, 200e9, 32 * 2**20, 0.2e-6, 20e-6, 500e-6, 1e-3, 1.25)

# Nothing is measured. NVIDIA's data sheet of the H100 (SXM, 80 GB) has 67 T float32 operations/s outside of tensor cores, 3.35 TB/s of memory,
# and 128 GB/s of PCIe, which is that of both directions. The white paper of its architecture has 50 MB of L2, and 132 multiprocessors of 2,048
# threads with a first cache of 256 KiB each. The others are estimates: L2 at thrice the memory's rate, a special function unit for each four
# float32 ones, 4 us for a kernel. JAX takes three quarters of the memory at its start, and hands it out itself.
H100 = Target(
    "h100", operations=67e12, elements=33e12, few_elements=33e12, dear=8e12, few_dear=8e12, many=132 * 2048, operation=4e-6, launch=15e-6,
    memory=3.35e12, cache=10e12, cache_bytes=50e6, first_cache=256 * 2**10, line=128, kept=60e9, fresh=3.35e12, host=64e9, exchange=50e-6,
    message=20e-6, spread=1.9, compile=1e-3,
)  # fmt: skip


def compared(forms: Mapping[str, float]) -> str:
    """The forms that a decision compared, with the seconds that it had for each."""
    return ", ".join(f"{form} {seconds * 1e3:.3g} ms" for form, seconds in forms.items())


def device() -> jax.Device:
    """The device on which programs run."""
    chosen = jax.config.jax_default_device
    return jax.local_devices(backend=chosen)[0] if chosen is None or isinstance(chosen, str) else chosen


# -- measuring --------------------------------------------------------------------------------------------------------

TURNS, FEW = 5, 256


def _calibrated() -> Target:
    device = jax.local_devices()[0]
    on_cpu = device.platform == "cpu"
    target = CPU if on_cpu else H100
    side, large, small = (2048, 2**26, 2**20) if on_cpu else (8192, 2**28, 2**21)  # elements
    square = jnp.ones((side, side))
    products = _seconds(jax.jit(lambda x: x @ x), square)
    few, many = 8, 200

    def repeated(times: int) -> Callable[[Any], Any]:
        return jax.jit(lambda x: lax.fori_loop(0, times, lambda _, y: y + 1, x))

    moved, in_cache = _seconds(repeated(few), jnp.ones(large)) / few, _seconds(repeated(many), jnp.ones(small)) / many
    launch = _seconds(jax.jit(lambda x: x + 1), jnp.ones(1), repeats=100)
    new = _seconds(jax.jit(lambda x: x + 1), jnp.ones(large)) - moved  # the result is in memory that the system hands over
    dear = _seconds(jax.jit(jnp.tanh), jnp.ones(small))
    few_dear = _seconds(jax.jit(lambda x: lax.fori_loop(0, many, lambda _, y: jnp.tanh(y), x)), jnp.ones(FEW))
    return replace(
        target,
        kind=device.device_kind,
        operations=2 * side**3 / products,
        memory=2 * 4 * large / moved,
        cache=2 * 4 * small / in_cache,
        launch=launch,
        dear=small / dear,
        few_dear=FEW * many / few_dear,
        fresh=4 * large / max(new, moved),
        compile=_compile_seconds(),
    )


def _compile_seconds() -> float:
    """The seconds for which XLA compiles an operation of a program of some."""
    count = 40

    def program(x: Any) -> Any:
        for k in range(count):
            x = jnp.tanh(x @ x + k)
        return x

    lowered = jax.jit(program).lower(jnp.ones((7, 7)))
    start = time.perf_counter()
    lowered.compile()
    return (time.perf_counter() - start) / (3 * count)


def _seconds(function: Callable[[Any], Any], x: Any, repeats: int = 1) -> float:
    """The least seconds of a call."""
    function(x).block_until_ready()
    least = float("inf")
    for _ in range(TURNS):
        start = time.perf_counter()
        for _ in range(repeats):
            result = function(x)
        result.block_until_ready()
        least = min(least, (time.perf_counter() - start) / repeats)
    return least
