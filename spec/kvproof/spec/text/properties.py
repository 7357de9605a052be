"""The properties: stable names, and what they mean in everyday words.

The names are rule ids in reports, which print the sentences. docs/glossary.md shows both.
"""

from typing import NamedTuple

NOTES = frozenset({"hit-complete"})  # reported, but no failure: a missed hit costs time, not correctness


class Meaning(NamedTuple):
    """What a property says, and what a user of the server sees if it is broken."""

    sentence: str
    consequence: str


MEANINGS: dict[str, Meaning] = {
    "refcount-exact": Meaning(
        "A block's refcount is the number of block-table entries that name it.",
        "A leak until the server has no blocks left, or a block that is freed while it is in use.",
    ),
    "no-double-free": Meaning(
        "No reference is dropped that is not held.",
        "Two requests get the same block.",
    ),
    "no-use-after-free": Meaning(
        "No live table names a free or evictable block, and no block in use is given to another sequence.",
        "A request reads text of another request.",
    ),
    "exclusive-writer": Meaning(
        "A block is written only if every other holder expects exactly the same KV in the written slots.",
        "One beam or fork changes the text of another.",
    ),
    "cow-copied": Meaning(
        "A shared block that is partly filled is replaced before a write, and its content is copied.",
        "A fork loses the end of its prompt.",
    ),
    "read-back": Meaning(
        "Every live sequence reads the KV of its own tokens, at every position.",
        "Wrong or foreign text.",
    ),
    "conservation": Meaning(
        "Free, used, evictable and reserved blocks add up to the whole pool, on each device.",
        "Blocks disappear, or appear twice.",
    ),
    "no-leak-at-rest": Meaning(
        "When no request is live, every block is free or evictable, and no more records are kept than are declared.",
        "The server starves after hours or days.",
    ),
    "cache-content": Meaning(
        "A cached block holds the content under which it is cached, and is not written.",
        "A prefix hit returns wrong text.",
    ),
    "hit-computed": Meaning(
        "A prefix hit returns only blocks whose KV was computed.",
        "A request attends to memory that was never filled.",
    ),
    "hit-complete": Meaning(
        "A prefix that is cached, computed and equal is found.",
        "Nothing wrong, only slow: this property is a note, not a failure.",
    ),
    "hit-found": Meaning(
        "A look-up misses no more blocks of a cached prefix than the manager declares.",
        "Prompts are computed again although their KV is there.",
    ),
    "token-left": Meaning(
        "A hit leaves a token of the prompt to compute, unless the manager declares that it finds whole prompts.",
        "A step without a token to sample from: the request hangs, or the server's loop ends with an exception.",
    ),
    "sharing-equal": Meaning(
        "Two sequences share a block only if tokens, adapter, images with their positions, and salt are equal.",
        "Text leaks between users, tenants or adapters.",
    ),
    "evict-unreferenced": Meaning(
        "Only blocks that no sequence holds are evicted.",
        "A running request loses its KV.",
    ),
    "eviction-order": Meaning(
        "The evicted block is the one that the declared policy names; among equals, the one with the longest prefix.",
        "A lower hit rate than promised.",
    ),
    "lists-agree": Meaning(
        "Counters, free lists, cache and evictor agree with each other.",
        "Anything above, later.",
    ),
    "in-flight-held": Meaning(
        "A block changes its owner only after the last pending read or write of it.",
        "A transfer or a step that is still running overwrites another request.",
    ),
    "swap-mapping": Meaning(
        "The pairs of a swap are device-relative, in range and one-to-one, and the content arrives.",
        "Wrong text after a preemption.",
    ),
    "mapping-hazard-free": Meaning(
        "The swaps and copies of one step give the same bytes in every order in which the worker may execute them.",
        "Wrong text, on some GPUs, sometimes.",
    ),
    "admission-sound": Meaning(
        "After the answer OK the call succeeds and respects the watermark; `can_append` and `can_swap_*` likewise.",
        '"No free blocks" in the middle of a request.',
    ),
    "admission-final": Meaning(
        "After the answer NEVER no later state of this pool admits the request; an idle pool does not answer LATER.",
        "A request waits for ever, or is rejected although it fits.",
    ),
    "admission-exact": Meaning(
        "A call is refused only if it may take more blocks than are free, but for the slack that the manager declares.",
        "Requests wait, or are preempted, while blocks are free.",
    ),
    "failed-call-changes-nothing": Meaning(
        "A refused call leaves the observable state unchanged.",
        "A leak with every refused request.",
    ),
    "frame-kept": Meaning(
        "A call changes only the tables of the sequences that it is about.",
        "One request damages another.",
    ),
    "total-calls": Meaning(
        "A call that has no documented precondition does not raise.",
        "The server's loop ends with an exception.",
    ),
    "window-kept": Meaning(
        "A sliding window drops only entries that can no longer be read, and holds no more blocks than its bound.",
        "Wrong text, or memory that is never returned.",
    ),
    "budget-kept": Meaning(
        "A step has no more tokens, sequences and adapters than its budgets allow.",
        "Out of memory in the model, or latency peaks.",
    ),
    "progress": Meaning(
        "A waiting request that fits into an idle pool is eventually scheduled; with no request, work comes to an end.",
        "A request hangs, or an idle server works on for ever.",
    ),
    "running-served": Meaning(
        "A request that runs is in each step that ends with a token, a place and blocks left for it.",
        "An answer stops for a while in the middle, while the GPU has room.",
    ),
    "preempted-as-set": Meaning(
        "A request that loses its blocks is swapped out or computed again as the configuration says, and one that can "
        "be computed again is not ended for lack of room.",
        "An answer breaks off, or memory of the host fills up with what should be computed again.",
    ),
    "tokens-delivered": Meaning(
        "A user gets the tokens that were generated for the request, in order, each once, and none behind its end.",
        "An answer lacks words, repeats them, or goes on behind its end.",
    ),
    "arrival-order": Meaning(
        "While a request waits or is swapped, no more that rank after it are let in than the scheduler declares; the "
        "request that loses its blocks is the one that ranks last, where this is declared.",
        "A request starves while new ones are served.",
    ),
    "hit-written": Meaning(
        "What a look-up calls a hit was written to its end, by a writer that said so.",
        "A request attends to memory that was never filled.",
    ),
    "promise-kept": Meaning(
        "Between a hit and the load that it promises, the bytes stay.",
        "A request is told that its prompt is there, and then waits, fails or reads foreign text.",
    ),
    "pin-own": Meaning(
        "Who ends a pin or a lease holds it, and nobody else's pin ends with it.",
        "A block is overwritten while another request still reads it.",
    ),
    "one-writer": Meaning(
        "A block of a tier has one transfer in at a time, and none while something reads it.",
        "Two transfers mix their bytes in one block.",
    ),
    "arrived-whole": Meaning(
        "A load brings, slot by slot, the content of its key, for each group of layers and for a short chunk too.",
        "Wrong or foreign text after a hit in a lower tier.",
    ),
    "abort-unseen": Meaning(
        "A store that failed or was aborted, or whose owner has ended, leaves nothing that can be found.",
        "A later request hits a block that was never filled.",
    ),
    "source-held": Meaning(
        "The source of a transfer is neither freed nor written before the transfer has landed.",
        "The copy in the other tier has text of another request.",
    ),
    "void-told": Meaning(
        "What a transfer brought after its source had been given up is never committed.",
        "A request reads the prompt of another one, which took the block while its own was still on the way.",
    ),
    "lease-ends": Meaning(
        "A lease that has run out and under which nothing is read ends, whatever other leases do.",
        "Memory stays taken for requests that are gone, and new ones wait.",
    ),
    "completion-commutes": Meaning(
        "The order in which transfers are reported changes nothing but which block was used last.",
        "A fault that appears only under load.",
    ),
    "refusal-needed": Meaning(
        "A store is refused only if no blocks that may be evicted would make room for it.",
        "KV is computed again, although there was room to keep it.",
    ),
    "tiers-agree": Meaning(
        "Equal keys have equal content in every tier, the entry of a tier ends no later than its bytes, and what shall "
        "be copied to a lower tier is copied whole.",
        "The answer depends on the tier that a prompt is found in.",
    ),
    "groups-agree": Meaning(
        "A hit of some length is one in each group of layers that needs it at that boundary.",
        "Some layers attend to memory that was never filled.",
    ),
    "events-agree": Meaning(
        "What a cache has reported as stored, and not as removed since, is what it holds.",
        "A router sends a prompt to an engine that has forgotten it, or past the engine that has it.",
    ),
    "nondeterministic": Meaning(
        "The same calls give the same answers.",
        "A fault that cannot be reproduced.",
    ),
}
