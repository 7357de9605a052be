"""The properties: stable names, and the sentence that a report prints. Names are rule ids in reports."""

SENTENCES: dict[str, str] = {
    "refcount-exact": "A block's refcount is the number of block-table entries that name it.",
    "no-double-free": "Nothing drops a reference that is not held.",
    "no-use-after-free": (
        "No live table names a block that is free or evictable, and no block that another holds is handed out."
    ),
    "exclusive-writer": (
        "Every other holder of a block being written expects, in each written slot, the very KV that is written."
    ),
    "cow-copied": "A shared partial block is replaced before a write, and its content copied.",
    "read-back": "Every live sequence reads back the KV of its own tokens, position by position.",
    "conservation": "Free, used, evictable and reserved blocks together are the whole pool, on each device.",
    "no-leak-at-rest": "With nothing live, every block is free or evictable.",
    "cache-content": "A cached block holds the content it is cached under, and is not written.",
    "hit-computed": "A prefix hit gives only blocks whose KV was computed.",
    "hit-complete": "A resident, computed, equal prefix is found.",
    "sharing-equal": (
        "Two sequences share a block only if tokens, adapter, images with their positions and salt are equal."
    ),
    "evict-unreferenced": "Only unreferenced blocks are evicted.",
    "eviction-order": (
        "The block evicted is the one that was used least recently, among equals the one with the longest prefix."
    ),
    "lists-agree": "Counters, free lists, cache and evictor tell the same story.",
    "in-flight-held": "A block leaves its owner only after the last pending read or write of it.",
    "swap-mapping": (
        "Source and target of a swap are device-relative, in range and one-to-one, and the content arrives."
    ),
    "mapping-hazard-free": "The copies of one step give the same bytes in any order the worker may use.",
    "admission-sound": "OK means that the call succeeds and leaves the watermark; can_append and can_swap likewise.",
    "admission-final": (
        "NEVER means that no later state of this pool admits it; an idle pool answers OK or NEVER, not LATER."
    ),
    "failed-call-changes-nothing": "A refused call leaves the observable state as it was.",
    "frame-kept": "A call changes only the tables it is about.",
    "total-calls": "A call without a guard does not raise.",
    "window-kept": "The sliding window drops only what can no longer be read, and holds no more than its bound.",
    "budget-kept": "A step computes no more tokens, and lets in no more sequences, than its budgets allow.",
    "progress": "A waiting request that fits an idle pool is eventually scheduled.",
    "nondeterministic": "The same calls give the same answers.",
}

NOTES = frozenset({"hit-complete"})  # reported, but no failure: a missed hit costs time, not correctness
