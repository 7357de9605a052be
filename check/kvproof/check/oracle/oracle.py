"""What all judges share: one opened subject, what is expected of it, and the state of the specification beside it.

The oracle calls the subject, observes it after each call, checks that the tables of other sequences did not change, and
compares the pool with the specification. A judge, and each of its parts, holds it. What more than one judge asks has a
file of its own: what a group and a window need (`needed_blocks`), which hits there are (`hits`), whether every block
holds what was written there (`memory`). The rules are those of the specification.

A judge of a large pool may be *sparse*. After a call it then compares only what the call was about: the tables of its
sequences, the counts of free blocks, and the memory that the step wrote. Who drives it calls `compare_all` from time to
time and at the end of the run, so that a change of anything else is found too, and repeats the operations since the
last such comparison with a judge that is not sparse, which names the operation of the change.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import lcm

from kvproof.check.oracle.block_events import BlockListener
from kvproof.check.oracle.comparison import compare_pool, has_blocks, leaked, table_changed, tables_left, what_counts
from kvproof.check.oracle.enabled import Reply
from kvproof.check.oracle.expected import WAITING, ExpectedSequence, Group
from kvproof.check.oracle.firing import is_large, num_entries_max, num_seqs_max
from kvproof.check.oracle.named_prefixes import NamedPrefixes
from kvproof.check.oracle.own_property import OwnProperty
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.oracle.subject_calls import ObservedSubject, SubjectCalls
from kvproof.check.protocol.adapter_check import capabilities_of, check_new, check_observation
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import (
    LOCAL,
    WINDOW,
    Config,
    Observation,
    Unsupported,
    fault_of_kv_groups,
)
from kvproof.spec.text.identity import Identities, Image, Key

SPARE_ENTRIES = 8  # of a table: for lookahead slots


class Oracle:
    """One opened subject, what is expected of it, and the specification beside it.

    lookahead: slots beyond the known tokens that a growth reserves. A recording says it line by line.
    """

    def __init__(
        self,
        subject: ObservedSubject,
        config: Config,
        identities: Identities | None = None,
        *,
        num_flights: int = 0,
        knows_cached: bool = True,
        is_at_rest: Callable[[], bool] | None = None,
    ) -> None:
        """Open the subject. Raises Unsupported, Finding, AdapterError, and StandInError.

        num_flights: accesses of one block each that may be pending at once. knows_cached: whether it is known what the
        subject has cached whenever it evicts or looks a prompt up. is_at_rest: whether nothing is held; by default
        whether no sequence has blocks.
        """
        check_kv_groups(config, capabilities_of(subject))
        self.subject, self.config, self.capabilities = subject, config, capabilities_of(subject)
        self.lookahead = config.lookahead
        self.knows_cached = knows_cached
        self.lost_hits = self.capabilities.lost_hits if knows_cached else None
        self.identities = identities or Identities()
        self.seqs: dict[int, ExpectedSequence] = {}
        self.is_at_rest: Callable[[], bool] = is_at_rest or partial(_all_wait, self.seqs)
        self.is_sparse = False
        self.hits_within_blocks = capabilities_of(subject).hits_within_blocks and len(config.kv_groups) == 1
        self.leaves_entries, self.layouts = config.leaves_entries, config.layouts
        self.has_states, self.has_several_sizes = config.has_states, len({*config.block_sizes}) > 1
        self.reads_only_last = 1 in config.windows  # a window of one token: nothing before a token is read
        self.num_held_back = int(config.watermark * config.num_gpu_blocks)  # from admission, by the watermark
        # Tokens of a prompt, and of what is sampled
        self.num_seqs_max = num_seqs_max(config)
        self.num_tokens_max = (num_entries_max(config) - SPARE_ENTRIES) * min(config.block_sizes)
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.reply = Reply()
        calls = SubjectCalls(subject)
        self.call = calls.call
        calls.open(config)
        self.explainer = Explainer(calls, config, self.identities, self.coverage, num_flights)
        first = self.explainer.observed
        check_observation(first, len(config.kv_groups), config.num_gpu_blocks + config.num_host_blocks)
        check_new(first, config.num_gpu_blocks)
        self.worker, self.state = self.explainer.worker, self.explainer.state
        self.prefixes = NamedPrefixes(self.explainer, self.capabilities.prefixes_stay)
        # Of blocks of several sizes, of states, and if entries are forgotten, not all that could be found is cached
        is_whole = not (self.has_several_sizes or self.has_states or config.forgets)
        has_order = config.caching and is_whole and not self.reads_only_last
        can_judge_order = knows_cached and has_order and not is_large(config)
        if can_judge_order and self.capabilities.eviction:
            self.explainer.watch_eviction_order(self.capabilities.eviction, self.lost_hits == 0)
        reports = config.events and config.caching
        self.listener = BlockListener(self.explainer, self.call, self.lost_hits == 0) if reports else None
        stated = self.capabilities.own_property
        self.own = OwnProperty(self.explainer, self.call, self.seqs, stated) if stated else None
        self.settle("open")

    def observe(self, context: str, touched: Sequence[ExpectedSequence] = ()) -> None:
        """Observe the subject, and check the frame: a call changes no table but those of the `touched` sequences."""
        if self.is_sparse:
            self.explainer.observe_part([seq.id for seq in touched])
            return
        tables, num_expected = self.explainer.observe().tables, 0
        for seq_id, seq in self.seqs.items():
            if seq.status is WAITING:
                if has_blocks(tables.get(seq_id)):
                    raise leaked(context, seq, tables[seq_id])
                num_expected += seq_id in tables
                continue
            num_expected += 1
            if seq in touched:
                continue
            table = tables.get(seq_id)
            if not table or table[0] != seq.observed_table or (len(table) > 1 and table != seq.tables):
                raise table_changed(context, seq, table, "it is not about")
        if len(tables) > num_expected:
            left = {s: t for s, t in tables.items() if s not in self.seqs and has_blocks(t)}
            if left:
                raise tables_left(context, left)

    def settle(self, context: str) -> None:
        """The call is explained: what the subject shows of its pool must be what the specification has."""
        if self.explainer.observed.kept and not self.capabilities.keeps_behind_window:
            raise AdapterError("observe().kept has blocks, and `keeps_behind_window` is not declared", "observe")
        compare_pool(self.explainer, context, self.is_at_rest)
        if self.listener is not None and not self.is_sparse:
            self.listener.judge(context)
        if self.own is not None and not self.is_sparse:
            self.own.judge(context)

    def require_unchanged(self, before: Observation, context: str) -> None:
        """Observe the subject; a call that refuses, or only asks, changes nothing."""
        if self.is_sparse:
            after = self.explainer.observe_part([])
            before = after._replace(free=before.free, reserved=before.reserved)
        else:
            after = self.explainer.observe()
        if after != before:
            pairs = zip(Observation._fields, what_counts(before), what_counts(after), strict=True)
            for name, old, new in pairs:
                if old != new:
                    sentence = f"{context}, but {name} went $expected -> $observed"
                    raise Finding("failed-call-changes-nothing", sentence, expected=old, observed=new)

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        num_blocks = self.config.num_gpu_blocks + self.config.num_host_blocks
        check_observation(self.explainer.observed, len(self.config.kv_groups), num_blocks)

    def judge_reset(self, is_done: bool, context: str) -> None:
        """The prefix cache was reset, or the reset was refused: it is done exactly when nothing is held."""
        may_reset: bool = self.explainer.machine.function("may_reset")(self.state)
        if may_reset and not is_done:
            raise Finding("no-leak-at-rest", f"{context} was refused although nothing is held")
        if is_done and not may_reset:
            raise Finding("evict-unreferenced", f"{context} was done although blocks are in use")

    def new_sequence(
        self, seq_id: int, group: Group, key: Key, images: tuple[Image, ...], tokens: Sequence[int]
    ) -> ExpectedSequence:
        """Expect a waiting sequence with this prompt, with a table in each KV group once it runs."""
        (window, *further), layouts = self.config.windows, self.layouts
        seq = ExpectedSequence(seq_id, group, key, images, self.identities.root(key), window, layouts[0])
        for number, window in enumerate(further, 1):
            seq.add_part(self.identities.root(key, number), window, layouts[number])
        seq.grow_all(self.identities, tokens)
        seq.num_prompt = seq.num_sent = len(tokens)
        self.seqs[seq_id] = seq
        return seq

    def new_encoder(self, seq_id: int, group: Group, tokens: Sequence[int]) -> ExpectedSequence:
        """Expect the encoder sequence of a group."""
        seq = self.new_sequence(seq_id, group, Key(salt="encoder"), (), tokens)
        seq.is_encoder, seq.window = True, 0
        return seq


def _all_wait(seqs: dict[int, ExpectedSequence]) -> bool:
    """Whether no sequence has blocks."""
    return all(seq.status is WAITING for seq in seqs.values())


def check_kv_groups(config: Config, capabilities: Capabilities) -> None:
    """Raise Unsupported for KV groups that the subject does not have, or that no judge can judge."""
    if len(config.kv_groups) > 1 and not capabilities.kv_groups:
        raise Unsupported("the subject has no several KV groups")
    if fault := fault_of_kv_groups(config):
        raise Unsupported(f"KV groups: {fault}")
    if len({*config.block_sizes}) > 1 and not capabilities.block_sizes:
        raise Unsupported("the subject has no KV groups with blocks of different sizes")
    if config.has_states and not capabilities.states:
        raise Unsupported("the subject has no KV groups with states")
    if config.local_chunk and config.local_chunk % lcm(*config.block_sizes) and len({*config.block_sizes}) > 1:
        raise Unsupported("chunks of local attention are of whole blocks of every group")
    if len(config.kv_groups) > 1 and (config.window is None) == (WINDOW in config.kinds):
        raise Unsupported("a window, and KV groups that have it, come together")
    if len(config.kv_groups) > 1 and (config.local_chunk is None) == (LOCAL in config.kinds):
        raise Unsupported("chunks of local attention, and KV groups that have them, come together")
    if config.retention and config.retention % config.block_size:
        raise Unsupported(f"entries are kept at boundaries of blocks of {config.block_size}, not of {config.retention}")
    if config.retention and not any(window > 0 for window in config.windows):
        raise Unsupported("only what windows and states read is kept at an interval")
    if len(config.kv_groups) == 1 and config.window and config.local_chunk:
        raise Unsupported("a single KV group has a window or local attention, not both")
    if len(config.kv_groups) > 1 and config.cross:
        raise Unsupported("an encoder and several KV groups are not judged together")
