"""The cost model: how long a program takes on a device, from what it costs (`program.cost()`) and a few constants of the device.

A statement that runs n times takes

    n * (operation + max(work, bytes / bandwidth))

where the bandwidth is that of the cache if what one execution moves fits there, and else that of memory. The work is that of products, of dear
functions (`exp`), and of all other operations on elements, each at its own rate; few at a time use one core, and fewer vector instructions.
Each launch has a fixed price, and so has each message between devices. Much memory costs time for each page: an allocator
gives it back to the system, and each run takes it anew. No program is faster than its *roofline*: all its operations at the peak, or all
bytes that go to memory and come from it at the memory's bandwidth, whichever takes longer.

The constants of a kind of device are fixed, so that decisions do not depend on how busy a machine is; `Machine.calibrated()` measures them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core import prices
from tempo_core.errors import ConfigError
from tempo_core.files import write_whole
from tempo_core.runtime.cost.cost import Cost, StatementCost


@dataclass(frozen=True)
class Machine:
    """What a device does. Times are in seconds, rates are per second; a multiplication with its addition is two operations.

    kind: of the device, as in `jax.Device.device_kind`.
    operations: at the peak, in products of float32 matrices.
    memory, cache: bytes that are read and written.
    cache_bytes: the size of the last cache that the cores, or the multiprocessors, share.
    operation: the fixed price of an operation inside of a device program.
    launch: the fixed price of a launch, and of the host's part in it.
    elements, dear: operations on elements, and of dear functions, where one execution has many of them.
    few_elements, few_dear: the same where it has few.
    fresh: bytes that the system hands to a program.
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
    fresh: float = 1.7e9

    def seconds(self, cost: Cost, launches: int = 0, allocated: int = 0) -> float:
        """The time of a program, as the model has it. Each run takes so many `allocated` bytes of memory, for its stores and temporaries."""
        return sum(map(self._of_statement, cost.by_statement)) + launches * self.launch + self._of_fresh_memory(allocated)

    def most_saved(self, cost: Cost, allocated: int) -> float:
        """The most seconds that a form of the program with less memory saves: all that does not fit in the cache would lie there."""
        moved = sum(row.numbers["bytes_moved"] for row in cost.by_statement if not self._is_in_cache(row.numbers))
        return moved * (1 / self.memory - 1 / self.cache) + self._of_fresh_memory(allocated)

    def _of_fresh_memory(self, allocated: int) -> float:
        return allocated / self.fresh if allocated > prices.MOST_BYTES_KEPT else 0.0

    def _is_in_cache(self, numbers: Mapping[str, int]) -> bool:
        return numbers["bytes_moved"] <= numbers["times"] * self.cache_bytes

    def _of_statement(self, statement: StatementCost) -> float:
        numbers = statement.numbers
        times, operations, products, dear = (numbers[key] for key in ("times", "operations", "products", "dear"))
        if not operations and not numbers["bytes_moved"]:  # a value takes another's place
            return 0.0
        bandwidth = self.cache if self._is_in_cache(numbers) else self.memory
        is_many = operations - products >= times * prices.LEAST_OPERATIONS_AT_ONCE
        elements, functions = (self.elements, self.dear) if is_many else (self.few_elements, self.few_dear)
        work = products / self.operations + dear / functions + (operations - products - dear) / elements
        return times * self.operation + max(work, numbers["bytes_moved"] / bandwidth)

    def roofline(self, operations: float, bytes: float) -> float:
        """The least time of so many operations, and bytes that go to memory and come from it."""
        return max(operations / self.operations, bytes / self.memory)

    def pays_to_spread(self, seconds: float, devices: int, messages: int) -> bool:
        """Whether work of so many seconds on one device is shared by several, which exchange so many messages for it."""
        faster = 1 + (self.spread - 1) * (devices - 1)
        return seconds * (1 - 1 / faster) > messages * self.message

    def __str__(self) -> str:
        rows = [
            ("device", self.kind),
            ("products of float32", f"{self.operations / 1e9:,.0f} G operations/s"),
            ("other operations", f"{self.elements / 1e9:,.0f} G operations/s, {self.few_elements / 1e9:,.0f} if few at a time"),
            ("exponentials", f"{self.dear / 1e9:,.1f} G operations/s, {self.few_dear / 1e9:,.1f} if few at a time"),
            ("memory", f"{self.memory / 1e9:,.1f} GB/s"),
            ("cache", f"{self.cache / 1e9:,.1f} GB/s, {self.cache_bytes / 2**20:.0f} MiB"),
            ("memory from the system", f"{self.fresh / 1e9:,.1f} GB/s"),
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
    def load(path: str | Path) -> Machine:
        """The constants in a file that `save` wrote. Raises ConfigError for another file."""
        try:
            values: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            names = {field.name for field in fields(Machine)}
            optional = {field.name for field in fields(Machine) if field.default is not MISSING}
            if not isinstance(values, dict) or not names - optional <= values.keys() <= names:
                raise ValueError(f"it does not have the keys {', '.join(sorted(names))}")
            numbers: Any = {name: float(value) for name, value in values.items() if name != "kind"}
            if not all(0 < number < float("inf") for number in numbers.values()):
                raise ValueError("its numbers are not all positive")
            return Machine(str(values["kind"]), **numbers)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{path} is not a file of measured constants: {error}", hint="tempo-rl doctor --calibrate --out FILE writes one"
            ) from None

    @staticmethod
    def calibrated() -> Machine:
        """The constants of the present device, measured in some seconds. The machine should have nothing else to do.

        Not measured are the prices of an operation (XLA makes many of them one), of messages, the rate of operations on elements (memory
        limits it), and the gain by a second device.
        """
        return _calibrated()

    @staticmethod
    def usual(platform: str) -> Machine:
        """The constants on which decisions depend: of a kind of device, or those of the file that TEMPO_MACHINE names."""
        path = os.environ.get(VARIABLE)
        return Machine.load(path) if path else CPU if platform == "cpu" else GPU


VARIABLE = "TEMPO_MACHINE"  # the file of constants that were measured, for all decisions

# Round numbers for two cores of a server's processor and for a large GPU. They are estimates: of the CPU's, `calibrated` gave 62 to 74 G
# operations/s, 10.6 GB/s, 140 to 151 GB/s and 4 to 7 us on a busy machine. With these numbers the model has the times of 50 programs, each with a
# step vectorized and as a loop, within a factor of 1.4 in the geometric mean. Fresh memory takes 2.2 us a page of 4 KiB on that virtual machine.
# The price of a message and the gain by a second device fit PPO's times on one and two CPU devices. Nothing of the GPU's is measured.
CPU = Machine("cpu", 100e9, 25e9, 200e9, 32 * 2**20, 0.2e-6, 20e-6, 500e-6, 8e-3, 1.25)
GPU = Machine("gpu", 60e12, 3.3e12, 10e12, 50 * 2**20, 4e-6, 15e-6, 20e-6, 8e-3, 1.9, 30e12, 8e12, 30e12, 8e12, 3.3e12)


# -- measuring --------------------------------------------------------------------------------------------------------

TURNS, FEW = 5, 256


def _calibrated() -> Machine:
    device = jax.local_devices()[0]
    on_cpu = device.platform == "cpu"
    machine = CPU if on_cpu else GPU
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
        machine,
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
            x = jnp.cumsum(x * (1 + k), axis=0)
        return x

    lowered = jax.jit(program).lower(jnp.ones((7, 5)))
    start = time.perf_counter()
    lowered.compile()
    return (time.perf_counter() - start) / (2 * count)


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
