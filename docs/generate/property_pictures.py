"""A small picture for each property: a state or a step that breaks it, as rows of boxes.

A row is a label and its boxes. A box that begins with `!` is what is wrong, one with `+` what the specification
expects, and one with `~` is free or empty.
"""

from html import escape

Row = tuple[str, str]  # label; boxes, separated by two spaces

KINDS = {"!": "wrong", "+": "right", "~": "free"}
WORDS = {"wrong": "wrong: ", "right": "expected: ", "free": ""}  # for a reader who does not see the colours

PICTURES: dict[str, tuple[Row, ...]] = {
    "refcount-exact": (("sequence 1", "block 0"), ("sequence 2", "block 0"), ("refcount of 0", "+2  !1")),
    "no-double-free": (("sequence 1 ends", "block 0: refcount 1 → 0"), ("freed once more", "!block 0: 0 → -1")),
    "no-use-after-free": (("sequence 1", "block 0  block 1"), ("free list", "!block 1  ~block 2")),
    "exclusive-writer": (
        ("sequence 1 expects", "A B C"),
        ("sequence 2 expects", "A B D"),
        ("both write block 0", "A B  !C or D"),
    ),
    "cow-copied": (
        ("before, both", "block 0: A B ~"),
        ("1 appends C", "+block 1: A B C"),
        ("without the copy", "!block 1: ? ? C"),
    ),
    "read-back": (("sequence 1 knows", "A  B  C"), ("its table reads", "A  !X  C")),
    "conservation": (("pool", "block 0  block 1  block 2"), ("used + free", "1 used  ~1 free  !1 lost")),
    "no-leak-at-rest": (("live requests", "~none"), ("pool", "!block 0 in use  ~block 1")),
    "cache-content": (("cached as", "A B"), ("block 0 holds", "A  !X")),
    "hit-computed": (("prompt", "A B  C D"), ("hit", "block 0, computed  !block 1, not computed")),
    "hit-complete": (("cached", "A B  C D"), ("prompt", "A B  C D  E"), ("hit", "+2 blocks  !1 block")),
    "hit-found": (("cached", "A B  C D"), ("declared loss", "0 blocks"), ("look-up finds", "A B  !C D missing")),
    "token-left": (("prompt", "A B  C D"), ("hit", "A B  !C D"), ("left to compute", "~nothing")),
    "sharing-equal": (
        ("sequence 1", "A B, adapter 1"),
        ("sequence 2", "A B, adapter 2"),
        ("both tables", "!block 0"),
    ),
    "evict-unreferenced": (("sequence 1", "block 0"), ("evicted", "!block 0"), ("could go", "~block 1")),
    "eviction-order": (("used last", "block 0: at 5  block 1: at 9"), ("evicted", "+block 0  !block 1")),
    "lists-agree": (("free list", "~block 0  ~block 1"), ("counter of free blocks", "+2  !3")),
    "in-flight-held": (
        ("step under way", "reads block 0 of sequence 1"),
        ("sequence 1", "~aborted"),
        ("sequence 2", "!block 0"),
    ),
    "swap-mapping": (("GPU block 3", "A B"), ("swap out", "3 → host 0"), ("host block 0", "+A B  !X Y")),
    "mapping-hazard-free": (
        ("one step", "copy 0 → 1  copy 1 → 2"),
        ("in one order", "block 2: A"),
        ("in the other", "!block 2: B"),
    ),
    "admission-sound": (("can_allocate", "OK"), ("allocate", "!raises NoFreeBlocksError")),
    "admission-final": (("can_allocate", "!NEVER"), ("the same, in an idle pool", "admitted")),
    "admission-exact": (("needs", "2 blocks"), ("free", "~block 0  ~block 1"), ("can_allocate", "+OK  !LATER")),
    "failed-call-changes-nothing": (("before", "2 free"), ("allocate", "refused"), ("after", "+2 free  !1 free")),
    "frame-kept": (("call", "append(sequence 1)"), ("table of 2, before", "block 0"), ("and after", "!block 3")),
    "total-calls": (("call", "free(sequence 1)"), ("answer", "!KeyError: 1")),
    "window-kept": (
        ("table, window of 2 tokens", "~left  ~left  block 2"),
        ("next token reads", "block 1  block 2"),
        ("block 1", "!is gone"),
    ),
    "budget-kept": (("budget of a step", "8 tokens"), ("scheduled", "5 tokens  !4 tokens")),
    "progress": (("pool", "~idle"), ("request 1", "waits"), ("100 steps later", "!waits")),
    "running-served": (
        ("running", "request 1  request 2"),
        ("step", "request 1  !request 2 is left out"),
        ("left", "~tokens  ~blocks"),
    ),
    "preempted-as-set": (("preemption is", "recompute"), ("request 1", "+computed again  !on the host")),
    "tokens-delivered": (("generated", "the cat sat. ~the end"), ("user gets", "the cat sat. !and on")),
    "arrival-order": (("waiting", "1st: request 1  2nd: request 2"), ("let in", "!request 2")),
    "hit-written": (("store of key 7", "begun  ~not reported"), ("look-up of 7", "+no  !yes")),
    "promise-kept": (("look-up of 7", "yes"), ("then", "!evicted"), ("load of 7", "fails")),
    "pin-own": (
        ("pins of key 7", "request 1  request 2"),
        ("request 1 ends twice", "!the pin of request 2 is gone"),
    ),
    "one-writer": (("slot 3", "transfer 1 writes  !transfer 2 writes"),),
    "arrived-whole": (("slot of key 7", "A B C D"), ("loaded to the device", "A B C  !empty")),
    "abort-unseen": (("store of key 7", "failed"), ("look-up of 7", "+no  !yes")),
    "source-held": (("transfer 1", "reads block 0"), ("it has not landed", "!block 0 is freed")),
    "void-told": (("the source", "leased  given up"), ("its transfer", "~under way  !committed")),
    "lease-ends": (("lease 1", "~renewed"), ("lease 2", "run out  !kept")),
    "completion-commutes": (("reported 1, then 2", "keys 7 and 8"), ("reported 2, then 1", "!key 8 only")),
    "refusal-needed": (("slots", "~evictable  ~evictable"), ("store of 1 key", "+accepted  !refused")),
    "tiers-agree": (("key 7 on the host", "A B"), ("key 7 on the disk", "!A X")),
    "groups-agree": (("full attention has", "A B  C D"), ("the window has", "A B  ~"), ("hit", "+1 block  !2 blocks")),
    "events-agree": (
        ("blocks with A B", "block 0  block 1"),
        ("block 0 is taken", '!reported: "A B" is removed'),
        ("look-up of A B", "block 1"),
    ),
    "nondeterministic": (("first run", "num_free() → 3"), ("the same calls again", "!num_free() → 2")),
}


def picture(property: str) -> str:
    """The picture of a property as HTML; docs/assets/pictures.css draws it."""
    rows = "".join(
        f"<tr><th scope='row'>{escape(label)}</th><td>{''.join(map(_box, boxes.split('  ')))}</td></tr>"
        for label, boxes in PICTURES[property]
    )
    return f'<table class="picture" aria-label="A picture of what breaks {property}">{rows}</table>\n'


def _box(text: str) -> str:
    kind = KINDS.get(text[0], "")
    text = text[1:] if kind else text
    word = f"<i>{WORDS[kind]}</i>" if WORDS.get(kind) else ""
    return f'<span class="box {kind}">{word}{escape(text) or "empty"}</span>'
