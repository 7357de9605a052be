"""The page docs/red.md, a row for each property: `python -m docs.generate.red` writes it.

What a property means, and what users see, are the sentences of the specification's table; the usual causes are those of
faults that were found in engines, or planted.
"""

from pathlib import Path
from typing import NamedTuple

from kvproof.spec.text.properties import MEANINGS

PAGE = Path(__file__).resolve().parents[1] / "red.md"
HEAD = """# My run is red, now what?

1. **Read the last step** of the finding: this call made the state wrong. The lines above the steps name the method of
   your manager. `index.html` in the folder of the run shows the blocks step by step (arrow keys).
2. **Is it the adapter?** One that passes on too little, or in another order, looks like a fault of the manager: compare
   it with the [adapter calls](adapter-reference.md).
3. **May your manager do this?** If its caller never does what the run does, declare the capability or the assumption
   that says so ([what a manager may choose](own-manager.md#what-a-manager-may-choose)).
4. **Find the cause** with the row of your property below. FILE is the saved run; add `--subject` with your subject.
5. **Correct it**, and run `kvproof replay FILE` until it says FIXED. Then hunt again with the same seed: one fault can
   hide another. Commit FILE as a test ([CI](ci.md#in-your-own-test-suite)).
6. **Not now?** List it with a reason and a date ([known findings](ci.md#known-findings)).

Exit code 4 or 5 is no finding: the last line of the run says what to raise, or what was not checked. The site's page
*Properties* (`make docs`) has a picture and a short run for each row; `kvproof corpus list` has real faults.

| property | what it means | if it is broken, users see | usual causes | the next command |
|---|---|---|---|---|
"""


class Advice(NamedTuple):
    """Where a fault of this property usually lies, and what to run to see more of it."""

    causes: str
    command: str


HUNT = "kvproof hunt"
REPLAY = "kvproof replay FILE --page"
PLAIN = f"{HUNT} --fix caching=false"
SCHEDULER, STORE, PAIR = (f"{HUNT} --level {level}" for level in ("scheduler", "store", "pair"))
ADVICE: dict[str, Advice] = {
    "refcount-exact": Advice(
        "a fork, a hit or a table with a repeated block counts too often or not at all",
        REPLAY,
    ),
    "no-double-free": Advice(
        "two paths free the same block (abort and end, failure and its caller); a table names a block twice", REPLAY
    ),
    "no-use-after-free": Advice(
        "a block is freed before its table entry goes; an evicted block stays in the table of contents",
        PLAIN,
    ),
    "exclusive-writer": Advice(
        "an append writes to a block with two holders: the check for a copy was left out", REPLAY
    ),
    "cow-copied": Advice(
        "the copy is not reported, has its ends exchanged, or is left out where no block is free",
        f"{HUNT} --property cow-copied",
    ),
    "read-back": Advice(
        "a table in the wrong order; wrong counts of tokens after a preemption, a failed load or drafts",
        REPLAY,
    ),
    "conservation": Advice(
        "a block is neither free nor cached nor used: overwritten in a dictionary, or forgotten on an error path",
        REPLAY,
    ),
    "no-leak-at-rest": Advice(
        "an abort before the first step, or a reset, leaves records or references",
        f"{HUNT} --property no-leak-at-rest",
    ),
    "cache-content": Advice("a cached block is written again, or keeps its hash when it gets other tokens", REPLAY),
    "hit-computed": Advice(
        "blocks count as computed when scheduled; a preempted, failed or shorter chunk leaves them cached",
        f"{HUNT} --fix chunked=false",
    ),
    "hit-complete": Advice("a note, no failure: the cache forgot, or the look-up ends early", REPLAY),
    "hit-found": Advice(
        "a hit is rounded down twice; generated tokens have other keys; or declare `lost_hits`",
        REPLAY,
    ),
    "token-left": Advice("the look-up hits the whole prompt: leave its last token or block out", REPLAY),
    "sharing-equal": Advice(
        "the key of a block lacks the prefix, the adapter, the salt, or the image and its place",
        f"{HUNT} --property sharing-equal",
    ),
    "evict-unreferenced": Advice(
        "a hit is not held before the rest of the call evicts; a call evicts a key that it names itself", REPLAY
    ),
    "eviction-order": Advice(
        "a hit does not renew the date; a sequence's blocks go in the wrong order; another policy",
        REPLAY,
    ),
    "lists-agree": Advice(
        "a block that is named twice goes into a list twice; a counter changes on one path only", REPLAY
    ),
    "in-flight-held": Advice(
        "an abort or a preemption frees blocks that a transfer or a step still uses",
        f"{SCHEDULER} --property in-flight-held",
    ),
    "swap-mapping": Advice(
        "a shared block gets two targets; ids of the other device; a partly filled block left out", REPLAY
    ),
    "mapping-hazard-free": Advice("a block that a step reads is given away and written in the same step", REPLAY),
    "admission-sound": Advice(
        "the question counts less than the call takes: evictable hits, null blocks, the next token",
        PLAIN,
    ),
    "admission-final": Advice("the question forgets the watermark, or a block that is taken for ever", REPLAY),
    "admission-exact": Advice(
        "the question counts too much: hits twice, the whole prompt; or declare a reserve with `refusal_slack`", PLAIN
    ),
    "failed-call-changes-nothing": Advice("references or evictions come before the last check of the call", REPLAY),
    "frame-kept": Advice("a loop or a shared list changes the table of another sequence", REPLAY),
    "total-calls": Advice(
        "an assertion or a missing key after an abort, a second report, an empty list; an endless loop",
        REPLAY,
    ),
    "window-kept": Advice(
        "a block is given back one position or one step too soon; a hit is cut at the wrong end",
        f"{HUNT} --property window-kept",
    ),
    "budget-kept": Advice("drafts, resumed requests or adapters are added after the budget was checked", REPLAY),
    "progress": Advice(
        "the loop over waiting requests ends at one that cannot go on; a reserve counts the request itself",
        REPLAY,
    ),
    "running-served": Advice(
        "the loop over running requests ends at one that preempts itself or lacks a block", REPLAY
    ),
    "preempted-as-set": Advice("the mode is decided by the number of sequences, not by the configuration", REPLAY),
    "tokens-delivered": Advice(
        "after a reset, a stop or a failed load, late output is delivered, or too much is dropped",
        REPLAY,
    ),
    "arrival-order": Advice(
        "skipped requests go back in reverse; shorter prompts pass; the wrong one is preempted", REPLAY
    ),
    "hit-written": Advice("a key is readable from the begin of its store, or when its lock has run out", REPLAY),
    "promise-kept": Advice(
        "a look-up does not pin what it promises, or pins a part", f"{STORE} --property promise-kept"
    ),
    "pin-own": Advice("a count of readers that anybody may lower; the late end of an expired lease", REPLAY),
    "one-writer": Advice("a key that is being stored is given a second slot, or its slot to another key", REPLAY),
    "arrived-whole": Advice(
        "lists of blocks are cut at different ends; a sampled token counts as computed; blocks of two sizes", REPLAY
    ),
    "abort-unseen": Advice("a failed or aborted store leaves its entry, or a node that others hang below", REPLAY),
    "source-held": Advice(
        "the source of a store is freed by a preemption or a reset that does not wait for it", REPLAY
    ),
    "void-told": Advice("the reader does not learn that the lease of its source ended", f"{PAIR} --property void-told"),
    "lease-ends": Advice(
        "leases are looked at in the order of their begin, and the loop stops at a renewed one", REPLAY
    ),
    "completion-commutes": Advice(
        "no judge reports it of a subject: a rule of the specification was changed", "kvproof prove --only store"
    ),
    "refusal-needed": Advice("the eviction looks at one list, or only at whole nodes, or evicts nothing here", REPLAY),
    "tiers-agree": Advice("a copy to the lower tier is skipped, or is of a part; an entry outlives its bytes", REPLAY),
    "groups-agree": Advice(
        "the longest hit of one group counts for all; a group lacks the block at the boundary",
        "kvproof prove --only store",
    ),
    "events-agree": Advice(
        "a removal is reported while a second copy is there; events of blocks that have left the window", REPLAY
    ),
    "nondeterministic": Advice(
        "the clock, `id()`, the order of a set, a global that a run leaves behind, threads", REPLAY
    ),
}


def page() -> str:
    """The page in Markdown, a row for each property in the order of the specification's table."""
    rows = [
        f"| `{id}` | {meaning.sentence} | {meaning.consequence} | {ADVICE[id].causes} | `{ADVICE[id].command}` |\n"
        for id, meaning in MEANINGS.items()
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
