"""What a subject can do: one record for each level, and all of them together.

An adapter declares its level's record: `capabilities = StoreCan(leases=True)`. A property that needs a missing
capability is reported as unsupported, never as passed, and the judge makes no call that needs one.

`Capabilities` has the fields of all levels. kvproof reads it wherever the level does not matter; `whole` makes it of
the record of a level. An adapter may declare it too.
"""

from dataclasses import dataclass, fields
from typing import Any

from kvproof.spec.text.budgets import PRIORITY


@dataclass(frozen=True)
class PoolCan:
    """What a block pool can do."""

    fork: bool = False  # holders can share blocks
    caching: bool = False  # there is a prefix cache
    reset: bool = False  # the prefix cache can be reset
    lost_hits: int | None = None  # blocks of a cached prefix that a look-up may miss; None: any number
    eviction: str = ""  # what is evicted first: a policy of `spec.text.eviction_policy`; empty: any block
    events: bool = False  # it reports what it caches and forgets: `events`
    double_free_errors: tuple[str, ...] = ()  # names of the exceptions by which the subject reports a double free
    ignores_double_free: bool = False  # blocks that nobody holds can be freed once more, which changes nothing


@dataclass(frozen=True)
class StoreCan:
    """What a store can do."""

    reset: bool = False  # everything in it can be forgotten: `clear`
    lost_hits: int | None = None  # keys that are there and that a look-up may miss; None: any number
    refusal_slack: int | None = None  # slots beyond its own that may be free if a call is refused; None: any
    double_free_errors: tuple[str, ...] = ()  # names of the exceptions by which it reports a double release
    replacements: tuple[str, ...] = ("lru",)  # what it can be configured to evict first, by the engine's names
    eviction: str = ""  # what "lru" evicts first: a policy of `spec.text.eviction_policy`; empty: any key
    leases: bool = False  # what a transfer holds is given up when its time is over
    loads_any_key: bool = False  # a load may ask for keys that are not there; it gets those that are
    evicts_on_call: bool = False  # it evicts only those keys that its caller names
    fails_whole: bool = False  # a transfer fails for all of its keys, or for none
    never_fails: bool = False  # a store cannot fail for any of its keys
    stores_what_fits: bool = False  # where slots are too few for a store, it takes as many of its keys as it can
    lazy_stores: bool = False  # it can be configured to store what the device evicts next, not what was just computed
    paths: bool = False  # a key is a page together with the pages before it; a call names all of these
    copies_all: bool = False  # all that a store from the device wrote is copied to a lower tier when it ends: `Copied`
    remote_loads: bool = False  # only loads have leases, which may run out under a reader far away: `end_load`
    ends_leases: bool = False  # a lease that has run out holds nothing from then on, also while a load reads under it
    parts: bool = False  # a load may have several readers: it ends when each has said that it is done (`notice`)
    asks_first: bool = False  # a store may first ask a lower tier for its keys, and take slots when that has answered


@dataclass(frozen=True)
class EncoderCan:
    """What a cache of encoder outputs can do."""

    reset: bool = False  # every output can be forgotten: `forget_outputs`
    lost_hits: int | None = None  # cached outputs that a look-up may miss; None: any number
    refusal_slack: int | None = None  # embeddings beyond its own that may be free if it has no room; None: any
    eviction: str = ""  # what is evicted first: a policy of `spec.text.eviction_policy`; empty: any output
    reports_before_computing: bool = False  # the worker first removes what is reported: it may be computed again


@dataclass(frozen=True)
class PairCan:
    """What a pair of engines can do."""

    caching: bool = False  # both sides have a prefix cache
    block_sizes: bool = False  # the blocks of the sides may have different numbers of tokens
    ranks: tuple[int, ...] = ()  # the devices that may share the KV of a side; empty: one, with one head
    load_failures: tuple[str, ...] = ()  # what it can do if a claim is lost, by the engine's names
    dies: bool = False  # a side may die, and another engine takes its place
    loses: bool = True  # its network may lose messages on a lossy day, though both sides live
    doubles: bool = True  # its network may deliver a message twice on a lossy day
    pushes: bool = False  # PREFILL writes what it offers, and sees by itself when all of it has moved
    withdraws: bool = False  # PREFILL may give back at any time what it offers, if nothing of it moves
    claims_first: bool = False  # the router gives a request to both sides at once: a claim may come before its offer
    sends_token: bool = False  # the token that PREFILL generates comes with the KV, and DECODE generates the others
    local: bool = True  # a side may have requests that concern nobody else
    spare_tokens: int = 0  # beyond a request that the pool of its side must have room for
    patience_seconds: int = 0  # what is on the wire for so long is given up; on a calm day nothing is. 0: never
    weathers: tuple[str, ...] = ("calm", "slow", "lossy")  # those in which it is judged: of `protocol.pair`
    lease_seconds: int = 0  # how long an offer is held for a reader who says nothing; 0: for ever
    ends_leases: bool = False  # an offer that is over and that nothing reads is given back in the next step of its side
    rest_seconds: int = 0  # after this time, neither side has anything left of a request that ended


@dataclass(frozen=True)
class ManagerCan:
    """What a block manager can do."""

    has_admission_query: bool = True  # can_x is asked before x; without it, x itself returns Refused
    swap: bool = False  # groups move between GPU and host blocks
    fork: bool = False  # sequences can share blocks
    window: bool = False  # attention may be limited to a sliding window of tokens
    caching: bool = False  # there is a prefix cache
    window_with_caching: bool = False  # both in one configuration
    local_attention: bool = False  # attention in chunks, with and without a prefix cache
    lookahead: bool = False  # slots beyond the known tokens can be reserved
    chunked: bool = False  # a prompt may be computed in several steps
    adapters: bool = False  # prompts may name a LoRA adapter
    salts: bool = False  # prompts may have a cache salt
    images: bool = False  # prompts may have images
    embeddings: bool = False  # a prompt may be embeddings in place of tokens
    context_parallel: bool = False  # several devices may share the tokens of each block among them
    cross: bool = False  # cross-attention tables
    reset: bool = False  # the prefix cache can be reset
    waiting_groups: bool = False  # a group may have several sequences before it is admitted
    watermark: bool = False  # an admission leaves a fraction of the GPU blocks free
    window_drop_when_refused: bool = False  # a refused append may still release blocks that left the window
    ordered_steps: bool = False  # a step first appends and swaps out, then swaps in, then admits
    block_aligned_chunks: bool = False  # with caching, each chunk of a prompt but the last ends at a block boundary
    eviction: str = ""  # what is evicted first: a policy of `spec.text.eviction_policy`; empty: any block
    same_step_hits: bool = False  # a hit may name blocks that are computed in the very step of the reader
    kv_groups: bool = False  # several groups of layers, each with its own tables, over one pool of GPU blocks
    block_sizes: bool = False  # the blocks of these groups may have different numbers of tokens
    states: bool = False  # layers may have a state (Mamba), kept in blocks, with and without a prefix cache
    retention: bool = False  # it can be configured to keep in the cache only some of what windows and states read
    hash_seeds: bool = False  # its hashes of contents can begin with another seed
    drafting: bool = False  # a look-up drops the last block that it finds, for a draft model such as EAGLE
    steps_in_order: bool = False  # the device starts no step before the previous one has ended
    steps_are_certain: bool = False  # an admission is always computed: no release before its step, no step that fails
    lost_hits: int | None = None  # blocks of a cached prefix that a look-up may miss; None: any number
    hits_whole_prompts: bool = False  # a hit may have a prompt's last token, which is then computed again
    records_kept: int | None = None  # of earlier requests, when idle with an empty prefix cache; None: any number
    refusal_slack: int | None = None  # blocks beyond its own that may be free if a call is refused; None: any, NEVER: 0
    counts_touched_blocks: bool = False  # the bound of a refusal counts each block that a growth writes as new
    counts_hit_blocks: bool = False  # the bound of a refusal counts each block that a look-up finds as new
    admits_lookahead: bool = False  # `can_admit` also asks for the lookahead slots
    reserves_once: bool = False  # lookahead slots are reserved when a sequence starts; its tokens use them up
    looks_up_running: bool = False  # a sequence that runs can be looked up too
    owns_lookahead: bool = False  # a sequence shares no block in which its lookahead slots lie with one that decodes
    common_blocks: bool = False  # it names the computed blocks that running sequences have in common: `common_blocks`
    several_tokens: bool = False  # a sequence may get several tokens in one step, as accepted drafts are
    swaps_encoders: bool = False  # groups with an encoder move between GPU and host blocks
    preempts_swapped_encoders: bool = False  # a swapped group with an encoder may be preempted; that table stays
    watermark_of_swap_ins: bool = False  # a swap-in leaves the blocks of the watermark free, unless nothing else runs
    ring_window: bool = False  # a window is a ring of blocks: a sequence never takes more blocks than its ring
    window_slack: int | None = None  # entries that may be held beyond those in reach of a window; None: the usual bound
    keeps_behind_window: bool = False  # blocks behind a window may stay with a sequence: `Observation.kept`
    double_free_errors: tuple[str, ...] = ()  # names of the exceptions by which the subject reports a double free
    prefixes: bool = False  # a group may name a prefix of its prompt, whose blocks later groups share: `new_prefix`
    prefixes_stay: bool = False  # a swap moves no block of a named prefix; a swapped table has null blocks there
    hits_within_blocks: bool = False  # a hit may end within a block, which the admission copies: `Admitted.copies`
    block_size_min: int = 1  # slots of its smallest block; a configuration with a smaller one is not drawn
    block_size_max: int | None = None  # slots of its largest block; None: any
    loads: bool = False  # of a prompt KV may be elsewhere, which an admission takes: `new_elsewhere`
    block_events: bool = False  # it can report what it caches and forgets: `block_events`
    dedups_after_step: bool = False  # after a step, a filled block may be replaced by a cached block of equal content
    dedups_when_scheduled: bool = False  # and when the next step is scheduled
    own_property: str = ""  # a sentence that holds of every state, in addition to kvproof's properties: `check`


@dataclass(frozen=True)
class SchedulerCan(ManagerCan):
    """What a scheduler can do: what its block manager can, and further."""

    async_steps: int = 0  # steps that may be under way when the next one is scheduled
    staggers: bool = False  # with several of these, it can be set to leave a request out of the steps after its own
    aborts: bool = True  # a request may be aborted at any time
    aborts_late: bool = False  # an aborted request that runs goes on until it is reported: `ended`
    preempts: bool = True  # it may take its blocks from a request that runs, which starts again later
    bounds_only_steps: bool = False  # `max_num_seqs` bounds the sequences of one step, not all that are running
    runs_ahead: bool = False  # a step is launched before the results of the previous one are read
    num_overtaken_max: int | None = None  # later requests that may be let in while one waits or is swapped; None: any
    forks_itself: bool = False  # of a request with several sequences it computes one, and forks it by itself
    transfers: bool = False  # KV is loaded from elsewhere and sent there while steps run
    sends_aborted: bool = False  # and it may be sent after a request was aborted
    hybrid_transfers: bool = False  # and with windows, local attention and several KV groups: `being_sent`
    loads_in_step: bool = False  # and the load may happen within the step that lets the sequence in
    repeated_reports: bool = False  # and that a load is over may be reported more than once
    load_failures: tuple[str, ...] = ()  # what it can do if a load fails: policies of `spec.text.loads`
    connectors: tuple[str, ...] = ()  # its own connectors to host memory that it can have, by the engine's names
    hybrid_connectors: bool = False  # and with sliding windows and several KV groups
    steps_for_stores: bool = False  # and while a store is under way the engine schedules steps, without any request
    holds_copies: bool = False  # and they hold the blocks of the device that they copy: `HoldingSubject`
    reports_ends: bool = False  # it reports how each request ended that was aborted, ignored or failed
    reports_each_end: bool = False  # and, of such a request, how each of its sequences ended: `EachEndSubject`
    reports_tokens: bool = False  # it reports which tokens users get
    policies: tuple[str, ...] = ()  # the orders of `spec.text.budgets` that it lets requests in; empty: any order
    long_prefills: bool = False  # it can bound the tokens of one prompt that a step computes
    partial_prefills: int = 1  # how many prompts a step may compute in part; they share its tokens
    holds_longest: bool = False  # it refuses a pool in which a sequence of `max_model_len` does not fit
    idles_once: bool = False  # one step may be empty though somebody waits: its loop schedules again at once
    num_spare: int = 0  # blocks beyond such a sequence that its pool must have
    mixes_steps: bool = True  # a step may compute decodes and parts of prompts
    max_loras: bool = False  # it can bound the LoRA adapters of one step
    speculative_tokens: int = 0  # drafts of one sequence that a step can verify
    pauses: bool = False  # it can be paused between steps, so that it lets nobody in, or serves nobody, and go on
    sessions: bool = False  # requests may go on with further inputs when they have their tokens
    unpublished: bool = False  # KV of some requests may be kept out of the prefix cache
    encodes_images: bool = False  # it says which images a step computes, and which outputs the worker drops
    fills_steps: bool = False  # a chunk ends before its prompt does only if its step has no token left
    begins_prompts: bool = False  # a prompt that waits is begun by a step that has a token, a place and blocks for it
    serves_running: bool = False  # who runs is in each step that ends with a token, a place and blocks left for it
    requeues_last: bool = False  # who was preempted ranks as if it arrived then, in no order among those of one step
    preempts_last: bool = False  # blocks are taken from those who rank last among the requests that run (`policies`)
    preempts_as_set: bool = False  # one sequence is swapped only if `preemption` says so, and never ended for room
    swaps_into_room: bool = False  # it swaps only whole prompts, and if the host has room for all that may run
    refuses_large_groups: bool = False  # it refuses a fork that makes a request larger than a step can run

    @property
    def priorities(self) -> bool:
        """Whether requests may have priorities."""
        return PRIORITY in self.policies


@dataclass(frozen=True)
class Capabilities(StoreCan, PoolCan, EncoderCan, PairCan, SchedulerCan):
    """What subjects of all levels can do."""


OfALevel = PoolCan | StoreCan | EncoderCan | PairCan | ManagerCan
RECORDS = PoolCan, StoreCan, EncoderCan, PairCan, ManagerCan, SchedulerCan, Capabilities


def whole(declared: OfALevel) -> Capabilities:
    """The capabilities of a level with those of the others, which are switched off."""
    if isinstance(declared, Capabilities):
        return declared
    values: dict[str, Any] = {one.name: getattr(declared, one.name) for one in fields(declared)}
    return Capabilities(**values)
