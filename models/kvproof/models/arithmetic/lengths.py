"""Tokens, slots and blocks: the number of blocks is sufficient and minimal, and positions map one-to-one to slots."""

from collections.abc import Iterator

import z3

from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.multiplication_lemma import LEMMA, by_lemma, lesser_has_less
from kvproof.models.translation.terms import every
from kvproof.models.translation.translator import Translator

N, M = z3.Ints("num_slots num_blocks")
LOOKAHEAD = z3.Int("num_lookahead_slots")


def obligations(sources: Sources) -> Iterator[Obligation]:
    yield from blocks_for_slots(sources)
    yield from positions(sources)


def blocks_for_slots(sources: Sources) -> Iterator[Obligation]:
    subject = Subject("blocks for slots", sources, "admission-sound", SIZES, non_negative(N))

    def blocks(num_slots: z3.ArithRef) -> z3.ArithRef:
        value: z3.ArithRef = subject.function("num_blocks_for", {"num_slots": num_slots, "block_size": BLOCK_SIZE})
        return value

    count, other = blocks(N), z3.Int("other_slots")
    one, another = z3.Ints("one another")
    yield subject.claim(LEMMA, lesser_has_less(BLOCK_SIZE, one, another))
    yield subject.claim("they are enough", count * BLOCK_SIZE >= N)
    yield subject.claim(
        "fewer are not enough",
        M >= count,
        Hypothesis("so many are enough", z3.And(M * BLOCK_SIZE >= N, M >= 0)),
        by_lemma(BLOCK_SIZE, M, count),
    )
    yield subject.claim("less than a block is left over", count * BLOCK_SIZE < N + BLOCK_SIZE)
    yield subject.claim("nothing takes no block, one slot takes one", (count == 0) == (N == 0))
    yield subject.claim(
        "a block more of slots takes one more",
        blocks(N + BLOCK_SIZE) == count + 1,
        by_lemma(BLOCK_SIZE, blocks(N + BLOCK_SIZE), count + 1),
    )
    yield subject.claim("more slots take no fewer", blocks(N + M) >= count, Hypothesis("more", M >= 0))
    yield subject.claim(
        "apart they take no fewer than together",
        blocks(other) + count >= blocks(N + other),
        non_negative(other),
        by_lemma(BLOCK_SIZE, blocks(other) + count, blocks(N + other)),
    )
    yield subject.claim(
        "full blocks, and one more for what is left",
        count == N / BLOCK_SIZE + z3.If(N % BLOCK_SIZE > 0, 1, 0),
    )
    specified = subject.spec_function("blocks_for", N)
    yield subject.claim("the specification says the same", count == specified, by_lemma(BLOCK_SIZE, count, specified))
    prompt = subject.function(
        "SelfAttnBlockSpaceManager._num_prompt_blocks", {"num_slots": N, "self.block_size": BLOCK_SIZE}
    )
    yield subject.claim(
        "the manager counts the same for a prompt", prompt == specified, by_lemma(BLOCK_SIZE, prompt, specified)
    )
    required = subject.function(
        "BlockTable.get_num_required_blocks",
        {"len(token_ids)": N, "block_size": BLOCK_SIZE, "num_lookahead_slots": LOOKAHEAD},
    )
    specified = subject.spec_function("blocks_for", N + LOOKAHEAD)
    yield subject.claim(
        "a block table counts the same for tokens and lookahead",
        required == specified,
        non_negative(LOOKAHEAD),
        by_lemma(BLOCK_SIZE, required, specified),
    )
    yield from subject.well_defined()


def positions(sources: Sources) -> Iterator[Obligation]:
    """Position p is in entry p // block size and slot p % block size; slot numbers divide in the same way."""
    seq, other_seq = z3.Ints("seq other_seq")
    state = Translator(text=sources.text).unknown_state()

    def number(field: str, of: z3.ArithRef) -> z3.ArithRef:
        value = state.maps[field].read(of)
        assert isinstance(value, z3.ArithRef)
        return value

    full, filled = number("num_full", seq), number("num_filled", seq)
    other_full, other_filled = number("num_full", other_seq), number("num_filled", other_seq)
    subject = Subject("positions and slots", sources, "read-back", SIZES)

    def in_block(*slots: z3.ArithRef) -> Hypothesis:
        return Hypothesis("slots of a block", every(z3.And(0 <= slot, slot < BLOCK_SIZE) for slot in slots))

    place = subject.spec_function("num_tokens_known", state, seq)
    other = subject.spec_function("num_tokens_known", state, other_seq)
    yield subject.claim(
        "the position gives back entry and slot",
        z3.And(place / BLOCK_SIZE == full, place % BLOCK_SIZE == filled),
        in_block(filled),
    )
    yield subject.claim(
        "two places have two numbers",
        z3.And(full == other_full, filled == other_filled),
        in_block(filled, other_filled),
        Hypothesis("one number", place == other),
    )
    yield subject.claim(
        "the numbers are those of the slots there are",
        z3.And(place >= 0, place < M * BLOCK_SIZE),
        in_block(filled),
        Hypothesis("a block of the pool", z3.And(0 <= full, full < M)),
    )
    entry, slot = (
        subject.local("Growth.append", "first", {"seen": N, "size": BLOCK_SIZE}),
        N - BLOCK_SIZE * (N / BLOCK_SIZE),
    )
    yield subject.claim(
        "an append begins where the next position lies",
        z3.And(entry == full, slot == filled),
        in_block(filled),
        Hypothesis("so many tokens have slots", N == place),
    )
    yield from subject.well_defined()
