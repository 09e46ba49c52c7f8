"""A step spread over devices: each device holds its share of the points, and computes what belongs to them.

The device programs are those for one device. Stores, inputs and values say which of their dimensions is in parts, and XLA's partitioner
(GSPMD, Xu et al. 2021) divides the work: what belongs to one point stays on its device, and reductions and contractions over the step
become collectives. What has no such dimension is on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tempo_core.backends.products import Shares
from tempo_core.config import Config
from tempo_core.errors import ConfigError, quoted
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.names.naming import kind_of, names
from tempo_core.ir.ops import Dataflow
from tempo_core.ir.types import TensorType
from tempo_core.runtime.cost.cost import Cost
from tempo_core.schedule import Scheduled
from tempo_core.symbolic.domain import is_own_point
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.limits import UpTo
from tempo_core.target import Target, device

AXIS = "devices"  # the name of the mesh's only axis


class Spread:
    """The points of `step` in equal parts on `devices`, the first points on the first device."""

    def __init__(self, step: Symbol, devices: Sequence[jax.Device]):
        self.step, self.devices = step, tuple(devices)

    @property
    def name(self) -> tuple[str, tuple[int, ...]]:
        """What tells it from others: the step, and the numbers of the devices."""
        return self.step.name, tuple(device.id for device in self.devices)

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh(np.array(self.devices), (AXIS,))

    @cached_property
    def whole(self) -> NamedSharding:
        """The sharding of what each device has as a whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    def sharding(self, sizes: Sequence[Expr | None]) -> NamedSharding:
        """The sharding of an array with dimensions of these sizes: the first that is the step's bound is in parts."""
        axes: list[str | None] = [None] * len(sizes)
        position = self._dimension(sizes)
        if position is not None:
            axes[position] = AXIS
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def divides(self, type: TensorType) -> bool:
        """Whether values of a type are in parts."""
        return self._dimension(type.shape) is not None

    def constrained(self, value: Any, type: TensorType) -> Any:
        """A traced value of this type, which is in parts if it has all points of the step."""
        return lax.with_sharding_constraint(value, self.sharding(type.shape)) if self.divides(type) else value

    def shares(self, left: TensorType, right: TensorType) -> Shares | None:
        """The shares of a product of values of these types."""
        axes = self._dimension(left.shape), self._dimension(right.shape)
        return None if axes == (None, None) else Shares(len(self.devices), *axes)

    def placed(self, value: Any, sharding: NamedSharding) -> Any:
        """An array on the devices. Each process has the whole array, and gives its own devices their parts."""
        if isinstance(value, jax.Array) and value.sharding == sharding:
            return value
        if jax.process_count() == 1:
            return jax.device_put(value, sharding)
        array = np.asarray(value)
        return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])

    def gathered(self, value: Any) -> Any:
        """A result that this process can read: if other processes have parts of it, each gets all of them."""
        if not isinstance(value, jax.Array) or value.is_fully_addressable or value.is_fully_replicated:
            return value
        return jax.jit(lambda array: array, out_shardings=self.whole)(value)

    def for_host(self, type: TensorType) -> NamedSharding:
        """The sharding of a value that the host gives or gets. Each process gives and gets all of it."""
        return self.sharding(type.shape) if jax.process_count() == 1 else self.whole

    def text(self, points: int) -> str:
        """`b: 512 points on 2 devices, 256 on each`."""
        return f"{self.step}: {points} points on {len(self.devices)} devices, {points // len(self.devices)} on each"

    def _dimension(self, sizes: Sequence[Expr | None]) -> int | None:
        bound = self.step.bound_symbol.expr.terms
        return next((k for k, size in enumerate(sizes) if size is not None and size.terms == bound), None)


# -- which step -------------------------------------------------------------------------------------------------------


def spread(
    config: Config, source: Graph, scheduled: Scheduled, limits: Mapping[Symbol, UpTo], cost: Callable[[], Cost]
) -> Spread | None:
    """The step that is spread over `config.devices`; None for one device, or if "auto" finds none that pays by its `cost`.

    It is a step with no dependence across its points, and of those the one with the largest stores. `source` is the program as it was
    written, `limits` has the bounds that a run chooses. Raises ConfigError if there are fewer devices, or no such step.
    """
    if (wanted := config.devices) == 1:
        return None
    devices = available(wanted)
    if len(devices) == 1:
        return None
    reasons: list[str] = []
    candidates: list[tuple[int, Symbol, int]] = []
    for step in source.order:
        reason = _dependence(source, step)
        points = scheduled.bounds.get(step.bound_symbol, 0)
        bytes = bytes_along(scheduled, step)
        if step.bound_symbol in limits:
            reason = f"its bound {step.bound_symbol} is chosen by each run"
        elif reason is None and not bytes:
            reason = "no tensor has all its points at once"
        elif reason is None and _parts(wanted, len(devices), points) == 1:
            reason = f"its {points} points are not a multiple of {len(devices)}"
        if reason is None:
            candidates.append((bytes, step, _parts(wanted, len(devices), points)))
        elif any(step in node.domain for node in source):
            reasons.append(f"\n    {step}: {reason}")
    if candidates:
        bytes, step, count = max(candidates, key=lambda each: each[0])
        if wanted != "auto" or _pays(scheduled, step, devices[:count], cost(), config.on):
            return Spread(step, devices[:count])
        return None
    if wanted == "auto":
        return None
    raise ConfigError(
        f"devices={wanted}: no step of the program can be spread over {wanted} devices{''.join(reasons)}",
        hint='to run it on one device: Config(devices="auto")',
    )


def _pays(scheduled: Scheduled, step: Symbol, devices: Sequence[jax.Device], cost: Cost, target: Target) -> bool:
    """Whether to spread a step, by the cost model: each execution of what reduces over the step is a message."""
    labels, spread = names(scheduled.graph), Spread(step, devices)
    reducing = {labels[node.id] for node in scheduled.graph if _reduces(scheduled.graph, node, spread)}
    messages = sum(row.numbers["times"] for row in cost.by_statement if row.name.split("|")[0] in reducing)
    return target.pays_to_spread(target.seconds(cost), len(devices), messages)


def _reduces(graph: Graph, node: Node, spread: Spread) -> bool:
    """Whether a node reads all points of the step, and gives a result without them."""
    if not isinstance(node.op, Dataflow):
        return any(spread.divides(graph.edge_type(edge)) for edge in node.inputs) and not all(map(spread.divides, node.outputs))
    types = node.op.body.slot_types
    return any(
        any(spread.divides(types[k]) for k in used) and not all(spread.divides(types[k]) for k in given)
        for _, used, given in node.op.body.instructions
    )


def available(wanted: int | str) -> list[jax.Device]:
    """The devices for `Config(devices=wanted)`, the first the one on which programs run else. Raises ConfigError if there are fewer."""
    first = device()
    every: list[jax.Device] = jax.devices(first.platform)
    if jax.process_count() > 1:
        if wanted not in ("auto", len(every)):
            raise ConfigError(
                f"devices={wanted}, but the {jax.process_count()} processes have {len(every)} together",
                hint=f'each process takes part with all its devices: devices={len(every)} or devices="auto"',
            )
        return every
    every = [first, *(device for device in every if device != first)]
    if wanted == "auto":
        return every
    assert isinstance(wanted, int)
    if wanted > len(every):
        more = f"call tp.use_cpu_devices({wanted}) before JAX is used" if first.platform == "cpu" else f"devices={len(every)}"
        raise ConfigError(f"devices={wanted}, but JAX has {len(every)} ({first.platform})", hint=more)
    return every[:wanted]


def _parts(wanted: int | str, most: int, points: int) -> int:
    """The number of devices that have equally many points. "auto" takes the most that there are."""
    counts: Iterator[int] = iter(range(most, 1, -1)) if wanted == "auto" and jax.process_count() == 1 else iter((most,))
    return next((count for count in counts if points % count == 0), 1)


def _dependence(source: Graph, step: Symbol) -> str | None:
    """Why the points of a step depend on each other: the first read of another point of the step; None if there is none."""
    for reader in source:
        if step not in reader.domain:
            continue
        for edge in reader.inputs:
            index = edge.by_step(source[edge.source].domain).get(step)
            if index is not None and not is_own_point(index, step):
                read = f"{_named(source[edge.source])}[{', '.join(map(str, edge.index))}]"
                return f"{_named(reader)} reads {read}" + (f"\n      at {quoted(reader.where)}" if reader.where else "")
    return None


def _named(node: Node) -> str:
    return node.name or kind_of(node.op)


def bytes_along(scheduled: Scheduled, step: Symbol) -> int:
    """The bytes of all values with a dimension for the points of a step, each as often as it is stored."""
    spread, total = Spread(step, ()), 0
    for node in scheduled.graph:
        types = node.op.body.slot_types if isinstance(node.op, Dataflow) else node.outputs
        stored = [
            scheduled.storage[node.id, output] for output in range(len(node.outputs)) if (node.id, output) in scheduled.storage
        ]
        slots = max((math.prod(storage.slots) for storage in stored), default=1)
        sizes = [type.size_in_bytes(scheduled.bounds) for type in types if type.is_static and spread.divides(type)]
        total += sum(sizes) * slots
    return total
