"""Which rank of a side keeps which part of the KV of a position.

Several ranks may share the KV of a side: each has some of the heads and layers. A *share* is what no rank of either
side has without the rest of it, so a transfer moves whole shares. A *place* of a side is a rank with a share that it
keeps; where there are more ranks than heads, several ranks keep the same share.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, Layer

Kind = tuple[int, int]  # a layer, and a head of it


@dataclass(frozen=True)
class Shares:
    """The shares of a pair.

    kinds: of each share, its layers and heads. places: of each side, its ranks, each with a share that it keeps.
    """

    kinds: tuple[tuple[Kind, ...], ...] = (((0, 0),),)
    places: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] = (((0, 0),), ((0, 0),))

    def num_ranks(self, side: int) -> int:
        """The ranks of a side."""
        return 1 + max(rank for rank, _ in self.places[side])

    def holders(self, side: int, share: int) -> list[int]:
        """The ranks of a side that keep a share."""
        return [rank for rank, one in self.places[side] if one == share]

    def readers(self, rank: int) -> tuple[int, ...]:
        """The ranks of DECODE that each read from a rank of PREFILL; empty: who reads there is not known, because other
        ranks keep the same."""
        own = [share for one, share in self.places[PREFILL] if one == rank]
        if any(len(self.holders(PREFILL, share)) > 1 for share in own):
            return ()
        return tuple(sorted({reader for share in own for reader in self.holders(DECODE, share)}))


def shares_of(layers: Sequence[Layer]) -> Shares:
    """The shares of a pair with this memory. Raises AdapterError if a side lacks a part of the KV."""
    holders: tuple[dict[Kind, set[int]], ...] = defaultdict(set), defaultdict(set)
    for one in layers:
        for head in one.heads:
            holders[one.side][one.layer, head].add(one.rank)
    if holders[PREFILL].keys() != holders[DECODE].keys():
        raise AdapterError("layers() must show the same layers and heads on both sides", "layers")
    if not holders[PREFILL]:
        return Shares()
    kinds: dict[tuple[tuple[int, ...], ...], list[Kind]] = defaultdict(list)
    for kind in sorted(holders[PREFILL]):
        kinds[tuple(tuple(sorted(holders[side][kind])) for side in SIDES)].append(kind)
    prefill, decode = (
        tuple(sorted((rank, share) for share, ranks in enumerate(kinds) for rank in ranks[side])) for side in SIDES
    )
    return Shares(tuple(map(tuple, kinds.values())), (prefill, decode))
