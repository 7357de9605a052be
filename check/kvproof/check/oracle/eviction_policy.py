"""Whether a subject evicts the least recently used: what it declares as its policy is held against the specification.

The rule `evict` leaves the victim open; `kvproof.spec.text.eviction_policy` says which block goes before another. A
block is used by each step that is scheduled for a sequence whose table names it, at the time of that step; its prefix
is as long as the entries up to its own. When a block is taken for something else it has not been used yet. What a swap
brings was used when its sequence was. Where it is brought to a block that has that content already, a manager may have
evicted and filled it, or joined it: the two look alike, and the block is left out until it is used again.

Judged is each call as a whole, since the victims of one call may be taken in any order: none of them may have been
evicted before a block that could have been evicted all along, and still can. A block whose content another block has
too is left out on both sides: nothing is lost with it, and a manager may take it as if it were free.
"""

from collections import Counter
from collections.abc import Callable

from kvproof.check.protocol.finding import Finding
from kvproof.spec.text.operations import Program
from kvproof.spec.text.state import EVICTABLE, FREE, State

NEVER = -1
WITNESS = "eviction with a choice"


class EvictionOrder:
    """When each GPU block was used last, how long its prefix is, and which were evicted by the call under way."""

    def __init__(
        self, state: State, num_gpu_blocks: int, goes_before: Callable[..., bool], coverage: Counter[str]
    ) -> None:
        self.state, self.num_gpu_blocks = state, num_gpu_blocks
        self.goes_before, self.coverage = goes_before, coverage
        self.last_used = [NEVER] * len(state.status)
        self.prefix = [0] * len(state.status)
        self.is_vague = [False] * len(state.status)  # when it was used cannot be told
        self.seq_used = [NEVER] * len(state.live)
        self._candidates: list[int] = []  # at the first eviction of the call,
        self._ages: tuple[list[int], list[int]] = ([], [])  # and when they were used, with how long a prefix
        self._victims: list[int] = []

    def watched(self, program: Program) -> Program:
        """The same firings; what they tell of the use of blocks is noted before each."""
        state = self.state
        for name, arguments in program:
            if name == "evict":
                self._note_victim(arguments[0])
            elif name == "promote":
                seq, index = arguments
                self.prefix[state.table[seq][index]] = index + 1
            elif name in ("append", "reserve"):
                block = arguments[1]
                if 0 <= block < len(state.status) and state.status[block] == FREE:
                    self.last_used[block] = NEVER
                    self.is_vague[block] = False
            elif name == "move_entry":
                seq, block = arguments
                self._note_moved(seq, state.moving[seq] + 1, block)
            elif name == "follow_entry":
                seq, leader = arguments
                block = state.table[leader][state.moving[seq]]
                self.last_used[block] = max(self.last_used[block], self.seq_used[seq])
            elif name == "rehit_entry":
                self.is_vague[arguments[1]] = True
            elif name == "admit":
                self.seq_used[arguments[0]] = NEVER
            elif name == "fork":
                parent, child = arguments[:2]
                self.seq_used[child] = self.seq_used[parent]
            yield name, arguments

    def _note_moved(self, seq: int, prefix: int, target: int) -> None:
        """What arrives was used when its sequence was."""
        if 0 <= target < len(self.last_used):
            self.last_used[target], self.prefix[target] = self.seq_used[seq], prefix
            self.is_vague[target] = False

    def _note_victim(self, block: int) -> None:
        if not 0 <= block < self.num_gpu_blocks or self.state.status[block] != EVICTABLE:
            return
        if not self._victims:
            gpu = range(self.num_gpu_blocks)
            self._ages = self.last_used[:], self.prefix[:]
            self._candidates = [b for b in gpu if self.state.status[b] == EVICTABLE and self._is_judged(b)]
        if block in self._candidates:
            self._victims.append(block)

    def _is_judged(self, block: int) -> bool:
        """When it was used is known, and no other block of the GPU is cached under its content."""
        if self.is_vague[block]:
            return False
        state, row = self.state, self.state.content[block]
        return not any(state.cached[b] and state.content[b] == row for b in range(self.num_gpu_blocks) if b != block)

    def used(self, seqs: list[int], now: int) -> None:
        """A step was scheduled for these sequences."""
        state, last_used = self.state, self.last_used
        for seq in seqs:
            self.seq_used[seq] = now
            for block in state.table[seq][state.first[seq] : state.num_blocks[seq]]:
                last_used[block] = now
                self.is_vague[block] = False

    def judge(self, context: str) -> None:
        """The call is over: none that was evicted should have outlived one that was not. Raises Finding."""
        victims, self._victims = self._victims, []
        if not victims:
            return
        left = [b for b in self._candidates if b not in victims and self.state.status[b] == EVICTABLE]
        self.coverage[WITNESS] += bool(left)
        for victim in victims:
            for other in left:
                if self.goes_before(*self._ages, other, victim):
                    raise Finding(
                        "eviction-order",
                        f"{context}: block {victim} was evicted ({self._described(victim)}), and block {other} was not "
                        f"({self._described(other)})",
                    )

    def _described(self, block: int) -> str:
        at, prefix = (ages[block] for ages in self._ages)
        used = "never used" if at == NEVER else f"last used at {at}"
        return f"{used}, prefix of {prefix} blocks"
