"""What every operation in lockstep uses: call, observe, hold the frame, ask, and compare."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.expected import ExpectedSequence, Group, Status
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, check_adapter, check_answer, check_observation
from kvproof.check.protocol.finding import CONTRACT, AdapterError, Finding
from kvproof.check.protocol.manager import (
    KINDS,
    WINDOW,
    Admission,
    Capabilities,
    Config,
    ManagerSubject,
    Observation,
    OutsideContract,
    Unsupported,
)
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.state import GPU

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # differs from run to run
DOUBLE_FREE = ("double free", "doublefree", "already freed", "already free")


GROWING, SWAPPING_IN, ADMITTING = 0, 1, 2


class Judge:
    """One opened subject, the truth it was told, and the specification beside it."""

    def __init__(self, subject: ManagerSubject, config: Config, identities: Identities | None = None) -> None:
        check_adapter(subject, MANAGER_CALLS)
        check_kv_groups(config, subject.capabilities)
        self.subject, self.config, self.capabilities = subject, config, subject.capabilities
        self.identities = identities or Identities()
        self.seqs: dict[int, ExpectedSequence] = {}
        self.groups: dict[int, Group] = {}
        self.now = 0
        self.preempted_in_step = False
        self.phase = GROWING  # of the step under way
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.answer = ""  # of the last operation, for people
        self._open()
        first = self._call("total-calls", "observe")
        check_observation(first, len(config.kv_groups))
        self.explainer = Explainer(config, first, self.identities, self.coverage)
        self.worker = self.explainer.worker
        self.state = self.explainer.state
        if self.capabilities.evicts_lru and config.caching:
            self.explainer.watch_eviction_order()
        self.explainer.compare_pool("open", self._is_at_rest)

    def _open(self) -> None:
        try:
            self.subject.open(self.config)
        except (Unsupported, AdapterError, Finding):
            raise
        except (Exception, SystemExit) as error:  # a subject that ends the process has not answered
            text = f"open({self.config.as_dict()}) raised {type(error).__name__}: {error}"
            raise Finding("total-calls", text[:300], f"open {type(error).__name__}") from error

    def _call(self, property: str, name: str, *arguments: Any) -> Any:
        """Call the subject; an exception refutes `property`, or no-double-free where it says so."""
        try:
            return getattr(self.subject, name)(*arguments)
        except (Finding, AdapterError):
            raise
        except OutsideContract as error:
            text = f"{_text(name, arguments)}: {error.sentence}"
            raise Finding("total-calls", text, f"{CONTRACT}{error.assumption}") from error
        except (Exception, SystemExit) as error:  # a subject that ends the process has not answered
            said = ADDRESS.sub("", f"{type(error).__name__}: {error}".removesuffix(": "))
            text = f"{_text(name, arguments)} raised {said[:160]}"
            if any(word in said.lower() for word in DOUBLE_FREE):
                property = "no-double-free"
            raise Finding(property, text, f"{name} {type(error).__name__}") from error

    def _comes_in_order(self, phase: int) -> bool:
        """Whether an operation of that phase may still come in this step; if so, the step is in that phase."""
        if self.capabilities.ordered_steps:
            if phase < self.phase and self.worker.is_pending:
                return False
            self.phase = phase
        return True

    def _is_between_steps(self) -> bool:
        """Whether no step is under way; then the next operation of a step begins a new one."""
        if self.worker.is_pending:
            return False
        self.preempted_in_step, self.phase = False, GROWING
        return True

    def _chunk_end(self, seq: ExpectedSequence, start: int, num_tokens: int) -> int:
        """Where the chunk ends that starts there: with the prompt, at a block boundary, or anywhere."""
        stop = start + max(1, num_tokens)
        if self.config.caching and self.capabilities.block_aligned_chunks:
            stop = self.explainer.blocks_for(stop) * self.config.block_size
        return min(seq.num_prompt, stop)

    def _is_at_rest(self) -> bool:
        return all(seq.status is Status.WAITING for seq in self.seqs.values())

    def _observe(self, context: str, touched: Sequence[ExpectedSequence] = ()) -> None:
        """Observe, and hold the frame: the tables of sequences that the call is not about are unchanged."""
        explainer = self.explainer
        seen = explainer.observed = self._call("total-calls", "observe")
        tables, expected = seen.tables, 0
        for seq_id, seq in self.seqs.items():
            if seq.status is Status.WAITING:
                if tables.get(seq_id):
                    raise Finding("no-leak-at-rest", f"{context}: sequence {seq_id} waits, but has {tables[seq_id]}")
                expected += seq_id in tables
                continue
            expected += 1
            if seq in touched:
                continue
            shown = tables.get(seq_id)
            if shown is None or shown[0] != seq.observed_table or (len(shown) > 1 and shown != seq.tables):
                raise Finding("frame-kept", f"{context}: {changed(seq, shown, 'it is not about')}")
        if len(tables) > expected:
            left = {s: t for s, t in tables.items() if s not in self.seqs and any(t)}
            if left:
                raise Finding("no-leak-at-rest", f"{context}: sequences that are over still have tables: {left}")

    def _judge_reset(self, is_done: bool, context: str) -> None:
        """The prefix cache was reset, or refused to be: it must be reset exactly when nothing is held."""
        may_reset: bool = self.explainer.machine.word("may_reset")(self.state)
        if may_reset and not is_done:
            raise Finding("no-leak-at-rest", f"{context} was refused although nothing is held")
        if is_done and not may_reset:
            raise Finding("evict-unreferenced", f"{context} was done although blocks are in use")

    def _settle(self, context: str) -> None:
        self.explainer.compare_pool(context, self._is_at_rest)

    def _unchanged(self, before: Observation, context: str) -> None:
        after = self.explainer.observed = self._call("total-calls", "observe")
        if after != before:
            for name, old, new in zip(Observation._fields, before, after, strict=True):
                if old != new:
                    raise Finding("failed-call-changes-nothing", f"{context}, but {name} went {old} -> {new}")

    def _ask(self, name: str, group: Group) -> Admission:
        """Ask whether a call would succeed. Asking changes nothing."""
        before = self.explainer.observed
        answer = self._call("total-calls", name, group.id)
        check_answer(name, answer, Admission)
        self._unchanged(before, f"{name} only asks")
        self.answer = answer.value
        return answer  # type: ignore[no-any-return]

    def _num_blocks_needed(self, group: Group, lookahead: int) -> int:
        """The demand of a group that shares nothing with others. Members that wait have one table together."""
        blocks_needed, num_tables = self.explainer.machine.word("blocks_needed"), len(self.config.kv_groups)
        is_waiting = group.members[0].status is Status.WAITING
        members = group.members[:1] if is_waiting else group.members
        need: int = sum([blocks_needed(len(seq.tokens), lookahead, num_tables) for seq in members])
        return need + (blocks_needed(len(group.encoder.tokens), 0, 1) if group.encoder else 0)

    def _num_blocks_kept(self, group: Group) -> int:
        """Blocks of the GPU that the group can never get: reserved ones and the null block."""
        has_null = self.config.window is not None and group.members[0].status is not Status.WAITING
        kept: int = self.explainer.machine.word("blocks_kept")(len(self.explainer.observed.reserved), has_null)
        return kept

    def _judge_ok(self, group: Group, context: str) -> None:
        """A group that may be admitted: its demand and the watermark fit, as far as they do not depend on choices."""
        if self.config.caching or self.config.window or not self.explainer.machine.word("something_runs")(self.state):
            return
        machine, held_back = self.explainer.machine, self._num_held_back
        need, unused = self._num_blocks_needed(group, 0), machine.word("unused_in")(self.state, GPU)
        if not machine.word("may_answer_ok")(need, unused, held_back):
            raise Finding(
                "admission-sound",
                f"{context} says OK, but needs {need} blocks of {unused} free, and {held_back} are "
                "held back by the watermark",
            )

    def _may_end_for_good(self, group: Group) -> bool:
        """Whether no later state of the pool could run the group."""
        gpu = self.config.num_gpu_blocks
        need, kept = self._num_blocks_needed(group, self.config.lookahead), self._num_blocks_kept(group)
        answer: bool = self.explainer.machine.word("may_end_for_good")(need, kept, self._num_held_back, gpu)
        return answer

    @property
    def _num_held_back(self) -> int:
        """Blocks of the GPU that the watermark holds back from admission."""
        return int(self.config.watermark * self.config.num_gpu_blocks)

    def _judge_wait(self, group: Group, answer: Admission, context: str) -> None:
        """A group that is not admitted: NEVER only if it can never be; LATER only while something runs."""
        if answer is Admission.NEVER:
            if not self._may_end_for_good(group):
                need, gpu = self._num_blocks_needed(group, self.config.lookahead), self.config.num_gpu_blocks
                raise Finding("admission-final", f"{context} says NEVER, but needs {need} blocks of {gpu}")
        else:
            self._judge_later(f"{context} says LATER although nothing runs: it would wait for ever")

    def _judge_later(self, otherwise: str) -> None:
        if not self.explainer.machine.word("may_wait")(self.state):
            raise Finding("admission-final", otherwise)

    def _waiting(self, gid: int) -> Group | None:
        group = self.groups.get(gid)
        return group if group and group.all_are(Status.WAITING) else None

    def _running(self, gid: int) -> Group | None:
        group = self.groups.get(gid)
        return group if group and group.all_are(Status.RUNNING) and not group.is_busy else None


def check_kv_groups(config: Config, capabilities: Capabilities) -> None:
    """Raise Unsupported for KV groups that the subject does not have, or that nothing is said of."""
    if len(config.kv_groups) > 1 and not capabilities.kv_groups:
        raise Unsupported("the subject has no several KV groups")
    if not config.kv_groups or not set(config.kv_groups) <= set(KINDS):
        raise Unsupported(f"KV groups are of {' or '.join(KINDS)}")
    if len(config.kv_groups) > 1 and (config.window is None) == (WINDOW in config.kv_groups):
        raise Unsupported("a window, and KV groups that have it, come together")
    if len(config.kv_groups) > 1 and config.cross:
        raise Unsupported("an encoder and several KV groups are not judged together")


def changed(seq: ExpectedSequence, shown: list[list[int]] | None, which: str) -> str:
    """That the tables of a sequence changed, which should not have; the first that did, for people."""
    pairs = [(part, table) for part, table in zip(seq.parts, shown or [], strict=False) if part.observed_table != table]
    part, table = pairs[0] if pairs else (seq, "gone")
    return f"the table of {part.name}, which {which}, went {part.observed_table} -> {table}"


def _text(name: str, arguments: tuple[Any, ...]) -> str:
    return f"{name}({', '.join(str(a) for a in arguments)})"
