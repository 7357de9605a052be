"""Base of the manager's operations: groups, questions that are asked before a call, and the step of the worker."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import ref

from kvproof.check.oracle.enabled import OperationJudge
from kvproof.check.oracle.expected import RUNNING, WAITING, ExpectedSequence, Group
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, check_adapter, check_answer, check_pairs
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Admission, Config, ManagerSubject, Pair, Scheduled
from kvproof.check.protocol.manager_operations import ManagerOperation
from kvproof.spec.text import operations
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.mapping import is_block_of
from kvproof.spec.text.state import GPU

OK, LATER, NEVER = Admission.OK, Admission.LATER, Admission.NEVER  # a look-up in an enumeration is a call in Python
GROWING, SWAPPING_IN, ADMITTING = 0, 1, 2  # phases of a step, in the order that `ordered_steps` prescribes
# By the identity of the subject, and by configuration: how subjects compare, and whether they have a hash, is theirs.
RECORDS_OF_NEW: dict[int, tuple[ref[Any], dict[Config, int]]] = {}
ABOUT_NONE, ABOUT_SEQUENCES = ("new", "run", "reset"), ("extend", "fork", "free")  # the others are about a group


def records_of_new(subject: object) -> dict[Config, int]:
    """How many records new managers of this subject have, as far as known; kept as long as the subject lives."""
    number, forget = id(subject), RECORDS_OF_NEW.pop
    kept = RECORDS_OF_NEW.get(number)
    if kept is None:
        kept = RECORDS_OF_NEW[number] = ref(subject, lambda _: forget(number, None)), {}
    return kept[1]


class Limits(NamedTuple):
    """Bounds that a search sets on what is enabled; the judge itself bounds only what fits its state."""

    num_groups: float = float("inf")  # at most so many at a time
    num_tokens: float = float("inf")  # of one sequence
    num_members: float = float("inf")  # of one group
    num_unseen: float = 3  # tokens of one sequence that are sampled for one step


NO_LIMITS = Limits()


class ManagerBase(Oracle, OperationJudge):
    """An opened manager, its groups, and the phase of the step that the judge prepares."""

    kinds = ManagerOperation.kinds()

    def __init__(self, subject: ManagerSubject, config: Config, identities: Identities | None = None) -> None:
        check_adapter(subject, MANAGER_CALLS)
        self.groups: dict[int, Group] = {}
        self.preempted_in_step = False
        self.phase, self.question = GROWING, ""  # the question that was asked last, as the protocol names it
        self.landed: set[int] = set()  # targets of swap-ins; if they are free again, the next swap-in must avoid them
        self.limits = NO_LIMITS
        self._listed: dict[str, list[int]] | None = None  # what was listed since the last operation
        super().__init__(subject, config, identities)
        can = self.capabilities
        self.can_reset = config.caching and can.reset
        self.judges_records = self.can_reset and can.records_kept is not None
        self._num_records_opened = self._records_of_new_manager() if self.judges_records else 0

    # What is enabled ------------------------------------------------------------------------------------------------

    def enabled(self) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now, each with the groups or sequences that it may be about.

        `new`, `run` and `reset` are about none.
        """
        found: defaultdict[str, list[int]] = defaultdict(list)
        if self._may_arrive():
            found["new"] = []
        is_pending = self.worker.is_pending
        for group in self.groups.values():
            self._add_enabled(found, group, is_pending)
        if is_pending:
            found["run"] = []
        elif self.can_reset:
            found["reset"] = []
        self._listed = found
        return found

    def is_enabled(self, name: str, *arguments: Any) -> bool:
        """Whether the operation is enabled now; without arguments, whether any of its kind may be."""
        if name in ABOUT_NONE:
            is_pending = self.worker.is_pending
            return is_pending if name == "run" else self._may_arrive() if name == "new" else self._may_reset()
        if not arguments:
            return name in self.enabled()
        if name in ABOUT_SEQUENCES:
            seq = self.seqs.get(arguments[0])
            group = None if seq is None else seq.group
        else:
            group = self.groups.get(arguments[0])
        if group is None:
            return False
        found: defaultdict[str, list[int]] = defaultdict(list)
        self._add_enabled(found, group, self.worker.is_pending)
        return arguments[0] in found.get(name, ())

    def do(self, name: str, *arguments: Any) -> bool:
        """Do an operation if it is enabled, and return whether it was done; a walk has just listed what is."""
        listed, self._listed = self._listed, None
        if listed is None:
            return super().do(name, *arguments)
        about = listed.get(name)
        is_enabled = about is not None and (not about or arguments[0] in about)
        return is_enabled and self.handlers[name](self, *arguments)

    def _may_arrive(self) -> bool:
        return len(self.groups) < self.limits.num_groups

    def _may_reset(self) -> bool:
        return self.can_reset and not self.worker.is_pending

    def _add_enabled(self, found: defaultdict[str, list[int]], group: Group, is_pending: bool) -> None:
        """Add the operations that are enabled about the group, or about a sequence of it."""
        members = group.members
        status = members[0].status
        if status is RUNNING:
            if not is_pending or self.phase == GROWING:
                self._add_enabled_of_running(found, group, is_pending)
        elif status is WAITING:
            found["admit"].append(group.id)
            found["lookup"].append(group.id)
        elif not (self.preempted_in_step or self.worker.swap_out or (is_pending and self.phase > SWAPPING_IN)):
            found["swap_in"].append(group.id)
            if group.encoder and self.capabilities.preempts_swapped_encoders and len(members) == 1 and not is_pending:
                found["preempt"].append(group.id)
        if not is_pending:
            free = found["free"]
            for seq in members:
                free.append(seq.id)

    def _add_enabled_of_running(self, found: defaultdict[str, list[int]], group: Group, is_pending: bool) -> None:
        members, can, config = group.members, self.capabilities, self.config
        first, gid, is_single = members[0], group.id, len(members) == 1
        if first.is_busy:
            return
        num_tokens = len(first.tokens)
        num_unseen = num_tokens - first.computed
        if not is_single:
            for seq in members:
                if seq.is_busy:
                    return
                if len(seq.tokens) - seq.computed != num_unseen:  # a token was sampled for some of them only
                    num_unseen = -1
        if not num_unseen:
            if not is_pending:
                self._add_sample(found, gid, num_tokens)
                has_room = len(members) < self.limits.num_members and len(self.seqs) < self.num_seqs_max
                if has_room and can.fork:
                    found["fork"] += [seq.id for seq in members]
        elif num_tokens > first.num_prompt and num_unseen > 0:
            found["append"].append(gid)
            if can.several_tokens and not is_pending and num_unseen < self.limits.num_unseen:
                self._add_sample(found, gid, num_tokens)
        elif is_single and config.chunked:
            found["extend"].append(first.id)
        if config.num_host_blocks and (group.encoder is None or can.swaps_encoders):
            found["swap_out"].append(gid)
        if is_single:
            found["preempt"].append(gid)
            is_plain = not num_unseen or num_tokens == first.num_prompt
            if config.caching and can.looks_up_running and is_plain and not is_pending:
                found["lookup"].append(gid)

    def _add_sample(self, found: defaultdict[str, list[int]], gid: int, num_tokens: int) -> None:
        if num_tokens < self.limits.num_tokens and num_tokens < self.num_tokens_max:
            found["sample"].append(gid)

    # Steps ----------------------------------------------------------------------------------------------------------

    def _enter(self, phase: int) -> None:
        """An operation of that phase comes: operations of earlier phases must wait for the next step."""
        if self.capabilities.ordered_steps:
            self.phase = phase

    def _begin_step(self) -> None:
        """No step is prepared; the next operation of a step begins a new one."""
        self.preempted_in_step, self.phase = False, GROWING

    def _chunk_end(self, seq: ExpectedSequence, start: int, num_tokens: int) -> int:
        """Where the chunk that begins at `start` ends: with the prompt, at a block boundary, or anywhere."""
        stop = start + max(1, num_tokens)
        if self.config.caching and (self.capabilities.block_aligned_chunks or self.has_states):
            stop = self.explainer.blocks_for(stop) * self.config.block_size
        return min(seq.num_prompt, stop)

    # Questions before a call ----------------------------------------------------------------------------------------

    def ask(self, name: str, group: Group) -> Admission:
        """Ask whether a call would succeed; asking changes nothing. False means NEVER if nothing runs, else LATER."""
        before, self.question = self.explainer.observed, name
        answer = self.call("total-calls", name, group.id)
        if not isinstance(answer, Admission):
            check_answer(name, answer, bool, Admission)
            runs = self.explainer.machine.function("may_wait")(self.state, self.explainer.num_prefixes)
            answer = OK if answer else LATER if runs else NEVER
        self.require_unchanged(before, f"{name} only asks")
        self.answer, self.is_refused = answer._value_, answer is not OK  # `value` is a call in Python
        return answer

    def judge_ok(self, group: Group, context: str) -> None:
        """OK: the group and the watermark fit, as far as this does not depend on choices of the manager."""
        machine = self.explainer.machine
        if (
            self.config.caching
            or self.leaves_entries
            or not machine.function("something_runs")(self.state, self.explainer.num_prefixes)
        ):
            return
        needed, unused = self.num_blocks_admitted(group), self.explainer.unused_in(self.state, GPU)
        if not machine.function("may_answer_ok")(needed, unused, self.num_held_back):
            raise Finding(
                "admission-sound",
                f"{context} says OK, but needs {needed} blocks of $expected free, and {self.num_held_back} are "
                "held back by the watermark",
                expected=unused,
                observed=needed,
            )

    def num_blocks_admitted(self, group: Group) -> int:
        """Blocks that the admission of a group takes if it shares none with other groups."""
        return self.num_blocks_needed(group, self.config.lookahead if self.capabilities.admits_lookahead else 0)

    def blame(self, finding: Finding, gid: int, num_blocks: int, pool: int) -> None:
        """A call failed after an OK. The OK is at fault if so many blocks, which the call takes, do not fit."""
        is_promised = finding.property == "admission-sound" and self.capabilities.has_admission_query
        unused = self.explainer.unused_in(self.state, pool)
        if is_promised and not self.explainer.machine.function("may_answer_ok")(num_blocks, unused, 0):
            finding.promise = f"{self.question}({gid})"

    def judge_refusal(self, group: Group, answer: Admission, context: str) -> None:
        """NEVER: no later state of the pool could run the group. LATER: something runs that may make room."""
        if answer is LATER:
            self.judge_later(f"{context} says LATER although nothing runs: it would wait for ever")
            if self.has_states and self.worker.is_pending:
                return  # the step under way may compute the state that the group found: then the group has to wait
            needed = self.num_blocks_needed(group, self.config.lookahead)
            self.judge_no(needed, GPU, self.num_held_back, context)
        elif not self.may_end_for_good(group):
            needed, gpu = self.num_blocks_needed(group, self.config.lookahead), self.config.num_gpu_blocks
            sentence = f"{context} says NEVER, but needs $observed blocks of $expected"
            if slack := self.capabilities.refusal_slack:
                sentence += f"; the subject declares a slack of {slack}"
            raise Finding("admission-final", sentence, expected=gpu, observed=needed)

    def judge_later(self, sentence: str) -> None:
        """The subject answered LATER; `sentence` says what is wrong if it may not."""
        if not self.explainer.machine.function("may_wait")(self.state, self.explainer.num_prefixes):
            raise Finding("admission-final", sentence)

    def judge_no(self, num_blocks: int, pool: int, num_held_back: int, context: str) -> None:
        """A call that takes at most so many blocks was refused: a fault if the subject declares a smaller slack."""
        slack = self.capabilities.refusal_slack
        if slack is None:
            return
        unused = self.explainer.unused_in(self.state, pool)
        if self.explainer.machine.function("may_answer_ok")(num_blocks + slack, unused, num_held_back):
            sentence = f"{context} says no, but takes at most $observed blocks, and $expected are free"
            held_back = f", {num_held_back} of them held back by the watermark" if num_held_back else ""
            values = {"held": held_back}
            raise Finding("admission-exact", f"{sentence}$held", expected=unused, observed=num_blocks, values=values)

    def growth_cost_max(self, group: Group) -> int:
        """At most so many blocks the members of a group take for their tokens and lookahead slots."""
        return self.cost_max([(seq, len(seq.tokens)) for seq in group.members])

    def cost_max(self, growths: Sequence[tuple[ExpectedSequence, int]]) -> int:
        """At most so many blocks sequences take for slots, each up to a position, and the lookahead and null blocks."""
        config, ends = self.config, dict[int, int]()
        cost = len(growths) if self.leaves_entries and not self.explainer.observed.reserved else 0
        for seq, stop in growths:
            for part in seq.parts:
                if part.layout.leaves_out:  # a step takes one block for a new state, and none for lookahead
                    cost += stop > len(part.observed_table) * part.layout.num_tokens
                else:
                    ends[part.slot] = part.at(stop + config.lookahead)
        counts_touched = self.capabilities.counts_touched_blocks
        return cost + operations.growth_cost_max(self.state, config.block_size, ends, counts_touched)

    def num_blocks_to_move(self, group: Group) -> int:
        """Blocks that a swap of the group takes on the other device."""
        return operations.blocks_to_move(self.state, [part.slot for seq in group.all_seqs for part in seq.parts])

    def op_run(self, tick: int) -> bool:
        """The step: the manager learns what is scheduled, the worker executes it, and every reader reads back."""
        worker, explainer = self.worker, self.explainer
        self.now += tick
        lookahead = self.config.lookahead
        writes = worker.writes[:]
        step = [Scheduled(seq.id, stop - start, stop) for seq, start, stop in writes if not seq.is_encoder]
        self.call("total-calls", "step_scheduled", step, self.now)
        if explainer.order is not None:
            slots = [part.slot for seq, _, _ in writes if not seq.is_encoder for part in seq.parts]
            explainer.order.used(slots, self.now)
        if lookahead and self.capabilities.owns_lookahead:
            self._judge_lookahead(writes)
        others = worker.in_other_orders(lookahead)
        worker.execute(lookahead)
        explainer.executed(writes)
        if self.config.prefixes:
            self.prefixes.computed()
        if step:  # a manager does not learn of a step that computes nothing
            self.landed.clear()
        self.call("total-calls", "step_done", step)
        if self.capabilities.dedups_after_step:
            self._explain_exchanges([seq for seq, _, _ in writes if not seq.is_encoder])
        for seq in self.seqs.values():
            seq.is_busy = False
        self.preempted_in_step, self.phase = False, GROWING
        self.compare_memory(others)
        return True

    def _judge_lookahead(self, writes: list[tuple[ExpectedSequence, int, int]]) -> None:
        """Two sequences that decode in one step keep their drafts in different blocks: each reads its own.

        Of a group that was just admitted, one sequence computes the prompt; the others have nothing to do in that step.
        """
        size, owners = self.config.block_size, dict[int, ExpectedSequence]()
        for seq, start, stop in writes:
            if seq.is_encoder or start == stop or start < seq.num_prompt:
                continue
            last = self.explainer.blocks_for(stop + self.config.lookahead)
            for part in seq.parts:
                for block in part.observed_table[stop // size : last]:
                    owner = owners.setdefault(block, seq)
                    if block != NULL_BLOCK and owner is not seq:
                        raise Finding(
                            "exclusive-writer",
                            f"$sequence and sequence {owner.id} both keep the drafts of this step in block {block}",
                            call="run",
                            blocks=[block],
                            sequence=part.name,
                        )

    def _explain_exchanges(self, seqs: list[ExpectedSequence]) -> None:
        """Explain blocks that the step filled and that the manager replaced by cached ones of equal content."""
        self.observe("run", seqs)
        for seq in seqs:
            self.explainer.exchanged(seq, f"run: sequence {seq.id}")
        self.settle("run")

    def require_slots(self, seq: ExpectedSequence, stop: int, num_beyond: int, context: str) -> None:
        """Raise Finding unless the tables have slots up to position `stop`, and `num_beyond` further ones."""
        have_slots = self.explainer.machine.function("have_slots")
        for part in seq.parts:
            beyond = 0 if part.layout.is_state else num_beyond
            num_slots = part.layout.slots(stop + beyond)
            if not have_slots(len(part.observed_table), num_slots, 0):
                raise Finding(
                    "admission-sound",
                    f"$observed slots for {stop} tokens and {beyond} beyond",
                    call=context,
                    expected=stop + beyond,
                    observed=len(part.observed_table) * part.layout.num_tokens,
                    sequence=part.name,
                )

    def check_copies(self, answer: str, copies: Sequence[Pair], context: str) -> None:
        """Raise Finding unless every pair is of blocks that exist, and AdapterError unless it is a pair."""
        check_pairs(answer, copies)
        num_blocks = self.explainer.num_blocks
        for pair in copies:
            if not all(is_block_of(block, num_blocks) for block in pair):
                sentence = "copy $observed is outside $expected blocks"
                raise Finding("cow-copied", sentence, call=context, expected=num_blocks, observed=pair, blocks=pair)
        self.answer = "copy " + ", ".join(f"{source} -> {target}" for source, target in copies)

    def op_reset(self) -> bool:
        """Reset the prefix cache; a manager refuses this while any block is in use."""
        before = self.explainer.observed
        done = self.call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        self.answer, self.is_refused = "reset" if done else "refused", not done
        if not done:
            self.require_unchanged(before, "reset_cache was refused")
        self.judge_reset(done, "reset_cache")
        if not done:
            self.coverage["reset refused"] += 1
            return True
        self.explainer.run(operations.reset_cache(self.state), "reset_cache")
        self.observe("reset_cache")
        self.settle("reset_cache")
        self.coverage["reset"] += 1
        if self.judges_records and not self.seqs:
            self._judge_records()
        return True

    def _records_of_new_manager(self) -> int:
        """The records that a manager of this configuration has when it is opened; counted once for each of them."""
        known = records_of_new(self.subject)
        if self.config not in known:
            known[self.config] = self.call("total-calls", "num_records")
        return known[self.config]

    def _judge_records(self) -> None:
        """No sequence is known and the cache is empty: the manager keeps no more records than when it was opened."""
        num_records = self.call("total-calls", "num_records")
        check_answer("num_records", num_records, int)
        num_kept_max = self.capabilities.records_kept or 0
        expected = self._num_records_opened + num_kept_max
        if num_records > expected:
            raise Finding(
                "no-leak-at-rest",
                "nothing is cached and no request is known, but the manager keeps $observed records, and had "
                f"{self._num_records_opened} when it was opened; the subject declares that it keeps at most "
                f"{num_kept_max} more",
                call="reset_cache",
                expected=expected,
                observed=num_records,
            )
