"""Lockstep: drive a subject and the specification side by side, one operation at a time.

An operation is a tuple of a name and arguments. `apply` gives False when the operation is not enabled in the present
truth (so any subsequence of a trace is a trace), True when every answer of the subject was explained, and raises
`Finding` when no rule explains one. Between two steps of the worker, operations only queue work; `run` is the step.

Order inside a step, as engines do it: swap in; admit, extend and append; preempt and swap out; then `run`. Forks, frees
and new tokens come between steps.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kvproof.check.explain import NUM_ENTRIES_MAX, Explainer
from kvproof.check.finding import AdapterError, Finding
from kvproof.check.protocol_check import check_adapter, check_answer, check_observation, check_pairs
from kvproof.check.subject import (
    Admission,
    Admitted,
    Config,
    ManagerSubject,
    Observation,
    Refused,
    Reserved,
    Scheduled,
    Unsupported,
)
from kvproof.check.truth import Group, Status
from kvproof.check.truth import Sequence as Seq
from kvproof.spec import operations
from kvproof.spec.identity import Identities, Image, Key
from kvproof.spec.state import EVICTABLE, FREE, GPU
from kvproof.spec.trace import Operation

WAITING, RUNNING, SWAPPED = Status.WAITING, Status.RUNNING, Status.SWAPPED
DOUBLE_FREE = ("double free", "doublefree", "already freed", "already free")


class Lockstep:
    """One opened subject, the truth it was told, and the specification beside it."""

    def __init__(self, subject: ManagerSubject, config: Config) -> None:
        check_adapter(subject)
        if len(config.kv_groups) != 1:
            raise Unsupported("several KV groups are not judged at manager level yet")
        self.subject, self.config, self.capabilities = subject, config, subject.capabilities
        self.identities = Identities()
        self.seqs: dict[int, Seq] = {}
        self.groups: dict[int, Group] = {}
        self.now = 0
        self.preempted_in_step = False
        self.fired: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.answer = ""  # of the last operation, for people
        self._open()
        first = self._call("total-calls", "observe")
        check_observation(first, 1)
        self.explainer = Explainer(config, first, self.fired)
        self.worker = self.explainer.worker
        self.state = self.explainer.state
        self._operations: dict[str, Callable[..., bool]] = {
            name.removeprefix("op_"): getattr(self, name) for name in dir(self) if name.startswith("op_")
        }
        self.explainer.compare_pool("open", self._is_at_rest)

    def _open(self) -> None:
        try:
            self.subject.open(self.config)
        except (Unsupported, AdapterError):
            raise
        except Exception as error:
            text = f"open({self.config.as_dict()}) raised {type(error).__name__}: {error}"
            raise Finding("total-calls", text[:300], f"open {type(error).__name__}") from error

    def apply(self, operation: Operation) -> bool:
        """Do one operation; raises Finding, or AdapterError if the adapter breaks the protocol."""
        handler = self._operations.get(operation[0])
        if handler is None:
            raise ValueError(f"there is no operation {operation[0]!r}; there are {', '.join(self._operations)}")
        self.answer = ""
        try:
            return handler(*operation[1:])
        except Finding:
            check_observation(self.explainer.seen, 1)
            raise
        except (TypeError, AttributeError, IndexError, KeyError) as error:
            check_observation(self.explainer.seen, 1)
            raise AssertionError(f"the judge failed in {operation}: {type(error).__name__}: {error}") from error

    # Small words ------------------------------------------------------------------------------------------------

    def _call(self, property: str, name: str, *arguments: Any) -> Any:
        """Call the subject; an exception refutes `property`, or no-double-free where it says so."""
        try:
            return getattr(self.subject, name)(*arguments)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            text = f"{_text(name, arguments)} raised {said[:160]}"
            if any(word in said.lower() for word in DOUBLE_FREE):
                property = "no-double-free"
            raise Finding(property, text, f"{name} {type(error).__name__}") from error

    def _is_at_rest(self) -> bool:
        return all(seq.status is WAITING for seq in self.seqs.values())

    def _is_idle(self) -> bool:
        return not any(seq.status is RUNNING for seq in self.seqs.values())

    def _observe(self, about: str, touched: Sequence[Seq] = ()) -> None:
        """Observe, and hold the frame: the tables of sequences that the call is not about are unchanged."""
        explainer = self.explainer
        seen = explainer.seen = self.subject.observe()
        tables, expected = seen.tables, 0
        for seq_id, seq in self.seqs.items():
            if seq.status is WAITING:
                if tables.get(seq_id):
                    raise Finding("no-leak-at-rest", f"{about}: sequence {seq_id} waits, but has {tables[seq_id]}")
                expected += seq_id in tables
                continue
            expected += 1
            if seq in touched:
                continue
            shown = tables.get(seq_id)
            if shown is None or shown[0] != seq.shown:
                raise Finding(
                    "frame-kept",
                    f"{about}: the table of sequence {seq_id}, which it is not about, went "
                    f"{seq.shown} -> {shown[0] if shown else 'gone'}",
                )
        if len(tables) > expected:
            left = {s: t for s, t in tables.items() if s not in self.seqs and any(t)}
            if left:
                raise Finding("no-leak-at-rest", f"{about}: sequences that are over still have tables: {left}")

    def _settle(self, about: str) -> None:
        self.explainer.compare_pool(about, self._is_at_rest)

    def _unchanged(self, before: Observation, about: str) -> None:
        after = self.explainer.seen = self.subject.observe()
        if after != before:
            for name, old, new in zip(Observation._fields, before, after, strict=True):
                if old != new:
                    raise Finding("failed-call-changes-nothing", f"{about}, but {name} went {old} -> {new}")

    def _ask(self, name: str, group: Group) -> Admission:
        """Ask whether a call would succeed. Asking changes nothing."""
        before = self.explainer.seen
        answer = self._call("total-calls", name, group.id)
        check_answer(name, answer, Admission)
        self._unchanged(before, f"{name} only asks")
        self.answer = answer.value
        return answer  # type: ignore[no-any-return]

    def _num_blocks_needed(self, group: Group) -> int:
        words = self.explainer.machine.names
        need: int = words["blocks_for"](len(group.members[0].tokens) + self.config.lookahead)
        return need + (words["blocks_for"](len(group.encoder.tokens)) if group.encoder else 0)

    def _judge_wait(self, group: Group, answer: Admission, about: str) -> None:
        """A group that is not admitted: NEVER only if it can never be; LATER only while something runs."""
        reserved, need = len(self.explainer.seen.reserved), self._num_blocks_needed(group)
        gpu = self.config.num_gpu_blocks
        held_back = int(self.config.watermark * gpu)
        if answer is Admission.NEVER:
            if not self.explainer.machine.names["may_answer_never"](need, reserved, held_back, gpu):
                raise Finding(
                    "admission-final",
                    f"{about} says NEVER, but needs {need} blocks of {gpu - reserved - held_back} that it may use",
                )
        elif self._is_idle():
            raise Finding("admission-final", f"{about} says LATER although nothing runs: it would wait for ever")

    # Operations: what is told -------------------------------------------------------------------------------------

    def op_new(
        self,
        gid: int,
        seq_ids: Sequence[int],
        tokens: Sequence[int],
        key: Sequence[Any] = (),
        images: Sequence[Sequence[Any]] = (),
        encoder: Sequence[Any] | None = None,
    ) -> bool:
        """A group of waiting sequences with the same prompt exists; perhaps with an encoder (sequence, tokens)."""
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        too_long = len(tokens) > (NUM_ENTRIES_MAX - 8) * self.config.block_size
        full = len(self.seqs) + len(ids) > len(self.explainer.free_slots) + len(self.seqs) - self._num_waiting()
        if gid in self.groups or any(i in self.seqs for i in ids) or not tokens or not seq_ids or too_long or full:
            return False
        group, whole, pictures = Group(gid), Key(*key), tuple(Image(*image) for image in images)
        for seq_id in seq_ids:
            group.members.append(self._new_sequence(seq_id, group, whole, pictures, tokens))
        if encoder:
            group.encoder = self._new_sequence(encoder[0], group, Key(salt="encoder"), (), encoder[1])
            group.encoder.is_encoder = True
        self.groups[gid] = group
        self._call("total-calls", "new", gid, list(seq_ids), list(tokens), whole, pictures)
        if encoder:
            self._call("total-calls", "new_encoder", gid, encoder[0], list(encoder[1]))
        return True

    def _num_waiting(self) -> int:
        return sum(seq.status is WAITING for seq in self.seqs.values())

    def _new_sequence(
        self, seq_id: int, group: Group, key: Key, images: tuple[Image, ...], tokens: Sequence[int]
    ) -> Seq:
        seq = Seq(seq_id, group, key, images, self.identities.root(key))
        for token in tokens:
            seq.grow(self.identities, token)
        seq.num_prompt = len(tokens)
        self.seqs[seq_id] = seq
        return seq

    def op_sample(self, gid: int, tokens: Sequence[int]) -> bool:
        """Every member of a running group got a token, which has no slot yet."""
        group = self._running(gid)
        if not group or self.worker.is_pending or any(seq.num_unseen for seq in group.members):
            return False
        if len(group.members[0].tokens) >= (NUM_ENTRIES_MAX - 8) * self.config.block_size:
            return False
        for seq, token in zip(group.members, tokens, strict=False):
            seq.grow(self.identities, token)
            self._call("total-calls", "grow", seq.id, token)
        return True

    # Operations: admission ------------------------------------------------------------------------------------------

    def _waiting(self, gid: int) -> Group | None:
        group = self.groups.get(gid)
        return group if group and group.all_are(WAITING) else None

    def _running(self, gid: int) -> Group | None:
        group = self.groups.get(gid)
        return group if group and group.all_are(RUNNING) and not group.is_busy else None

    def op_lookup(self, gid: int) -> bool:
        """A waiting group is looked up in the prefix cache, and not admitted."""
        group = self._waiting(gid)
        if not group:
            return False
        before = self.explainer.seen
        self.answer = f"hit {self._call('total-calls', 'hits', gid)}"
        self._call("total-calls", "forget", gid)
        self._unchanged(before, "a look-up only asks")
        return True

    def op_admit(self, gid: int, chunk: int) -> bool:
        """Admit a waiting group, and schedule the first `chunk` tokens that are not hit (all, if not chunked)."""
        group = self._waiting(gid)
        if not group:
            return False
        about, before = f"admit({gid})", self.explainer.seen
        if self.capabilities.asks_first:
            if self.config.caching:
                self._call("total-calls", "hits", gid)
            answer = self._ask("can_admit", group)
            if answer is not Admission.OK:
                self._judge_wait(group, answer, f"can_admit({gid})")
                self.fired[f"admission {answer.value}"] += 1
                self._call("total-calls", "forget", gid)
                return True
        try:
            result = self._call("admission-sound", "admit", gid, chunk)
        except Finding as finding:
            lost = self.subject.observe().free
            if lost != before.free:
                finding.text += f"; and free blocks went {before.free} -> {lost}"
            raise
        check_answer("admit", result, Admitted, Refused)
        if isinstance(result, Refused):
            if self.capabilities.asks_first:
                raise Finding("admission-sound", f"can_admit({gid}) said OK, admit was refused: {result.reason}")
            self.answer = "refused"
            self.fired["admission refused"] += 1
            self._unchanged(before, f"{about} was refused")
            self._judge_wait(group, Admission.LATER, about)
            return True
        self._admitted(group, result.hit, chunk, about)
        return True

    def _admitted(self, group: Group, hit: int, chunk: int, about: str) -> None:
        explainer, caching = self.explainer, self.config.caching
        first = group.members[0]
        touched = [*group.members, *([group.encoder] if group.encoder else [])]
        for seq in touched:
            seq.status = RUNNING
        self._observe(about, touched)
        if caching:
            self._note_missed_hit(first, hit)
        explainer.admitted(first, self.config.window or 0, hit, caching, about)
        for seq in group.members[1:]:
            explainer.forked(first, seq, about)
            if seq.shown != first.shown:
                raise Finding("sharing-equal", f"{about}: tables {first.shown} and {seq.shown} of one prompt")
        if group.encoder:
            explainer.admitted(group.encoder, 0, 0, False, about)
            self.worker.writes.append((group.encoder, 0, len(group.encoder.tokens)))
            self.fired["cross-attention table"] += 1
        self._settle(about)
        start = min(hit, len(first.tokens) - 1)
        stop = min(len(first.tokens), start + max(1, chunk)) if self.config.chunked else len(first.tokens)
        self.answer = f"hit {hit}" if hit else "admitted"
        self.fired["admitted"] += 1
        for seq in group.members:
            seq.hit, seq.computed, seq.is_busy = hit, stop, True
            self.worker.writes.append((seq, start if seq is first else stop, stop))

    def _note_missed_hit(self, seq: Seq, hit: int) -> None:
        """Count look-ups that found less than was there: no fault, but slow."""
        state, size = self.state, self.config.block_size
        if hit >= (len(seq.tokens) - 1) // size * size:
            return
        row = operations.row_of(seq.identities, hit // size, size)
        gpu = range(self.config.num_gpu_blocks)
        if any(state.computed[b] and state.content[b] == row for b in gpu):
            self.notes["hit-complete"] += 1

    # Operations: more slots -----------------------------------------------------------------------------------------

    def op_extend(self, seq_id: int, num_tokens: int) -> bool:
        """The next chunk of a prompt is scheduled."""
        seq = self.seqs.get(seq_id)
        if seq is None or seq.is_encoder or seq.status is not RUNNING or seq.is_busy or not self.config.chunked:
            return False
        if len(seq.group.members) != 1 or seq.computed >= seq.num_prompt or num_tokens < 1:
            return False
        if not self._may_append(seq.group):
            return True
        self._reserve(seq, min(seq.num_prompt, seq.computed + num_tokens), f"reserve({seq_id})")
        return True

    def _reserve(self, seq: Seq, stop: int, about: str) -> None:
        before, start = self.explainer.seen, seq.computed
        result = self._call("admission-sound", "reserve", seq.id, stop - start)
        check_answer("reserve", result, Reserved, Refused)
        if isinstance(result, Refused):
            if self.capabilities.asks_first:
                raise Finding("admission-sound", f"{about} was refused after an OK: {result.reason}")
            self.answer = "refused"
            self.fired["append refused"] += 1
            if not (self.capabilities.window_drop_when_refused and self.config.window):
                self._unchanged(before, f"{about} was refused")
                return
            self._observe(about, [seq])
            self.explainer.extended(seq, (), self.config.caching, about)
            self._settle(about)
            return
        copies = list(result.copies)
        if copies:
            self._check_copies(copies, about)
        self._observe(about, [seq])
        self.explainer.extended(seq, copies, self.config.caching, about)
        self._settle(about)
        seq.computed, seq.is_busy = stop, True
        self.worker.copies.extend(copies)
        self.worker.writes.append((seq, start, stop))
        self._hold_window(seq, start, about)

    def _check_copies(self, copies: list[tuple[int, int]], about: str) -> None:
        check_pairs("reserve().copies", copies)
        for pair in copies:
            if not all(0 <= block < self.explainer.num_blocks for block in pair):
                raise Finding("cow-copied", f"{about}: copy {pair} is outside {self.explainer.num_blocks} blocks")
        self.answer = "copy " + ", ".join(f"{source} -> {target}" for source, target in copies)

    def _hold_window(self, seq: Seq, num_done: int, about: str) -> None:
        window = self.config.window
        if window is None:
            return
        state, slot = self.state, seq.slot
        held = state.num_blocks[slot] - state.first[slot]
        bound = self.explainer.machine.names["entries_in_window"](
            num_done, state.num_blocks[slot] * self.config.block_size, window
        )
        if held > bound:
            raise Finding(
                "window-kept", f"{about}: sequence {seq.id} holds {held} blocks, a window of {window} {bound}"
            )

    def op_append(self, gid: int) -> bool:
        """Every member of a running group gets a slot for the token it sampled."""
        group = self._running(gid)
        if not group or any(seq.num_unseen != 1 or len(seq.tokens) == seq.num_prompt for seq in group.members):
            return False
        if self._may_append(group):
            self._append_all(group)
        return True

    def _may_append(self, group: Group) -> bool:
        """Whether the subject says that the group can get its slots; True if it is not to be asked."""
        if not self.capabilities.asks_first:
            return True
        before = self.explainer.seen
        can = self._call("total-calls", "can_append", group.id)
        check_answer("can_append", can, bool)
        self._unchanged(before, "can_append only asks")
        if not can:
            self.answer = "cannot append"
            self.fired["append refused"] += 1
        return can  # type: ignore[no-any-return]

    def _append_all(self, group: Group) -> None:
        for seq in group.members:
            self._reserve(seq, seq.computed + 1, f"append({seq.id})")

    def op_fork(self, parent_id: int, child_id: int) -> bool:
        """A running sequence gets a child that shares every block."""
        parent = self.seqs.get(parent_id)
        if parent is None or child_id in self.seqs or parent.is_encoder or self.worker.is_pending:
            return False
        if not self.capabilities.fork or parent.num_unseen or not self._running(parent.group.id):
            return False
        if not self.explainer.free_slots:
            return False
        child = parent.forked(child_id)
        self._call("total-calls", "fork", parent_id, child_id)
        self.seqs[child_id] = child
        parent.group.members.append(child)
        about = f"fork({parent_id}, {child_id})"
        self._observe(about, [child])
        self.explainer.forked(parent, child, about)
        if child.shown != parent.shown:
            raise Finding("frame-kept", f"{about}: parent {parent.shown}, child {child.shown}")
        self._settle(about)
        return True

    # Operations: giving up ------------------------------------------------------------------------------------------

    def op_free(self, seq_id: int) -> bool:
        """A sequence, in whatever state, is over."""
        seq = self.seqs.get(seq_id)
        if seq is None or seq.is_encoder or seq.is_busy or self.worker.is_pending:
            return False
        group, about = seq.group, f"free({seq_id})"
        self._call("total-calls", "free", seq_id)
        del self.seqs[seq_id]
        group.members.remove(seq)
        ended = [seq]
        if not group.members:
            del self.groups[group.id]
            if group.encoder:
                del self.seqs[group.encoder.id]
                ended.append(group.encoder)
        self._observe(about)
        for one in ended:
            if one.status is not WAITING:
                self.explainer.freed(one, about)
        self._settle(about)
        return True

    def op_preempt(self, gid: int) -> bool:
        """A running group of one sequence gives up every block and waits again, its tokens kept."""
        group = self._running(gid)
        if not group or len(group.members) != 1:
            return False
        about = f"preempt({gid})"
        self._call("total-calls", "preempt", gid)
        ended = [*group.members, *([group.encoder] if group.encoder else [])]
        for seq in ended:
            seq.status, seq.computed, seq.hit, seq.num_prompt = WAITING, 0, 0, len(seq.tokens)
        self.preempted_in_step = True
        self._observe(about)
        for seq in ended:
            self.explainer.freed(seq, about)
        self._settle(about)
        self.fired["preempted"] += 1
        return True

    # Operations: swap -----------------------------------------------------------------------------------------------

    def op_swap_out(self, gid: int) -> bool:
        """A running group moves to host blocks."""
        group = self._running(gid)
        if not group or group.encoder or not self.config.num_host_blocks:
            return False
        if self._ask("can_swap_out", group) is not Admission.OK:
            self.fired["swap out refused"] += 1
            return True
        self.preempted_in_step = True
        self.worker.swap_out += self._swap(group, "swap_out", SWAPPED)
        return True

    def op_swap_in(self, gid: int) -> bool:
        """A swapped group moves back, and gets the slots for the token it sampled, if it did."""
        group = self.groups.get(gid)
        if not group or not group.all_are(SWAPPED) or self.preempted_in_step or self.worker.swap_out:
            return False
        answer = self._ask("can_swap_in", group)
        if answer is not Admission.OK:
            self.fired["swap in refused"] += 1
            if answer is Admission.LATER and self._is_idle():
                raise Finding("admission-final", f"can_swap_in({gid}) says LATER although nothing runs")
            return True
        self.worker.swap_in += self._swap(group, "swap_in", RUNNING)
        if self.state.count[GPU][FREE] + self.state.count[GPU][EVICTABLE] <= 1:
            self.fired["swap in while nearly full"] += 1
        if all(seq.num_unseen == 1 and len(seq.tokens) > seq.num_prompt for seq in group.members):
            self._append_all(group)
        return True

    def _swap(self, group: Group, name: str, status: Status) -> list[tuple[int, int]]:
        about = f"{name}({group.id})"
        pairs = self._call("admission-sound", name, group.id)
        check_pairs(name, pairs)
        self.answer = ", ".join(f"{source} -> {target}" for source, target in pairs)
        for seq in group.members:
            seq.status = status
        self._observe(about, group.members)
        moved = self.explainer.swapped(group.members, pairs, status is SWAPPED, about)
        self._settle(about)
        self.fired[name] += 1
        return moved

    # Operations: the step -------------------------------------------------------------------------------------------

    def op_run(self, tick: int) -> bool:
        """The step: the manager is told what is scheduled, the worker executes, and everyone reads back."""
        worker, explainer = self.worker, self.explainer
        if not worker.is_pending:
            return False
        self.now += tick
        lookahead = self.config.lookahead
        writes = worker.writes[:]
        step = [Scheduled(seq.id, stop - start, stop) for seq, start, stop in writes if not seq.is_encoder]
        self._call("total-calls", "step_scheduled", step, self.now)
        other = worker.in_other_order(lookahead) if worker.order_may_matter() else None
        copies = worker.copies[:]
        worker.execute(lookahead)
        for seq, _, stop in writes:
            explainer.computed(seq, stop, "run")
        self._call("total-calls", "step_done", step)
        for seq in self.seqs.values():
            seq.is_busy = False
        self.preempted_in_step = False
        memory, written = self.state.memory, self.state.num_written
        wrong = worker.wrong_blocks(memory, written)
        if wrong:
            raise self._read_back(wrong[0], worker.slots, "read-back", "")
        if other is not None:
            self.fired["copies that touch each other"] += 1
            wrong = other.wrong_blocks(memory, written)
            if wrong:
                raise self._read_back(wrong[0], other.slots, "mapping-hazard-free", f"copies {copies} in reverse: ")
        if max(self.state.refcount) >= 3:
            self.fired["three holders"] += 1
        if self.explainer.seen.free[GPU] == 0:
            self.fired["pool full"] += 1
        return True

    def _read_back(self, block: int, slots: list[list[int]], property: str, prefix: str) -> Finding:
        """Who reads the wrong block, where, and what it finds there."""
        expected, found = self.state.memory[block], slots[block]
        slot = next(o for o in range(self.state.num_written[block]) if expected[o] != found[o])
        reader = next((s for s in self.seqs.values() if s.slot >= 0 and self.state.position[s.slot][block] >= 0), None)
        where = f"block {block}, slot {slot}"
        if reader is None:
            who = f"the prefix cache holds {where} for {self.identities.describe(expected[slot])}"
            property = "cache-content" if property == "read-back" else property
        else:
            position = self.state.position[reader.slot][block] * self.config.block_size + slot
            who = f"sequence {reader.id} reads position {position} ({where})"
        holds = {-1: "nothing was written there", -2: "there is junk of a lookahead slot"}.get(found[slot])
        text = holds or f"there is the KV of {self.identities.describe(found[slot])}"
        return Finding(property, f"{prefix}{who}: {text}")

    def op_reset(self) -> bool:
        """The prefix cache is forgotten; refused while any block is in use."""
        if not self.capabilities.reset or not self.config.caching or self.worker.is_pending:
            return False
        before = self.explainer.seen
        done = self._call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        self.answer = "reset" if done else "refused"
        if not done:
            self._unchanged(before, "reset_cache was refused")
            if self._is_at_rest():
                raise Finding("no-leak-at-rest", "reset_cache was refused although nothing is held")
            self.fired["reset refused"] += 1
            return True
        if not self._is_at_rest():
            raise Finding("evict-unreferenced", "reset_cache was done although blocks are in use")
        self.explainer.run(operations.reset_cache(self.state), "reset_cache")
        self._observe("reset_cache")
        self._settle("reset_cache")
        self.fired["reset"] += 1
        return True


def _text(name: str, arguments: tuple[Any, ...]) -> str:
    return f"{name}({', '.join(str(a) for a in arguments)})"
