"""Base of the manager's operations: steps, groups, and questions that are asked before a call."""

from kvproof.check.oracle.expected import ExpectedSequence, Group, Status
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, check_adapter, check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Config, ManagerSubject
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.state import GPU

GROWING, SWAPPING_IN, ADMITTING = 0, 1, 2  # phases of a step, in the order that `ordered_steps` prescribes


class ManagerBase(Oracle):
    """An opened manager, its groups, and the phase of the step that the judge prepares."""

    def __init__(self, subject: ManagerSubject, config: Config, identities: Identities | None = None) -> None:
        check_adapter(subject, MANAGER_CALLS)
        self.groups: dict[int, Group] = {}
        self.preempted_in_step = False
        self.phase = GROWING
        super().__init__(subject, config, identities, judges_eviction_order=True)

    def _comes_in_order(self, phase: int) -> bool:
        """Whether an operation of that phase may still come in this step; if so, the step is in that phase."""
        if self.capabilities.ordered_steps:
            if phase < self.phase and self.worker.is_pending:
                return False
            self.phase = phase
        return True

    def _is_between_steps(self) -> bool:
        """Whether no step is prepared; then the next operation of a step begins a new one."""
        if self.worker.is_pending:
            return False
        self.preempted_in_step, self.phase = False, GROWING
        return True

    def _chunk_end(self, seq: ExpectedSequence, start: int, num_tokens: int) -> int:
        """Where the chunk that begins at `start` ends: with the prompt, at a block boundary, or anywhere."""
        stop = start + max(1, num_tokens)
        if self.config.caching and self.capabilities.block_aligned_chunks:
            stop = self.explainer.blocks_for(stop) * self.config.block_size
        return min(seq.num_prompt, stop)

    def _waiting(self, gid: int) -> Group | None:
        group = self.groups.get(gid)
        return group if group and group.all_are(Status.WAITING) else None

    def _running(self, gid: int) -> Group | None:
        group = self.groups.get(gid)
        return group if group and group.all_are(Status.RUNNING) and not group.is_busy else None

    # Questions before a call ----------------------------------------------------------------------------------------

    def ask(self, name: str, group: Group) -> Admission:
        """Ask whether a call would succeed; asking changes nothing."""
        before = self.explainer.observed
        answer = self.call("total-calls", name, group.id)
        check_answer(name, answer, Admission)
        self.require_unchanged(before, f"{name} only asks")
        self.answer = answer.value
        return answer  # type: ignore[no-any-return]

    def judge_ok(self, group: Group, context: str) -> None:
        """OK: the group and the watermark fit, as far as this does not depend on choices of the manager."""
        machine = self.explainer.machine
        if self.config.caching or self.config.window or not machine.function("something_runs")(self.state):
            return
        needed, unused = self.num_blocks_needed(group, 0), self.explainer.unused_in(self.state, GPU)
        if not machine.function("may_answer_ok")(needed, unused, self.num_held_back):
            raise Finding(
                "admission-sound",
                f"{context} says OK, but needs {needed} blocks of $expected free, and {self.num_held_back} are "
                "held back by the watermark",
                expected=unused,
                observed=needed,
            )

    def judge_refusal(self, group: Group, answer: Admission, context: str) -> None:
        """NEVER: no later state of the pool could run the group. LATER: something runs that may make room."""
        if answer is Admission.LATER:
            self.judge_later(f"{context} says LATER although nothing runs: it would wait for ever")
        elif not self.may_end_for_good(group):
            needed, gpu = self.num_blocks_needed(group, self.config.lookahead), self.config.num_gpu_blocks
            sentence = f"{context} says NEVER, but needs $observed blocks of $expected"
            raise Finding("admission-final", sentence, expected=gpu, observed=needed)

    def judge_later(self, sentence: str) -> None:
        """The subject answered LATER; `sentence` says what is wrong if it may not."""
        if not self.explainer.machine.function("may_wait")(self.state):
            raise Finding("admission-final", sentence)
