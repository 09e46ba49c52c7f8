"""Values that are in memory before what reads them: XLA's CPU compiler would compute them in each reader, element by element.

    $1 = Unary(fn="exp")($0)                          $1 = Unary(fn="exp")($0)
    $2 = Pad(axis=0, low=0, high=1)($1)       ->      $4 = keep()($3, $1)                  $3: the counter of a loop
                                                      $2 = Pad(axis=0, low=0, high=1)($4)

XLA computes a padding as a part of its reader: for each element it asks whether the element lies inside, so it makes no vector instructions
of what it computes there. An exponential then takes ten times as long. So neither a padding nor a dear function computes the other. A sum of
paddings (a gradient of shifted reads) is in memory: XLA would compute it again in each of its readers, or write each padding to memory.

    $3 = Gather(axis=0)($0, $1)                       $3 = Gather(axis=0)($0, $1)
    $4 = Update(fn="set", axis=0)($0, $2, $1)    ->   $6, $7 = keep()($5, $3, $5)          $5: the counter of a loop
                                                      $8, $9 = keep()($7, $2, $1)
                                                      $4 = Update(fn="set", axis=0)($0, $8, $9)

It computes a read of a few elements again in each operation that uses them. If such an operation may run after an update in place, it copies
the whole value, in each iteration. So such reads are kept, each with a token that only this read gives, and an update waits for the token.
"""

from __future__ import annotations

from tempo_core.backends.island import Island
from tempo_core.ir import costs, ops
from tempo_core.ir.ops.work import DEAR
from tempo_core.prices import TIMES_SMALLER


def keep_apart(island: Island) -> None:
    """Paddings read dear values from memory, dear functions read padded ones from there, and sums of paddings are kept."""
    if not island.is_in_loop:
        return
    dear: set[int] = set()  # the slots of values that are computed by dear functions, element by element
    padded: set[int] = set()
    paddings: dict[int, frozenset[int]] = {}  # by slot: the paddings from which a value is computed, element by element
    for _, op, sources, targets in island.rewriting():
        pads, is_dear = _pads(island, op, sources), op.cost_class == DEAR
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
        if len(paddings.get(slot, ())) > 1:  # else, XLA computes the gradient of a stencil once more for each padding
            (island.results[position],) = island.keep([slot])


def _pads(island: Island, op: ops.Op, sources: tuple[int, ...]) -> bool:
    """Whether elements of an op's result lie outside of its operand, or of one of them."""
    if not isinstance(op, ops.Slice):
        return isinstance(op, costs.PADDINGS)
    start, stop = island.value(op.start), island.value(op.stop)
    return start is not None and stop is not None and (start < 0 or stop > island.shape(sources[0])[op.axis])


def read_before_updates(island: Island) -> None:
    """What reads a value is kept before an update of the value. Results that are nearly as large as it are left where they are."""
    if not island.is_in_loop:
        return
    updates = {each.sources[0]: k for k, each in enumerate(island.instructions) if isinstance(each.op, ops.Update)}
    tokens = {**dict.fromkeys(updates), **island.tokens}
    reads = {slot: _needed(island, updates.get(slot)) for slot in tokens}
    large = {slot: {slot} for slot in tokens}  # the value, and what is nearly as large: what reads that, reads the value
    kept: dict[int, int] = {}
    for place, (_, op, sources, targets) in enumerate(island.rewriting()):
        operands = [kept.get(source, source) for source in sources]
        token = tokens[sources[0]] if isinstance(op, ops.Update) else None
        if token is not None:
            operands = [operands[0], *island.keep(operands[1:], token)]
        island.add(op, operands, targets=targets)
        for slot in tokens:
            if place not in reads[slot] or large[slot].isdisjoint(sources):
                continue
            for target in targets:
                if island.size(target) * TIMES_SMALLER > island.size(slot):
                    large[slot].add(target)
                    continue
                before = island.counter if (token := tokens[slot]) is None else token
                kept[target], tokens[slot] = island.keep((kept.get(target, target), before), before)
    island.results = [kept.get(slot, slot) for slot in island.results]
    island.tokens = {slot: tokens[slot] for slot in island.tokens}


def _needed(island: Island, but: int | None) -> set[int]:
    """The places of the instructions that give the results, without what only one of them needs."""
    slots, places = set(island.results), set()
    for place, (_, _, sources, targets) in reversed(list(enumerate(island.instructions))):
        if place != but and (but is None or not slots.isdisjoint(targets)):
            places.add(place)
            slots.update(sources)
    return places
