"""Questions that are asked before a call, what a manager may answer, and what it must then give.

The answer must be right as far as the specification decides it: an OK keeps the watermark free, a LATER has something
to wait for, a NEVER holds for every later state of the pool. How many blocks a refusal may keep in reserve is declared.

An admission or a growth must give slots for every token, and copies between blocks that exist.
"""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.hits import num_blocks_shared
from kvproof.check.oracle.needed_blocks import cost_max, lacks_for_good, num_blocks_needed
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_answer, check_pairs
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Pair
from kvproof.spec.text import operations
from kvproof.spec.text.mapping import is_block_of
from kvproof.spec.text.state import GPU

OK, LATER, NEVER = Admission.OK, Admission.LATER, Admission.NEVER  # a look-up in an enumeration is a call in Python


class Questions:
    """Asks one manager, and judges its answers. question: the last one, as the protocol names it."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.explainer, self.state = oracle, oracle.explainer, oracle.state
        self.config, self.capabilities = oracle.config, oracle.capabilities
        self.call, self.reply = oracle.call, oracle.reply
        self.num_held_back = oracle.num_held_back
        self.question = ""

    def ask(self, name: str, group: Group) -> Admission:
        """Ask whether a call would succeed; asking changes nothing. False means NEVER if nothing runs, else LATER."""
        before, self.question = self.explainer.observed, name
        answer = self.call("total-calls", name, group.id)
        if not isinstance(answer, Admission):
            check_answer(name, answer, bool, Admission)
            runs = self.explainer.machine.function("may_wait")(self.state, self.explainer.num_prefixes)
            answer = OK if answer else LATER if runs else NEVER
        self.oracle.require_unchanged(before, f"{name} only asks")
        self.reply.text, self.reply.is_refusal = answer._value_, answer is not OK  # `value` is a call in Python
        return answer

    def judge_ok(self, group: Group, context: str) -> None:
        """OK: the group and the watermark fit, as far as this does not depend on choices of the manager."""
        machine = self.explainer.machine
        if (
            self.config.caching
            or self.oracle.leaves_entries
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
        return num_blocks_needed(self.oracle, group, self.oracle.lookahead if self.capabilities.admits_lookahead else 0)

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
            if self.oracle.has_states and self.oracle.worker.is_pending:
                return  # the step under way may compute the state that the group found: then the group has to wait
            needed = num_blocks_needed(self.oracle, group, self.oracle.lookahead)
            needed -= num_blocks_shared(self.oracle, group)
            self.judge_no(needed, GPU, self.num_held_back, context)
        else:
            needed = num_blocks_needed(self.oracle, group, self.oracle.lookahead)
            self.judge_never(group, needed, self.num_held_back, context)

    def judge_never(self, group: Group, num_needed: int, num_held_back: int, context: str) -> None:
        """NEVER: the pool, all free, lacks so many blocks for the group, with so many held back."""
        if lacks_for_good(self.oracle, group, num_needed, num_held_back):
            return
        sentence = f"{context} says NEVER, but needs $observed blocks of $expected"
        if slack := self.capabilities.refusal_slack:
            sentence += f"; the subject declares a slack of {slack}"
        raise Finding("admission-final", sentence, expected=self.config.num_gpu_blocks, observed=num_needed)

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
        return cost_max(self.oracle, [(seq, len(seq.tokens)) for seq in group.members])

    def num_blocks_to_move(self, group: Group) -> int:
        """Blocks that a swap of the group takes on the other device."""
        return operations.blocks_to_move(self.state, [part.slot for seq in group.all_seqs for part in seq.parts])


def require_slots(oracle: Oracle, seq: ExpectedSequence, stop: int, num_beyond: int, context: str) -> None:
    """Raise Finding unless the tables have slots up to position `stop`, and `num_beyond` further ones."""
    have_slots = oracle.explainer.machine.function("have_slots")
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


def check_copies(oracle: Oracle, answer: str, copies: Sequence[Pair], context: str) -> None:
    """Raise Finding unless every pair is of blocks that exist, and AdapterError unless it is a pair."""
    num_blocks = oracle.explainer.num_blocks
    check_pairs(answer, copies, num_blocks)
    for pair in copies:
        if not all(is_block_of(block, num_blocks) for block in pair):
            sentence = "copy $observed is outside $expected blocks"
            raise Finding("cow-copied", sentence, call=context, expected=num_blocks, observed=pair, blocks=pair)
    oracle.reply.text = "copy " + ", ".join(f"{source} -> {target}" for source, target in copies)


def chunk_end(oracle: Oracle, seq: ExpectedSequence, start: int, num_tokens: int) -> int:
    """Where the chunk that begins at `start` ends: with the prompt, at a block boundary, or anywhere.

    A state is there only where a chunk ends. So with states, no chunk runs past the place from which the same prompt
    would go on.
    """
    stop = start + max(1, num_tokens)
    if oracle.config.caching and (oracle.capabilities.block_aligned_chunks or oracle.has_states):
        stop = oracle.explainer.blocks_for(stop) * oracle.config.block_size
    if oracle.config.caching and oracle.has_states:
        again = oracle.explainer.machine.function("entries_found_again")
        last = again(seq.num_prompt, 1, int(oracle.config.drafting)) * oracle.config.block_size
        stop = min(stop, last) if start < last else stop
    return min(seq.num_prompt, stop)
