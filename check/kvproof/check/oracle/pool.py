"""The judge of pools: drives a pool and the specification in lockstep.

A holder is a sequence of the specification, and its blocks are the table of that sequence. An allocation gives a
sequence new entries, sharing is a fork or a prefix hit, and freeing drops every entry. The specification runs each of
these programs with the ids that the pool gave; if a guard refuses, this is the finding. Operations that are not enabled
are skipped, as at every level.
"""

from kvproof.check.oracle.enabled import RuledJudge
from kvproof.check.oracle.holders import HolderJudge
from kvproof.check.oracle.lockstep import LockstepJudge
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_adapter
from kvproof.check.protocol.pool import POOL_CALLS, PoolConfig, PoolOperation, PoolSubject
from kvproof.spec.text.identity import Identities


class PoolJudge(LockstepJudge, RuledJudge):
    """One opened pool in lockstep with the specification."""

    kinds = PoolOperation.kinds()

    def __init__(self, subject: PoolSubject, config: PoolConfig, identities: Identities | None = None) -> None:
        check_adapter(subject, POOL_CALLS)
        holders: dict[int, int] = {}
        oracle = Oracle(subject, config, identities, is_at_rest=lambda: not holders)
        LockstepJudge.__init__(self, oracle)
        judge = HolderJudge(oracle, holders)
        RuledJudge.__init__(self, oracle.reply, judge)
        self.holders, self.blocks_of, self.can_give_again = judge.holders, judge.blocks_of, judge.can_give_again
        self.last_given, self.stored, self.given_up = judge.last_given, judge.stored, judge.given_up

    def compare_memory(self) -> None:
        """A pool has no worker, and so no memory."""
