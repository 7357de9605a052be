"""The protocol of a whole scheduler: the calls that it must offer to be judged, and what each step returns.

A *subject* is a scheduler together with its block manager, behind an adapter. The judge owns the expected state
(requests, tokens, keys) and plays the users, the model and the worker: it sends and aborts requests, executes what a
step says, samples tokens, and gives them back. A step has three calls, `schedule`, `launch` and `complete`, so that
requests can arrive and be aborted between any two of them.

Some schedulers need more calls: one that launches a step before it reads the results of the previous one
(`AheadSubject`), one that forks requests by itself (`ForkingSubject`), one that loads and sends KV while steps run
(`TransferringSubject`, `HybridTransferringSubject`), one whose loads may fail (`FailingLoadsSubject`), one that
verifies drafts (`SpeculatingSubject`), one whose requests have priorities (`PrioritySubject`), one with requests that
go on (`SessionSubject`), one that can be paused (`PausingSubject`) or reset (`ResettingSubject`), one that reports how
requests ended (`ReportingSubject`) and how each of their sequences did (`EachEndSubject`), and one that reports the
tokens that users get (`DeliveringSubject`).

With `async_steps`, that many launched steps may be incomplete when the next one is scheduled. Steps complete in the
order in which they were launched. The next step may continue with a token that an incomplete step samples. If the
sequence turns out to be over, that computation was in vain, and the token sampled from it is not given back.

Numbers and observations are those of `protocol.manager`; requests are numbers as well. `open` raises `Unsupported` for
a configuration that the scheduler cannot have. Any other exception, from any call, is a finding about the subject.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of
from kvproof.check.protocol.block_events import EventSubject
from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.features import Setting, smaller_sizes
from kvproof.check.protocol.manager import Assumption, Config, Observation, Pair
from kvproof.spec.text.budgets import FCFS
from kvproof.spec.text.identity import Image, Key


@dataclass(frozen=True)
class SchedulerConfig(Config):
    """One configuration of a scheduler and its manager. `group_size` bounds the sequences of a new request."""

    max_num_batched_tokens: int = 64  # tokens computed in one step
    max_num_seqs: int = 16  # sequences of one step, and of all that run, but for those that were forked
    max_model_len: int = 64  # tokens of one sequence; the engine ends a sequence that has as many
    preemption: str = "auto"  # what becomes of a preempted sequence, "auto", "recompute" or "swap"
    async_steps: int = 0  # steps that may be under way when the next one is scheduled
    staggered: bool = False  # a request is in none of the `async_steps - 1` steps after one that samples its token
    transfers: bool = False  # KV is loaded from elsewhere, or sent there after a request, while steps run
    sends_aborted: bool = False  # what was computed of an aborted request is sent too, if its KV is to be sent
    loads_in_step: bool = False  # these loads happen within the step that lets the sequence in
    repeated_reports: bool = False  # that a load is over may be reported again later, as by a second connector
    load_failures: str = ""  # what becomes of a request whose load fails, "recompute" or "fail"; empty: no load fails
    connector: str = ""  # the scheduler's own connector to host memory, by the engine's name; empty: none
    host_slots: int = 8  # blocks of KV that fit into the host memory of the connector
    policy: str = FCFS  # the order in which requests are let in
    long_prefill_threshold: int = 0  # tokens of one prompt that a step computes at most; 0: no bound
    partial_prefills: int = 1  # prompts that share the tokens of a step, where none of them can be computed whole
    max_loras: int = 0  # LoRA adapters of the sequences of one step; 0: any number
    speculative_tokens: int = 0  # drafts that are proposed for a sequence after a step, at most; 0: there are none
    encoder_room: int = 0  # embeddings of images that the scheduler keeps, and that a step computes; 0: any number
    sessions: bool = False  # some requests go on with further inputs
    pauses: bool = False  # between steps the scheduler is paused, and goes on
    resets: bool = False  # between steps its prefix cache is reset, with or without those who run
    unpublished: bool = False  # KV of some requests must not come into the prefix cache

    @property
    def long_prompt(self) -> int:
        """Where prompts share the tokens of a step, a prompt is long while more than so many of its tokens are left."""
        return self.max_model_len // 2

    @property
    def long_partial_prefills(self) -> int:
        """How many of the prompts that share the tokens of a step may be long."""
        return max(1, self.partial_prefills - 1)

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by name."""
        default = asdict(SchedulerConfig())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


ENOUGH_TOKENS = 64  # a budget of so many tokens is not reached by a small run, and is the default


def rank_of_budget(num_tokens: int) -> float:
    """A budget that no step reaches is plainer than a small one."""
    return float(num_tokens > ENOUGH_TOKENS if num_tokens >= ENOUGH_TOKENS else 2 + num_tokens)


LIMITS = (  # the settings that a scheduler has in addition to the features and sizes of its manager
    Setting("policy", lambda config: (FCFS,), rank=lambda policy: policy != FCFS),
    Setting("long_prefill_threshold", lambda config: (0, *range(1, config.long_prefill_threshold)), least=0),
    Setting("partial_prefills", lambda config: range(1, config.partial_prefills), least=1),
    Setting("max_loras", lambda config: (0,), least=0),
    Setting("speculative_tokens", lambda config: range(config.speculative_tokens), least=0),
    Setting("encoder_room", lambda config: (0,), least=0),
    Setting("sessions", lambda config: (False,)),
    Setting("pauses", lambda config: (False,)),
    Setting("resets", lambda config: (False,)),
    Setting("unpublished", lambda config: (False,)),
    Setting("sends_aborted", lambda config: (False,)),
    Setting("load_failures", lambda config: ("",), rank=lambda policy: policy != ""),
    Setting("loads_in_step", lambda config: (False,)),
    Setting("repeated_reports", lambda config: (False,)),
    Setting("transfers", lambda config: (False,)),
    Setting("connector", lambda config: ("",), rank=lambda connector: connector != ""),
    Setting("host_slots", lambda config: smaller_sizes(1, config.host_slots), least=1),
    Setting("staggered", lambda config: (False,)),
    Setting("async_steps", lambda config: range(config.async_steps), least=0),
    Setting("preemption", lambda config: ("auto",), rank=lambda mode: mode != "auto"),
    Setting(
        "max_num_batched_tokens", lambda config: (config.max_num_batched_tokens + ENOUGH_TOKENS,), rank=rank_of_budget
    ),
    Setting("max_num_seqs", lambda config: smaller_sizes(1, config.max_num_seqs), least=1),
    Setting(
        "max_num_batched_tokens",
        lambda config: range(config.max_num_seqs, min(config.max_num_batched_tokens, ENOUGH_TOKENS)),
        least=1,
        rank=rank_of_budget,
    ),
    Setting("max_model_len", lambda config: smaller_sizes(1, config.max_model_len), least=1),
)


PADDING = -1  # a draft without value: with asynchronous steps that of the device, if it has one; else it is rejected


class Chunk(NamedTuple):
    """One sequence of a step: its tokens at positions `start` to `stop - 1` are computed, the drafts among them.

    hit: if the step admits the sequence, the tokens found in the prefix cache, in whole blocks. It can exceed `start`,
    because the last token of a prompt is always computed. Sequences of one request that are admitted together share
    what the first one computes: for the others, `start` equals `stop`.
    """

    seq: int
    start: int
    stop: int
    hit: int = 0


class Load(NamedTuple):
    """A sequence got its table, and waits. Its first `hit` positions are cached; those up to `stop - 1` are loaded.

    job: with a connector to host memory, the engine's number of the copy. pairs: its (slot, block) pairs.
    """

    seq: int
    hit: int
    stop: int
    job: int = -1
    pairs: Sequence[Pair] = ()


class HostStore(NamedTuple):
    """A connector wants these (block, slot) pairs copied to host memory. job: the engine's number of the copy."""

    job: int
    pairs: Sequence[Pair]


class Access(NamedTuple):
    """What an executed step computed or read, position by position, if the subject runs on the engine's own tensors.

    what: "token" for inputs of the model, as pairs (position, token); "key" or "value" for KV, as numbers of prefixes.
    places: the request and position of each element that the step should access. expected: what it should find there,
    as the adapter was given it. observed: what it found.
    """

    what: str
    places: list[tuple[str, int]]
    expected: list[Any]
    observed: list[Any]


class ScheduledStep(NamedTuple):
    """What the scheduler wants done, in this order: swap in, swap out, copies, chunks.

    chunks: in the order in which the sequences got their slots. swap_in, swap_out: pairs relative to their devices.
    copies: (source, target) pairs of absolute ids. ignored: requests that it ended because no step could ever run them.
    failed: requests that it ended because it could not make room for them. loads: sequences that wait for KV from
    elsewhere; they are in no chunk yet, unless the load happens within the step (`loads_in_step`). prompts: sequences
    whose chunk the worker treats as a part of a prompt, and the others as decodes; None if the scheduler does not
    distinguish them. stores: copies to host memory that begin after the step, when the next one is launched. flushes:
    jobs whose copies must end before the step computes. drafts: the sequences whose drafts the step verifies, each with
    these tokens, which are the last ones of its chunk. encoded: the sequences of which the step computes outputs of
    images, each with the places of these images. dropped: the images whose outputs the worker drops before that.
    """

    chunks: Sequence[Chunk] = ()
    swap_in: Sequence[Pair] = ()
    swap_out: Sequence[Pair] = ()
    copies: Sequence[Pair] = ()
    ignored: Sequence[int] = ()
    failed: Sequence[int] = ()
    loads: Sequence[Load] = ()
    prompts: Sequence[int] | None = None
    stores: Sequence[HostStore] = ()
    flushes: Sequence[int] = ()
    drafts: Sequence[tuple[int, Sequence[int]]] = ()
    encoded: Sequence[tuple[int, Sequence[int]]] = ()
    dropped: Sequence[str] = ()


class SchedulerSubject(Protocol):
    """A scheduler behind an adapter."""

    name: str
    assumptions: tuple[Assumption, ...]

    @property
    def capabilities(self) -> SchedulerCan:
        """What it declares that it can do."""

    def open(self, config: SchedulerConfig) -> None:
        """Make a new scheduler without requests, and forget the old one. Raises Unsupported."""

    def add_request(
        self,
        request: int,
        seqs: list[int],
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        max_tokens: int,
        encoder: tuple[int, list[int]] | None,
    ) -> None:
        """A request arrives.

        seqs: its sequences; all have the prompt `tokens`. max_tokens: the tokens that each of them generates at most.
        encoder: the number and the tokens of its encoder sequence, if it has one.
        """

    def abort(self, request: int) -> None:
        """The user has left. This can happen at any time. Blocks that a step still uses are released when it ends."""

    def schedule(self) -> ScheduledStep:
        """Decide the next step."""

    def launch(self) -> Sequence[Access] | None:
        """The worker starts the step that was scheduled last. With `async_steps`, others may be scheduled meanwhile.

        Returns what the step accessed, if the subject executes it on the engine's own tensors.
        """

    def complete(
        self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]
    ) -> Sequence[tuple[int, int]] | None:
        """The oldest step under way is executed.

        First, for each (parent, child) of `forks`, the child begins with the tokens of its parent. Then each sequence
        of `sampled` gets its token. Then the sequences of `finished` are over. Returns the forks that the scheduler
        refused (`refuses_large_groups`), if there are any; then there is no such child.
        """

    def observe(self) -> Observation:
        """The current state of the block manager. Changes nothing, and returns copies."""


class AheadSubject(SchedulerSubject, Protocol):
    """A scheduler that launches a step before it reads the results of the previous one (`runs_ahead`)."""

    def computed(self, tokens: dict[int, int]) -> None:
        """With `async_steps`, after each launch: the token that the step samples for each sequence that still needs it.

        The tokens are on the device, for the next step to continue with. The scheduler gets them again with `complete`.
        """


class ForkingSubject(SchedulerSubject, Protocol):
    """A scheduler that forks a request of several sequences by itself (`forks_itself`). It gets all their numbers."""

    def forked(self) -> tuple[list[tuple[int, int]], list[Pair]]:
        """What was forked since the last call; asked after each `complete`.

        Returns the (parent, child) pairs of sequences, and the copies (absolute ids) made for children that have
        tables. From now on the child is a request of its own, whose number is the negative of its sequence's.
        """


class TransferringSubject(SchedulerSubject, Protocol):
    """A scheduler with KV transfers, which run while steps run. A transfer holds its blocks until it is over."""

    def elsewhere(self, request: int, num_tokens: int, is_sent: bool) -> None:
        """Describe the request that is added next.

        num_tokens: tokens of its prompt whose KV can be loaded from elsewhere, in whole blocks; with states not all of
        them. is_sent: whether its KV
        is sent away when the request ends by itself and, with `sends_aborted`, when it is aborted and has blocks.
        """

    def arrived(self, sent: list[int], received: list[int]) -> None:
        """The sequences whose KV was sent, and those whose KV was loaded, since the last `complete`.

        Called before each `complete`. With `repeated_reports`, a sequence may be received again, at any time after the
        first, also when its request is over or gone: this changes nothing. No other load of it is under way then.
        """


class HybridTransferringSubject(TransferringSubject, Protocol):
    """A scheduler with KV transfers together with windows, local attention or several KV groups (`hybrid_transfers`).

    A load fills an entry only if a token after the load reads it.
    """

    def being_sent(self) -> dict[int, list[list[int]]]:
        """The tables of those sequences that are over and whose blocks are kept to be sent.

        An entry that no later token reads need not be kept, and may be null.
        """


class FailingLoadsSubject(SchedulerSubject, Protocol):
    """A scheduler whose loads may fail (`load_failures`).

    What a step computed from KV that is not there is no result. With the results of that step and of those that were
    launched before the failure was reported, `complete` has tokens of such sequences all the same, as a device samples
    them. The scheduler takes none of these.
    """

    def loads_failed(self, failed: dict[int, list[int]]) -> None:
        """The loads that failed since the last `complete`: by sequence, the blocks whose KV is not there.

        A sequence with an empty list has nothing of its load. A load that lasts may be reported before it is over
        (`arrived`), more than once, and when its request is gone; one within a step is reported with this step. Called
        before each `complete` with which a failure is reported.
        """


class SessionSubject(SchedulerSubject, Protocol):
    """A scheduler with requests that go on (`sessions`).

    When a session has generated its tokens, or `complete` ends it, it keeps its blocks and waits for its next input.
    That one begins with all that the session has, but for the token that was sampled last.
    """

    def open_session(self, request: int) -> None:
        """The request that is added next is a session."""

    def feed(self, request: int, tokens: list[int], max_tokens: int) -> None:
        """Between steps: more tokens of the prompt of a session, after which it generates so many at most.

        If the session has not generated its tokens yet, they are kept until then. Several inputs are taken in order.
        """

    def close(self, request: int) -> None:
        """The session gets no further input. If it waits for one it is over, and `ended` does not report it."""


class PausingSubject(SchedulerSubject, Protocol):
    """A scheduler that can be paused (`pauses`)."""

    def pause(self, state: str) -> None:
        """Between steps: pause, or go on.

        state: PAUSED_NEW, from now on only requests that have blocks are served. PAUSED_ALL: nobody is served. Empty:
        the scheduler goes on. Requests arrive and are aborted as always.
        """


class ResettingSubject(SchedulerSubject, Protocol):
    """A scheduler that can be reset while it has no connector to host memory, or without it (`reset`)."""

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        """Between steps: drop what is cached on the device, as `OffloadingSubject` describes it.

        keeps_host: what is in host memory stays; true only if there is a connector. With `async_steps`, steps may be
        under way: the tokens that they sample for requests that are preempted now are lost, and sampled again, though
        `complete` has them.
        """


class OffloadingSubject(SchedulerSubject, Protocol):
    """A scheduler with a connector of its own that keeps KV in host memory (`connectors`).

    The connector decides what is stored and loaded; its steps name the copies. The judge is the worker that copies.
    """

    def copied(self, jobs: list[int]) -> None:
        """The jobs, loads and stores, whose copies have ended since the last `complete`. Called before each one."""

    def reset_caches(self, preempts: bool) -> bool:
        """Drop what is cached on the device, and all that is in host memory. No step is under way.

        preempts: preempt every running request first. The scheduler may refuse to reset the device while blocks are in
        use. Returns whether it did. The copies of jobs under way still end, and are reported.
        """


class HoldingSubject(OffloadingSubject, Protocol):
    """A scheduler whose connector holds the blocks that its copies read or write (`holds_copies`).

    So such a block is neither free nor evictable, even if no table names it: from when the connector decides on the
    copy until `copied` has named it. It may count as a reference.
    """

    def stores_to_come(self) -> list[list[int]]:
        """The blocks of each store that the next step will name: the connector holds them already.

        Called after each call that may change what is stored. A reset may drop such stores.
        """


class SpeculatingSubject(SchedulerSubject, Protocol):
    """A scheduler whose steps verify drafts (`speculative_tokens`). The judge is the draft model."""

    def accepted(self, drafts: dict[int, list[int]]) -> None:
        """For each sequence that `complete` gives a token: the drafts that the model accepted, which come before it.

        Called before each `complete` if the configuration has drafts.
        """

    def propose(self, drafts: dict[int, list[int]]) -> None:
        """For each sequence that goes on after `complete`: its drafts, for the positions after its newest token.

        Called after each `complete` if the configuration has drafts and no asynchronous steps; with these the drafts
        are on the device, and a step verifies them without their values (`PADDING`). A list may be empty. There may be
        drafts of a sequence of which the step has computed a part of the prompt only: no step may verify them.
        """


class PrioritySubject(SchedulerSubject, Protocol):
    """A scheduler that can let requests in by priority (`policies`)."""

    def prioritize(self, request: int, priority: int) -> None:
        """Give the request that is added next its priority; a smaller number is served first.

        Called before `add_request` if the configuration's policy is PRIORITY.
        """


# How a request ends that does not finish by itself.
ABORTED, IGNORED, CAPPED, FAILED = "aborted", "ignored", "capped", "failed"
FINISHED = "finished"  # of a sequence: it had ended by itself before


class ReportingSubject(SchedulerSubject, Protocol):
    """A scheduler that reports how requests ended (`reports_ends`)."""

    def ended(self) -> dict[int, str]:
        """The requests that ended since the last call, but for those that finished by themselves, each with how.

        ABORTED: by its user, or because there is no room for it. IGNORED: no step can run its prompt. CAPPED: it has
        grown too long for the pool. FAILED: its KV could not be loaded. Any other text is the scheduler's own word for
        a state that is not one of these.
        """


class EachEndSubject(ReportingSubject, Protocol):
    """A scheduler that reports how each sequence of such a request ended (`reports_each_end`)."""

    def each_ended(self) -> dict[int, str]:
        """For each sequence of the requests that the last `ended` returned: how it ended, by the same words.

        FINISHED: it had finished by itself before its request was over.
        """


class DeliveringSubject(SchedulerSubject, Protocol):
    """A scheduler that reports the tokens that users get (`reports_tokens`)."""

    def delivered(self) -> dict[int, list[int]]:
        """For each sequence whose user got tokens with the last `complete`: these tokens, in order.

        Called after each `complete`.
        """


SCHEDULER_CALLS = RequiredCalls(
    "scheduler subject",
    calls_of(SchedulerSubject),
    (
        ("block_events", "reports events", calls_of(EventSubject)),
        ("transfers", "transfers KV", calls_of(TransferringSubject)),
        ("hybrid_transfers", "transfers KV of several groups", calls_of(HybridTransferringSubject)),
        ("load_failures", "has loads that fail", calls_of(FailingLoadsSubject)),
        ("connectors", "has connectors to host memory", calls_of(OffloadingSubject)),
        ("holds_copies", "has connectors that hold what they copy", calls_of(HoldingSubject)),
        ("sessions", "has requests that go on", calls_of(SessionSubject)),
        ("pauses", "can be paused", calls_of(PausingSubject)),
        ("speculative_tokens", "verifies drafts", calls_of(SpeculatingSubject)),
        ("runs_ahead", "runs ahead", calls_of(AheadSubject)),
        ("forks_itself", "forks by itself", calls_of(ForkingSubject)),
        ("priorities", "has priorities", calls_of(PrioritySubject)),
        ("own_property", "states a property of its own", ("check",)),
        ("reports_ends", "reports how requests ended", calls_of(ReportingSubject)),
        ("reports_each_end", "reports how each sequence ended", calls_of(EachEndSubject)),
        ("reports_tokens", "reports what users get", calls_of(DeliveringSubject)),
    ),
    marks=("schedule", "add_request"),
    without=("offer_of",),
)
