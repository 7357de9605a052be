"""Admission: OK means that the call succeeds, NEVER that no state of this pool admits it, LATER that an idle pool does.

A pool has `total` blocks. Tables can use at most `usable` of them, and `free` of these are free; in an idle pool all
are. The watermark is a number of blocks that admission leaves free, so a prompt that would fit the pool may still be
answered NEVER: the specification allows exactly that.
"""

from collections.abc import Iterator

import z3

from kvproof.impl.admission import AllocStatus
from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.integer_functions import ordinal

TOKENS, LOOKAHEAD, FREE, USABLE, TOTAL, WATERMARK = z3.Ints(
    "num_tokens num_lookahead_slots num_free num_usable num_total num_watermark"
)
NEEDED, OTHER_FREE = z3.Ints("num_needed other_free")
IS_IDLE = z3.Bool("is_idle")
OK, LATER, NEVER = map(ordinal, (AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER))
POOL = Hypothesis("a pool", z3.And(FREE <= USABLE, USABLE <= TOTAL))


def obligations(sources: Sources) -> Iterator[Obligation]:
    yield from prompts(sources)
    yield from returns(sources)


def answered(name: str, answer: z3.ArithRef, what: int) -> Hypothesis:
    return Hypothesis(f"the answer is {name}", answer == what)


def prompts(sources: Sources) -> Iterator[Obligation]:
    counts = non_negative(TOKENS, LOOKAHEAD, FREE, WATERMARK)
    subject = Subject("admission of a prompt", sources, "admission-sound", SIZES, counts, POOL)
    required = subject.function(
        "SelfAttnBlockSpaceManager._num_prompt_blocks",
        {"num_slots": TOKENS + LOOKAHEAD, "self.block_size": BLOCK_SIZE},
    )

    def answer_with(num_free: z3.ArithRef) -> z3.ArithRef:
        value: z3.ArithRef = subject.function(
            "admission",
            {"num_required": required, "num_free": num_free, "num_usable": USABLE, "watermark_blocks": WATERMARK},
        )
        return value

    answer, idle = answer_with(FREE), answer_with(USABLE)
    taken = subject.function("num_blocks_for", {"num_slots": TOKENS, "block_size": BLOCK_SIZE})
    is_refused = subject.condition("DeviceBlocks.take", "raise", {"num_blocks": taken, "len(self.free_ids)": FREE})
    is_ok, is_later, is_never = (
        answered(*one) for one in (("OK", answer, OK), ("LATER", answer, LATER), ("NEVER", answer, NEVER))
    )
    yield subject.claim("after OK the prompt's blocks are there to be taken", z3.Not(is_refused), is_ok)
    yield subject.claim("after OK and the call the watermark is left", FREE - taken >= WATERMARK, is_ok)
    yield subject.claim(
        "after NEVER no state of the pool answers anything else",
        answer_with(OTHER_FREE) == NEVER,
        is_never,
        Hypothesis("another state", z3.And(0 <= OTHER_FREE, OTHER_FREE <= USABLE)),
        property="admission-final",
    )
    yield subject.claim("after LATER an idle pool answers OK", idle == OK, is_later, property="admission-final")
    yield subject.claim("an idle pool does not answer LATER", idle != LATER, property="admission-final")
    yield subject.claim(
        "OK is answered exactly where the specification allows it",
        (answer == OK) == subject.spec_function("may_answer_ok", required, FREE, WATERMARK),
    )
    yield subject.claim(
        "NEVER is answered exactly where the specification allows it",
        (answer == NEVER) == subject.spec_function("may_end_for_good", required, TOTAL - USABLE, WATERMARK, TOTAL),
        property="admission-final",
    )
    yield subject.claim(
        "with more free blocks OK stays OK",
        answer_with(OTHER_FREE) == OK,
        is_ok,
        Hypothesis("more are free", z3.And(FREE <= OTHER_FREE, OTHER_FREE <= USABLE)),
    )
    yield subject.claim(
        "without a watermark NEVER is answered exactly of what does not fit",
        (answer == NEVER) == (required > USABLE),
        Hypothesis("no watermark", WATERMARK == 0),
        property="admission-final",
    )
    yield from subject.well_defined()


def returns(sources: Sources) -> Iterator[Obligation]:
    """Admission of a swapped group that returns from the host. `FREE` leaves out blocks that it must not be given."""
    idle_is_free = Hypothesis("in an idle pool all is free", z3.Implies(IS_IDLE, FREE == USABLE))
    counts = non_negative(NEEDED, FREE, WATERMARK)
    subject = Subject("admission from the host", sources, "admission-sound", counts, POOL, idle_is_free)

    def answer_with(num_free: z3.ArithRef, is_idle: z3.BoolRef) -> z3.ArithRef:
        value: z3.ArithRef = subject.function(
            "admission_from_host",
            {
                "num_needed": NEEDED,
                "num_free": num_free,
                "num_usable": USABLE,
                "watermark_blocks": WATERMARK,
                "is_idle": is_idle,
            },
        )
        return value

    answer, idle = answer_with(FREE, IS_IDLE), answer_with(USABLE, z3.BoolVal(True))
    is_refused = subject.condition("DeviceBlocks.take", "raise", {"num_blocks": NEEDED, "len(self.free_ids)": FREE})
    is_ok, is_later = answered("OK", answer, OK), answered("LATER", answer, LATER)
    yield subject.claim("after OK the blocks are there to be taken", z3.Not(is_refused), is_ok)
    yield subject.claim(
        "after OK and the call the watermark is left, but in a pool that was idle",
        z3.Or(IS_IDLE, FREE - NEEDED >= WATERMARK),
        is_ok,
    )
    yield subject.claim(
        "NEVER is answered exactly of what does not fit",
        (answer == NEVER) == subject.spec_function("may_end_for_good", NEEDED, TOTAL - USABLE, 0, TOTAL),
        property="admission-final",
    )
    yield subject.claim("after LATER an idle pool answers OK", idle == OK, is_later, property="admission-final")
    yield subject.claim("an idle pool does not answer LATER", idle != LATER, property="admission-final")
    yield from subject.well_defined()
