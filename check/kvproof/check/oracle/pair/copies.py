"""Where the cells come from that a transfer writes, head by head."""

from collections import defaultdict
from collections.abc import Sequence

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pair import DECODE, PREFILL, Layer, Piece

Place = tuple[int, int, int]  # a rank, a layer and a head
WRONG_WAY = "a copy does not go from memory of prefill to decode"
PARTIAL = "a copy takes a part of the KV of a position"


def sources_of(
    pieces: Sequence[Piece],
    layers: tuple[Sequence[Layer], Sequence[Layer]],
    slots: tuple[int, int],
    context: str,
) -> dict[Place, dict[int, tuple[int, int]]]:
    """Of each place of DECODE, and each cell that a transfer writes there: the rank and the cell of PREFILL.

    layers: of each side, in the order in which pieces name them. slots: of a block of each side. Raises Finding.
    """
    found = defaultdict[Place, dict[int, tuple[int, int]]](dict)
    for (source_side, source_layer, source), (side, layer, target), length in pieces:
        if (source_side, side) != (PREFILL, DECODE):
            raise Finding("arrived-whole", WRONG_WAY, call=context)
        there, here = layers[PREFILL][source_layer], layers[DECODE][layer]
        size = here.cell_bytes
        if there.layer != here.layer or any(offset % size for offset in (source, target, length)):
            raise Finding("arrived-whole", PARTIAL, call=context)
        num_slots = here.arrival_slots or slots[DECODE]
        for place in range(length // size):
            head, cell = _cell_at(there, slots[PREFILL], source // size + place)
            own_head, own_cell = _cell_at(here, num_slots, target // size + place)
            if head != own_head:
                sentence = f"the KV of head {head} is written to where that of head {own_head} is"
                raise Finding("arrived-whole", sentence, call=context)
            found[here.rank, here.layer, head][own_cell] = there.rank, cell
    return found


def _cell_at(layer: Layer, slots: int, place: int) -> tuple[int, int]:
    """The head that is at this place in a memory with blocks of so many slots, and its cell."""
    block, rest = divmod(place, slots * len(layer.heads))
    head, slot = divmod(rest, slots)
    return layer.heads[head], block * slots + slot
