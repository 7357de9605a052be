"""Prefixes that groups name: which there are, and how their blocks are explained.

A group may name the first tokens of its prompt as a prefix. The manager keeps the full blocks of the prefix for later
groups that name it too, and gives them up only when it ends. For the specification such a prefix is a sequence that
never ends: it is admitted with the first group that names it, its full blocks are cached under their content, and they
can be hit once every slot is written. The rules that a cache obeys are then those of prefixes: a group shares a block
only if tokens, adapter and images are equal, hits it only if it is computed, and writes to none.

Some managers leave the blocks of a prefix on the GPU when they swap a group. In the specification a sequence swaps all
its entries. So there the entries in the prefix belong to a sequence of their own, the *prefix part*, which ends with
the swap-out and begins again, with hits, when the group comes back; the table of the sequence itself has none of them.
"""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Group, NamedPrefix, PrefixPart, Status
from kvproof.check.oracle.firing import NUM_PREFIXES_MAX
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text import operations
from kvproof.spec.text.state import NONE


class NamedPrefixes:
    """The prefixes that the groups of one opened manager have named."""

    def __init__(self, explainer: Explainer, stay: bool) -> None:
        """stay: whether a swap leaves the blocks of a prefix on the GPU."""
        self.explainer, self.stay = explainer, stay
        self.by_identity: dict[int, NamedPrefix] = {}

    @property
    def has_room(self) -> bool:
        """Whether the state of the specification has room for one more."""
        return len(self.by_identity) < NUM_PREFIXES_MAX

    @property
    def num_blocks(self) -> int:
        """The blocks that are kept for prefixes."""
        return sum(prefix.num_blocks for prefix in self.by_identity.values() if prefix.slot != NONE)

    def named(self, seq: ExpectedSequence, num_tokens: int) -> NamedPrefix | None:
        """The prefix of the full blocks in the first tokens of a sequence; None if there is no full block."""
        num_blocks = min(num_tokens, len(seq.tokens)) // self.explainer.block_size
        if not num_blocks:
            return None
        identities = seq.whole[: num_blocks * self.explainer.block_size]
        return self.by_identity.setdefault(identities[-1], NamedPrefix(identities, num_blocks))

    def num_shared(self, group: Group) -> int:
        """How many blocks the table of the group shares with its prefix when it gets blocks of the GPU."""
        prefix = group.prefix
        if prefix is None or prefix.slot == NONE:
            return 0
        is_waiting = group.members[0].status is Status.WAITING
        return prefix.num_blocks * (1 if is_waiting else len(group.members) if self.stay else 0)

    def begin(self, prefix: NamedPrefix, seq: ExpectedSequence, hit: int, lost_max: int | None, context: str) -> None:
        """A group that names the prefix was admitted; `seq` is its first sequence.

        lost_max: how many computed blocks of a prefix the hit may miss; None for any number.
        """
        explainer, size = self.explainer, self.explainer.block_size
        table, num_hit = explainer.shown_table(seq, context), hit // size
        if len(table) < prefix.num_blocks:
            sentence = "$sequence has $observed blocks, and its prefix $expected"
            raise Finding(
                "frame-kept",
                sentence,
                call=context,
                expected=prefix.num_blocks,
                observed=len(table),
                sequence=seq.name,
            )
        if prefix.slot == NONE:
            prefix.slot = len([one for one in self.by_identity.values() if one.slot != NONE])
            explainer.run(self._allocated(prefix, table), context)
            explainer.coverage["named prefix allocated"] += 1
        else:
            explainer.coverage["named prefix hit" if hit else "named prefix shared"] += 1
        num_computed = prefix.num_blocks if prefix.is_computed else 0
        if lost_max is not None and num_computed - num_hit > lost_max:
            raise Finding(
                "hit-found",
                "a hit of $observed tokens of $sequence, but the prefix that it names is computed, with $expected",
                call=context,
                expected=num_computed * size,
                observed=hit,
                sequence=seq.name,
            )
        if self.stay:
            seq.prefix = PrefixPart(seq, prefix.num_blocks * size)

    def _allocated(self, prefix: NamedPrefix, table: Sequence[int]) -> operations.Program:
        explainer, named = self.explainer, table.__getitem__
        return operations.admit_sequence(
            explainer.state,
            explainer.block_size,
            prefix.slot,
            0,
            prefix.identities,
            0,
            prefix.num_blocks,
            named,
            caching=True,
        )

    def computed(self) -> None:
        """After a step, prefixes of which every slot is written are computed."""
        explainer, state, size = self.explainer, self.explainer.state, self.explainer.block_size
        for prefix in self.by_identity.values():
            if prefix.slot == NONE or prefix.is_computed:
                continue
            blocks = state.table[prefix.slot][: prefix.num_blocks]
            if all(state.num_written[block] == size for block in blocks):
                num_slots = prefix.num_blocks * size
                explainer.run(operations.catch_up(state, size, prefix.slot, num_slots), "run: a named prefix")
                explainer.run(operations.mark_computed(state, size, prefix.slot, 0), "run: a named prefix")
                prefix.is_computed = True
