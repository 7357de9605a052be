"""Judge look-ups: what is reported as found is there and computed, and what is there is found."""

from collections.abc import Sequence

from kvproof.check.oracle.early_copies import has_part
from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text import operations

BLOCKS_OF_LOOKUP = 64  # that a sparse judge looks at for a look-up, on average


def num_entries_hit_max(oracle: Oracle, seq: ExpectedSequence) -> int:
    """The most entries that a hit of a waiting sequence can have."""
    num_left, num_dropped = int(not oracle.capabilities.hits_whole_prompts), int(oracle.config.drafting)
    most: int = oracle.explainer.machine.function("entries_found_again")(len(seq.tokens), num_left, num_dropped)
    return most


def num_entries_cached(oracle: Oracle, seq: ExpectedSequence, least: int, most: int) -> int:
    """The entries of the longest hit that there is for a waiting sequence, from `least` to `most`."""
    explainer = oracle.explainer
    unsure = explainer.maybe_evicted | explainer.unaligned | explainer.forgotten
    cached = [block for block in range(oracle.config.num_gpu_blocks) if block not in unsure]
    return _num_entries_found(
        oracle, seq.parts, operations.hittable_identities(oracle.state, cached, False), least, most
    )


def _num_entries_found(
    oracle: Oracle, parts: Sequence[ExpectedSequence], hittable: set[int], least: int, most: int
) -> int:
    """The entries of the longest hit of these parts, from `least` to `most`. hittable: what can be hit."""
    size, num_dropped = oracle.config.block_size, int(oracle.config.drafting)
    longest = most
    while longest > least and any(
        operations.entry_not_hittable(hittable, size, part.whole, num_entries, part.window) is not None
        for part in parts
        for num_entries in part.entries_found(longest * size, num_dropped)
    ):
        longest -= 1
    return longest


def num_blocks_shared(oracle: Oracle, group: Group) -> int:
    """At least so many blocks of a waiting group are hit and in use now, so that its admission takes none for them.

    A block that is hit and that nobody uses has to be taken like a free one. The subject declares how many blocks a hit
    may miss. The last block of a prompt does not count: it may be copied, because its last token is computed again.
    """
    lost_hits, size = oracle.lost_hits, oracle.config.block_size
    is_plain = not (oracle.reads_only_last or oracle.has_states or oracle.has_several_sizes or oracle.is_sparse)
    if not oracle.config.caching or not is_plain or lost_hits is None or oracle.capabilities.counts_hit_blocks:
        return 0
    if group.prefix is not None:  # which blocks of it are shared is counted otherwise
        return 0
    seq = group.members[0]
    most = (len(seq.tokens) - 1) // size - oracle.config.drafting
    num_hit = num_entries_cached(oracle, seq, 0, max(0, most)) - lost_hits
    if num_hit <= 0:
        return 0
    state = oracle.state
    blocks = [block for block in range(oracle.config.num_gpu_blocks) if state.computed[block]]
    evictable = operations.hittable_identities(state, [block for block in blocks if not state.refcount[block]], False)
    num_shared = 0
    for part in seq.parts:
        first = operations.first_entry_read(size, num_hit * size, part.window)
        ends = [part.whole[(index + 1) * size - 1] for index in range(first, num_hit)]
        num_shared += sum([end not in evictable for end in ends])
    return num_shared


def junction(oracle: Oracle, seq: ExpectedSequence, hit: int) -> int:
    """Up to which token layers that attend to all tokens find a waiting sequence; 0 if that is not behind the hit.

    Also 0 if it is not certain: if some of these layers find more than others, or of a block it is not known whether
    the subject has it still, or will have it within the step.
    """
    explainer = oracle.explainer
    parts, blocks = [part for part in seq.parts if not part.window], range(oracle.config.num_gpu_blocks)
    unsure = explainer.maybe_evicted | explainer.unaligned
    least = operations.hittable_identities(oracle.state, [block for block in blocks if block not in unsure], False)
    most = operations.hittable_identities(oracle.state, blocks, True)
    longest, size = num_entries_hit_max(oracle, seq), oracle.config.block_size
    found = {
        _num_entries_found(oracle, [part], hittable, 0, longest) * size for part in parts for hittable in (least, most)
    }
    return found.pop() if len(found) == 1 and max(found) > hit else 0


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

    def judge_token_left(self, seq: ExpectedSequence, num_found: int, context: str) -> None:
        """The first `num_found` tokens are hit and not computed: the last one of the prompt is not among them."""
        if num_found < len(seq.tokens) or not self.config.caching:
            return
        sentence = "a hit leaves none of the $expected tokens of $sequence to compute"
        expected, observed = len(seq.tokens), num_found
        raise Finding("token-left", sentence, call=context, expected=expected, observed=observed, sequence=seq.name)

    def leaves_out(self) -> bool:
        """Whether a sparse judge does not look at every block for this look-up; it does so for one in many."""
        if not self.oracle.is_sparse:
            return False
        self.num_lookups += 1
        return self.num_lookups % max(1, self.config.num_gpu_blocks // BLOCKS_OF_LOOKUP) != 0

    def judge_admission(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """Judge the hit of an admission, and remember the junction that the sequence has to keep."""
        if self.config.forgets and not self.oracle.is_sparse:
            seq.junction = junction(self.oracle, seq, hit)
        self.judge_missed_hit(seq, hit, context)

    def judge_missed_hit(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """Compare a hit with the longest one: a miss is slow, and a fault if the subject declares that it loses less.

        At least one token of a prompt is computed, so a hit of the last block of a prompt is not missed, unless the
        subject declares that it finds whole prompts. With a window of one token nothing before a token is read, so that
        there is nothing to find. With drafting the last block of a hit is dropped. If the groups have blocks of
        different sizes, a group drops one of its own, or all up to the next common boundary: a hit is missed if both
        are cached.
        """
        size, declared = self.config.block_size, self.oracle.lost_hits
        num_hit, most = hit // size, num_entries_hit_max(self.oracle, seq)
        if num_hit >= most or not self.config.caching or self.oracle.reads_only_last or self.leaves_out():
            return
        longest = num_entries_cached(self.oracle, seq, num_hit, most)
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
