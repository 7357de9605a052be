"""Admission: OK means that the call succeeds, NEVER that no state of this pool admits it, LATER that an idle one does.

A pool of `total` blocks has `usable` ones that tables can ever have, of which `free` are free; idle, all of them. The
watermark is held back from admission, so what fits a pool physically may still be answered NEVER: the specification
allows exactly that.
"""

from __future__ import annotations

from collections.abc import Iterator

import z3

from kvproof.impl.admission import AllocStatus
from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, non_negative
from kvproof.models.proofs.obligation import Hypothesis, Obligation
from kvproof.models.translation.integer_functions import ordinal

TOKENS, LOOKAHEAD, FREE, USABLE, TOTAL, WATERMARK = z3.Ints(
    "num_tokens num_lookahead_slots num_free num_usable num_total num_watermark"
)
NEEDED, OTHER_FREE = z3.Ints("num_needed other_free")
IS_IDLE = z3.Bool("is_idle")
OK, LATER, NEVER = map(ordinal, (AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER))
POOL = Hypothesis("a pool", z3.And(FREE <= USABLE, USABLE <= TOTAL))


def obligations(sources: Sources) -> Iterator[Obligation]:
    """All claims about admission."""
    yield from prompts(sources)
    yield from returns(sources)


def answered(name: str, answer: z3.ArithRef, what: int) -> Hypothesis:
    return Hypothesis(f"the answer is {name}", answer == what)


def prompts(sources: Sources) -> Iterator[Obligation]:
    counts = non_negative(TOKENS, LOOKAHEAD, FREE, WATERMARK)
    about = Subject("admission of a prompt", sources, "admission-sound", SIZES, counts, POOL)
    required = about.function(
        "SelfAttnBlockSpaceManager._num_prompt_blocks",
        {"num_slots": TOKENS + LOOKAHEAD, "self.block_size": BLOCK_SIZE},
    )

    def answer_with(num_free: z3.ArithRef) -> z3.ArithRef:
        value: z3.ArithRef = about.function(
            "admission",
            {"num_required": required, "num_free": num_free, "num_usable": USABLE, "watermark_blocks": WATERMARK},
        )
        return value

    answer, idle = answer_with(FREE), answer_with(USABLE)
    taken = about.function("num_blocks_for", {"num_slots": TOKENS, "block_size": BLOCK_SIZE})
    is_refused = about.condition("DeviceBlocks.take", "raise", {"num_blocks": taken, "len(self.free_ids)": FREE})
    is_ok, is_later, is_never = (
        answered(*one) for one in (("OK", answer, OK), ("LATER", answer, LATER), ("NEVER", answer, NEVER))
    )
    yield about.claim("after OK the prompt's blocks are there to be taken", z3.Not(is_refused), is_ok)
    yield about.claim("after OK and the call the watermark is left", FREE - taken >= WATERMARK, is_ok)
    yield about.claim(
        "after NEVER no state of the pool answers anything else",
        answer_with(OTHER_FREE) == NEVER,
        is_never,
        Hypothesis("another state", z3.And(0 <= OTHER_FREE, OTHER_FREE <= USABLE)),
        property="admission-final",
    )
    yield about.claim("after LATER an idle pool answers OK", idle == OK, is_later, property="admission-final")
    yield about.claim("an idle pool does not answer LATER", idle != LATER, property="admission-final")
    yield about.claim(
        "OK is said exactly where the specification allows it",
        (answer == OK) == about.word("may_answer_ok", required, FREE, WATERMARK),
    )
    yield about.claim(
        "NEVER is said exactly where the specification allows it",
        (answer == NEVER) == about.word("may_end_for_good", required, TOTAL - USABLE, WATERMARK, TOTAL),
        property="admission-final",
    )
    yield about.claim(
        "with more free blocks OK stays OK",
        answer_with(OTHER_FREE) == OK,
        is_ok,
        Hypothesis("more are free", z3.And(FREE <= OTHER_FREE, OTHER_FREE <= USABLE)),
    )
    yield about.claim(
        "without a watermark NEVER is said exactly of what does not fit",
        (answer == NEVER) == (required > USABLE),
        Hypothesis("no watermark", WATERMARK == 0),
        property="admission-final",
    )
    yield from about.well_defined()


def returns(sources: Sources) -> Iterator[Obligation]:
    """A group that comes back from the host; blocks that must not be landed on do not count as free."""
    idle_is_free = Hypothesis("in an idle pool all is free", z3.Implies(IS_IDLE, FREE == USABLE))
    counts = non_negative(NEEDED, FREE, WATERMARK)
    about = Subject("admission from the host", sources, "admission-sound", counts, POOL, idle_is_free)

    def answer_with(num_free: z3.ArithRef, is_idle: z3.BoolRef) -> z3.ArithRef:
        value: z3.ArithRef = about.function(
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
    is_refused = about.condition("DeviceBlocks.take", "raise", {"num_blocks": NEEDED, "len(self.free_ids)": FREE})
    is_ok, is_later = answered("OK", answer, OK), answered("LATER", answer, LATER)
    yield about.claim("after OK the blocks are there to be taken", z3.Not(is_refused), is_ok)
    yield about.claim(
        "after OK and the call the watermark is left, but in a pool that was idle",
        z3.Or(IS_IDLE, FREE - NEEDED >= WATERMARK),
        is_ok,
    )
    yield about.claim(
        "NEVER is said exactly of what does not fit",
        (answer == NEVER) == about.word("may_end_for_good", NEEDED, TOTAL - USABLE, 0, TOTAL),
        property="admission-final",
    )
    yield about.claim("after LATER an idle pool answers OK", idle == OK, is_later, property="admission-final")
    yield about.claim("an idle pool does not answer LATER", idle != LATER, property="admission-final")
    yield from about.well_defined()
