"""The operation that ends a scheduler's step: its results go back, transfers end, sequences fork and are over.

Some schedulers compute one sequence of a request, and later fork it into the others by themselves. Until then the other
sequences do not exist. After the fork each is a request of its own. A child that finds room shares the full, computed
blocks of its parent and has copies of the rest: it is explained as an admission with a hit of what it shares, and what
is copied counts as computed. A child that finds no room waits, as if it had just arrived.
"""

from collections.abc import Collection, Sequence

from kvproof.check.oracle.computed import explain_load, explain_step
from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.oracle.scheduler.base import COMPLETE, ExpectedRequest, SchedulerState, UnderWay
from kvproof.check.oracle.scheduler.delivery import DeliveryJudge
from kvproof.check.oracle.scheduler.drafts import DraftModel, Drafts
from kvproof.check.oracle.scheduler.failed_loads import FailedLoads, Failures
from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.oracle.scheduler.sessions import SessionJudge
from kvproof.check.oracle.scheduler.step_checks import Sampling
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text import operations
from kvproof.spec.text.budgets import fits_a_step

Birth = tuple[ExpectedSequence, ExpectedSequence]  # parent, child

GROUP_MEMBERS_MAX = 4


def born_since(state: SchedulerState) -> tuple[list[Birth], list[Pair]]:
    """The forks since the last step, and the copies made for them. From now on the children are requests."""
    if not state.capabilities.forks_itself:
        return [], []
    forks, copies = state.call("total-calls", "forked")
    tables = state.call("total-calls", "observe").tables
    born = []
    for parent_id, child_id in forks:
        parent = state.seqs.get(parent_id)
        if parent is None or child_id not in (request := state.requests[parent.group.id]).to_come:
            sentence = f"{child_id} is forked from {parent_id}, and nobody asked for it"
            raise Finding("frame-kept", sentence, call=COMPLETE, sequence=f"sequence {child_id}")
        request.to_come.remove(child_id)
        born.append((parent, _new_child(state, parent, child_id, request, bool(tables.get(child_id)))))
    return born, copies


def _new_child(
    state: SchedulerState, parent: ExpectedSequence, child_id: int, request: ExpectedRequest, has_table: bool
) -> ExpectedSequence:
    new = ExpectedRequest(-child_id, request.num_prompt, request.max_tokens)
    child = parent.forked(child_id)
    child.group, child.status = new, Status.RUNNING if has_table else Status.WAITING
    if not has_table:
        child.computed = 0
    state.num_arrived += 1
    new.arrival = state.num_arrived
    new.members.append(child)
    state.requests[new.id], state.seqs[child_id] = new, child
    state.coverage["forked by itself" if has_table else "forked, and waits"] += 1
    return child


def explain_births(state: SchedulerState, born: Sequence[Birth], copies: Sequence[Pair]) -> None:
    """Explain the tables of the children, which are observed already; execute the copies, and read back.

    If the parent is over by now and shows no table, its table is known from the copies.
    """
    worker, explainer = state.worker, state.explainer
    source_of = {target: source for source, target in copies}
    needed = set[Pair]()
    for parent, child in born:
        if child.status is not Status.RUNNING:
            continue
        table = explainer.shown_table(child, COMPLETE)
        old = parent.observed_table if parent.slot >= 0 else [source_of.get(block, block) for block in table]
        copied = explain_birth(explainer, parent, old, child, COMPLETE)
        needed |= copied
        state.coverage["shared with a child"] += len(copied) < len(old)
    require_copies(needed, copies, COMPLETE)
    if needed:
        worker.execute(0)
        worker.copy(copies)
        state.execute()


def explain_birth(
    explainer: Explainer, parent: ExpectedSequence, old: list[int], child: ExpectedSequence, context: str
) -> set[Pair]:
    """Explain the table of one child, which is observed already. Returns the copies that the child needs.

    old: the table of the parent.
    """
    size, config = explainer.block_size, explainer.config
    table = explainer.shown_table(child, context)
    differs = (before != after for before, after in zip(old, table, strict=False))
    num_shared = next((index for index, is_own in enumerate(differs) if is_own), len(old))
    if len(table) != len(old) or num_shared > parent.computed // size:
        raise Finding(
            "cow-copied",
            f"fork of {parent.id} with {parent.computed} tokens computed: parent $expected, child $observed",
            call=context,
            expected=old,
            observed=table,
            sequence=child.name,
        )
    for block in table[num_shared:]:  # its cached content is lost, even if it is the same
        explainer.run(operations.take(explainer.state, block), context)
    explainer.admitted(child, num_shared * size, config.caching, context)
    explain_step(explainer, [(child, num_shared * size, child.computed)])
    return set(zip(old[num_shared:], table[num_shared:], strict=False))


def require_copies(needed: set[Pair], copies: Sequence[Pair], context: str) -> None:
    """The copies are exactly those that the children need, to different blocks. Raises Finding."""
    if needed != set(copies) or len({target for _, target in copies}) != len(copies):
        sentence = "copies $observed; the children need $expected"
        raise Finding("cow-copied", sentence, call=context, expected=sorted(needed), observed=sorted(copies))


class CompletionJudge:
    """Does the operation complete."""

    def __init__(
        self,
        scheduler: SchedulerState,
        sampling: Sampling,
        drafts: DraftModel | None,
        failed_loads: FailedLoads,
        sessions: SessionJudge,
    ) -> None:
        self.scheduler, self.oracle, self.config = scheduler, scheduler.oracle, scheduler.config
        self.explainer, self.worker, self.capabilities = scheduler.explainer, scheduler.worker, scheduler.capabilities
        self.coverage, self.seqs, self.call = scheduler.coverage, scheduler.seqs, scheduler.call
        self.sampling, self.drafts, self.failed_loads = sampling, drafts, failed_loads
        self.is_doomed, self.sessions = sampling.is_doomed, sessions
        self.delivery = DeliveryJudge(scheduler) if self.capabilities.reports_tokens else None

    @enabled_when(lambda judge: judge.scheduler.may_complete())
    def op_complete(
        self,
        tokens: Sequence[int],
        forks: Sequence[Sequence[int]] = (),
        stops: Sequence[int] = (),
        arrivals: Sequence[int] = (),
        copied: Sequence[int] = (),
        drafts: Sequence[Drafts] = (),
        failures: Failures = (),
        repeated: Sequence[int] = (),
    ) -> bool:
        """The results of the oldest step go back: forks, a token for each sequence computed to its end, and ends.

        arrivals: sequences whose KV has been loaded, or sent. copied: places of the copies to and from host memory that
        are over. drafts: sequences, each with the next tokens as a draft model guesses them, and how many are right.
        failures: loads under way that fail. repeated: sequences whose load is reported to be over once more.
        """
        if not tokens:
            return False
        under = self.scheduler.under_way.pop(0)
        sampling = self.sampling.of(under.step)
        pairs, too_many = self._forked(forks, sampling)
        children = [child for _, child in pairs]
        if not self.config.async_steps:
            sampling = self.failed_loads.sampled_in_vain(under, sampling, tokens)
            self.sampling.sample(under, sampling + children, tokens)
        failed = self.failed_loads.failed(failures, self.scheduler.loading) | under.failed
        readers = self.failed_loads.take_back(under) if under.failed else []
        sampled = {i: t for i, t in under.sampled.items() if (s := self.seqs.get(i)) and not self.is_doomed(s)}
        born = {child.id for child in children}
        ended = [self.seqs[i] for i in sampled if i in under.over or (i in stops and i not in born)]
        forked = [*((parent.id, child.id) for parent, child in pairs), *too_many]
        received = [i for i in dict.fromkeys(arrivals) if i in self.scheduler.loading]
        sent = [i for i in dict.fromkeys(arrivals) if i in self.scheduler.sending and self._may_be_sent(i, under)]
        if self.config.transfers:
            self.call("total-calls", "arrived", sent, [*received, *self.failed_loads.repeated(repeated)])
        if self.scheduler.host:
            received = self._end_copies(self.scheduler.host, copied)
        if self.drafts:
            self.call("total-calls", "accepted", {i: under.accepted.get(i, []) for i in sampled})
        if failed:
            self.call("total-calls", "loads_failed", failed)
        dropped = {i: t for i, t in under.dropped.items() if (s := self.seqs.get(i)) and not self.is_doomed(s)}
        refused = self.call("total-calls", "complete", sampled | dropped, forked, [seq.id for seq in ended]) or []
        self._judge_forks(too_many, refused)
        if self.capabilities.aborts_late:
            self._end_late(under, [seq.group.id for seq in ended])
        if self.delivery:
            self.delivery.forked((parent.id, child.id) for parent, child in pairs)
            generated = self.delivery.generated(sampled, under.accepted)
            self.delivery.judge(generated, [seq.id for seq in ended])
        self.scheduler.pending.land(under.flights, COMPLETE)
        ended = self.sessions.go_on(ended)
        self._arrive(sent, received)
        lost = self.failed_loads.ended(failed, readers) if failed else []
        self._leave([*ended, *lost], lost)
        self._completed(under, pairs, children, [*ended, *lost])
        if self.drafts and not self.config.async_steps:
            self._propose(self.drafts, drafts, under, {seq_id for seq_id in sampled if seq_id in self.seqs})
        return True

    def _propose(self, model: DraftModel, drafts: Sequence[Drafts], under: UnderWay, newer: set[int]) -> None:
        """The draft model guesses what comes next. newer: the sequences that have a new token."""
        in_prompts = {chunk.seq for chunk in under.step.chunks if chunk.seq in self.seqs} - newer
        self.call("total-calls", "propose", model.propose(drafts, newer, in_prompts))

    def _end_late(self, under: UnderWay, finished: Sequence[int]) -> None:
        """Aborted requests may be over now, and are if the step was scheduled after the abort and samples for them.

        One that has finished by itself in time is over, and is not reported.
        """
        if self.scheduler.ending:
            self.scheduler.judge_ends(COMPLETE)
        for seq_id in under.sampled:
            request = self.scheduler.requests[self.seqs[seq_id].group.id] if seq_id in self.seqs else None
            if request and request.is_lingering and under.number > request.aborted_after:
                sentence = f"request {request.id} was aborted, and gets a token of a step that was scheduled later"
                raise Finding("progress", sentence, call=COMPLETE, sequence=f"sequence {seq_id}")
        for request_id in finished:
            if self.scheduler.requests[request_id].is_lingering:
                self.scheduler.requests[request_id].is_lingering = False
                del self.scheduler.ending[request_id]

    def _leave(self, over: Sequence[ExpectedSequence], lost: Collection[ExpectedSequence]) -> None:
        """Sequences are over; their KV is sent, but not of those that are lost, whose load failed."""
        for seq in over:
            if self.scheduler.requests[seq.group.id].is_sent and seq.slot >= 0 and seq not in lost:
                self.scheduler.begin_send(seq, COMPLETE)
                self.coverage["send"] += 1
            else:
                self.scheduler.hold_until_complete(self.scheduler.requests[seq.group.id], COMPLETE)

    def _forked(
        self, forks: Sequence[Sequence[int]], sampling: Sequence[ExpectedSequence]
    ) -> tuple[list[Birth], list[tuple[int, int]]]:
        """The sequences that fork, with their children, and the (parent, child) pairs that the scheduler refuses."""
        pairs, too_many = list[Birth](), list[tuple[int, int]]()
        for parent_id, child_id in forks:
            parent = next((seq for seq in sampling if seq.id == parent_id), None)
            if parent is None or not self._may_fork(parent, child_id):
                continue
            if not fits_a_step(len(parent.group.members) + 1, self.config.max_num_seqs):
                too_many.append((parent_id, child_id))
            else:
                child = parent.forked(child_id)
                pairs.append((parent, child))
                parent.group.members.append(child)
                self.seqs[child_id] = child
        return pairs, too_many

    def _judge_forks(self, too_many: Sequence[tuple[int, int]], refused: Sequence[tuple[int, int]]) -> None:
        """The scheduler refuses exactly those forks that make a request larger than a step can run."""
        if not (refused or too_many) or list(refused) == list(too_many):
            return
        wrong = next(pair for pair in (*too_many, *refused) if (pair in too_many) != (pair in refused))
        if wrong in too_many:
            sentence = (
                f"a fork of sequence {wrong[0]} makes a request of more than $expected sequences, which no step runs"
            )
            raise Finding("progress", sentence, call=COMPLETE, expected=self.config.max_num_seqs)
        raise Finding(
            "admission-exact", f"a fork of sequence {wrong[0]} was refused, and a step can run it", call=COMPLETE
        )

    def _end_copies(self, host: HostMemory, places: Sequence[int]) -> list[int]:
        """Copies to and from host memory are over, and the subject learns which; returns the sequences that loaded."""
        over = host.complete(places)
        self.call("total-calls", "copied", [copy.job for copy in over])
        loads = [(copy, copy.seq) for copy in over if copy.seq is not None]
        for copy, seq_id in loads:
            seq = self.seqs.get(seq_id)
            if seq is not None and seq.slot >= 0 and not self.is_doomed(seq):
                host.judge_load(copy, seq)
        return [seq_id for _, seq_id in loads if seq_id in self.scheduler.loading]

    def _arrive(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Transfers end: loaded KV can be read, if its sequence is still there; its blocks are no longer in flight."""
        for seq_id in received:
            flights, seq = self.scheduler.loading.pop(seq_id), self.seqs.get(seq_id)
            self.failed_loads.over(seq_id, seq)
            if seq is not None and seq.slot >= 0 and seq.hit == seq.computed:
                self.coverage["nothing was loaded"] += 1
            elif seq is not None and seq.slot >= 0:
                self.worker.writes.append((seq, seq.hit, seq.computed))
                self.worker.execute(0)
                explain_load(self.explainer, seq, seq.hit, seq.computed)
            else:
                self.coverage["loaded in vain"] += 1
            self.scheduler.pending.land(flights, COMPLETE)
        for seq_id in sent:
            self.scheduler.end_send(seq_id, COMPLETE)

    def _may_be_sent(self, seq_id: int, completed: UnderWay) -> bool:
        """Whether the send of a sequence may be over: an engine may carry out an abort after the steps under way."""
        aborted_in = self.scheduler.aborted_in.get(seq_id)
        return all(under is not aborted_in for under in (completed, *self.scheduler.under_way))

    def _may_fork(self, parent: ExpectedSequence, child_id: int) -> bool:
        request = self.scheduler.requests[parent.group.id]
        return (
            self.capabilities.fork
            and not self.config.async_steps
            and self.scheduler.last_step is None
            and child_id not in self.seqs
            and len(self.seqs) < self.oracle.num_seqs_max
            and len(request.members) < GROUP_MEMBERS_MAX
            and (
                self.capabilities.refuses_large_groups
                or fits_a_step(len(request.members) + 1, self.config.max_num_seqs)
            )
            and request.num_left(parent) > 1
            and len(parent.tokens) + 1 < self.config.max_model_len
        )

    def _completed(
        self,
        under: UnderWay,
        pairs: list[tuple[ExpectedSequence, ExpectedSequence]],
        children: list[ExpectedSequence],
        ended: list[ExpectedSequence],
    ) -> None:
        """Explain the tables: sequences that are over release everything, and children share every block."""
        explainer = self.explainer
        born, copies = born_since(self.scheduler)
        for seq in ended:
            request = self.scheduler.requests[seq.group.id]
            if len(request.members) == 1:
                request.is_doomed = True
            else:
                request.members.remove(seq)
                if self.capabilities.reports_each_end:
                    self.scheduler.finished.setdefault(request.id, []).append(seq.id)
                del self.seqs[seq.id]
        shares = [(parent, child, parent.tables) for parent, child in pairs]
        over = self.scheduler.no_longer_needed()
        for request in over:
            self.scheduler.forget(request)
        verified = [self.seqs[i] for i in under.rejected if i in self.seqs and self.seqs[i].slot >= 0]
        self.scheduler.observe_released(COMPLETE, [*children, *(child for _, child in born), *verified])
        for seq in verified:  # it may give the blocks of rejected drafts back
            if seq.slot >= 0 and explainer.observed.tables.get(seq.id) != seq.tables:
                explainer.gave_back(seq, COMPLETE)
        for parent, child, tables in shares:
            explainer.forked(parent, child, COMPLETE)
            if child.tables != tables:
                raise Finding(
                    "frame-kept",
                    f"fork of {parent.id}: parent $expected, child $observed",
                    call=COMPLETE,
                    expected=tables,
                    observed=child.tables,
                    sequence=child.name,
                )
        for seq in (*ended, *(seq for request in over for seq in request.everyone())):
            if seq.slot >= 0 and seq.id not in self.seqs:
                explainer.freed(seq, COMPLETE)
        explain_births(self.scheduler, born, copies)
        self.scheduler.judge_sends(COMPLETE)
        self.scheduler.settle(COMPLETE)
        self.coverage["finished"] += len(ended)
