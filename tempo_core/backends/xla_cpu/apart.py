"""Values that XLA's CPU compiler computes by themselves.

    $1 = Unary(fn="exp")($0)                          $1 = Unary(fn="exp")($0)
    $2 = Pad(axis=0, low=0, high=1)($1)      ->       $4 = keep($3, $1)                  $3: the counter of a loop
                                                      $2 = Pad(axis=0, low=0, high=1)($4)

XLA computes a padding as a part of its reader: for each element it asks whether the element lies inside, so it makes no vector instructions
of what it computes there. An exponential then takes ten times as long. So neither a padding nor a dear function computes the other. A sum of
paddings (a gradient of shifted reads) is in memory: XLA would compute it again in each of its readers, or write each padding to memory.
"""

from __future__ import annotations

from tempo_core.backends.island import Island
from tempo_core.ir import costs, ops
from tempo_core.prices import LEAST_PADDINGS_OF_A_SUM, is_dear_function


def keep_apart(island: Island) -> None:
    """Paddings read dear values from memory, dear functions read padded ones from there, and sums of paddings are kept."""
    if not island.is_in_loop:
        return
    dear: set[int] = set()  # the slots of values that are computed by dear functions, element by element
    padded: set[int] = set()
    paddings: dict[int, frozenset[int]] = {}  # by slot: the paddings from which a value is computed, element by element
    for _, op, sources, targets in island.rewriting():
        pads, is_dear = _pads(island, op, sources), is_dear_function(op)
        is_fused = isinstance(op, costs.OF_THEIR_READER) and not isinstance(op, costs.PADDINGS)
        from_memory = dear if pads else padded if is_dear else set()
        kept = {source: island.keep([source])[0] for source in sorted(from_memory.intersection(sources))}
        island.add(op, [kept.get(source, source) for source in sources], targets=targets)
        if is_dear or (is_fused and not dear.isdisjoint(sources)):
            dear.update(targets)
        if pads or (is_fused and not is_dear and not padded.isdisjoint(sources)):
            padded.update(targets)
        if isinstance(op, ops.Pad):
            paddings[targets[0]] = frozenset(targets)
        elif is_fused:
            paddings[targets[0]] = frozenset().union(*(paddings.get(source, frozenset()) for source in sources))
    for position, slot in enumerate(island.results):
        if len(paddings.get(slot, ())) >= LEAST_PADDINGS_OF_A_SUM:
            (island.results[position],) = island.keep([slot])


def _pads(island: Island, op: ops.Op, sources: tuple[int, ...]) -> bool:
    """Whether elements of an op's result lie outside of its operand, or of one of them."""
    if not isinstance(op, ops.Slice):
        return isinstance(op, costs.PADDINGS)
    start, stop = island.value(op.start), island.value(op.stop)
    return start is not None and stop is not None and (start < 0 or stop > island.shape(sources[0])[op.axis])
