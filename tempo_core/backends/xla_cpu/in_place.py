"""Updates in place: what reads a value comes before the update that takes the value's place.

    $3 = Gather(axis=0)($0, $1)                $3 = Gather(axis=0)($0, $1)
    $4 = Update(axis=0)($0, $2, $1)    ->      $6, $7 = keep($5, $3, $5)                 $5: the counter of a loop
                                               $8, $9 = keep($7, $2, $1)
                                               $4 = Update(axis=0)($0, $8, $9)             and $6 wherever $3 was read

XLA's CPU compiler computes a read of a few elements again in each operation that uses them. If such an operation may run after the update, it
copies the whole value, in each iteration. Here such reads are in memory once, each with a token that only this read gives: that an update
waits for the token, XLA does not see through.
"""

from __future__ import annotations

from tempo_core.backends.island import Island
from tempo_core.ir import ops
from tempo_core.prices import LARGEST_READ_OF_AN_UPDATE


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
                if island.size(target) > LARGEST_READ_OF_AN_UPDATE * island.size(slot):
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
