"""The judge of block managers: its parts, and which operations are enabled."""

from collections import defaultdict
from typing import Any, NamedTuple

from kvproof.check.oracle.enabled import OperationJudge
from kvproof.check.oracle.expected import RUNNING, WAITING, Group
from kvproof.check.oracle.hits import HitJudge
from kvproof.check.oracle.lockstep import LockstepJudge
from kvproof.check.oracle.manager.admitting import AdmissionJudge
from kvproof.check.oracle.manager.growing import GrowthJudge
from kvproof.check.oracle.manager.questions import Questions
from kvproof.check.oracle.manager.releasing import ReleaseJudge, ResetJudge
from kvproof.check.oracle.manager.step import GROWING, SWAPPING_IN, StepJudge
from kvproof.check.oracle.manager.swapping import SwapJudge
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, check_adapter
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.protocol.manager_operations import ManagerOperation, may_lose_steps
from kvproof.spec.text.identity import Identities

ABOUT_NONE = "new", "run", "fail", "reset"
ABOUT_SEQUENCES = "extend", "fork", "free"  # the others are about a group


class SearchLimits(NamedTuple):
    """Bounds that a search sets on what is enabled; the judge itself bounds only what fits its state."""

    num_groups: float = float("inf")  # at most so many at a time
    num_tokens: float = float("inf")  # of one sequence
    num_members: float = float("inf")  # of one group
    num_unseen: float = 3  # tokens of one sequence that are sampled for one step
    num_tokens_forked: float = float("inf")  # a longer sequence is not forked
    loses_steps: bool = True  # what was admitted may be over before its step


NO_LIMITS = SearchLimits()


class ManagerJudge(LockstepJudge, OperationJudge):
    """One opened manager in lockstep with the specification.

    groups: those that have arrived and are not over. limits: what a search excludes from what is enabled.
    """

    kinds = ManagerOperation.kinds()

    def __init__(self, subject: ManagerSubject, config: Config, identities: Identities | None = None) -> None:
        check_adapter(subject, MANAGER_CALLS)
        oracle = Oracle(subject, config, identities)
        LockstepJudge.__init__(self, oracle)
        self.groups: dict[int, Group] = {}
        self.limits = NO_LIMITS
        self._listed: dict[str, list[int]] | None = None  # what was listed since the last operation
        self.step, questions = StepJudge(oracle), Questions(oracle)
        self.questions, self.hits = questions, HitJudge(oracle)
        self.admission = AdmissionJudge(oracle, self.groups, self.step, questions, self.hits)
        self.growth = GrowthJudge(oracle, self.groups, self.step, questions)
        self.release = ReleaseJudge(oracle, self.groups, self.step)
        self.swaps = SwapJudge(oracle, self.groups, self.step, questions, self.growth)
        self.resets = ResetJudge(oracle)
        self._may_lose_steps = may_lose_steps(config, self.capabilities)
        OperationJudge.__init__(
            self, oracle.reply, self.admission, self.growth, self.release, self.swaps, self.step, self.resets
        )

    # What is enabled ------------------------------------------------------------------------------------------------

    def enabled(self) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now, each with the groups or sequences that it may be about.

        `new`, `run`, `fail` and `reset` are about none.
        """
        found: defaultdict[str, list[int]] = defaultdict(list)
        if self._may_arrive():
            found["new"] = []
        is_pending = self.worker.is_pending
        for group in self.groups.values():
            self._add_enabled(found, group, is_pending)
        if is_pending:
            found["run"] = []
            if self._may_lose_step():
                found["fail"] = []
        elif self.resets.can_reset:
            found["reset"] = []
        self._listed = found
        return found

    def is_enabled(self, name: str, *arguments: Any) -> bool:
        """Whether the operation is enabled now; without arguments, whether any of its kind may be."""
        if name in ABOUT_NONE:
            is_pending = self.worker.is_pending
            if name == "fail":
                return is_pending and self._may_lose_step()
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
        if about is None or (about and arguments[0] not in about):
            return False
        handler = self.handlers[name]
        return handler.method(self.parts[handler.place], *arguments)

    def _may_arrive(self) -> bool:
        return len(self.groups) < self.limits.num_groups

    def _may_reset(self) -> bool:
        return self.resets.can_reset and not self.worker.is_pending

    def _may_lose_step(self) -> bool:
        """Whether what the step that is prepared was to compute may be over before, and whether it may fail."""
        return self._may_lose_steps and self.limits.loses_steps and self.step.may_be_lost

    def _add_enabled(self, found: defaultdict[str, list[int]], group: Group, is_pending: bool) -> None:
        """Add the operations that are enabled about the group, or about a sequence of it."""
        members = group.members
        status = members[0].status
        if status is RUNNING:
            if not is_pending or self.step.phase == GROWING:
                self._add_enabled_of_running(found, group, is_pending)
        elif status is WAITING:
            found["admit"].append(group.id)
            found["lookup"].append(group.id)
        elif not (self.step.has_preempted or self.worker.swap_out or (is_pending and self.step.phase > SWAPPING_IN)):
            found["swap_in"].append(group.id)
            if group.encoder and self.capabilities.preempts_swapped_encoders and len(members) == 1 and not is_pending:
                found["preempt"].append(group.id)
        if not is_pending:
            free = found["free"]
            for seq in members:
                free.append(seq.id)
        elif self._may_lose_steps and self._may_lose_step():
            self._add_enabled_before_step(found, group)

    def _add_enabled_before_step(self, found: defaultdict[str, list[int]], group: Group) -> None:
        """Add how a group may leave the step that is prepared; its members count on what the first one computes."""
        first, *others = group.members
        if first.is_busy and others:
            return
        found["free"] += [seq.id for seq in group.members]
        if first.is_busy:
            found["preempt"].append(group.id)

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
                if has_room and can.fork and num_tokens < self.limits.num_tokens_forked:
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
        if num_tokens < self.limits.num_tokens and num_tokens < self.oracle.num_tokens_max:
            found["sample"].append(gid)
