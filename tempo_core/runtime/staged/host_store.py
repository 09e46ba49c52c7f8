"""A store in the memory of the host, of which the device has some points at a time.

Points go to the device when a launch needs them, many at once, and back when others take their slots (`swapping.py` says which a launch
touches). While the device works, the points of the next launch are on their way (`ahead`), and those of the last one come back (`behind`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tempo_core.backends import aligned
from tempo_core.runtime.staged.swapping import HostStorage, Move
from tempo_core.symbolic.isl.spans import Span

Array = Any
FromHost = Callable[[Span], Array]  # the values of some points: an array with them along its axis


class HostStore:
    """`array` has all points, or None if `read` gives them: those of an input, perhaps out of `source`. `on_device(array)` puts an array on the device.

    The array has dimensions for the steps numbered `steps`, and those of a value. On the device they lie in the order of `layout`, in an
    array of this `shape`, which `zeros()` makes.
    """

    def __init__(
        self,
        store: HostStorage,
        steps: Sequence[int],
        layout: tuple[int, ...],
        shape: tuple[int, ...],
        on_device: Callable[[Array], Array],
        zeros: Callable[[], Array],
        array: Array | None = None,
        read: FromHost | None = None,
        source: Any = None,
    ):
        self.store, self.steps, self.layout, self.shape = store, steps, layout, shape
        self.on_device, self.zeros = on_device, zeros
        self.axis = list(steps).index(store.axis)
        self.array, self.read = array, read or self._of_array
        self.source = array if source is None else source
        self.valid: Span | None = (0, store.slots) if store.is_fed else None  # all points that have values, and perhaps others
        self.part: Array | None = None  # the points `resident` on the device, those that are `dirty` newer than here
        self.resident: Span = (0, 0)
        self.dirty: Span | None = None
        self.behind: tuple[Array, Span] | None = None  # a part that comes back when the launch after it runs
        self.ahead: tuple[Span, Array] | None = None  # a part for the next launch

    # -- launches -----------------------------------------------------------------------------------------------------

    def take(self, move: Move | None) -> Array:
        """The part for a launch, which may change it: then `give` it back. For a launch that touches nothing, any will do."""
        if move is None:
            self.part = self.zeros() if self.part is None else self.part
            return self.part
        first, stop = move.touched
        if self.part is None or not (self.resident[0] <= first and stop <= self.resident[1]):
            is_next = self.part is not None and first <= self.resident[1] and self.resident[0] <= stop
            if self._lacks(move.needed):
                self._load(move.touched)
            elif not is_next or not self._slide(move.touched, move.needed is None):
                self._begin(move.touched)
        return self.part

    def give(self, part: Array, move: Move | None) -> None:
        """Take a part back after a launch that has changed it."""
        self.part, self.ahead = part, None
        if move is not None:
            self.dirty, self.valid = _hull(self.dirty, move.written), _hull(self.valid, move.written)
        self._come_back()

    def fetch_ahead(self, move: Move | None) -> None:
        """Bring the points of the next launch on their way."""
        self._come_back()
        if move is None:
            return
        touched = move.touched
        inside = self.resident[0] <= touched[0] and touched[1] <= self.resident[1]
        if self.dirty is None and not inside and self.valid is not None:
            self.ahead = touched, self._put(touched)

    def write(self, point: Sequence[int], value: Array) -> None:
        """Take the value of a point from a function on the host."""
        assert self.array is not None, "functions do not write into inputs"
        self.flush()
        self.part, self.ahead = None, None
        self.array[tuple(point[k] % self.store.storage.slots[k] for k in self.steps)] = value
        at = point[self.store.axis]
        self.valid = _hull(self.valid, (at, at + 1))

    def flush(self) -> None:
        """Bring back what is newer on the device."""
        self._come_back()
        if self.dirty is not None:
            self._back(self.part, self.dirty)
            self.dirty = None

    def whole(self) -> Array:
        """All points, on the host."""
        self.flush()
        return self.array if self.array is not None else self.read((0, self.store.slots))

    def put_back(self, array: Array) -> None:
        """Take over all points from another run."""
        assert self.array is not None
        self.array[...] = array
        self.valid, self.part, self.dirty = (0, self.store.bound), None, None

    @property
    def device_bytes(self) -> int:
        """The bytes on the device now."""
        ahead = [] if self.ahead is None else [self.ahead[1]]
        behind = [] if self.behind is None else [self.behind[0]]
        return sum(array.nbytes for array in (self.part, *ahead, *behind) if array is not None)

    @property
    def host_bytes(self) -> int:
        return 0 if self.array is None else int(self.array.nbytes)

    # -- moves --------------------------------------------------------------------------------------------------------

    def _lacks(self, needed: Span | None) -> bool:
        """Whether some points that a launch needs are here, and not on the device.

        Where points share slots, a point without a value has that of another one, which stays if the launch writes nothing there.
        """
        valid = self.valid if self.store.slots == self.store.bound else needed
        if needed is None or valid is None:
            return False
        first, stop = max(needed[0], valid[0]), min(needed[1], valid[1])
        has_all = self.part is not None and self.resident[0] <= first and stop <= self.resident[1]
        return first < stop and not has_all

    def _slide(self, touched: Span, may_leave: bool) -> bool:
        """Let the part have other points, next to those that it has. These have no values yet.

        If some must come back first, and `may_leave`, it does not, and returns False.
        """
        points = self.store.points
        if touched[1] > self.resident[1]:
            resident = max(min(self.resident[0], touched[0]), touched[1] - points), touched[1]
        else:
            resident = touched[0], min(max(self.resident[1], touched[1]), touched[0] + points)
        if self.dirty is not None and not (resident[0] <= self.dirty[0] and self.dirty[1] <= resident[1]):
            if may_leave:
                return False
            self.flush()
        self.resident = resident
        return True

    def _begin(self, touched: Span) -> None:
        """A part for points of which none is needed from before. What the last one has comes back while the launch runs."""
        self._come_back()
        if self.dirty is not None:
            self.behind, self.dirty = (self.part, self.dirty), None
        self.part, self.resident, self.ahead = self.zeros(), touched, None

    def _load(self, touched: Span) -> None:
        """Bring points to the device. If others were there before, those that follow come too, in the direction of the way."""
        self.flush()
        first, stop = touched
        if self.ahead is not None and self.ahead[0][0] <= first and stop <= self.ahead[0][1]:
            self.resident, self.part = self.ahead
        else:
            self.part = None  # its memory is free for the new one
            bound, points = self.valid[1] if self.valid is not None else stop, self.store.points
            down = first < self.resident[0]
            block = (max(stop - points, 0), stop) if down else (first, max(min(first + points, bound), stop))
            self.part, self.resident = self._put(block), block
        self.ahead = None

    def _put(self, span: Span) -> Array:
        """An array of the device with some points."""
        values, points = self.read(span), self.store.points
        is_whole = values.shape == self.shape and span[0] % points == 0 and list(self.layout) == sorted(self.layout)
        is_new = self.source is None or (isinstance(self.source, np.ndarray) and not np.may_share_memory(values, self.source))
        if is_whole and is_new:  # else the part on the device must be a copy
            return self.on_device(values)
        part = aligned.empty(self.shape, values.dtype)
        if span[1] - span[0] < points:
            part[...] = 0  # a launch may read more than it uses
        logical = self._in_order(part)
        for there, here in _runs(span, points):
            logical[(*(slice(None),) * self.axis, there)] = values[(*(slice(None),) * self.axis, here)]
        return self.on_device(part)

    def _back(self, part: Array, span: Span) -> None:
        values = self._in_order(np.asarray(part))
        first, before = span[0], (slice(None),) * self.axis
        for there, here in _runs(span, self.store.points):
            piece = first + here.start, first + here.stop
            for place, of in _runs(piece, self.store.slots):
                newer = values[(*before, slice(there.start + of.start, there.start + of.stop))]
                aligned.write(self.array[(*before, place)], newer)  # type: ignore[index]

    def _in_order(self, part: Array) -> Array:
        """A view of an array of the device, with the dimensions of the array here."""
        logical = part.transpose(np.argsort(self.layout))
        return logical if self.store.points > 1 else np.expand_dims(logical, self.axis)

    def _come_back(self) -> None:
        if self.behind is not None:
            (part, span), self.behind = self.behind, None
            self._back(part, span)

    def _of_array(self, span: Span) -> Array:
        """Points of the array."""
        assert self.array is not None
        before = (slice(None),) * self.axis
        pieces = [aligned.read(self.array[(*before, place)]) for place, _ in _runs(span, self.store.slots)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, self.axis)


def zeros_on_host(shape: tuple[int, ...], dtype: np.dtype[Any], directory: str | None) -> Array:
    """An array of zeros in the memory of the host, or in a file that the system removes when nothing uses the array any more."""
    if directory is None:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.truncate(max(math.prod(shape) * dtype.itemsize, 1))
        return np.memmap(file, dtype, "r+", shape=shape)


def _hull(one: Span | None, other: Span | None) -> Span | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _runs(span: Span, slots: int) -> Iterator[tuple[slice, slice]]:
    """The slots of some points in pieces without a break, each with the places of its points among them."""
    at = span[0]
    while at < span[1]:
        count = min(slots - at % slots, span[1] - at)
        yield slice(at % slots, at % slots + count), slice(at - span[0], at - span[0] + count)
        at += count
