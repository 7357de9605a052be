"""Judge look-ups: what is reported as found is there and computed, and what is there is found."""

from kvproof.check.oracle.early_copies import has_part
from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text import operations

BLOCKS_OF_LOOKUP = 64  # that a sparse judge looks at for a look-up, on average


class HitJudge:
    """Judges the hits of one subject."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.explainer, self.state = oracle, oracle.explainer, oracle.state
        self.config, self.capabilities = oracle.config, oracle.capabilities
        self.num_lookups = 0

    def judge_lookup(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """A look-up reported that the first `hit` tokens of a waiting sequence need no computation: so it is, now."""
        self.explainer.require_possible_hit(hit, len(seq.tokens), self.oracle.hits_within_blocks, context)
        if not hit or self.leaves_out():
            return
        size = self.config.block_size
        if (num_within := hit % size) and not any(
            has_part(self.explainer, block, seq.whole[hit - num_within : hit])
            for block in range(self.config.num_gpu_blocks)
        ):
            sentence = f"a hit of $observed tokens, but no block holds the last {num_within} of them"
            raise Finding("hit-computed", sentence, call=context, observed=hit, sequence=seq.name)
        hittable = operations.hittable_identities(
            self.state, range(self.config.num_gpu_blocks), self.capabilities.same_step_hits
        )
        for part in seq.parts:
            num_tokens = part.layout.num_tokens
            entry = operations.entry_not_hittable(hittable, size, part.whole, hit // num_tokens, part.window)
            if entry is not None:
                what = "the state of" if part.layout.is_state else f"tokens {entry * num_tokens} to"
                raise Finding(
                    "hit-computed",
                    f"a hit of $observed tokens, but no computed block holds {what} {(entry + 1) * num_tokens - 1} "
                    "of $sequence",
                    call=context,
                    observed=hit,
                    sequence=part.name,
                )

    def leaves_out(self) -> bool:
        """Whether a sparse judge does not look at every block for this look-up; it does so for one in many."""
        if not self.oracle.is_sparse:
            return False
        self.num_lookups += 1
        return self.num_lookups % max(1, self.config.num_gpu_blocks // BLOCKS_OF_LOOKUP) != 0

    def judge_missed_hit(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """Compare a hit with the longest one: a miss is slow, and a fault if the subject declares that it loses less.

        At least one token of a prompt is computed, so a hit of the last block of a prompt is not missed, unless the
        subject declares that it finds whole prompts. With a window of one token nothing before a token is read, so that
        there is nothing to find. With drafting the last block of a hit is dropped. If the groups have blocks of
        different sizes, a group drops one of its own, or all up to the next common boundary: a hit is missed if both
        are cached.
        """
        size, declared = self.config.block_size, self.capabilities.lost_hits
        num_hit, num_dropped = hit // size, int(self.config.drafting)
        longest = (len(seq.tokens) - (not self.capabilities.hits_whole_prompts)) // size - num_dropped
        if num_hit >= longest or not self.config.caching or self.oracle.reads_only_last or self.leaves_out():
            return
        unsure, unaligned = self.explainer.maybe_evicted, self.explainer.unaligned
        cached = [b for b in range(self.config.num_gpu_blocks) if b not in unsure and b not in unaligned]
        hittable = operations.hittable_identities(self.state, cached, False)
        while longest > num_hit and any(
            operations.entry_not_hittable(hittable, size, part.whole, num_entries, part.window) is not None
            for part in seq.parts
            for num_entries in part.entries_found(longest * size, num_dropped)
        ):
            longest -= 1
        if longest > num_hit:
            self.oracle.notes["hit-complete"] += 1
        if declared is not None and longest - num_hit > declared:
            raise Finding(
                "hit-found",
                f"a hit of $observed tokens of $sequence, but $expected are cached; the subject declares that a "
                f"look-up misses at most {declared} blocks",
                call=context,
                expected=longest * size,
                observed=hit,
                sequence=seq.name,
            )
