"""The blocks that an append takes: never more than were counted, for one sequence and for a group of any size.

A table has `held` entries, and slots for `seen` tokens. An append writes the slots from `seen` up to `end`. Entries
beyond `held` are *missing*: a block is taken for each. An existing entry that is written is *copied* if its block has
other holders. So an append uses missing + copied blocks, and touches missing + written ones.

*Groups.* `can_append_slots` adds up what the members need. If a block has r holders, and k of them are members that
write it, then min(k, r - 1) copies are made in any order of the members, because the last holder writes in place. The
loop that counts computes the same number. Which member makes the copies depends on the order; so blocks that a member's
window releases are offset against the blocks that this member takes, but not against copies. The rest is an induction
over the members: as long as the blocks that the others still need are free, the next append succeeds and leaves these
blocks free. (A member that appends alone makes all the counted copies, so its window is offset against them too.)
"""

from collections.abc import Iterator
from typing import Any

import z3

from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, added, assigned, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.translator import Translator

SEEN, HELD, NEW, LOOKAHEAD = z3.Ints("seen held new_tokens num_lookahead_slots")
END = SEEN + NEW + LOOKAHEAD
HAVE_SLOTS = Hypothesis("the tokens have slots", HELD * BLOCK_SIZE >= SEEN)
COUNTS = non_negative(SEEN, HELD, NEW, LOOKAHEAD)
SOMETHING = Hypothesis("something is written", NEW + LOOKAHEAD >= 1)


def obligations(sources: Sources) -> Iterator[Obligation]:
    yield from one_append(sources)
    yield from within_a_block(sources)
    yield from token_by_token(sources)
    yield from copies(sources)
    yield from group(sources)


def blocks_for(subject: Subject, num_slots: z3.ArithRef) -> z3.ArithRef:
    value: z3.ArithRef = subject.function("num_blocks_for", {"num_slots": num_slots, "block_size": BLOCK_SIZE})
    return value


def one_append(sources: Sources) -> Iterator[Obligation]:
    subject = Subject("an append", sources, "admission-sound", SIZES, COUNTS, HAVE_SLOTS)
    end = subject.local("Growth.num_needed", "end", {"known": SEEN + NEW, "num_lookahead_slots": LOOKAHEAD})
    stop = subject.local("Growth.num_needed", "stop", {"end": end, "size": BLOCK_SIZE})
    counted = subject.local("Growth.num_needed", "needed", {"stop": stop, "len(ids)": HELD})
    end_taken = subject.local("Growth.append", "end", {"known": SEEN + NEW, "num_lookahead_slots": LOOKAHEAD})
    first = subject.local("Growth.append", "first", {"seen": SEEN, "size": BLOCK_SIZE})
    stop_taken = subject.local("Growth.append", "stop", {"end": end_taken, "size": BLOCK_SIZE})
    missing = subject.local("Growth.append", "num_missing", {"stop": stop_taken, "len(ids)": HELD})
    yield subject.claim("it takes the missing entries that were counted", counted == missing)
    yield subject.claim("after it every slot written lies in an entry", (HELD + missing) * BLOCK_SIZE >= END)
    yield subject.claim(
        "one entry fewer is not enough", (HELD + missing - 1) * BLOCK_SIZE < END, Hypothesis("some taken", missing > 0)
    )

    seq = z3.Int("seq")
    state = Translator(text=sources.text).unknown_state()
    as_specified = Hypothesis(
        "the table of the specification",
        z3.And(
            subject.spec_function("num_tokens_known", state, seq) == SEEN + NEW,
            state.maps["num_blocks"].read(seq) == HELD,
        ),
    )
    yield subject.claim(
        "the specification misses as many entries",
        missing == subject.spec_function("entries_missing", state, seq, LOOKAHEAD),
        as_specified,
    )

    touched = subject.function(
        "BlockTable.get_num_blocks_touched_by_append_slots",
        {
            "len(token_ids)": NEW,
            "num_lookahead_slots": LOOKAHEAD,
            "self._num_full_slots": SEEN,
            "self._block_size": BLOCK_SIZE,
        },
    )
    copied = z3.Int("copied")
    there = z3.If(stop_taken < HELD, stop_taken, HELD) - first
    some_copied = Hypothesis("copies of entries that are there and written", z3.And(0 <= copied, copied <= there))
    yield subject.claim("it touches the missing and the written entries", touched == missing + there, SOMETHING)
    yield subject.claim("it uses no more blocks than it touches", missing + copied <= touched, SOMETHING, some_copied)
    yield subject.claim(
        "it uses all that it touches exactly if every written entry is shared",
        (missing + copied == touched) == (copied == there),
        SOMETHING,
        some_copied,
    )
    yield subject.claim(
        "an append of nothing touches nothing", touched == 0, Hypothesis("nothing", z3.And(NEW == 0, LOOKAHEAD == 0))
    )
    yield subject.claim(
        "one token touches one block", touched == 1, Hypothesis("one token", z3.And(NEW == 1, LOOKAHEAD == 0))
    )
    yield from subject.well_defined()


def within_a_block(sources: Sources) -> Iterator[Obligation]:
    """The fast path, which almost every append of one token takes."""
    subject = Subject("an append within a block", sources, "admission-sound", SIZES, COUNTS, HAVE_SLOTS)
    index = subject.local("Growth.append_within_block", "index", {"seen": SEEN, "size": BLOCK_SIZE})
    num_slots = subject.local("Growth.append_within_block", "num_slots", {"index": index, "size": BLOCK_SIZE})
    is_long = subject.condition(
        "Growth.append_within_block", "return None", {"seen": SEEN, "end": END, "num_slots": num_slots}
    )
    takes_one = subject.condition("Growth.append_within_block", "ids.append", {"index": index, "len(ids)": HELD})
    is_short = Hypothesis("it goes the short way", z3.Not(is_long))
    missing = z3.If(blocks_for(subject, END) > HELD, blocks_for(subject, END) - HELD, 0)
    yield subject.claim(
        "whatever writes one entry goes this way, and nothing else does",
        z3.Not(is_long) == z3.And(END > SEEN, blocks_for(subject, END) == index + 1),
    )
    yield subject.claim(
        "it takes what is missing: one block or none",
        missing == z3.If(takes_one, 1, 0),
        is_short,
        Hypothesis("it writes one entry, as is claimed above", blocks_for(subject, END) == index + 1),
    )
    yield subject.claim("its entry may be written to the end", num_slots == (index + 1) * BLOCK_SIZE)
    yield from subject.well_defined()


def token_by_token(sources: Sources) -> Iterator[Obligation]:
    """Appending one token at a time takes as many blocks as appending all at once, also if the tail is shared."""
    is_shared = z3.Bool("tail_is_shared")
    subject = Subject("appends token by token", sources, "admission-sound", SIZES, COUNTS)

    def cost(seen: z3.ArithRef, new: z3.ArithRef, shared: z3.BoolRef) -> z3.ArithRef:
        """Blocks that an append of `new` tokens uses, to a table without spare entries."""
        stop = subject.local("Growth.append", "stop", {"end": seen + new, "size": BLOCK_SIZE})
        held = blocks_for(subject, seen)
        missing = subject.local("Growth.append", "num_missing", {"stop": stop, "len(ids)": held})
        value: z3.ArithRef = missing + z3.If(z3.And(shared, seen % BLOCK_SIZE != 0, new > 0), 1, 0)
        return value

    yield subject.claim(
        "the first token, then the others, take what all take at once",
        cost(SEEN, NEW, is_shared) == cost(SEEN, z3.IntVal(1), is_shared) + cost(SEEN + 1, NEW - 1, z3.BoolVal(False)),
        Hypothesis("a token", NEW >= 1),
    )
    yield subject.claim("no token takes more than one block", cost(SEEN, z3.IntVal(1), is_shared) <= 1)
    yield from subject.well_defined()


def copies(sources: Sources) -> Iterator[Obligation]:
    """The copies of one block with `holders` references, which `writers` members of a group still have to write."""
    holders, writers, before = z3.Ints("holders writers given_up")
    subject = Subject("copies of one block", sources, "admission-sound")

    def num_copies(some_holders: z3.ArithRef, some_writers: z3.ArithRef) -> z3.ArithRef:
        least = z3.If(some_writers < some_holders - 1, some_writers, some_holders - 1)
        value: z3.ArithRef = z3.If(least > 0, least, 0)
        return value

    is_counted = subject.condition(
        "Growth.num_needed", "given_up[block_id]", {"refcounts[block_id]": holders, "before": before}
    )
    yield subject.claim(
        "the loop counts one writer more",
        before + z3.If(is_counted, 1, 0) == num_copies(holders, writers + 1),
        Hypothesis("a block in use", z3.And(holders >= 1, writers >= 0)),
        Hypothesis("so far", before == num_copies(holders, writers)),
    )
    is_copied = subject.condition("Growth.append_within_block", "ids[index] = target", {"refcount": holders})
    left = z3.If(is_copied, holders - 1, holders)
    yield subject.claim(
        "whoever writes next makes one of the copies that were counted, and the other writers are holders still",
        z3.And(
            num_copies(holders, writers) == z3.If(is_copied, 1, 0) + num_copies(left, writers - 1),
            writers - 1 <= left,
        ),
        Hypothesis("the writers are holders", z3.And(1 <= writers, writers <= holders)),
    )


def group(sources: Sources) -> Iterator[Obligation]:
    """The induction over the members of a group, in any order of their appends.

    The remaining members need: for each of them its missing blocks minus those that its own window releases, at least
    0; the copies that are still to be made; and a null block, if a member drops blocks and there is none yet.
    """
    free, others, copies_left, copied, missing, freed, null, extra = z3.Ints(
        "free others_need copies_left copied missing freed num_null null_counted"
    )
    subject = Subject(
        "a group's appends", sources, "admission-sound", non_negative(free, others, copied, missing, freed, null, extra)
    )
    net = missing - freed
    total = added(sources.functions["Growth.num_needed"], "total")
    own = subject.expression("Growth.num_needed", total, {"needed": net})
    extra_null = assigned(sources.functions["Growth.num_needed"], "is_null_extra", last=True)

    def is_counted(needed: z3.ArithRef) -> Any:
        given = {"needed": needed, "is_null_extra": z3.BoolVal(False)}
        return subject.expression("Growth.num_needed", extra_null, given)

    net_is_counted = is_counted(net)
    is_refused = subject.condition(
        "Growth.append", "raise", {"num_fresh": missing + copied, "num_null": null, "num_free": free + freed}
    )
    so_far = Hypothesis("what all that are left need is free", own + others + copies_left + extra <= free)
    writes = Hypothesis("it makes some of the copies that are left", copied <= copies_left)
    takes_null = Hypothesis("it takes one null block at most", null <= 1)
    counted = Hypothesis("it was counted if needed", z3.Implies(z3.And(null == 1, net_is_counted), extra == 1))
    yield subject.claim(
        "the next member's append goes through, and leaves the others what they need",
        z3.And(
            z3.Not(is_refused),
            others + (copies_left - copied) + z3.If(null == 1, 0, extra) <= free + freed - missing - copied - null,
        ),
        so_far,
        writes,
        takes_null,
        counted,
    )
    together = missing + copied - freed
    needed = subject.expression("Growth.num_needed", total, {"needed": together})
    is_counted_alone = is_counted(together)
    yield subject.claim(
        "the append of a member alone goes through, its copies paid for by what its window gives back",
        z3.Not(is_refused),
        Hypothesis("what it needs is free", needed + extra <= free),
        takes_null,
        Hypothesis("the null block was counted if needed", z3.Implies(z3.And(null == 1, is_counted_alone), extra == 1)),
    )
    yield from subject.well_defined()
