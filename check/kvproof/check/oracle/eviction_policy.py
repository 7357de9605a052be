"""Judge the eviction order of a subject that declares its policy.

The rule `evict` leaves the victim open; `kvproof.spec.text.eviction_policy` says which block goes before another, by a
date and by the length of its prefix, which is the number of entries up to its own. The policy says what dates a block.

*By use* (BLOCK_LRU): a step uses the blocks in the tables of its sequences, at the time of the step. Two steps may have
one time: a manager may go by the time or count the steps, so a block is older if it is so either way. A block that is
taken for new content counts as never used. A block that a swap fills was last used when its sequence was. If the block
had that content already, the manager may have evicted and filled it, or shared it. These look alike, so the block is
not judged until it is used again.

*By release* (SEQUENCE_LRU and those that follow): the call in which the last sequence that held a block gave it up.
What two sequences give up in one call is not compared, since either may have gone first; nor what a scheduler releases
in one step. By EMPTY_FIRST_LRU no block is evicted while another one is free during the whole call. By RELEASE_LRU a
look-up dates the blocks that it finds too: the manager holds them for it, and gives them up. It makes room before it
allocates, and may evict blocks that it does not take then. So a block that should have gone first may be gone as well;
it is a finding once that block is found again, and none if a prompt got the block without a hit before: then it may
have been evicted and filled with the same content. Nor need every full block be cached, so a victim is only judged if
it was found before.

Each call is judged as a whole, since it may take its victims in any order: no victim may go before a block that could
have been evicted during the whole call and still can. So which blocks could be evicted is settled once, at the first
eviction of the call. A block is not judged while another block has the same content: its eviction loses nothing, and a
manager may treat it as free. It may do so from then on, whatever becomes of the other block: it may know the content by
the other one only. So a block that had a twin is not judged until it is hit, unless the manager declares that it finds
whatever is cached (`lost_hits` of 0): then it knows the block that is left. Nor is a block that a prompt got again
although it was not hit: the manager may have evicted it for that. With a window of one token no order is judged:
nothing is ever read back, and a manager need not cache anything.
"""

from collections import Counter
from collections.abc import Callable

from kvproof.check.protocol.finding import Finding
from kvproof.spec.text.eviction_policy import BLOCK_LRU, EMPTY_FIRST_LRU, RELEASE_LRU
from kvproof.spec.text.operations import Program
from kvproof.spec.text.state import EVICTABLE, FREE, State

NEVER = -1
WITNESS = "eviction with a choice"


class EvictionOrder:
    """The last use and prefix length of each GPU block, and the victims of the current call."""

    def __init__(
        self,
        policy: str,
        state: State,
        num_gpu_blocks: int,
        goes_before: Callable[..., bool],
        coverage: Counter[str],
        maybe_evicted: set[int],
        finds_all: bool = False,
    ) -> None:
        """finds_all: the manager declares that it finds whatever is cached."""
        self.state, self.num_gpu_blocks, self.maybe_evicted = state, num_gpu_blocks, maybe_evicted
        self.is_by_release, self.counts_lookups = policy != BLOCK_LRU, policy == RELEASE_LRU
        self.takes_empty_first = policy == EMPTY_FIRST_LRU
        self.num_calls = 0
        self.released_by = [NEVER] * len(state.status)  # the sequence that gave the block up last
        self._at_start: set[int] | None = None  # blocks that were evictable when the call began, if that was recorded
        self.goes_before, self.coverage = goes_before, coverage
        self.times: list[int] = []  # of each step
        self.last_used = [NEVER] * len(state.status)  # the number of the step, or of the call
        self.prefix = [0] * len(state.status)
        self.is_vague = [False] * len(state.status)  # its last use is not known
        self.seq_used = [NEVER] * len(state.live)
        self.finds_all = finds_all
        self._had_twin: set[int] = set()  # blocks whose content another one had too, since they were found last
        self._candidates: list[int] | None = None  # at the first eviction of the call,
        self._ages: tuple[list[int], list[int]] = ([], [])  # and when they were used, with how long a prefix
        self._victims: list[int] = []
        self._empty: list[int] = []  # blocks that were free before the call, at its first eviction
        self._known_cached: set[int] = set()  # blocks that were found since they were evicted last
        self._suspicions: dict[int, Finding] = {}  # by a block that should have been evicted, and perhaps was

    def watched(self, program: Program) -> Program:
        """The same program; before each rule, record what it says about the use or the release of blocks."""
        return self._watched_releases(program) if self.is_by_release else self._watched_uses(program)

    def _watched_releases(self, program: Program) -> Program:
        state = self.state
        for name, arguments in program:
            match name:
                case "evict":
                    self._note_victim(arguments[0])
                    self._suspicions.pop(arguments[0], None)
                    self._known_cached.discard(arguments[0])
                case "hit":
                    self._had_twin.discard(arguments[1])
                    if self.counts_lookups:
                        self._is_there(arguments[1])
                case "share":
                    self._suspicions.pop(arguments[1], None)
                case "drop_last":
                    self._note_release(arguments[0], state.num_blocks[arguments[0]] - 1)
                case "slide":
                    self._note_release(arguments[0], state.first[arguments[0]])
                case "append":
                    self._note_release(arguments[0], state.num_full[arguments[0]])
                case "exchange":
                    self._note_release(arguments[0], arguments[1])
                case "move_entry" | "follow_entry" | "rehit_entry":
                    self._note_release(arguments[0], state.moving[arguments[0]])
            yield name, arguments

    def _note_release(self, seq: int, index: int) -> None:
        """The sequence gives up its entry at that index, or writes it."""
        if 0 <= index < self.state.num_blocks[seq]:
            block = self.state.table[seq][index]
            if block < len(self.last_used):
                self.last_used[block], self.prefix[block] = self.num_calls, index + 1
                self.released_by[block] = seq if self._at_start is None else -1 - block

    def looked_up(self, identities: list[int]) -> None:
        """A look-up found blocks, so they are cached; identities: of their last slots, in order. Raises Finding."""
        self.num_calls += 1  # what an earlier look-up found is older
        state, gpu = self.state, range(self.num_gpu_blocks)
        found = {identity: index for index, identity in enumerate(identities, 1)}
        blocks = [b for b in gpu if state.cached[b] and state.content[b][-1] in found]
        num_alike = Counter(state.content[b][-1] for b in blocks)
        for block in blocks:
            identity = state.content[block][-1]
            if state.status[block] == EVICTABLE:
                self.last_used[block], self.prefix[block] = self.num_calls, found[identity]
                self.released_by[block] = NEVER  # of blocks that one look-up found, the longest prefix goes first
            if num_alike[identity] == 1:
                self._is_there(block)

    def _is_there(self, block: int) -> None:
        """The block is cached for certain, so it was not evicted when it should have been. Raises Finding."""
        self._known_cached.add(block)
        self._had_twin.discard(block)
        if (finding := self._suspicions.pop(block, None)) is not None:
            raise finding

    def call_begins(self) -> None:
        """Record what is evictable now: in a call that releases and takes in any order, only that is judged."""
        status = self.state.status
        self._at_start = {b for b in range(self.num_gpu_blocks) if status[b] == EVICTABLE}

    def _watched_uses(self, program: Program) -> Program:
        state = self.state
        for name, arguments in program:
            if name == "evict":
                self._note_victim(arguments[0])
            elif name == "hit":
                self._had_twin.discard(arguments[1])
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
        """A block that a swap fills was last used when its sequence was. What moves is in a second block now."""
        state = self.state
        content, cached = state.content, state.cached
        moved = content[state.table[seq][prefix - 1]][-1]
        self._had_twin.update(b for b in range(self.num_gpu_blocks) if cached[b] and content[b][-1] == moved)
        if 0 <= target < len(self.last_used):
            self.last_used[target], self.prefix[target] = self.seq_used[seq], prefix
            self.is_vague[target] = False

    def _note_victim(self, block: int) -> None:
        if not 0 <= block < self.num_gpu_blocks or self.state.status[block] != EVICTABLE:
            return
        if self._candidates is None:
            gpu = range(self.num_gpu_blocks)
            self._ages = self.last_used[:], self.prefix[:]
            self._note_twins()
            self._candidates = [b for b in gpu if self.state.status[b] == EVICTABLE and self._is_judged(b)]
            if self.takes_empty_first:
                self._empty = [b for b in gpu if self.state.status[b] == FREE and self.last_used[b] < self.num_calls]
        if (
            block in self._candidates
            and block not in self._had_twin
            and (not self.counts_lookups or block in self._known_cached)
        ):
            self._victims.append(block)
        self._had_twin.discard(block)

    def _is_judged(self, block: int) -> bool:
        """Whether its last use is known, and no other block of the GPU was cached under its content."""
        if self.is_vague[block] or block in self.maybe_evicted or block in self._had_twin:
            return False
        return self._at_start is None or block in self._at_start

    def used(self, seqs: list[int], now: int) -> None:
        """Record that a step at time `now` uses the blocks of these sequences."""
        if self.is_by_release:
            return
        state, last_used, step = self.state, self.last_used, len(self.times)
        self.times.append(now)
        for seq in seqs:
            self.seq_used[seq] = step
            for block in state.table[seq][state.first[seq] : state.num_blocks[seq]]:
                last_used[block] = step
                self.is_vague[block] = False

    def perhaps_used(self, seqs: list[int]) -> None:
        """Record that these sequences are over before their step: whether it used their blocks is not said."""
        state = self.state
        for seq in seqs:
            for block in state.table[seq][state.first[seq] : state.num_blocks[seq]]:
                self.is_vague[block] = True

    def judge(self, context: str) -> None:
        """The call is over: no victim may have been used later than a block that was kept. Raises Finding."""
        victims, candidates = self._victims, self._candidates or ()
        self._victims, self._candidates, self._at_start = [], None, None
        self.num_calls += 1
        if not self.finds_all:
            self._note_twins()
        if not victims:
            return
        had_twin, status = self._had_twin, self.state.status
        left = [b for b in candidates if b not in victims and b not in had_twin and status[b] == EVICTABLE]
        self.coverage[WITNESS] += bool(left)
        self._judge_empty(victims, context)
        for victim in victims:
            for other in left:
                if self._goes_before(other, victim):
                    finding = Finding(
                        "eviction-order",
                        f"block {victim} was evicted ($victim), and block {other} was not ($other)",
                        call=context,
                        expected=other,
                        observed=victim,
                        blocks=(victim, other),
                        values={"victim": self._described(victim), "other": self._described(other)},
                    )
                    if not self.counts_lookups:
                        raise finding
                    self._suspicions.setdefault(other, finding)

    def _note_twins(self) -> None:
        """Remember the blocks whose content another block has too: the manager may treat them as free."""
        content, cached = self.state.content, self.state.cached
        blocks = [b for b in range(self.num_gpu_blocks) if cached[b]]
        num_alike = Counter([content[b][-1] for b in blocks])
        self._had_twin.intersection_update(() if self.finds_all else blocks)
        if len(num_alike) < len(blocks):
            self._had_twin.update(b for b in blocks if num_alike[content[b][-1]] > 1)

    def _judge_empty(self, victims: list[int], context: str) -> None:
        """No victim was taken while a block without content was free all the time; a reset takes none."""
        status, self._empty, empty = self.state.status, [], self._empty
        taken = [b for b in victims if status[b] != FREE]
        unused = [b for b in empty if status[b] == FREE]
        if taken and unused:
            raise Finding(
                "eviction-order",
                f"block {taken[0]} was evicted ($victim), and block {unused[0]} without content was free",
                call=context,
                expected=unused[0],
                observed=taken[0],
                blocks=(taken[0], unused[0]),
                values={"victim": self._described(taken[0])},
            )

    def _goes_before(self, one: int, other: int) -> bool:
        """Whether the policy says that the one goes before the other, and it is known how both are dated."""
        dates, prefix = self._ages
        if not self.goes_before(dates, prefix, one, other):
            return False
        if self.is_by_release:  # what two sequences release in one call is not compared
            return dates[one] != dates[other] or self.released_by[one] == self.released_by[other]
        return self.goes_before([self._time_of(date) for date in dates], prefix, one, other)

    def _time_of(self, step: int) -> int:
        return self.times[step] if step != NEVER else NEVER

    def _described(self, block: int) -> str:
        at, prefix = (ages[block] for ages in self._ages)
        what = "released" if self.is_by_release else "used"
        if at == NEVER:
            return f"never {what}, prefix of {prefix} blocks"
        ago = self.num_calls - at  # the call that is judged is counted already
        when = "in this call" if ago == 1 else "1 call before" if ago == 2 else f"{ago - 1} calls before"
        return f"last {what} {when if self.is_by_release else f'at {self._time_of(at)}'}, prefix of {prefix} blocks"
